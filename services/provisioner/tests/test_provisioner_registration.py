"""Rules 20 to 22: a machine becomes a node, the node becomes complete, and what takes too long is given up."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_cloud.cloud import InstanceState
from sawhorse_cloud.errors import CloudUnavailableError
from sawhorse_kube.errors import KubeUnavailableError
from sawhorse_kube.kinds import NODE, NODECLAIM, NODEPOOL, POD
from sawhorse_model.labels import INITIALIZED, REGISTERED, UNREGISTERED_TAINT
from sawhorse_model.meta import Condition, find_condition
from sawhorse_testing.catalog import an_instance_type

pytestmark = pytest.mark.looptime

GROUP, PARTITION = "fake.example/placement-group", "fake.example/partition"
GPU = "example.com/gpu"


def healthy(world: Any) -> Condition:
    """The pool's NodeRegistrationHealthy."""
    found = find_condition(NODEPOOL.parse(world.kube.raw(NODEPOOL, "default")).conditions, "NodeRegistrationHealthy")
    assert found is not None
    return found


def is_there(world: Any, name: str) -> bool:
    """Whether a claim exists."""
    return name in world.kube.names(NODECLAIM)


def gpu_world(world: Any) -> None:
    """One type with a device that no node ever offers, and a pod that asks for it."""
    kind = an_instance_type("g5.xlarge", cpu="4", memory="16Gi", price=1.0)
    world.catalog.types = (replace(kind, capacity={**kind.capacity, GPU: 1}, allocatable={**kind.allocatable, GPU: 1}),)
    world.not_offered = {GPU}
    world.node_class()
    world.pool()
    requests = {"requests": {"cpu": "1", "memory": "1Gi", GPU: "1"}, "limits": {GPU: "1"}}
    world.pod("train-1", containers=[{"name": "c", "resources": requests}])


# 20. Registration


async def test_20_1_without_a_node_the_condition_says_that_none_was_found(world: Any, looptime: Any) -> None:
    world.join_after = None
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))
        await world.until(lambda: world.condition(world.claim(), "Registered").reason == "NodeNotFound")

    assert world.condition(world.claim(), "Registered").status == "Unknown"


async def test_20_1_two_nodes_of_one_machine_are_told_and_neither_is_ended(world: Any, looptime: Any) -> None:
    world.join_after = None
    world.settings["registration_timeout"] = timedelta(minutes=2)
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))
        instance_id = world.claim().instance_id
        for name in ("one", "two"):
            world.join(instance_id, name)
        await world.until(lambda: world.condition(world.claim(), "Registered").reason == "MultipleNodesFound")
        status = world.condition(world.claim(), "Registered").status
        await asyncio.sleep(200)
        alive, names = len(world.cloud.alive()), world.kube.names(NODE)
        world.kube.remove(NODE, "two")
        await world.until(lambda: world.claim().is_registered, seconds=90)

    assert status == "False"
    assert "one, two" in world.events("MultipleNodesFound")[0]
    assert (alive, names) == (1, ["one", "two"])


async def test_20_3_the_claims_word_wins_over_the_nodes(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool(labels={"team": "a"})
    world.pod("web-1")
    world.join_after = None

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))
        world.join(world.claim().instance_id, "n")
        raw = dict(world.kube.raw(NODE, "n"))
        raw["metadata"]["labels"] |= {"team": "b", "own": "1"}
        world.kube.put(NODE, raw)
        await world.until(lambda: world.claim().is_registered)

    node = world.node()
    assert (node.meta.labels["team"], node.meta.labels["own"]) == ("a", "1")
    assert node.meta.labels[REGISTERED] == "true"
    assert world.claim().node_name == "n"


async def joins_in_a_group(world: Any, **labels: str) -> str:
    """A machine in a placement group joins; returns its id."""
    world.join_after = None
    world.node_class()
    world.pool()
    world.pod("web-1")
    await world.until(lambda: any(c.is_launched for c in world.claims()))
    await world.kube.patch(NODECLAIM, world.claim().meta.name, {"metadata": {"labels": {GROUP: "pg-1", **labels}}})
    world.join_after = 1.0
    return str(world.claim().instance_id)


