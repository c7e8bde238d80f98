"""A replica dies in the middle of a drain, and the queue answers with errors: another goes on, and no pod is lost."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from sawhorse_cloud.errors import CloudUnavailableError, ThrottledError
from sawhorse_interruption.steps import Step

pytestmark = pytest.mark.looptime

AWAY = 20.0  # seconds


class Died(BaseException):
    """The process, at its failpoint."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", [Step.EVICTING, Step.DRAINED])
async def test_a_drain_is_ended_by_another_replica_whenever_the_first_one_dies(
    world: Any, warning: Callable[..., str], step: Step, when: str
) -> None:
    world.node()
    world.pod("a")
    world.pod("b")
    world.queue.put(warning())
    died: list[str] = []

    def failpoint(at: str, side: str) -> None:
        if (at, side) == (step, when):
            died.append(at)
            raise Died

    try:
        async with asyncio.timeout(200), world.running(world.replica(failpoint=failpoint)):
            await asyncio.sleep(200)
    except* Died:
        pass
    assert died

    async with world.running(world.replica()):
        await world.settle(lambda: world.condition("Drained") == "True", within=200)

    assert set(world.ended) == {"a", "b"}
    assert world.kube.called("delete", "NodeClaim") == ["n-1"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", [Step.START, Step.HAND_OVER])
async def test_a_replica_that_dies_while_it_begins_or_hands_over_loses_no_message(
    world: Any, warning: Callable[..., str], step: Step, when: str
) -> None:
    world.node()
    died: list[str] = []

    def failpoint(at: str, side: str) -> None:
        if (at, side) == (step, when):
            died.append(at)
            raise Died

    try:
        async with world.running(world.replica(failpoint=failpoint), drain=False) as stop:
            world.queue.put(warning())
            stop.set()
            await asyncio.sleep(5)
    except* Died:
        pass
    assert died

    async with world.running(world.replica(), drain=False):
        await world.settle(lambda: len(world.queue.deleted) == 1)

    assert world.is_done()
    assert world.kube.called("delete", "NodeClaim") == ["n-1"]


@pytest.mark.parametrize("error", [CloudUnavailableError("no answer"), ThrottledError("RequestThrottled")])
@pytest.mark.parametrize("call", ["receive", "delete", "extend"])
async def test_a_warning_has_its_effects_once_though_the_queue_answers_with_errors(
    world: Any, warning: Callable[..., str], call: str, error: Exception
) -> None:
    world.node()
    world.pod("a")
    world.queue.refusing[call] = error

    async with world.running(world.replica()):
        await asyncio.sleep(1)
        world.queue.put(warning())
        await asyncio.sleep(AWAY)
        world.queue.refusing.clear()
        await world.settle(lambda: len(world.queue.deleted) == 1, within=120)

    assert world.is_done()
    assert world.kube.called("delete", "NodeClaim") == ["n-1"]


class OffClock:
    """The clock of one process, off by some seconds; how time passes is the same."""

    def __init__(self, clock: Any, seconds: float) -> None:
        self._clock = clock
        self._off = timedelta(seconds=seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def now(self) -> datetime:
        now: datetime = self._clock.now()
        return now + self._off


@pytest.mark.parametrize("seconds", [-300.0, 300.0], ids=["behind", "ahead"])
async def test_a_replica_whose_clock_is_five_minutes_off_still_empties_a_warned_node_once(
    world: Any, warning: Callable[..., str], seconds: float
) -> None:
    world.node()
    world.pod("a")
    world.queue.put(warning())
    world.clock = OffClock(world.clock, seconds)

    async with world.running(world.replica()):
        await world.settle(lambda: world.condition("Drained") == "True", within=130)

    assert world.is_done()
    assert set(world.ended) == {"a"}
    assert world.kube.called("delete", "NodeClaim") == ["n-1"]
