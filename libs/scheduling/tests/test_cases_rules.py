"""Rules of scheduling that no case is about, one by one: `docs/rules.md` names them by their numbers."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from sawhorse_model import aws
from sawhorse_model.cluster import Namespace
from sawhorse_model.labels import HOSTNAME, WELL_KNOWN, ZONE, likely_meant
from sawhorse_model.manifests.cluster import parse_storage_class, parse_volume
from sawhorse_model.manifests.pods import parse_pod
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import HostPort, Pod, PodAffinityTerm
from sawhorse_model.selectors import LabelSelector
from sawhorse_model.taints import Taint, Toleration
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import PodGroup, Snapshot, SolveOptions
from sawhorse_scheduling.solve import solve
from sawhorse_testing.builders import (
    ZONES,
    a_claim,
    a_daemonset,
    a_group,
    a_node,
    a_pod,
    a_pool,
    a_selector,
    a_spread,
    a_term,
    a_type,
    a_volume,
    a_wish,
    an_expression,
    bound,
    keep_apart,
    keep_near,
    volumes_of,
)
from sawhorse_testing.catalog import common_fixture
from sawhorse_testing.checker import check_plan
from sawhorse_testing.plans import checked_plan

A, B, C = ZONES
SMALL = a_type("m6i.large", "2", "8Gi", price=0.096)
LARGE = a_type("m6i.xlarge", "4", "16Gi", price=0.192)
BIG = a_type("m6i.4xlarge", "16", "64Gi", price=0.768)
OPTIONS = SolveOptions(well_known=WELL_KNOWN | aws.WELL_KNOWN)


plan_of = partial(checked_plan, options=OPTIONS)


def per_zone(plan: Plan) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for node in plan.new_nodes:
        counts[node.zone] += len(node.pods)
    return dict(counts)


def told(plan: Plan) -> str:
    return "\n".join(f"{r.code}: {r.message}" for entry in plan.unschedulable for r in entry.reasons)


# 3


WAITING: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "c"}]},
    "status": {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    },
}


def owned_by(version: str, kind: str) -> dict[str, Any]:
    owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    return {"metadata": {**WAITING["metadata"], "ownerReferences": [owner]}}


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        ({}, True),
        ({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "Unschedulable"}]}}, True),
        ({"status": {"phase": "Pending", "conditions": []}}, False),
        (
            {"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}},
            False,
        ),
        ({"status": {"phase": "Pending", "conditions": [{"type": "Ready", "reason": "Unschedulable"}]}}, False),
        ({"spec": {**WAITING["spec"], "nodeName": "n"}}, False),
        ({"status": {**WAITING["status"], "nominatedNodeName": "n"}}, False),
        ({"spec": {**WAITING["spec"], "schedulerName": "other", "priority": 5}}, True),
        (owned_by("apps/v1", "DaemonSet"), False),
        (owned_by("v1", "Node"), False),
        (owned_by("apps/v1", "ReplicaSet"), True),
        (owned_by("example.com/v1", "DaemonSet"), True),
    ],
)
def test_a_pod_is_planned_while_it_waits_unbound_and_nobody_else_sees_to_it(
    change: dict[str, Any], waits: bool
) -> None:
    assert parse_pod({**WAITING, **change}).is_provisionable is waits


# 6


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("node.kubernetes.io/instance-family", "karpenter.k8s.aws/instance-family"),
        ("zone", ZONE),
        ("example.com/arch", "kubernetes.io/arch"),
        ("rack", ""),
    ],
)
def test_an_unknown_label_of_a_pod_is_told_with_what_was_probably_meant(written: str, meant: str) -> None:
    plan = plan_of(pods=[a_group(node_selector={written: "x"})], pools=[a_pool([SMALL])])

    assert likely_meant(written, OPTIONS.well_known) == meant
    assert f"RequirementsConflict: label {written} has no known values" in told(plan)
    assert ("did you mean" in told(plan)) is bool(meant)
    assert f"did you mean {meant}?" in told(plan) or not meant


def test_the_well_known_labels_are_those_of_karpenter_and_no_others() -> None:
    described = """instance-cpu instance-cpu-manufacturer instance-cpu-sustained-clock-speed-mhz instance-memory
        instance-ebs-bandwidth instance-network-bandwidth instance-category instance-generation instance-family
        instance-size instance-capability-flex instance-local-nvme instance-hypervisor
        instance-encryption-in-transit-supported nitro-sandbox instance-gpu-name instance-gpu-manufacturer
        instance-gpu-count instance-gpu-memory instance-accelerator-name instance-accelerator-manufacturer
        instance-accelerator-count instance-tenancy capacity-reservation-id capacity-reservation-type
        capacity-reservation-interruptible placement-group-id placement-group-partition""".split()

    assert frozenset(
        {
            "karpenter.sh/nodepool",
            "karpenter.sh/capacity-type",
            "topology.kubernetes.io/zone",
            "topology.kubernetes.io/region",
            "topology.k8s.aws/zone-id",
            "node.kubernetes.io/instance-type",
            "node.kubernetes.io/windows-build",
            "kubernetes.io/arch",
            "kubernetes.io/os",
            *(f"karpenter.k8s.aws/{name}" for name in described),
        }
    ) == (WELL_KNOWN | aws.WELL_KNOWN)


# 7


def test_startup_taints_of_a_pool_keep_no_pod_off_its_new_nodes() -> None:
    pool = a_pool([SMALL])
    template = replace(pool.nodepool.template, startup_taints=(Taint("cni/agent-not-ready", "NoExecute"),))

    plan = plan_of(pods=[a_group()], pools=[replace(pool, nodepool=replace(pool.nodepool, template=template))])

    assert len(plan.new_nodes) == 1


@pytest.mark.parametrize(("operator", "value", "placed"), [("Gt", "5", True), ("Gt", "15", False), ("Lt", "15", True)])
def test_a_numeric_toleration_opens_a_tainted_pool(operator: str, value: str, placed: bool) -> None:
    taints = (Taint("example.com/tier", "NoSchedule", "10"),)
    toleration = Toleration("example.com/tier", operator, value, "NoSchedule")

    plan = plan_of(pods=[a_group(tolerations=(toleration,))], pools=[a_pool([SMALL], taints=taints)])

    assert bool(plan.new_nodes) is placed


# 8


def test_host_ports_of_init_containers_are_not_read() -> None:
    raw = {
        "metadata": {"name": "p"},
        "spec": {
            "initContainers": [{"name": "i", "ports": [{"containerPort": 1, "hostPort": 1000}]}],
            "containers": [{"name": "c", "ports": [{"containerPort": 2, "hostPort": 2000}]}],
        },
    }

    assert parse_pod(raw).spec.host_ports == (HostPort(2000, "TCP"),)


@pytest.mark.parametrize(("first", "second"), [("0.0.0.0", "10.0.0.1"), ("::", "10.0.0.1"), ("", "10.0.0.1")])
def test_an_unspecified_address_clashes_with_every_address(first: str, second: str) -> None:
    pods = [a_group(name, host_ports=(HostPort(9000, "TCP", ip),)) for name, ip in (("a", first), ("b", second))]

    assert len(plan_of(pods=pods, pools=[a_pool([BIG])]).new_nodes) == 2


# 9


def test_a_daemon_with_resource_claims_is_left_out_as_all_such_pods_are() -> None:
    plan = plan_of(
        pods=[a_group(cpu="1500m")],
        daemons=[a_daemonset("dra", cpu="1", resource_claims=True)],
        pools=[a_pool([SMALL, LARGE])],
    )

    assert [n.instance_type for n in plan.new_nodes] == ["m6i.large"]
    assert plan.new_nodes[0].daemon_requests.get("cpu", 0) == 0


@pytest.mark.parametrize(
    ("spec", "taints", "taken"),
    [
        ({"preferred_terms": (a_wish(9, an_expression("rack", "In", "x")),)}, (), 1000),
        ({"affinity": (keep_near(app="nobody"),)}, (), 1000),
        ({}, (Taint("a", "PreferNoSchedule"),), 1000),
        ({}, (Taint("a", "NoSchedule"),), 0),
        ({"required_terms": (a_term(an_expression("rack", "In", "x")),)}, (), 0),
    ],
)
def test_only_hard_rules_about_nodes_and_taints_keep_a_daemon_off(
    spec: dict[str, Any], taints: tuple[Taint, ...], taken: int
) -> None:
    tolerant = (Toleration(operator="Exists"),)

    plan = plan_of(
        pods=[a_group(tolerations=tolerant)],
        daemons=[a_daemonset(cpu="1", **spec)],
        pools=[a_pool([LARGE], taints=taints)],
    )

    assert plan.new_nodes[0].daemon_requests.get("cpu", 0) == taken


# 12


def at(zone: str, node: str, *pods: Pod) -> Any:
    return a_node(node, "1", zone=zone, pods=[bound(pod, node) for pod in pods])


def test_pods_that_have_ended_or_are_ending_do_not_count_for_a_spread() -> None:
    going = replace(a_pod("going", labels={"app": "web"}), meta=ObjectMeta("going", "default", labels={"app": "web"}))
    going = replace(going, meta=replace(going.meta, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)))
    ended = replace(a_pod("ended", labels={"app": "web"}))
    node = at(A, "n1", going)
    node = replace(node, pods=(*node.pods, replace(bound(ended, "n1"), phase="Succeeded")))

    plan = plan_of(pods=[a_group(count=3, cpu="2", spread=(a_spread(),))], nodes=[node], pools=[a_pool([SMALL])])

    assert per_zone(plan) == {A: 1, B: 1, C: 1}


def test_a_selector_that_is_not_there_selects_no_pod_in_a_spread() -> None:
    nothing = replace(a_spread(), selector=None)
    crowd = [a_pod(f"old-{n}", labels={"app": "web"}) for n in range(5)]

    plan = plan_of(
        pods=[a_group(count=2, cpu="2", spread=(nothing,))], nodes=[at(A, "n1", *crowd)], pools=[a_pool([SMALL])]
    )

    assert plan.unschedulable == ()
    assert sum(per_zone(plan).values()) == 2


def test_pods_that_differ_in_min_domains_only_are_each_held_to_their_own() -> None:
    two_zones = an_expression(ZONE, "In", A, B)
    strict = a_group("strict", 3, labels={"app": "web"}, spread=(a_spread(min_domains=3),))
    loose = a_group("loose", 3, labels={"app": "web"}, spread=(a_spread(),))
    pool = a_pool([BIG], requirements=[two_zones])

    alone = plan_of(pods=[strict], pools=[pool])
    both = plan_of(pods=[strict, loose], pools=[pool])

    assert sum(per_zone(alone).values()) == 2  # one in each zone: the third zone counts as empty
    placed = Counter(pod.split("/")[1].split("-")[0] for node in both.new_nodes for pod in node.pods)
    assert placed["loose"] == 3


def test_pods_that_differ_in_their_values_of_one_selector_key_are_counted_by_their_own_zones() -> None:
    first = a_group("a", 2, labels={"app": "web"}, node_selector={ZONE: A}, spread=(a_spread(max_skew=1),))
    second = a_group("b", 2, labels={"app": "web"}, node_selector={ZONE: B}, spread=(a_spread(max_skew=1),))

    plan = plan_of(pods=[first, second], pools=[a_pool([BIG])])

    assert plan.unschedulable == ()
    assert per_zone(plan) == {A: 2, B: 2}


@pytest.mark.parametrize(
    ("namespaces", "selector", "apart"),
    [
        ((), None, False),
        (("other",), None, True),
        ((), LabelSelector(), True),
        ((), a_selector(team="x"), True),
        ((), a_selector(team="y"), False),
        (("other",), a_selector(team="y"), True),
    ],
)
def test_an_anti_affinity_term_looks_into_its_own_listed_and_selected_namespaces(
    namespaces: tuple[str, ...], selector: LabelSelector | None, apart: bool
) -> None:
    term = PodAffinityTerm(HOSTNAME, a_selector(app="db"), namespaces, selector)
    there = a_pod("db", labels={"app": "db"}, namespace="other")
    room = a_node("n1", "4", pods=[bound(there, "n1")])

    plan = plan_of(
        pods=[a_group(anti_affinity=(term,))],
        nodes=[room],
        pools=[a_pool([SMALL])],
        namespaces=[Namespace(ObjectMeta("other", labels={"team": "x"})), Namespace(ObjectMeta("default"))],
    )

    assert bool(plan.new_nodes) is apart


def test_wishes_to_be_apart_of_running_pods_keep_nobody_off() -> None:
    wishing = a_pod("old", labels={"app": "old"}, anti_affinity=(keep_apart(app="web", weight=100),))

    plan = plan_of(pods=[a_group()], nodes=[at(A, "n1", wishing)], pools=[a_pool([SMALL])])

    assert [n.name for n in plan.existing_nodes] == ["n1"]


# 13


def test_a_request_of_a_million_cores_is_told_as_a_likely_mix_up() -> None:
    plan = plan_of(pods=[a_group(cpu="1M")], pools=[a_pool([BIG])])

    assert "mix-up of m and M" in told(plan)
    assert "mix-up" not in told(plan_of(pods=[a_group(cpu="999")], pools=[a_pool([BIG])]))


# 15


@pytest.mark.parametrize(("limit", "usage", "made"), [(0, 0, 0), (3, 3, 0), (3, 4, 0), (3, 2, 1)])
def test_a_pool_at_its_limit_of_nodes_makes_none(limit: int, usage: int, made: int) -> None:
    pool = a_pool([SMALL], limits={"nodes": limit}, usage={"nodes": usage})

    plan = plan_of(pods=[a_group()], pools=[pool])

    assert len(plan.new_nodes) == made
    assert made or "LimitReached: nodes" in told(plan)


def test_any_limited_resource_rules_a_type_out() -> None:
    # The large one passes the limit of cpu and breaks that of memory.
    pool = a_pool([SMALL, LARGE], limits={"cpu": 100_000, "memory": 8 * 2**30})

    plan = plan_of(pods=[PodGroup(a_pod("p", cpu="1"), ("default/p",))], pools=[pool])

    assert [n.instance_types for n in plan.new_nodes] == [("m6i.large",)]


# 3.2


@pytest.mark.parametrize(
    "expression",
    [
        an_expression("karpenter.sh/secret", "In", "x"),
        an_expression("sub.karpenter.k8s.aws/secret", "Exists"),
        an_expression("karpenter.sh/capacity-type", "In", "Spot"),
        an_expression("karpenter.k8s.aws/instance-tenancy", "In", "host"),
        an_expression("karpenter.k8s.aws/instance-cpu", "Lt", "1", "2"),
        an_expression(HOSTNAME, "In", "elsewhere"),
        an_expression("team", "In"),
    ],
)
def test_a_pod_that_asks_for_what_no_node_can_have_is_told_and_holds_up_no_other(expression: Any) -> None:
    odd = a_group("odd", required_terms=(a_term(expression),))

    plan = plan_of(pods=[odd, a_group("fine")], pools=[a_pool(common_fixture())])

    assert [pods for entry in plan.unschedulable for pods in entry.pods] == ["default/odd-0"]
    assert {r.code for r in plan.unschedulable[0].reasons} <= {
        "RequirementsConflict",
        "InvalidRequirement",
        "NoOffering",
    }
    assert sum(len(n.pods) for n in plan.new_nodes) == 1


# 8.4


def test_a_claim_that_two_pods_of_a_node_share_counts_once_and_drivers_count_apart() -> None:
    shared = [bound(a_pod(f"r{n}", claims=("one",)), "n") for n in range(2)]
    things = [
        a_claim("one", volume="v1"),
        a_volume("v1"),
        a_claim("two", volume="v2"),
        a_volume("v2"),
        a_claim("three", volume="v3"),
        a_volume("v3", driver="other.example.com"),
    ]
    limits = {"n": {aws.EBS_DRIVER: 2, "other.example.com": 1}}
    pods = [a_group(name, claims=(name,)) for name in ("two", "three")]
    snapshot = Snapshot(
        options=OPTIONS,
        pods=tuple(pods),
        nodes=(a_node("n", pods=shared),),
        volumes=volumes_of(*things, limits=limits),
    )

    plan = solve(snapshot)

    assert check_plan(snapshot, plan) == []
    assert [len(n.pods) for n in plan.existing_nodes] == [2]


@pytest.mark.parametrize(
    ("spec", "driver"),
    [
        ({"csi": {"driver": "ebs.csi.aws.com"}}, "ebs.csi.aws.com"),
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "ebs.csi.aws.com"),
        ({"nfs": {"server": "x", "path": "/"}}, ""),
    ],
)
def test_a_volumes_driver_is_its_csi_driver_also_where_it_was_made_before_csi(
    spec: dict[str, Any], driver: str
) -> None:
    assert parse_volume({"metadata": {"name": "pv"}, "spec": spec}).driver == driver


def test_a_class_of_the_provisioner_before_csi_means_the_csi_driver() -> None:
    raw = {"metadata": {"name": "gp2"}, "provisioner": "kubernetes.io/aws-ebs"}

    assert parse_storage_class(raw).provisioner == "ebs.csi.aws.com"
