"""Reserved machines: those of a capacity block that ends are drained in time, those that outlive a reservation stay."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sawhorse_cloud.cloud import Instance, InstanceState
from sawhorse_cloud.errors import ThrottledError
from sawhorse_kube.kinds import NODE, NODECLAIM, nodeclass_kind
from sawhorse_model.labels import CAPACITY_TYPE, TERMINATION_TIMESTAMP
from sawhorse_model.manifests import format_time
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_provisioner.reservations import ending_claims, lapsed_claims
from sawhorse_testing.cloud_worlds import a_claim

pytestmark = pytest.mark.looptime

ID, KIND = "fake.example/reservation-id", "fake.example/reservation-type"
CLASS = nodeclass_kind("fake.example", "v1", "FakeNodeClass", "fakenodeclasses")
T0 = datetime(2026, 11, 29, 10, 0, 0, tzinfo=UTC)


def reserved_claim(name: str = "c", instance: str = "i-1", **labels: str) -> NodeClaim:
    """A claim whose machine runs in the reservation cr-1."""
    claim = a_claim(name, labels={CAPACITY_TYPE: "reserved", ID: "cr-1", **labels})
    return replace(claim, provider_id=f"fake:///z/{instance}")


def an_instance(capacity_type: str, instance_id: str = "i-1", state: str = "running") -> Instance:
    """A machine as the cloud describes it."""
    return Instance(instance_id, f"fake:///z/{instance_id}", InstanceState(state), "m5.large", "z", capacity_type)


async def reserve(world: Any) -> NodeClaim:
    """Make the only claim, its Node and its machine those of the reservation cr-1."""
    claim = world.claim()
    labels = {CAPACITY_TYPE: "reserved", ID: "cr-1", KIND: "capacity-block"}
    await world.kube.patch(NODECLAIM, claim.meta.name, {"metadata": {"labels": labels}})
    await world.kube.patch(NODE, claim.node_name, {"metadata": {"labels": labels}})
    machine = world.cloud.instances[claim.instance_id]
    world.cloud.instances[claim.instance_id] = replace(machine, capacity_type="reserved", reservation_id="cr-1")
    found: NodeClaim = world.claim()
    return found


def by_name(world: Any, claim: NodeClaim) -> NodeClaim:
    """The claim as it is now."""
    found: NodeClaim = NODECLAIM.parse(world.kube.raw(NODECLAIM, claim.meta.name))
    return found


async def one_reserved_node(world: Any) -> NodeClaim:
    """A pod on a node in the reservation."""
    world.pool()
    world.pod("web-1")
    await world.until(lambda: any(c.is_initialized for c in world.claims()))
    world.bind("web-1", world.claim().node_name)
    return await reserve(world)


async def test_25_claims_of_a_block_that_ends_are_drained_with_ec2s_end_as_deadline(world: Any, looptime: Any) -> None:
    world.node_class()

    async with world.leading():
        claim = await one_reserved_node(world)
        raw = dict(world.kube.raw(CLASS, "default"))
        raw["spec"] = {"ending": {"cr-1": 1800.0}}
        world.kube.put(CLASS, raw)
        # A replacement may be there already: look at this one.
        await world.until(lambda: by_name(world, claim).meta.is_deleting, seconds=90)
        deadline = by_name(world, claim).meta.annotations[TERMINATION_TIMESTAMP]
        await world.until(lambda: claim.meta.name not in world.kube.names(NODECLAIM), seconds=90)

    assert "cr-1" in world.events("CapacityReservationExpiring")[0]
    assert deadline == format_time(T0 + timedelta(seconds=1800))
    assert world.cloud.instances[claim.instance_id].state is InstanceState.TERMINATED


async def test_25_a_claim_of_another_reservation_stays(world: Any, looptime: Any) -> None:
    world.node_class(ending={"cr-2": None})

    async with world.leading():
        await one_reserved_node(world)
        await asyncio.sleep(200)

    assert not world.claim().meta.is_deleting
    assert world.events("CapacityReservationExpiring") == []


async def test_25_a_machine_that_outlived_its_reservation_is_on_demand_on_claim_and_node(
    world: Any, looptime: Any
) -> None:
    world.node_class()

    async with world.leading():
        claim = await one_reserved_node(world)
        await asyncio.sleep(150)
        still = world.claim().meta.labels[CAPACITY_TYPE]
        machine = world.cloud.instances[claim.instance_id]
        world.cloud.instances[claim.instance_id] = replace(machine, capacity_type="on-demand", reservation_id="")
        await world.until(lambda: world.claim().meta.labels[CAPACITY_TYPE] == "on-demand", seconds=90)

    assert still == "reserved"
    assert world.claim().meta.uid == claim.meta.uid
    for labels in (world.claim().meta.labels, world.node().meta.labels):
        assert labels[CAPACITY_TYPE] == "on-demand"
        assert ID not in labels
        assert KIND not in labels


async def test_25_a_cloud_that_does_not_answer_relabels_nothing(world: Any, looptime: Any) -> None:
    world.node_class()

    async with world.leading():
        await one_reserved_node(world)
        world.cloud.errors["describe"] = [ThrottledError("slow down")] * 1000
        await asyncio.sleep(300)

    assert world.claim().meta.labels[CAPACITY_TYPE] == "reserved"


def test_only_living_claims_of_expiring_reservations_are_ended(looptime: Any) -> None:
    here, elsewhere = reserved_claim("here"), reserved_claim("elsewhere", **{ID: "cr-9"})
    going = replace(reserved_claim("going"), meta=replace(reserved_claim("going").meta, deletion_timestamp=T0))

    found = ending_claims([here, elsewhere, going, a_claim("plain")], ID, {"cr-1": T0})

    assert [(c.meta.name, until) for c, until in found] == [("here", T0)]


@pytest.mark.parametrize(
    ("instance", "lapsed"),
    [
        (an_instance("on-demand"), True),
        (an_instance("reserved"), False),
        (an_instance("on-demand", state="shutting-down"), False),
        (an_instance("on-demand", "i-2"), False),
    ],
    ids=["on-demand", "reserved", "going", "unknown"],
)
def test_a_reservation_has_lapsed_only_where_the_cloud_says_so_of_a_running_machine(
    looptime: Any, instance: Instance, lapsed: bool
) -> None:
    found = lapsed_claims([reserved_claim()], {instance.id: instance})

    assert bool(found) is lapsed


def test_a_claim_that_never_was_reserved_does_not_lapse(looptime: Any) -> None:
    claim = reserved_claim(**{CAPACITY_TYPE: "spot"})

    assert lapsed_claims([claim], {"i-1": an_instance("on-demand")}) == []
