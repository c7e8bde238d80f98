"""Redis as a help: what it saves, and that nothing waits for it when it is gone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sawhorse_interruption.breaker import Breaker
from sawhorse_interruption.cache import NoCache, RedisCache
from sawhorse_runtime.clock import SystemClock
from sawhorse_sandbox.redis import start_redis
from sawhorse_state.connection import State, connect_state
from sawhorse_state.instances import InstanceIndex
from sawhorse_state.journal import INTERRUPTIONS, Journal
from sawhorse_state.unavailable import UnavailableOfferings
from sawhorse_state.wake import Wake

OFFERING = ("spot", "m7g.large", "eu-west-1b")


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[State]:
    async with (
        await start_redis(tmp_path, password="for-tests") as redis,
        connect_state(redis.url, "demo") as made,
    ):
        yield made


@pytest.mark.integration
async def test_all_uses_of_redis_in_their_formats(state: State) -> None:
    cache = RedisCache(state, SystemClock())
    wake = Wake(state, "provisioner")
    await InstanceIndex(state).put("i-1", "n-1")

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(wake.wait(timedelta(seconds=5)))
        await asyncio.sleep(0.2)
        await cache.wake_provisioner("n-1", "n-1")
    before, _ = await cache.seen("e-1"), await cache.remember("e-1")
    marked = await cache.mark_unavailable(OFFERING, "SpotInterruption")
    first, second = await cache.renew_drain("n-1", "a"), await cache.renew_drain("n-1", "b")
    await cache.drop_drain("n-1", "a")
    await cache.record({"kind": "spot_interrupted", "claim": "n-1"})

    assert waiting.result() == ("node-interrupted",)
    assert (before, await cache.seen("e-1")) == (False, True)
    assert (await cache.claim_of("i-1"), await cache.claim_of("i-2")) == ("n-1", "")
    assert marked
    assert OFFERING in await UnavailableOfferings(state).all()
    assert (first, second, await cache.renew_drain("n-1", "b")) == (True, False, True)
    (entry,) = await Journal(state, INTERRUPTIONS).tail(10)
    assert (entry["kind"], entry["claim"]) == ("spot_interrupted", "n-1")


@pytest.mark.integration
async def test_a_repeat_of_the_event_on_another_replica_is_a_duplicate_without_a_call_to_kubernetes(
    state: State, world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    first = world.replica(cache=RedisCache(state, SystemClock()))
    second = world.replica(cache=RedisCache(state, SystemClock()))
    world.queue.put(warning(id="e-1"))
    async with world.running(first, drain=False):
        await world.settle(lambda: world.queue.deleted, within=10)
    calls = len(world.kube.calls)
    world.queue.put(warning(id="e-1"))

    async with world.running(second, drain=False):
        await world.settle(lambda: len(world.queue.deleted) == 2, within=10)

    assert len(world.kube.calls) == calls
    assert second.count("sawhorse_interruption_duplicate_total") == 1


@pytest.mark.integration
async def test_a_flushed_redis_loses_no_effect(state: State, world: Any, warning: Callable[..., str]) -> None:
    world.node()
    cache = RedisCache(state, SystemClock())
    world.queue.put(warning(id="e-1"))
    async with world.running(world.replica(cache=cache), drain=False):
        await world.settle(lambda: world.queue.deleted, within=10)
    await state.redis.flushall()
    world.queue.put(warning(id="e-1"))

    async with world.running(world.replica(cache=cache), drain=False):
        await world.settle(lambda: len(world.queue.deleted) == 2, within=10)

    assert world.kube.called("delete", "NodeClaim") == ["n-1"]
    assert world.reasons().count("SpotInterrupted") == 1


@pytest.mark.integration
async def test_with_pricing_down_the_mark_is_in_redis(state: State, world: Any, warning: Callable[..., str]) -> None:
    async def refuses(offering: Any, reason: str) -> None:
        raise ConnectionRefusedError

    world.node()
    world.queue.put(warning())

    async with world.running(world.replica(cache=RedisCache(state, SystemClock()), report=refuses), drain=False):
        await world.settle(lambda: world.queue.deleted, within=10)

    assert OFFERING in await UnavailableOfferings(state).all()


@pytest.mark.looptime
async def test_a_service_that_hangs_is_waited_for_once_and_then_spared(world: Any) -> None:
    breaker = Breaker(world.clock, "redis", seconds=1.0, rest=5.0)
    asked: list[float] = []

    async def hangs() -> str:
        asked.append(world.clock.monotonic())
        await asyncio.sleep(3600)
        return "never"

    with capture_logs() as logs:
        answers = [await breaker.call(hangs, "without") for _ in range(10)]
        at = world.clock.monotonic()
        await asyncio.sleep(6)
        await breaker.call(hangs, "without")

    assert answers == ["without"] * 10
    assert at == 1.0
    assert asked == [0.0, 7.0]
    assert [line["event"] for line in logs] == ["going on without a service"]


@pytest.mark.looptime
async def test_a_service_that_is_back_is_used_again(world: Any) -> None:
    breaker = Breaker(world.clock, "redis", seconds=1.0, rest=5.0)

    async def fails() -> str:
        raise OSError

    async def works() -> str:
        return "answer"

    await breaker.call(fails, "without")
    spared = await breaker.call(works, "without")
    await asyncio.sleep(5)

    assert spared == "without"
    assert await breaker.call(works, "without") == "answer"


async def test_without_redis_every_answer_is_that_of_an_empty_cache() -> None:
    cache = NoCache()

    assert not await cache.seen("e")
    assert await cache.claim_of("i") == ""
    assert not await cache.mark_unavailable(OFFERING, "x")
    assert await cache.renew_drain("n", "me")
