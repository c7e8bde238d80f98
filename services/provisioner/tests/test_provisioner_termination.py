"""The end of nodes and claims, interruptions, and garbage: bounded, level by level, and nothing is leaked."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_cloud.cloud import Instance, InstanceState
from sawhorse_kube.kinds import NODE, NODECLAIM, VOLUMEATTACHMENT
from sawhorse_model.labels import (
    DISRUPTED_TAINT,
    DRAIN_OWNER,
    EXCLUDE_BALANCERS,
    INTERRUPTED_AT,
    LAUNCH_TOKEN,
    REPLACEMENT_READY,
    TERMINATION_FINALIZER,
    TERMINATION_TIMESTAMP,
)
from sawhorse_model.manifests import format_time, parse_time
from sawhorse_provisioner.collector import Holdings, leaked_instances, lost_claims

pytestmark = pytest.mark.looptime


async def one_node(world: Any, *, pods: int = 1, cpu: str = "200m") -> Any:
    """Run until one node is complete and its pods are bound to it; returns its claim."""
    world.node_class()
    world.pool()
    for number in range(pods):
        world.pod(f"web-{number}", cpu=cpu)
    await world.until(lambda: any(c.is_initialized for c in world.claims()))
    for number in range(pods):
        world.bind(f"web-{number}", world.node().meta.name)
    return world.claim()


async def interrupt(world: Any, claim: Any, *, seconds: float = 110.0) -> None:
    """What the interruption service does to a claim."""
    now = world.clock.now()
    annotations = {
        INTERRUPTED_AT: format_time(now),
        DRAIN_OWNER: "interruption",
        TERMINATION_TIMESTAMP: format_time(now + timedelta(seconds=seconds)),
    }
    await world.kube.patch(NODECLAIM, claim.meta.name, {"metadata": {"annotations": annotations}})
    await world.kube.delete(NODECLAIM, claim.meta.name)


async def test_a_going_node_is_tainted_and_taken_from_balancers_before_its_pods_go(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world)
        world.kube.block_evictions(lambda pod: True)
        await world.kube.delete(NODECLAIM, claim.meta.name)
        await world.until(lambda: bool(world.kube.called("evict")))
        raw = world.kube.raw(NODE, claim.node_name)

    assert {"key": DISRUPTED_TAINT, "effect": "NoSchedule"} in raw["spec"]["taints"]
    assert EXCLUDE_BALANCERS in raw["metadata"]["labels"]
    assert world.condition(claim, "Drained").reason == "Draining"


async def test_the_deadline_follows_from_the_grace_period_and_an_earlier_one_stays(world: Any, looptime: Any) -> None:
    world.node_class(ready=True)
    now = world.clock.now()
    for name, annotations in (("plain", {}), ("sooner", {TERMINATION_TIMESTAMP: format_time(now)})):
        raw = claim_raw(name, terminationGracePeriod="1h")
        raw["metadata"]["annotations"] = annotations
        raw["metadata"]["finalizers"] = [TERMINATION_FINALIZER, "example.com/keep"]
        await world.kube.create(NODECLAIM, raw)
        await world.kube.delete(NODECLAIM, name)

    async with world.leading():
        await world.until(lambda: all(TERMINATION_FINALIZER not in c.meta.finalizers for c in world.claims()))

    deadlines = {c.meta.name: parse_time(c.meta.annotations[TERMINATION_TIMESTAMP], "x") - now for c in world.claims()}
    assert deadlines == {"plain": timedelta(hours=1), "sooner": timedelta(0)}


async def test_pods_that_will_not_go_are_deleted_at_the_deadline(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world)
        world.kube.block_evictions(lambda pod: True)
        deadline = world.clock.now() + timedelta(seconds=40)
        stamp = {"metadata": {"annotations": {TERMINATION_TIMESTAMP: format_time(deadline)}}}
        await world.kube.patch(NODECLAIM, claim.meta.name, stamp)
        await world.kube.delete(NODECLAIM, claim.meta.name)
        await world.until(lambda: claim.meta.name not in world.kube.names(NODECLAIM))

    assert world.kube.called("delete", "Pod") == ["default/web-0"]
    assert world.clock.now() < deadline + timedelta(seconds=15)


async def test_the_node_of_a_dead_machine_goes_without_a_drain(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world)
        world.kube.block_evictions(lambda pod: True)
        world.cloud.lose(claim.instance_id)
        world.set_node_ready(claim.node_name, False)
        await world.kube.delete(NODE, claim.node_name)
        await world.until(lambda: claim.node_name not in world.kube.names(NODE), seconds=3)
        await world.until(lambda: claim.meta.name not in world.kube.names(NODECLAIM))

    assert world.kube.called("evict") == []


async def test_volumes_are_waited_for_but_not_for_ever(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world)
        world.kube.put(
            VOLUMEATTACHMENT,
            {
                "metadata": {"name": "va-1"},
                "spec": {"nodeName": claim.node_name, "source": {"persistentVolumeName": "pv-1"}},
                "status": {"attached": True},
            },
        )
        await world.kube.delete(NODECLAIM, claim.meta.name)
        await world.until(lambda: bool(world.events("AwaitingVolumeDetachment")))
        alive = claim.instance_id in {i.id for i in world.cloud.alive()}
        began = world.clock.monotonic()
        await world.until(lambda: claim.meta.name not in world.kube.names(NODECLAIM), seconds=200)

    assert alive
    assert 115 <= world.clock.monotonic() - began <= 135


async def test_a_foreign_node_that_is_deleted_is_nobodys_business_here(world: Any, looptime: Any) -> None:
    raw = {
        "metadata": {"name": "theirs", "finalizers": [TERMINATION_FINALIZER]},
        "spec": {"providerID": "other:///x"},
        "status": {},
    }
    world.kube.put(NODE, raw)
    await world.kube.delete(NODE, "theirs")

    async with world.leading():
        await asyncio.sleep(30)

    assert world.kube.names(NODE) == ["theirs"]
    assert world.kube.called("patch", "Node") == []


async def test_pods_of_an_interrupted_node_get_a_replacement_before_they_are_evicted(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world, cpu="1")
        world.store.holders[claim.node_name] = "interruption-1"
        began = world.clock.monotonic()
        await interrupt(world, claim)
        await world.until(lambda: len(world.claims()) == 2)
        ordered = world.clock.monotonic() - began
        await world.until(lambda: REPLACEMENT_READY in doomed(world, claim).meta.annotations)

        replacement = next(c for c in world.claims() if c.meta.name != claim.meta.name)
    assert ordered <= 1.0
    assert replacement.is_initialized
    assert world.kube.called("evict") == []


async def test_room_that_is_there_is_a_replacement_that_is_ready_at_once(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world)
        world.kube.put(NODE, roomy_node("spare"))
        world.store.holders[claim.node_name] = "interruption-1"
        await interrupt(world, claim)
        await world.until(lambda: REPLACEMENT_READY in doomed(world, claim).meta.annotations, seconds=3)

    assert [c.meta.name for c in world.claims()] == [claim.meta.name]


async def test_a_new_leader_learns_what_replaces_an_interrupted_node(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world, cpu="1")
        world.store.holders[claim.node_name] = "interruption-1"
        world.join_after = 20.0
        await interrupt(world, claim)
        await world.until(lambda: len(world.claims()) == 2 and all(c.is_launched for c in world.claims()))
    async with world.leading():
        await world.until(lambda: REPLACEMENT_READY in doomed(world, claim).meta.annotations)

    assert len(world.claims()) == 2


async def test_protected_pods_of_an_interrupted_node_are_replaced_too(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world, cpu="1")
        world.pod("precious-0", cpu="500m", node=claim.node_name, annotations={"karpenter.sh/do-not-disrupt": "true"})
        world.store.holders[claim.node_name] = "interruption-1"
        await interrupt(world, claim)
        await world.until(lambda: len(world.claims()) == 2)
        replacement = next(c for c in world.claims() if c.meta.name != claim.meta.name)

    assert replacement.requests["cpu"] == 1500


async def test_eviction_is_left_to_the_interruption_service_until_its_heartbeat_is_stale(
    world: Any, looptime: Any
) -> None:
    async with world.leading():
        claim = await one_node(world)
        world.kube.put(NODE, roomy_node("spare"))
        world.store.holders[claim.node_name] = "interruption-1"
        await interrupt(world, claim)
        await world.until(lambda: REPLACEMENT_READY in doomed(world, claim).meta.annotations)
        await asyncio.sleep(5)
        while_fresh = world.kube.called("evict")
        world.store.holders.clear()
        await world.until(lambda: claim.meta.name not in world.kube.names(NODECLAIM))

    assert while_fresh == []
    assert world.kube.called("evict") == ["default/web-0"]
    assert claim.instance_id not in {i.id for i in world.cloud.alive()}


async def test_a_machine_without_a_claim_is_ended_and_its_node_with_it(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    orphan = an_instance("i-orphan")
    world.cloud.put(orphan)
    world.join_after = None
    world.join("i-orphan", "node-orphan")

    async with world.leading() as replica:
        await world.until(lambda: world.kube.names(NODE) == [])
        collected = replica.count("sawhorse_garbage_collected_total", kind="instance")

    assert world.cloud.instances["i-orphan"].state is InstanceState.TERMINATED
    assert collected == 1


async def test_one_machine_that_cannot_be_ended_does_not_keep_the_others(world: Any, looptime: Any) -> None:
    from sawhorse_cloud.errors import UnauthorizedError

    for name in ("i-1", "i-2", "i-3"):
        world.cloud.put(an_instance(name))
    world.join_after = None
    world.cloud.errors["terminate"] = [UnauthorizedError("no")]

    async with world.leading():
        await world.until(lambda: len(world.cloud.alive()) == 1, seconds=40)
        await world.until(lambda: world.cloud.alive() == [], seconds=40)

    assert len([m for m, _ in world.cloud.calls if m == "terminate"]) == 4


async def test_surplus_machines_of_a_fleet_are_ended(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.extra_per_fleet = 2

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        await world.until(lambda: len(world.cloud.alive()) == 1, seconds=150)

    assert [i.provider_id for i in world.cloud.alive()] == [world.claim().provider_id]


async def test_a_claim_whose_machine_died_is_deleted_and_its_pods_get_another(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world)
        await asyncio.sleep(70)
        world.cloud.lose(claim.instance_id)
        world.set_node_ready(claim.node_name, False)
        await world.until(lambda: claim.meta.name not in world.kube.names(NODECLAIM), seconds=90)

    assert claim.node_name not in world.kube.names(NODE)


async def test_a_node_that_is_ready_is_believed_more_than_the_clouds_list(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world)
        await asyncio.sleep(70)
        world.cloud.lose(claim.instance_id)
        await asyncio.sleep(90)

    assert world.kube.names(NODECLAIM) == [claim.meta.name]


async def test_a_taint_that_nothing_explains_is_removed_at_the_start_and_others_stay(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world)
    for_heal = dict(world.kube.raw(NODE, claim.node_name))
    taints = [{"key": DISRUPTED_TAINT, "effect": "NoSchedule"}, {"key": "mine", "effect": "NoSchedule"}]
    for_heal["spec"] = {**for_heal["spec"], "taints": taints}
    world.kube.put(NODE, for_heal)

    async with world.leading():
        await world.until(lambda: world.kube.raw(NODE, claim.node_name)["spec"]["taints"] == taints[1:])

    assert world.node().is_initialized


async def test_a_cordon_of_an_interruption_is_not_healed_away(world: Any, looptime: Any) -> None:
    async with world.leading():
        claim = await one_node(world)
    raw = dict(world.kube.raw(NODE, claim.node_name))
    raw["spec"] = {**raw["spec"], "taints": [{"key": DISRUPTED_TAINT, "effect": "NoSchedule"}]}
    world.kube.put(NODE, raw)
    stamp = {"metadata": {"annotations": {INTERRUPTED_AT: format_time(world.clock.now())}}}
    await world.kube.patch(NODECLAIM, claim.meta.name, stamp)

    async with world.leading():
        await asyncio.sleep(20)

    assert world.kube.raw(NODE, claim.node_name)["spec"]["taints"] != []


async def test_two_nodes_of_one_machine_are_a_fault_that_is_told(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.join_after = None

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))
        (instance,) = world.cloud.alive()
        world.join(instance.id, "first")
        world.join(instance.id, "second")
        await world.until(lambda: world.condition(world.claim(), "Registered").status == "False")

    registered = world.condition(world.claim(), "Registered")
    assert registered.reason == "MultipleNodesFound"
    assert "first, second" in registered.message


async def test_a_node_that_joins_open_to_pods_is_taken_in_and_told(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.node_taints = []

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))

    assert world.events("UnregisteredTaintMissing")


def test_what_an_open_launch_may_still_take_is_spared_and_what_nobody_takes_is_not(world: Any) -> None:
    now = parse_time("2026-11-29T12:00:00Z", "x")
    age = timedelta(seconds=60)
    old = now - timedelta(seconds=61)
    open_claim, done = claim("open", token="t-open"), claim("done", token="t-done", provider_id="fake:///z/i-held")
    instances = [
        an_instance("i-held", token="t-done", launched=old),
        an_instance("i-open", token="t-open", launched=old),
        an_instance("i-surplus", token="t-done", launched=old),
        an_instance("i-unknown", token="t-none", launched=old),
        an_instance("i-young", token="t-none", launched=now - timedelta(seconds=59)),
        an_instance("i-undated", token="t-none", launched=None),
    ]

    leaked = leaked_instances(instances, Holdings((open_claim, done)), now, age)

    assert [i.id for i in leaked] == ["i-surplus", "i-unknown"]


def test_claims_without_their_machine_are_found_and_deleting_or_unlaunched_ones_are_not(world: Any) -> None:
    here, gone = claim("here", provider_id="fake:///z/i-1"), claim("gone", provider_id="fake:///z/i-2")
    unlaunched = claim("unlaunched")

    assert [c.meta.name for c in lost_claims([here, gone, unlaunched], [an_instance("i-1")])] == ["gone"]


def doomed(world: Any, claim: Any) -> Any:
    """The claim as it is now."""
    return NODECLAIM.parse(world.kube.raw(NODECLAIM, claim.meta.name))


def an_instance(instance_id: str, *, token: str = "t", launched: Any = "long ago") -> Instance:
    """A machine of the pool `default`."""
    if launched == "long ago":
        launched = parse_time("2026-11-29T09:00:00Z", "x")
    return Instance(
        id=instance_id,
        provider_id=f"fake:///z/{instance_id}",
        state=InstanceState.RUNNING,
        instance_type="m5.large",
        zone="us-west-2a",
        capacity_type="spot",
        launched=launched,
        tags={"karpenter.sh/nodepool": "default"},
        token=token,
    )


def roomy_node(name: str) -> dict[str, Any]:
    """A node that somebody else made."""
    has = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"capacity": has, "allocatable": has, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def claim_raw(name: str, **spec: Any) -> dict[str, Any]:
    """A NodeClaim of the class `default`."""
    return {
        "metadata": {"name": name},
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "fake.example", "kind": "FakeNodeClass", "name": "default"},
            **spec,
        },
    }


def claim(name: str, *, token: str = "", provider_id: str = "") -> Any:
    """A parsed NodeClaim."""
    raw = claim_raw(name)
    raw["metadata"]["annotations"] = {LAUNCH_TOKEN: token} if token else {}
    raw["status"] = {"providerID": provider_id}
    return NODECLAIM.parse(raw)
