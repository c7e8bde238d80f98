"""Z01, Z02: what nodes really have is remembered, and the next plan of the type uses it."""

from dataclasses import replace
from typing import Any

import pytest

from sawhorse_catalog.measured import kubelet_hash
from sawhorse_kube.kinds import nodeclass_kind
from sawhorse_model.labels import INSTANCE_TYPE
from sawhorse_model.resources import MEMORY
from sawhorse_testing.catalog import an_instance_type

pytestmark = pytest.mark.looptime

GIB = 2**30
CLASS = nodeclass_kind("fake.example", "v1", "FakeNodeClass", "fakenodeclasses")
NO_KUBELET = kubelet_hash({})


def a_large_type() -> Any:
    """A machine of 1 TiB of which the estimate keeps back 78 GiB and nodes really have 1000 GiB."""
    kind = an_instance_type("big.32xlarge", cpu="128", memory="1024Gi", price=8.0)
    estimate = 946 * GIB
    return replace(
        kind,
        capacity={**kind.capacity, MEMORY: estimate},
        allocatable={**kind.allocatable, MEMORY: estimate - GIB},
    )


async def test_z02_the_second_claim_has_the_memory_that_the_first_ones_node_reported(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.catalog.types = world.catalog.types[:1]
    world.node_memory["m5.large"] = 9 * GIB
    world.pod("web-1", cpu="1500m")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        first = world.claim()
        world.bind("web-1", first.node_name)
        world.pod("web-2", cpu="1500m")
        await world.until(lambda: len(world.claims()) == 2 and all(c.is_launched for c in world.claims()))

    second = next(c for c in world.claims() if c.meta.name != first.meta.name)
    assert first.capacity[MEMORY] < 9 * GIB
    assert first.meta.annotations["sawhorse.dev/memory"] == "estimate"
    assert second.capacity[MEMORY] == 9 * GIB
    assert second.meta.annotations["sawhorse.dev/memory"] == "measured"


async def test_z01_four_pods_that_the_estimate_gives_two_nodes_fit_one_once_a_node_has_been_measured(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    world.pool()
    world.catalog.types = (a_large_type(),)
    world.node_memory["big.32xlarge"] = 1000 * GIB
    for number in range(4):
        world.pod(f"old-{number}", cpu="31", memory="240Gi")

    async with world.leading():
        await world.until(lambda: len(world.claims()) == 2 and all(c.is_initialized for c in world.claims()))
        by_estimate = world.claims()
        for number in range(4):
            world.bind(f"old-{number}", by_estimate[number % 2].node_name)
        for claim in by_estimate:  # no room is left there
            world.pod(f"filler-{claim.meta.name}", cpu="60", memory="480Gi", node=claim.node_name)
        for number in range(4):
            world.pod(f"new-{number}", cpu="31", memory="240Gi")
        await world.until(lambda: len(world.claims()) > 2 and all(c.is_launched for c in world.claims()))

    assert len(world.claims()) == 3


async def test_z02_measurements_outlive_a_restart_and_are_keyed_by_type_image_and_kubelet(
    world: Any, looptime: Any
) -> None:
    world.node_class(kubelet={"maxPods": 20})
    world.pool()
    world.pod("web-1", cpu="1500m")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))

    instance_type = world.claim().meta.labels[INSTANCE_TYPE]
    key = (instance_type, "image-1", kubelet_hash({"kubelet": {"maxPods": 20}}))
    assert world.catalog.memory.known == {key: world.node().capacity[MEMORY]}


async def test_6_4_of_several_nodes_the_one_with_least_memory_counts(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.catalog.types = world.catalog.types[:1]
    sizes = iter((7 * GIB, 6 * GIB, 8 * GIB))

    async with world.leading():
        for number, size in enumerate(sizes):
            world.node_memory["m5.large"] = size
            world.pod(f"web-{number}", cpu="1500m")
            await world.until(lambda n=number: sum(c.is_initialized for c in world.claims()) == n + 1)
            newest = max(world.nodes(), key=lambda n: n.meta.name)
            world.bind(f"web-{number}", newest.meta.name)

    assert world.catalog.memory.known == {("m5.large", "image-1", NO_KUBELET): 6 * GIB}


async def test_6_4_nodes_that_were_there_before_are_measured_when_a_term_begins(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
    world.catalog.memory.known.clear()

    async with world.leading():
        await world.until(lambda: bool(world.catalog.memory.known))

    assert set(world.catalog.memory.known.values()) == {world.node().capacity[MEMORY]}


async def test_6_4_a_flushed_store_gets_its_measurements_back(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: bool(world.catalog.memory.known))
        world.catalog.memory.known.clear()
        await world.until(lambda: bool(world.catalog.memory.known), seconds=700)

    assert world.catalog.memory.puts == 2


async def test_6_4_a_node_launched_with_other_kubelet_settings_is_not_measured_under_todays(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
    world.catalog.memory.known.clear()
    raw = dict(world.kube.raw(CLASS, "default"))
    raw["metadata"]["annotations"]["fake.example/nodeclass-hash"] = "another"
    world.kube.put(CLASS, raw)
    world.cloud.errors["resolve_node_class"] = [RuntimeError("not asked now")] * 100

    async with world.leading():
        await world.until(lambda: world.clock.monotonic() > 90, seconds=200)

    assert world.catalog.memory.known == {}


async def test_6_4_a_store_that_is_away_holds_no_node_up(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.catalog.memory.error = ConnectionError("redis is away")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()), seconds=15)
        world.catalog.memory.error = None
        await world.until(lambda: bool(world.catalog.memory.known), seconds=80)

    assert world.catalog.memory.puts == 2