def place(world: Any, instance_id: str, partition: str) -> None:
    """From now on the cloud says where the machine lies."""
    world.cloud.instances[instance_id] = replace(world.cloud.instances[instance_id], partition=partition)


async def test_20_4_a_node_stays_closed_until_its_partition_is_known(world: Any, looptime: Any) -> None:
    async with world.leading():
        instance_id = await joins_in_a_group(world, **{PARTITION: ""})
        await world.until(lambda: world.condition(world.claim(), "Registered").reason == "RegistrationHookPending")
        closed = [t.key for t in world.node().taints]
        message = world.condition(world.claim(), "Registered").message
        place(world, instance_id, "3")
        await world.until(lambda: world.claim().is_registered, seconds=10)

    assert closed == [UNREGISTERED_TAINT]
    assert "PlacementGroup" in message
    assert world.claim().meta.labels[PARTITION] == "3"
    assert world.node().meta.labels[PARTITION] == "3"


async def test_20_4_a_hook_that_fails_keeps_the_node_closed_and_is_tried_again(world: Any, looptime: Any) -> None:
    async with world.leading():
        world.cloud.errors["describe"] = [CloudUnavailableError("no answer")] * 2
        place(world, await joins_in_a_group(world, **{PARTITION: ""}), "1")
        await world.until(lambda: world.claim().is_registered, seconds=30)

    assert world.cloud.errors["describe"] == []


async def test_20_4_a_partition_that_nobody_has_noted_is_filled_in(world: Any, looptime: Any) -> None:
    async with world.leading():
        place(world, await joins_in_a_group(world), "2")
        await world.until(lambda: world.claim().is_registered, seconds=10)

    assert world.node().meta.labels[PARTITION] == "2"


async def test_20_4_a_group_without_partitions_keeps_no_node_closed(world: Any, looptime: Any) -> None:
    async with world.leading():
        await joins_in_a_group(world)
        await world.until(lambda: world.claim().is_registered, seconds=10)

    assert PARTITION not in world.claim().meta.labels


async def test_20_5_registration_that_was_cut_off_is_done_again(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: bool(world.nodes()))
        world.kube.fail("patch", KubeUnavailableError("no answer"), kind="Node", times=2)
        await world.until(lambda: any(c.is_registered for c in world.claims()), seconds=30)

    assert [t.key for t in world.node().taints] == []


