"""The keyed queue, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.errors import QueueFullError, Retry, SawhorseError
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.tasks import KeyedQueue

pytestmark = pytest.mark.looptime


def a_queue(**overrides: Any) -> KeyedQueue[str]:
    """A queue whose back-off has no jitter: 1, 2, 4, 8 seconds."""
    return KeyedQueue("test", **{"backoff": Backoff(1.0, maximum=8.0, jitter=0.0), **overrides})


@asynccontextmanager
async def running(
    queue: KeyedQueue[str], handler: Callable[[str], Awaitable[float | None]], **options: Any
) -> AsyncIterator[asyncio.Event]:
    """The queue at work while the block runs."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.run(handler, **{"workers": 2, "stop": stop, **options}))
        try:
            yield stop
        finally:
            stop.set()


class Recorder:
    """A handler that notes when it looked at what, takes `takes` seconds, and answers from `answers` in turn."""

    def __init__(self, *answers: float | Exception | None, takes: float = 0.0) -> None:
        self.looks: list[tuple[float, str]] = []
        self.at_once = self.most_at_once = 0
        self._answers = list(answers)
        self._takes = takes

    async def __call__(self, key: str) -> float | None:
        self.looks.append((asyncio.get_running_loop().time(), key))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self._takes)
        finally:
            self.at_once -= 1
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_key_added_many_times_is_looked_at_once(looptime: Any) -> None:
    queue, handler = a_queue(), Recorder()
    for _ in range(5):
        queue.add("a")
    queue.add("b")

    async with running(queue, handler):
        await asyncio.sleep(1)

    assert handler.looks == [(0, "a"), (0, "b")]


async def test_a_key_added_while_it_is_handled_is_looked_at_again_after_and_never_twice_at_a_time(
    looptime: Any,
) -> None:
    queue, handler = a_queue(), Recorder(takes=10)

    async with running(queue, handler):
        queue.add("a")
        await asyncio.sleep(3)
        queue.add("a")
        queue.add("a")
        await asyncio.sleep(60)

    assert handler.looks == [(0, "a"), (10, "a")]
    assert handler.most_at_once == 1


async def test_different_keys_are_handled_at_a_time_up_to_the_workers(looptime: Any) -> None:
    queue, handler = a_queue(), Recorder(takes=10)
    for key in "abcde":
        queue.add(key)

    async with running(queue, handler, workers=2):
        await asyncio.sleep(60)

    assert handler.looks == [(0, "a"), (0, "b"), (10, "c"), (10, "d"), (20, "e")]
    assert handler.most_at_once == 2


async def test_the_handler_says_when_to_look_next(looptime: Any) -> None:
    queue, handler = a_queue(), Recorder(30.0, None)

    async with running(queue, handler):
        queue.add("a")
        await asyncio.sleep(1000)

    assert handler.looks == [(0, "a"), (30, "a")]


async def test_the_earliest_of_several_requests_counts(looptime: Any) -> None:
    queue, handler = a_queue(), Recorder(300.0, None)

    async with running(queue, handler):
        queue.add("a")
        queue.add("b", delay=50)
        queue.add("b", delay=20)
        queue.add("b", delay=90)
        await asyncio.sleep(10)
        queue.add("a")
        await asyncio.sleep(1000)

    assert handler.looks == [(0, "a"), (10, "a"), (20, "b")]


async def test_a_key_that_fails_backs_off_and_starts_again_after_success(looptime: Any) -> None:
    boom = ValueError("boom")
    queue, handler = a_queue(), Recorder(boom, boom, boom, None, boom, None)

    async with running(queue, handler):
        queue.add("a")
        await asyncio.sleep(100)
        queue.add("a")
        await asyncio.sleep(100)

    assert [when for when, _ in handler.looks] == [0, 1, 3, 7, 100, 101]


async def test_a_failing_key_does_not_hold_up_another(looptime: Any) -> None:
    queue = a_queue()
    looks: list[str] = []

    async def handler(key: str) -> float | None:
        if key == "bad":
            raise ValueError("boom")
        looks.append(key)
        return None

    async with running(queue, handler, workers=1):
        queue.add("bad")
        queue.add("good")
        await asyncio.sleep(0.5)

    assert looks == ["good"]


