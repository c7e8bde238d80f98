"""T01, T02: throttling is one slow answer; it fails no claims, marks no offering and ends nothing."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_cloud.errors import CloudUnavailableError, ThrottledError
from sawhorse_kube.kinds import NODECLAIM
from sawhorse_provisioner.asking import PATIENCE
from sawhorse_provisioner.fleets import form_fleets
from sawhorse_provisioner.launch_rate import LaunchRate
from sawhorse_testing.cloud_worlds import a_claim

pytestmark = pytest.mark.looptime


def test_t01_500_claims_are_fleets_of_at_most_50(looptime: Any) -> None:
    fleets = form_fleets([a_claim(f"c-{number:03}") for number in range(500)])

    assert [len(fleet) for fleet in fleets] == [50] * 10


async def test_t01_a_throttled_batch_is_one_slow_answer_and_no_claim_fails(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.catalog.types = world.catalog.types[:1]
    for number in range(60):
        world.pod(f"web-{number}", cpu="1500m")
    world.cloud.errors["launch"] = [ThrottledError("slow down")] * 4
    seen: set[tuple[str, str]] = set()

    async with world.leading():
        await world.until(lambda: len(world.claims()) == 60)
        names = {c.meta.name for c in world.claims()}
        while not all(c.is_launched for c in world.claims()):
            seen |= {(c.status, c.reason) for claim in world.claims() for c in claim.conditions if c.type == "Launched"}
            await asyncio.sleep(0.5)

    assert {c.meta.name for c in world.claims()} == names
    assert len(world.cloud.alive()) == 60
    assert len(set(world.cloud.launches())) == 2
    assert {reason for _, reason in seen} <= {"AwaitingReconciliation", "Launched"}
    assert world.catalog.reported == []


async def test_t01_throttling_that_lasts_is_told_on_the_claim_which_is_kept(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.errors["launch"] = [ThrottledError("slow down")] * 12

    async with world.leading() as replica:
        await world.until(lambda: bool(world.claims()))
        first = world.claim()
        await world.until(lambda: world.condition(first, "Launched").reason == "RequestLimitExceeded", seconds=50)
        told = world.clock.monotonic()
        throttles = replica.count("karpenter_cloudprovider_errors_total", method="Create", error="RequestLimitExceeded")
        await world.until(lambda: world.claim().is_launched, seconds=200)

    assert told > PATIENCE / 2
    assert throttles >= 4
    assert world.claim().meta.uid == first.meta.uid
    assert len(set(world.cloud.launches())) == 1
    assert world.catalog.reported == []


async def test_t01_calls_come_no_faster_than_the_bucket_fills(looptime: Any) -> None:
    rate = LaunchRate(per_second=2.0, burst=3)
    loop, times = asyncio.get_running_loop(), []

    for _ in range(7):
        await rate.turn()
        times.append(loop.time())

    assert times[:3] == [0.0, 0.0, 0.0]
    assert times[3:] == pytest.approx([0.5, 1.0, 1.5, 2.0])


async def test_t01_calls_at_once_are_served_one_after_another(looptime: Any) -> None:
    rate = LaunchRate(per_second=2.0, burst=1)
    loop, times = asyncio.get_running_loop(), []

    async def call() -> None:
        await rate.turn()
        times.append(loop.time())

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(call())

    assert times == pytest.approx([0.0, 0.5, 1.0, 1.5])


async def test_t01_each_throttle_halves_the_rate_and_answers_bring_it_back(looptime: Any) -> None:
    rate = LaunchRate(per_second=8.0, burst=1)
    slowed = []
    for _ in range(6):
        rate.throttled()
        slowed.append(rate.per_second)

    for _ in range(30):
        rate.answered()

    assert slowed == [4.0, 2.0, 1.0, 0.5, 0.5, 0.5]
    assert rate.per_second == 8.0


def test_a_rate_that_would_never_call_is_refused(looptime: Any) -> None:
    with pytest.raises(ValueError, match="a second"):
        LaunchRate(per_second=0.0)


@pytest.mark.parametrize(("method", "error"), [("describe", ThrottledError), ("list_instances", CloudUnavailableError)])
async def test_t02_reads_that_fail_for_minutes_delete_neither_claims_nor_nodes(
    world: Any, looptime: Any, method: str, error: type[Exception]
) -> None:
    world.settings["garbage_collection_interval"] = timedelta(seconds=5)
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        before = (world.claim().meta.uid, world.node().meta.uid)
        world.cloud.errors[method] = [error("failed to get rate limit token")] * 10_000
        await asyncio.sleep(150)

    assert (world.claim().meta.uid, world.node().meta.uid) == before
    assert len(world.cloud.alive()) == 1
    assert [c for c in world.kube.calls if c.verb == "delete" and c.kind in (NODECLAIM.name, "Node")] == []