async def test_20_6_two_failures_among_the_last_four_make_a_pool_unhealthy_and_it_still_plans(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.join_after = None
    world.settings["registration_timeout"] = timedelta(minutes=2)

    async with world.leading():
        await world.until(lambda: bool(world.claims()))
        unknown = healthy(world).status
        await world.until(lambda: len(world.events("RegistrationTimeout")) == 1, seconds=200)
        await world.until(lambda: healthy(world).status == "True", seconds=10)
        await world.until(lambda: healthy(world).status == "False", seconds=200)
        unhealthy = healthy(world)
        pool_ready = NODEPOOL.parse(world.kube.raw(NODEPOOL, "default")).is_ready
        world.join_after = 1.0
        await world.until(lambda: any(c.is_registered for c in world.claims()), seconds=200)

    assert unknown == "Unknown"
    assert unhealthy.reason == "RegistrationFailed"
    assert "no node has joined" in unhealthy.message
    assert pool_ready


async def test_20_6_a_change_of_the_pool_starts_its_record_anew(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        await world.until(lambda: healthy(world).status == "True", seconds=10)
        raw = dict(world.kube.raw(NODEPOOL, "default"))
        raw["spec"]["weight"] = 7
        raw["metadata"]["generation"] = raw["metadata"].get("generation", 1) + 1
        world.kube.put(NODEPOOL, raw)
        await world.until(lambda: healthy(world).status == "Unknown", seconds=10)

    assert healthy(world).observed_generation == NODEPOOL.parse(world.kube.raw(NODEPOOL, "default")).meta.generation


async def test_20_6_a_new_leader_begins_with_what_the_condition_says(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        await world.until(lambda: healthy(world).status == "True", seconds=10)
    before = healthy(world)

    async with world.leading():
        await asyncio.sleep(130)

    assert healthy(world) == before


async def test_20_6_a_claim_that_found_no_capacity_is_no_failure(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.out_of_stock = {"m5.large", "m5.2xlarge"}

    async with world.leading():
        await world.until(lambda: bool(world.events("InsufficientCapacityError")))
        await asyncio.sleep(60)

    assert healthy(world).status == "Unknown"


@pytest.mark.parametrize(("spec", "named"), [({}, True), ({"tags": {"Name": "mine"}}, False)], ids=["plain", "own"])
async def test_18_a_machine_is_tagged_with_node_and_claim_unless_its_class_names_it(
    world: Any, looptime: Any, spec: dict[str, Any], named: bool
) -> None:
    world.node_class(**spec)
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: bool(world.claims()) and "fake.example/tagged" in world.claim().meta.annotations)

    (machine,) = world.cloud.alive()
    claim = world.claim()
    assert machine.tags["karpenter.sh/nodeclaim"] == claim.meta.name
    assert machine.tags.get("Name") == (claim.node_name if named else None)
    assert claim.meta.annotations["fake.example/tagged-too"] == "true"


# 21. Initialisation


async def test_21_a_node_is_complete_only_when_ready_and_without_startup_and_ephemeral_taints(
    world: Any, looptime: Any
) -> None:
    world.ready_after = 5.0
    world.node_class()
    startup = [{"key": "agent", "effect": "NoSchedule"}]
    world.pool(template={"startupTaints": startup})
    world.pod("web-1")
    reasons: list[str] = []

    def reason() -> str:
        found = world.condition(world.claim(), "Initialized").reason
        if found not in reasons:
            reasons.append(found)
        return found

    async with world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))
        await world.until(lambda: reason() == "StartupTaintsExist")
        raw = dict(world.kube.raw(NODE, world.node().meta.name))
        raw["spec"]["taints"] = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
        world.kube.put(NODE, raw)
        await world.until(lambda: reason() == "KnownEphemeralTaintsExist")
        raw = dict(world.kube.raw(NODE, world.node().meta.name))
        raw["spec"]["taints"] = []
        world.kube.put(NODE, raw)
        await world.until(lambda: world.claim().is_initialized)

    assert reasons[-3:] == ["NodeNotReady", "StartupTaintsExist", "KnownEphemeralTaintsExist"]
    assert world.node().meta.labels[INITIALIZED] == "true"


async def test_g01_a_device_plugin_that_does_not_run_is_named_on_claim_and_pool_and_the_node_is_not_complete(
    world: Any, looptime: Any
) -> None:
    gpu_world(world)

    async with world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))
        await world.until(lambda: world.condition(world.claim(), "Initialized").reason == "ResourceNotRegistered")
        await asyncio.sleep(580)
        early = list(world.events("ResourceNotRegistered"))
        await world.until(lambda: bool(world.events("ResourceNotRegistered")), seconds=120)

    told = [(e.kind.name, e.message) for e in world.kube.events if e.reason == "ResourceNotRegistered"]
    condition = world.condition(world.claim(), "Initialized")
    assert early == []
    assert {kind for kind, _ in told} == {"NodeClaim", "NodePool"}
    assert "example.com/gpu is not registered 10 min after" in told[0][1]
    assert "is the example device plugin running on it?" in told[0][1]
    assert condition.status == "Unknown"
    assert f"{GPU} (needs the example device plugin)" in condition.message
    assert len(world.cloud.instances) == 1


async def test_g01_the_node_is_removed_after_a_bounded_time_with_the_reason(world: Any, looptime: Any) -> None:
    gpu_world(world)
    world.settings["initialization_timeout"] = timedelta(minutes=2)

    async with world.leading() as replica:
        await world.until(lambda: any(c.is_registered for c in world.claims()))
        first = world.claim()
        await world.until(lambda: bool(world.events("InitializationTimeout")), seconds=400)
        at = world.clock.monotonic()
        await world.until(lambda: not is_there(world, first.meta.name), seconds=60)
        ended = replica.count(
            "karpenter_nodeclaims_disrupted_total",
            reason="initialization_timeout",
            nodepool="default",
            capacity_type="on-demand",
        )

    assert 120 <= at <= 190
    assert GPU in world.events("InitializationTimeout")[0]
    assert world.cloud.instances[first.instance_id].state is InstanceState.TERMINATED
    assert ended == 1
    assert len(world.cloud.instances) <= 2


