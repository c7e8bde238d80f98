"""What a plan sees of the cluster: nodes by their age, DaemonSets as they run, pools that may open nodes."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sawhorse_kube.kinds import DAEMONSET, NODE, NODECLAIM, NODEPOOL, POD
from sawhorse_model.labels import (
    HOSTNAME,
    INITIALIZED,
    INSTANCE_TYPE,
    REGISTERED,
    UNREGISTERED_TAINT,
    ZONE,
)
from sawhorse_model.labels import NODEPOOL as NODEPOOL_LABEL
from sawhorse_provisioner.pending import effective_zone
from sawhorse_scheduling.snapshot import ExistingNode, Snapshot
from sawhorse_testing.builders import a_claim as claim_of
from sawhorse_testing.builders import a_group, a_term, a_volume, an_expression, volumes_of

ID = "fake:///a/i-1"
OWN = {"key": "team", "value": "a", "effect": "NoSchedule"}
STARTUP = {"key": "cni/agent-not-ready", "effect": "NoExecute"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
READINESS = {"key": "readiness.k8s.io/gpu", "effect": "NoSchedule"}
UNREGISTERED = {"key": UNREGISTERED_TAINT, "effect": "NoExecute"}


async def snapshot_of(world: Any) -> Snapshot:
    """What the next plan would be made from."""
    async with world.leading(act=False) as replica:
        await world.until(lambda: replica.mirror.synced)
        frozen, _ = await replica.planner.freeze()
        found: Snapshot = frozen.snapshot
        return found


def a_claim(world: Any, *, provider_id: str = ID, **meta: Any) -> None:
    """A launched claim of the pool `default` for two cpus."""
    labels = {NODEPOOL_LABEL: "default", INSTANCE_TYPE: "m5.large", ZONE: "us-west-2a", "of": "claim"}
    reference = {"group": "fake.example", "kind": "FakeNodeClass", "name": "default"}
    world.kube.put(
        NODECLAIM,
        {
            "metadata": {"name": "claim", "labels": labels, **meta},
            "spec": {
                "nodeClassRef": reference,
                "requirements": [{"key": INSTANCE_TYPE, "operator": "In", "values": ["m5.large"]}],
                "taints": [OWN],
                "startupTaints": [STARTUP],
            },
            "status": {
                "providerID": provider_id,
                "capacity": {"cpu": "2", "memory": "8Gi", "example.com/card": "1"},
                "allocatable": {"cpu": "1900m", "memory": "7Gi", "example.com/card": "1"},
            },
        },
    )


def a_node(
    world: Any,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    provider_id: str = ID,
    allocatable: Mapping[str, str] | None = None,
    **meta: Any,
) -> None:
    world.kube.put(
        NODE,
        {
            "metadata": {"name": "node", "labels": {"of": "node", HOSTNAME: "node", **(labels or {})}, **meta},
            "spec": {"providerID": provider_id, "taints": list(taints)},
            "status": {
                "capacity": {"cpu": "2", "memory": "0"},
                "allocatable": dict(allocatable or {"cpu": "1800m", "memory": "0"}),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
    )


def keys(node: ExistingNode) -> set[str]:
    return {taint.key for taint in node.taints}


REGISTERED_LABELS = {REGISTERED: "true", NODEPOOL_LABEL: "default"}
COMPLETE = {**REGISTERED_LABELS, INITIALIZED: "true"}
ALL_TAINTS = [OWN, STARTUP, NOT_READY, READINESS, UNREGISTERED]


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("labels", "of", "taints", "cpu", "cards"),
    [
        # Not registered: as the claim says, less what will go away.
        ({}, "claim", {"team"}, 1800, 1),
        # Registered: as the node says, less what will go away; what it does not report yet is estimated.
        (REGISTERED_LABELS, "node", {"team"}, 1800, 1),
        # Complete: as the node says. Taints of the start that come back count.
        (COMPLETE, "node", {t["key"] for t in ALL_TAINTS}, 1800, 0),
    ],
)
async def test_a_node_is_seen_through_its_claim_until_it_is_complete(
    world: Any, looptime: Any, labels: Mapping[str, str], of: str, taints: set[str], cpu: int, cards: int
) -> None:
    world.node_class(ready=True)
    world.pool(ready=True)
    a_claim(world)
    a_node(world, labels=labels, taints=ALL_TAINTS)

    (node,) = (await snapshot_of(world)).nodes

    assert (node.name, node.labels["of"], node.labels[HOSTNAME]) == ("node", of, "node")
    assert keys(node) == taints
    assert node.allocatable["cpu"] == cpu
    assert node.allocatable.get("example.com/card", 0) == cards
    assert (node.allocatable["memory"] > 0) is bool(cards)
    assert node.initialized is bool(labels.get(INITIALIZED))


@pytest.mark.looptime
async def test_a_node_that_nobody_made_for_us_counts_with_its_taints(world: Any, looptime: Any) -> None:
    world.node_class(ready=True)
    world.pool(ready=True)
    a_node(world, taints=[NOT_READY], provider_id="", allocatable={"cpu": "3", "memory": "4Gi", "pods": "10"})
    world.pod("old", cpu="1", node="node")

    (node,) = (await snapshot_of(world)).nodes

    assert (node.claim, node.nodepool, node.initialized) == ("", "", True)
    assert keys(node) == {"node.kubernetes.io/not-ready"}
    assert [p.meta.name for p in node.pods] == ["old"]


@pytest.mark.looptime
@pytest.mark.parametrize("which", ["node", "claim"])
async def test_what_is_being_deleted_offers_nothing_and_its_pods_want_a_place(
    world: Any, looptime: Any, which: str
) -> None:
    world.node_class(ready=True)
    world.pool(ready=True)
    going = {"deletionTimestamp": "2026-11-29T10:00:00Z", "finalizers": ["x"]}
    a_claim(world, **(going if which == "claim" else {}))
    a_node(world, labels=COMPLETE, **(going if which == "node" else {}))
    world.pod("moves-1", node="node")
    world.pod("stays-1", node="node", annotations={"karpenter.sh/do-not-disrupt": "true"})

    snapshot = await snapshot_of(world)

    assert snapshot.nodes == ()
    assert [name for group in snapshot.pods for name in group.names] == ["default/moves-1"]
    # The machine of a node that is being deleted counts against limits until its claim goes too, which is soon.
    assert [pool.usage.get("nodes", 0) for pool in snapshot.pools] == [int(which == "node")]


def a_daemonset(world: Any, cpu: str) -> None:
    spec = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "of", "operator": "Exists"}]}]
                }
            }
        },
    }
    world.kube.put(
        DAEMONSET,
        {
            "metadata": {"name": "agent", "namespace": "default", "uid": "uid-agent"},
            "spec": {"template": {"spec": spec}},
        },
    )


def a_daemon_pod(world: Any, name: str, cpu: str, created: str, **meta: Any) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent", "controller": True}
    tied = {"key": "metadata.name", "operator": "In", "values": ["node"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [tied]}]}
    world.kube.put(
        POD,
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "ownerReferences": [owner],
                "creationTimestamp": created,
                **meta,
            },
            "spec": {
                "nodeName": "node",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            },
            "status": {"phase": "Running"},
        },
    )


@pytest.mark.looptime
async def test_a_daemonset_counts_as_its_newest_pod_runs_with_the_affinity_of_its_template(
    world: Any, looptime: Any
) -> None:
    world.node_class(ready=True)
    a_daemonset(world, "100m")
    a_daemon_pod(world, "agent-new", "300m", "2026-11-29T09:00:00Z")
    a_daemon_pod(world, "agent-old", "200m", "2026-11-29T08:00:00Z")
    a_daemon_pod(
        world, "agent-going", "900m", "2026-11-29T09:30:00Z", deletionTimestamp="2026-11-29T10:00:00Z", finalizers=["x"]
    )

    (daemon,) = (await snapshot_of(world)).daemons

    assert daemon.template.spec.requests["cpu"] == 300
    ((expression,),) = [term.expressions for term in daemon.template.spec.required_terms]
    assert (expression.key, str(expression.operator)) == ("of", "Exists")
    assert [term.match_fields for term in daemon.template.spec.required_terms] == [()]


@pytest.mark.looptime
async def test_a_daemonset_without_a_pod_counts_as_its_template_says(world: Any, looptime: Any) -> None:
    world.node_class(ready=True)
    a_daemonset(world, "100m")

    (daemon,) = (await snapshot_of(world)).daemons

    assert daemon.template.spec.requests["cpu"] == 100


@pytest.mark.looptime
async def test_static_unready_and_deleting_pools_and_pools_without_types_open_no_nodes(
    world: Any, looptime: Any
) -> None:
    world.node_class(ready=True)
    for name in ("good", "static", "going", "lost"):
        world.pool(name, ready=True, node_class="nowhere" if name == "lost" else "default")
    world.pool("unready")
    for name, change in (("static", {"replicas": 2}), ("going", {})):
        raw = dict(world.kube.raw(NODEPOOL, name))
        if name == "going":
            raw["metadata"] = {**raw["metadata"], "deletionTimestamp": "2026-11-29T10:00:00Z", "finalizers": ["x"]}
        world.kube.put(NODEPOOL, {**raw, "spec": {**raw["spec"], **change}})

    snapshot = await snapshot_of(world)

    assert [pool.nodepool.meta.name for pool in snapshot.pools] == ["good"]


@pytest.mark.looptime
async def test_a_pool_that_changes_while_the_plan_is_made_gets_no_claim_of_that_plan(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading(act=False) as replica:
        await world.until(lambda: replica.mirror.synced)
        solve = replica.planner.solve

        async def slow(frozen: Any) -> Any:
            plan = await solve(frozen)
            if not world.kube.raw(NODEPOOL, "default")["spec"]["limits"]:
                assert len(plan.new_nodes) == 1
                await world.kube.patch(NODEPOOL, "default", {"spec": {"limits": {"cpu": "0"}}})
                await asyncio.sleep(0.5)
            return plan

        replica.planner.solve = slow
        async with asyncio.TaskGroup() as group:
            term = group.create_task(replica.term.run(replica.stop), name="term")
            await world.until(lambda: bool(world.events("FailedScheduling")))
            term.cancel()

    assert world.claims() == []
    assert world.cloud.launches() == []
    assert "LimitReached" in world.events("FailedScheduling")[0]


@pytest.mark.parametrize(
    ("spec", "zone"),
    [
        ({}, "flexible"),
        ({"node_selector": {ZONE: "us-west-2a"}}, "us-west-2a"),
        ({"required_terms": (a_term(an_expression(ZONE, "In", "us-west-2a", "us-west-2b")),)}, "flexible"),
        ({"required_terms": (a_term(an_expression(ZONE, "NotIn", "us-west-2a")),)}, "flexible"),
        ({"node_selector": {ZONE: "a"}, "required_terms": (a_term(an_expression(ZONE, "In", "b")),)}, "none"),
        ({"claims": ("data",)}, "us-west-2b"),
        ({"claims": ("data",), "node_selector": {ZONE: "us-west-2a"}}, "none"),
        ({"claims": ("missing",)}, "none"),
    ],
)
def test_a_pods_effective_zone_is_what_its_rules_and_volumes_leave(spec: dict[str, Any], zone: str) -> None:
    volumes = volumes_of(claim_of("data", volume="pv"), a_volume("pv", zone="us-west-2b"))

    assert effective_zone(a_group(**spec), volumes) == zone


@pytest.mark.looptime
async def test_pending_and_ignored_pods_are_counted_as_karpenter_counts_them(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    match_fields = {"key": "metadata.name", "operator": "In", "values": ["x"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [match_fields]}]}
    world.pod("odd-1", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    world.pod("tied-1", selector={ZONE: "us-west-2f"})
    world.pod("giant-1", cpu="500")

    async with world.leading() as replica:
        await world.until(lambda: len(world.events("FailedScheduling")) == 3)
        zones = {
            zone: replica.count(
                "karpenter_scheduler_pending_pods_by_effective_zone_count", controller="provisioner", zone=zone
            )
            for zone in ("us-west-2f", "flexible", "none")
        }
        ignored = replica.count("karpenter_scheduler_ignored_pods_count")
        unschedulable = replica.count("karpenter_scheduler_unschedulable_pods_count", controller="provisioner")

    assert zones == {"us-west-2f": 1, "flexible": 1, "none": 1}
    assert (ignored, unschedulable) == (1, 3)
