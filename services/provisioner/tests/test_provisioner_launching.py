"""Launches: no crash and no repeat makes two machines of one claim, and what cannot be launched stops nothing else."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_cloud.cloud import InstanceState
from sawhorse_cloud.errors import CloudUnavailableError, ThrottledError
from sawhorse_kube.errors import KubeUnavailableError
from sawhorse_kube.kinds import NODECLAIM, NODEPOOL, POD
from sawhorse_model.labels import INSTANCE_TYPE, LAUNCH_TOKEN
from sawhorse_provisioner.fleets import form_fleets
from sawhorse_testing.cloud_worlds import a_claim

pytestmark = pytest.mark.looptime

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")


def all_offerings(name: str, *kinds: str) -> set[tuple[str, str, str]]:
    """Every offering of a type."""
    return {(kind, name, zone) for kind in kinds for zone in ZONES}


async def test_out_of_capacity_for_the_first_choice_takes_the_next_in_the_same_launch(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.out_of_stock = all_offerings("m5.large", "spot")

    async with world.leading() as replica:
        await world.until(lambda: any(c.is_launched for c in world.claims()))

    assert world.claim().meta.labels[INSTANCE_TYPE] == "m5.2xlarge"
    assert {f.instance_type for f in world.catalog.reported} == {"m5.large"}
    failures = replica.count(
        "karpenter_cloudprovider_instance_launch_failures_total",
        zone=ZONES[0],
        capacity_type="spot",
        reason="InsufficientInstanceCapacity",
    )
    assert failures == 1


async def test_a_claim_for_which_nothing_is_left_is_deleted_and_its_pods_are_planned_without_those_offerings(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.out_of_stock = all_offerings("m5.large", "spot") | all_offerings("m5.2xlarge", "spot")

    async with world.leading() as replica:
        await world.until(lambda: any(c.is_launched for c in world.claims()), seconds=10)

    assert world.claim().meta.labels["karpenter.sh/capacity-type"] == "on-demand"
    assert len(world.events("InsufficientCapacityError")) == 1
    assert (
        replica.count(
            "karpenter_nodeclaims_disrupted_total", reason="insufficient_capacity", nodepool="default", capacity_type=""
        )
        == 1
    )


async def test_no_capacity_anywhere_does_not_become_a_busy_loop(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.out_of_stock = {"m5.large", "m5.2xlarge"}

    async with world.leading():
        await asyncio.sleep(60)

    assert len(world.cloud.launches()) == 2
    assert world.claims() == []
    assert world.events("FailedScheduling")


async def test_a_crash_between_annotation_and_fleet_launches_one_machine(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.latency = 3.0

    async with world.leading():
        await world.until(lambda: any(c.launch_token for c in world.claims()))
    first = world.claim().launch_token
    world.cloud.latency = 0.0
    machines_at_crash = len(world.cloud.instances)
    async with world.leading():
        started = world.clock.monotonic()
        await world.until(lambda: any(c.is_initialized for c in world.claims()), seconds=120)

    assert machines_at_crash == 0
    assert len(world.cloud.instances) == 1
    assert world.claim().launch_token != first
    assert world.clock.monotonic() - started > 60
    assert len([w for m, w in world.cloud.calls if m == "find_by_token" and w == first]) == 13


async def test_a_crash_between_fleet_and_patch_adopts_the_machine(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.answer_latency = 5.0
    world.cloud.visible_after = 12.0

    async with world.leading():
        await world.until(lambda: bool(world.cloud.instances))
    orphan = world.claim()
    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))

    assert orphan.provider_id == ""
    assert len(world.cloud.instances) == 1
    assert world.claim().meta.uid == orphan.meta.uid
    assert world.claim().launch_token == orphan.launch_token
    assert world.claim().meta.labels[INSTANCE_TYPE] == "m5.large"


async def test_a_half_written_fleet_is_adopted_without_giving_a_machine_twice(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    for number in range(4):
        world.pod(f"web-{number}", cpu="1500m")
    world.catalog.types = world.catalog.types[:1]
    world.cloud.answer_latency = 1.0

    async with world.leading():
        await world.until(lambda: len(world.cloud.instances) == 4)
        world.kube.fail("patch", KubeUnavailableError("no answer"), kind="NodeClaim", times=6)
        await world.until(lambda: any(c.provider_id for c in world.claims()))
    written = [c.provider_id for c in world.claims() if c.provider_id]
    async with world.leading():
        await world.until(lambda: all(c.is_launched for c in world.claims()))

    assert 0 < len(written) < 4
    assert len(world.cloud.instances) == 4
    assert len({c.provider_id for c in world.claims()}) == 4


async def test_a_claim_deleted_while_it_launches_leaks_nothing(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    pod = world.pod("web-1")
    world.cloud.launch_latency = 3.0
    world.cloud.answer_latency = 3.0

    async with world.leading():
        await world.until(lambda: bool(world.cloud.launches()))
        await world.kube.delete(NODECLAIM, world.claim().meta.name)
        world.kube.remove(POD, pod.meta.name, "default")
        await world.until(lambda: not world.claims())

    assert len(world.cloud.instances) == 1
    assert world.cloud.alive() == []


async def test_a_claim_deleted_before_its_token_is_gone_at_once_and_asks_the_cloud_nothing(
    world: Any, looptime: Any
) -> None:
    world.node_class(ready=True)
    claim = await world.kube.create(NODECLAIM, claim_raw("lonely"))
    await world.kube.delete(NODECLAIM, claim.meta.name)

    async with world.leading():
        await world.until(lambda: not world.claims())

    assert [m for m, _ in world.cloud.calls if m in ("launch", "find_by_token", "terminate")] == []


async def test_a_deleting_claim_with_a_token_is_looked_up_before_it_is_let_go(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    pod = world.pod("web-1")
    world.cloud.answer_latency = 5.0
    world.cloud.visible_after = 8.0

    async with world.leading():
        await world.until(lambda: bool(world.cloud.instances))
    world.kube.remove(POD, pod.meta.name, "default")
    await world.kube.delete(NODECLAIM, world.claim().meta.name)
    async with world.leading():
        await world.until(lambda: not world.claims())

    assert world.cloud.alive() == []
    assert world.clock.monotonic() < 40


async def test_throttling_repeats_the_same_token_and_marks_nothing(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.errors["launch"] = [ThrottledError("slow down"), CloudUnavailableError("no answer")]

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))

    tokens = world.cloud.launches()
    assert (len(tokens), len(set(tokens))) == (3, 1)
    assert world.catalog.reported == []


async def test_a_launch_that_fails_says_why_on_the_claim(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.errors["launch"] = [CloudUnavailableError("no answer")] * 3

    async with world.leading():
        await world.until(lambda: len(world.cloud.launches()) == 2)
        launched = world.condition(world.claim(), "Launched")

    assert (launched.status, launched.reason) == ("Unknown", "CloudUnavailable")
    assert "no answer" in launched.message


async def test_a_fleet_with_fewer_machines_gives_the_rest_a_new_token(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    for number in range(3):
        world.pod(f"web-{number}", cpu="1500m")
    world.catalog.types = world.catalog.types[:1]
    world.cloud.most_per_fleet = 2

    async with world.leading():
        await world.until(lambda: len(world.claims()) == 3 and all(c.is_launched for c in world.claims()))

    assert len(set(world.cloud.launches())) == 2
    assert len(world.cloud.alive()) == 3
    assert len({c.provider_id for c in world.claims()}) == 3


async def test_a_claim_that_does_not_launch_in_time_is_deleted_with_the_reason(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    pod = world.pod("web-1")
    world.cloud.errors["launch"] = [CloudUnavailableError("no answer")] * 1000

    async with world.leading():
        await world.until(lambda: bool(world.claims()))
        world.kube.remove(POD, pod.meta.name, "default")
        await world.until(lambda: not world.claims(), seconds=400)

    (message,) = world.events("LaunchTimeout")
    assert "no answer" in message
    assert 300 <= world.clock.monotonic() <= 380


async def test_a_machine_that_does_not_join_in_time_is_ended_with_its_claim(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.join_after = None
    world.settings["registration_timeout"] = timedelta(minutes=2)

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))
        first = world.claim()
        await world.until(lambda: first.meta.name not in world.kube.names(NODECLAIM), seconds=200)

    assert world.events("RegistrationTimeout")
    assert world.cloud.instances[first_id(world)].state is InstanceState.TERMINATED


async def test_a_claim_made_by_hand_is_launched_too(world: Any, looptime: Any) -> None:
    world.node_class()
    await world.kube.create(NODECLAIM, claim_raw("by-hand"))

    async with world.leading():
        await world.until(lambda: world.claim().is_initialized)

    assert "karpenter.sh/termination" in world.claim().meta.finalizers
    assert len(world.cloud.alive()) == 1


async def test_the_store_being_away_holds_up_no_launch(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.store.error = ConnectionError("redis is away")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()), seconds=15)

    assert len(world.cloud.alive()) == 1


def test_claims_that_ask_for_the_same_are_one_fleet_and_others_are_not() -> None:
    alike = [a_claim("a-2"), a_claim("a-1", annotations={LAUNCH_TOKEN: "old"})]
    more = a_claim("b-1", requests={"cpu": "3"})
    elsewhere = a_claim("c-1", nodepool="other")

    fleets = form_fleets([more, *alike, elsewhere])

    assert [[c.meta.name for c in fleet] for fleet in fleets] == [["a-1", "a-2"], ["b-1"], ["c-1"]]


def first_id(world: Any) -> str:
    """The first machine's id."""
    return sorted(world.cloud.instances)[0]