async def test_the_same_error_of_the_same_key_is_logged_once(looptime: Any) -> None:
    queue, handler = a_queue(), Recorder(ValueError("x"), ValueError("x"), ValueError("y"), None)

    with capture_logs() as logs:
        async with running(queue, handler):
            queue.add("a")
            await asyncio.sleep(100)

    warnings = [line["error"] for line in logs if line["log_level"] == "warning"]
    assert warnings == ["ValueError: x", "ValueError: y"]


async def test_an_error_that_repeating_cannot_mend_waits_the_longest_delay(looptime: Any) -> None:
    class BrokenError(SawhorseError):
        retry = Retry.NEVER

    queue, handler = a_queue(), Recorder(BrokenError("no"), None)

    with capture_logs() as logs:
        async with running(queue, handler):
            queue.add("a")
            await asyncio.sleep(100)

    assert [when for when, _ in handler.looks] == [0, 8]
    assert [line["log_level"] for line in logs] == ["error"]


async def test_a_handler_that_takes_too_long_counts_as_failed(looptime: Any) -> None:
    queue, handler = a_queue(), Recorder(takes=1000)

    with capture_logs() as logs:
        async with running(queue, handler, timeout=5):
            queue.add("a")
            await asyncio.sleep(5.5)

    assert [line["error"] for line in logs] == ["it took longer than 5 s"]


async def test_stop_waits_for_running_handlers_and_begins_no_more(looptime: Any) -> None:
    queue, handler = a_queue(), Recorder(takes=10)

    async with running(queue, handler, workers=1) as stop:
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(1)
        stop.set()

    assert handler.looks == [(0, "a")]
    assert looptime == 10
    assert len(queue) == 1


async def test_a_cancelled_run_cancels_its_handlers_and_can_run_again(looptime: Any) -> None:
    queue, handler = a_queue(), Recorder(takes=1000)
    queue.add("a")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await queue.run(handler, workers=1, stop=asyncio.Event())
    idle = queue.is_idle
    queue.add("b")
    async with running(queue, handler):
        await asyncio.sleep(1)

    assert idle
    assert handler.looks == [(0, "a"), (5, "b")]


async def test_a_discarded_key_is_not_looked_at(looptime: Any) -> None:
    queue, handler = a_queue(), Recorder()

    async with running(queue, handler):
        queue.add("a", delay=5)
        await asyncio.sleep(1)
        queue.discard("a")
        await asyncio.sleep(60)

    assert handler.looks == []


async def test_the_queue_is_bounded_but_takes_back_what_it_has_handed_out(looptime: Any) -> None:
    queue, handler = a_queue(limit=2), Recorder(30.0, None, None, None)

    async with running(queue, handler):
        queue.add("a")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        queue.add("b", delay=60)
        queue.add("c", delay=60)
        queue.add("b", delay=50)
        with pytest.raises(QueueFullError, match="holds 2 keys"):
            queue.add("d")
        await asyncio.sleep(100)

    assert handler.looks == [(0, "a"), (30, "a"), (50, "b"), (60, "c")]


async def test_a_queue_runs_once_at_a_time() -> None:
    queue = a_queue()

    async with running(queue, Recorder()):
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="runs already"):
            await queue.run(Recorder(), workers=1, stop=asyncio.Event())


async def test_looks_are_counted_by_result(looptime: Any) -> None:
    metrics = Metrics()
    queue = a_queue(metrics=metrics)
    handler = Recorder(ValueError("x"), 30.0, None)

    async with running(queue, handler):
        queue.add("a")
        await asyncio.sleep(100)

    text = generate_latest(metrics.registry).decode()
    for expected in (
        'controller_runtime_reconcile_total{controller="test",result="error"} 1.0',
        'controller_runtime_reconcile_total{controller="test",result="requeue_after"} 1.0',
        'controller_runtime_reconcile_total{controller="test",result="success"} 1.0',
        'controller_runtime_reconcile_errors_total{controller="test"} 1.0',
        'workqueue_adds_total{name="test"} 3.0',
        'workqueue_depth{name="test"} 0.0',
    ):
        assert expected in text
