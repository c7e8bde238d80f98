"""Whole cases from the field, end to end in memory and virtual time. The codes are those of the case list."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from sawhorse_model.labels import REPLACEMENT_READY

pytestmark = pytest.mark.looptime

DISRUPTED = {"reason": "spot_interrupted", "nodepool": "default", "capacity_type": "spot"}


async def test_i01_garbage_in_the_queue_is_buried_and_the_good_warning_in_its_batch_is_acted_upon(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    garbage = [
        "abcd",
        "",
        "{}",
        '{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning"}',
        "x" * 200 * 1024,
    ]
    for body in garbage:
        world.queue.put(body)
    world.queue.put(warning())
    replica = world.replica()

    with capture_logs() as logs:
        async with world.running(replica, drain=False):
            at = await world.settle(world.is_done)
            await world.settle(lambda: len(world.queue.buried) == len(garbage))
            await asyncio.sleep(100)

    assert at < 1
    assert [letter.body for letter in world.queue.buried] == garbage
    malformed = "sawhorse_interruption_malformed_total"
    counted = {why: replica.count(malformed, reason=why) for why in ("empty", "not_json", "no_envelope", "bad_detail")}
    assert counted == {"empty": 1, "not_json": 2, "no_envelope": 1, "bad_detail": 1}
    told = [line for line in logs if line["event"].startswith("message cannot be read")]
    assert len(told) == len(garbage)
    assert max(len(line["body"]) for line in told) <= 200
    assert replica.count("sawhorse_interruption_dlq_total") == 5
    assert world.queue.waiting == world.queue.in_flight == []


async def test_i02_a_warning_for_an_instance_that_is_gone_is_dropped_and_counted(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    world.queue.put(warning("i-0dead", time=datetime(2026, 1, 1, tzinfo=UTC)))
    replica = world.replica()

    async with world.running(replica):
        at = await world.settle(lambda: world.queue.deleted)

    assert at < 1
    assert replica.count("sawhorse_interruption_foreign_total", reason="unknown_instance") == 1
    assert not world.is_deleting()


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1), (3, 0, 2, 1), (2, 0, 3, 1)])
async def test_i04_duplicates_and_state_changes_in_any_order_make_one_deletion_one_drain_one_event(
    world: Any, warning: Callable[..., str], changed: Callable[..., str], order: tuple[int, ...]
) -> None:
    world.node()
    world.pod("web")
    bodies = [
        warning(id="m1"),
        warning(id="m1"),
        changed("i-1", "terminated", id="m3"),
        changed("i-1", "shutting-down", id="m2"),
    ]
    replicas = [world.replica() for _ in range(4)]
    for number in order[:2]:
        world.queue.put(bodies[number])
    async with world.running(*replicas[:2]):
        await world.settle(lambda: len(world.queue.deleted) == 2)
        await asyncio.sleep(5)
    # Everybody restarts in between; what they had in memory is gone.
    for number in order[2:]:
        world.queue.put(bodies[number])
    async with world.running(*replicas[2:]):
        await world.settle(lambda: len(world.queue.deleted) == 4)
        await world.settle(lambda: world.condition("Drained") == "True", within=130)

    assert sum(r.count("karpenter_nodeclaims_disrupted_total", **DISRUPTED) for r in replicas) == 1
    assert world.reasons().count("SpotInterrupted") == 1
    assert world.reasons().count("TerminatingOnInterruption") == 1
    assert list(world.ended) == ["web"]


async def test_i05_eight_pods_get_their_full_45_s_and_are_gone_before_115_s(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    for number in range(8):
        world.pod(f"app-{number}", grace=45, stops_after=45)
    world.queue.put(warning())

    async with world.running(world.replica()):
        cordoned = await world.settle(world.is_done)
        await asyncio.sleep(60 - cordoned)
        world.replacement_ready()
        await world.settle(lambda: world.condition("Drained") == "True")

    assert cordoned <= 2
    assert world.reported == [(("spot", "m7g.large", "eu-west-1b"), "SpotInterruption")]
    assert all(world.ended[f"app-{n}"] - world.evicted[f"app-{n}"] >= 44 for n in range(8))
    assert max(world.ended.values()) <= 115


async def test_i05_a_late_replacement_does_not_cost_a_pod_its_grace(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.pod("app", grace=90, stops_after=90)
    world.queue.put(warning())

    async with world.running(world.replica()):
        await world.settle(lambda: world.condition("Drained") == "True", within=130)

    assert REPLACEMENT_READY not in world.annotations()
    assert world.evicted["app"] <= 6  # 110 - 90 - 15
    assert 89 <= world.ended["app"] - world.evicted["app"]
    assert world.ended["app"] <= 110


async def test_i08_pods_with_hours_of_grace_do_not_outlive_their_instance(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    far = (world.clock.now() + timedelta(hours=12)).strftime("%Y-%m-%dT%H:%M:%SZ")
    world.pod("stubborn", grace=43_200, stops_after=43_200)
    claim = world.claim()
    claim["metadata"]["annotations"] = {"karpenter.sh/nodeclaim-termination-timestamp": far}
    world.queue.put(warning())

    async with world.running(world.replica()):
        await world.settle(lambda: world.condition("Drained") == "True", within=130)

    assert world.ended["stubborn"] <= 112


async def test_two_hundred_warnings_at_once_are_all_cordoned_and_none_is_lost(
    world: Any, warning: Callable[..., str]
) -> None:
    for number in range(200):
        world.node(f"n-{number}", instance_id=f"i-{number}")
        world.queue.put(warning(f"i-{number}", id=f"e-{number}"))
    replicas = [world.replica() for _ in range(3)]

    async with world.running(*replicas, drain=False):
        await world.settle(lambda: len(world.queue.deleted) == 200)

    assert all(world.is_done(f"n-{n}") for n in range(200))
    assert sum(r.count("karpenter_nodeclaims_disrupted_total", **DISRUPTED) for r in replicas) == 200
