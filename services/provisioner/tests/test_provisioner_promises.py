"""Launched against planned price: counted once for each claim, when its machine is there."""

from dataclasses import replace
from typing import Any

import pytest

from sawhorse_model.instances import CapacityType
from sawhorse_model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodepool import NodeClassRef
from sawhorse_model.requirements import Requirements
from sawhorse_provisioner.promises import Kept, Promises
from sawhorse_scheduling.plan import PlannedNode

PRICES = {("m5.large", "us-west-2a", "spot"): 0.05}
NODE = PlannedNode(
    "default-1",
    "default",
    ("m5.large",),
    Requirements(),
    "us-west-2a",
    CapacityType.SPOT,
    0.04,
    0.045,
    0.09,
    (),
    {},
    {},
    {},
)


def a_claim(name: str = "c", *, launched: bool = True, capacity_type: str = "spot") -> NodeClaim:
    labels = {INSTANCE_TYPE: "m5.large", ZONE: "us-west-2a", CAPACITY_TYPE: capacity_type} if launched else {}
    claim = NodeClaim(meta=ObjectMeta(name, labels=labels), node_class_ref=NodeClassRef("g", "K", "n"), requirements=())
    return replace(claim, provider_id=f"aws:///{name}" if launched else "")


def promised(*names: str) -> Promises:
    promises = Promises()
    for name in names:
        promises.note(name, NODE)
    return promises


def test_a_launched_claim_is_told_once_with_what_was_planned() -> None:
    promises = promised("c")

    first = list(promises.settle([a_claim()], PRICES))
    again = list(promises.settle([a_claim()], PRICES))

    assert (first, again) == ([Kept(0.04, 0.045, 0.05)], [])


def test_a_claim_waits_for_its_machine_and_is_forgotten_when_it_is_gone() -> None:
    promises = promised("c", "gone")

    waiting = list(promises.settle([a_claim(launched=False)], PRICES))

    assert (waiting, promises.is_waiting) == ([], True)
    assert list(promises.settle([], PRICES)) == []
    assert not promises.is_waiting


def test_a_reserved_machine_costs_nothing_more_and_an_unknown_price_is_passed_over() -> None:
    promises = promised("a", "b")

    found = list(promises.settle([a_claim("a", capacity_type="reserved"), a_claim("b", capacity_type="odd")], PRICES))

    assert found == [Kept(0.04, 0.045, 0.0)]


@pytest.mark.looptime
async def test_launched_and_planned_prices_are_a_metric(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("a")

    async with world.leading() as replica:
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        await world.until(lambda: replica.count("sawhorse_launched_price_per_hour_total", price="launched") > 0, 60)

        launched, best = (
            replica.count("sawhorse_launched_price_per_hour_total", price=word) for word in ("launched", "best")
        )
    assert launched >= best > 0