async def test_g01_a_node_on_which_pods_run_is_kept(world: Any, looptime: Any) -> None:
    gpu_world(world)
    world.settings["initialization_timeout"] = timedelta(minutes=2)

    async with world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))
        world.kube.remove(POD, "train-1", "default")
        world.pod("other-1", node=world.node().meta.name)
        await asyncio.sleep(200)

    assert world.events("InitializationTimeout") == []
    assert len(world.cloud.alive()) == 1


@pytest.mark.parametrize(("value", "kept"), [("Never", True), ("2m", False)])
async def test_g01_a_pool_says_itself_how_long_such_a_node_is_kept(
    world: Any, looptime: Any, value: str, kept: bool
) -> None:
    gpu_world(world)
    world.settings["initialization_timeout"] = timedelta(minutes=2) if kept else timedelta(hours=1)
    annotations = {"sawhorse.dev/initialization-timeout": value}
    await world.kube.patch(NODEPOOL, "default", {"metadata": {"annotations": annotations}})

    async with world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))
        await asyncio.sleep(200)

    assert (world.events("InitializationTimeout") == []) is kept


# 22. Liveness


async def test_22_a_machine_that_runs_and_does_not_join_is_given_up_with_what_to_check(
    world: Any, looptime: Any
) -> None:
    world.settings["registration_timeout"] = timedelta(minutes=2)
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.join_after = None

    async with world.leading():
        await world.until(lambda: bool(world.events("RegistrationTimeout")), seconds=200)
        at = world.clock.monotonic()

    (message,) = world.events("RegistrationTimeout")
    assert 120 <= at <= 125
    assert "it runs, but no node has joined" in message
    assert "spec.userData" in message


async def test_22_a_stopped_machine_is_told_as_the_reason_that_it_did_not_join(world: Any, looptime: Any) -> None:
    world.settings["registration_timeout"] = timedelta(minutes=2)
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.join_after = None

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))
        machine = world.cloud.instances[world.claim().instance_id]
        world.cloud.instances[machine.id] = replace(machine, state=InstanceState.STOPPED)
        await world.until(lambda: bool(world.events("RegistrationTimeout")), seconds=1000)

    assert f"instance {machine.id} is stopped" in world.events("RegistrationTimeout")[0]


async def test_22_a_node_that_joined_and_was_not_taken_in_is_told_as_the_reason(world: Any, looptime: Any) -> None:
    world.settings["registration_timeout"] = timedelta(minutes=2)

    async with world.leading():
        await joins_in_a_group(world, **{PARTITION: ""})
        await world.until(lambda: bool(world.events("RegistrationTimeout")), seconds=200)

    (message,) = world.events("RegistrationTimeout")
    assert "has joined, but was not taken in" in message
    assert "PlacementGroup" in message


async def test_22_an_instance_that_dies_while_it_joins_costs_its_claim_within_two_minutes_and_says_so(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.join_after = None

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))
        first = world.claim()
        world.cloud.lose(first.instance_id)
        world.join_after = 1.0
        await world.until(lambda: not is_there(world, first.meta.name), seconds=120)
        await world.until(lambda: any(c.is_initialized for c in world.claims()), seconds=60)

    assert first.instance_id in world.events("InstanceGone")[0]
    assert len(world.cloud.alive()) == 1


async def test_22_a_pool_may_have_a_registration_timeout_of_its_own(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    annotations = {"sawhorse.dev/registration-timeout": "3m"}
    await world.kube.patch(NODEPOOL, "default", {"metadata": {"annotations": annotations}})
    world.pod("web-1")
    world.join_after = None

    async with world.leading():
        await world.until(lambda: bool(world.events("RegistrationTimeout")), seconds=300)
        at = world.clock.monotonic()

    assert 180 <= at <= 185