def claim_raw(name: str) -> dict[str, Any]:
    """A NodeClaim that a person posts."""
    return {
        "metadata": {"name": name},
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "fake.example", "kind": "FakeNodeClass", "name": "default"},
            "resources": {"requests": {"cpu": "1"}},
        },
    }


@pytest.mark.parametrize(("value", "seconds"), [("20s", 20), ("not a time", 300)])
async def test_a_pool_may_have_a_launch_timeout_of_its_own(
    world: Any, looptime: Any, value: str, seconds: float
) -> None:
    world.node_class()
    world.pool()
    await world.kube.patch(NODEPOOL, "default", {"metadata": {"annotations": {"sawhorse.dev/launch-timeout": value}}})
    pod = world.pod("web-1")
    world.cloud.errors["launch"] = [CloudUnavailableError("no answer")] * 1000

    async with world.leading():
        await world.until(lambda: bool(world.claims()))
        world.kube.remove(POD, pod.meta.name, "default")
        await world.until(lambda: bool(world.events("LaunchTimeout")), seconds=400)

    assert seconds <= world.clock.monotonic() <= seconds + 5


async def test_16_a_class_that_is_being_looked_at_costs_no_claim_and_is_told_on_it(world: Any, looptime: Any) -> None:
    world.node_class()
    world.cloud.errors["resolve_node_class"] = [CloudUnavailableError("no answer")] * 3
    await world.kube.create(NODECLAIM, claim_raw("early"))
    first = world.claim().meta.uid

    async with world.leading():
        await world.until(lambda: bool(world.claim().conditions))
        await world.until(lambda: world.condition(world.claim(), "Launched").reason == "NodeClassReadinessUnknown")
        await world.until(lambda: world.claim().is_launched)

    assert world.claim().meta.uid == first
    assert world.events("NodeClassNotReady") == []


async def test_16_a_class_that_is_not_ready_costs_the_claim_which_is_told(world: Any, looptime: Any) -> None:
    world.node_class()
    world.cloud.unresolved["default"] = ("SubnetsReady", "SubnetsNotFound", "no subnet matches")
    await world.kube.create(NODECLAIM, claim_raw("early"))

    async with world.leading():
        await world.until(lambda: world.claims() == [])

    assert "default is not ready" in world.events("NodeClassNotReady")[0]
    assert world.cloud.alive() == []
