"""The keyed queue: "look at this key". Level-based, so an event carries no data and two events are one look.

A handler reads the current state of its key, acts, and says when to look again. What is added while a key is being
handled is looked at once more afterwards, so the newest state always wins and no key is handled twice at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import Generic, TypeVar

import structlog
from structlog.contextvars import bound_contextvars

from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.errors import QueueFullError, Retry, SawhorseError, as_failure, describe, retry_of
from sawhorse_runtime.metrics import Metrics

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)

Handler = Callable[[K], Awaitable[float | None]]
"""Looks at one key; returns seconds until the next look, or None for "when something changes"."""


class KeyedQueue(Generic[K]):
    """A work queue of keys, each handled by one worker at a time. Belongs to one event loop.

    Args:
        name: the `name` and `controller` label of its metrics, and the log key `queue`.
        backoff: delays after failures; 1 s doubling to 5 min unless given.
        metrics: where its instruments are made; none unless given.
        limit: most keys held, waiting or delayed.
    """

    def __init__(
        self,
        name: str = "queue",
        *,
        backoff: Backoff | None = None,
        metrics: Metrics | None = None,
        limit: int = 100_000,
    ) -> None:
        self.name = name
        self._backoff = backoff if backoff is not None else Backoff(1.0, maximum=300.0)
        self._instruments = _Instruments(name, metrics) if metrics is not None else None
        self._limit = limit
        self._ready: dict[K, float] = {}  # key -> when it became ready; a dict because it keeps the order
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._running: set[K] = set()
        self._again: dict[K, float] = {}  # running key -> loop time of the next look
        self._errors: dict[K, str] = {}  # failing key -> its last error, as logged
        self._wake = asyncio.Event()
        self._owned = False

    def add(self, key: K, delay: float = 0.0) -> None:
        """Look at `key` after `delay` seconds. May be repeated: of several requests the earliest counts.

        Raises:
            QueueFullError: `limit` keys are held already.
        """
        now = asyncio.get_running_loop().time()
        due = now + max(0.0, delay)
        if key in self._running:
            self._again[key] = min(due, self._again.get(key, due))
        elif key not in self._ready:
            self._schedule(key, now, due)

    def discard(self, key: K) -> None:
        """Forget `key`, because its object is gone: no later look, no memory of failures. A running look goes on."""
        self._ready.pop(key, None)
        self._again.pop(key, None)
        timer = self._delayed.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._forget_failures(key)
        self._measure()

    def __len__(self) -> int:
        """Keys that wait for a worker now; delayed and running ones do not count."""
        return len(self._ready)

    @property
    def is_idle(self) -> bool:
        """Is nothing waiting for a worker and nothing running? Delayed keys may be."""
        return not self._ready and not self._running

    async def run(
        self, handler: Handler[K], *, workers: int, stop: asyncio.Event, timeout: float | timedelta | None = None
    ) -> None:
        """Handle keys until `stop` is set, then wait for the running handlers and return.

        A handler that raises is logged and looked at again after its back-off; the same error of the same key is
        logged once, at debug from then on. An error with `Retry.NEVER` goes straight to the longest delay: the fix
        comes from outside and may make no event.

        Args:
            handler: see `Handler`; it must not raise for a key that is gone.
            workers: keys handled at a time, at least 1.
            stop: keys not begun when it is set stay in the queue. Cancel this call to bound the wait.
            timeout: longest time a handler may take; a longer one counts as failed.
        """
        if workers < 1:
            raise ValueError(f"need at least 1 worker, got {workers}")
        if self._owned:
            raise RuntimeError(f"queue {self.name!r} runs already")
        self._owned = True
        limit = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            async with asyncio.TaskGroup() as group:
                waker = group.create_task(self._wake_when(stop), name=f"{self.name}-stop")
                while not stop.is_set():
                    self._wake.clear()
                    while self._ready and len(self._running) < workers:
                        key, since = next(iter(self._ready.items()))
                        del self._ready[key]
                        self._running.add(key)
                        group.create_task(self._work(key, since, handler, limit), name=f"{self.name}:{key}")
                    await self._wake.wait()
                waker.cancel()
        finally:
            self._owned = False
            for timer in self._delayed.values():
                timer.cancel()
            self._delayed.clear()
            self._running.clear()  # a task cancelled before its first step never reaches its own clean-up

    async def _work(self, key: K, since: float, handler: Handler[K], limit: float | None) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        delay: float | None = None
        result = "success"
        self._measure(waited=began - since)
        try:
            with bound_contextvars(queue=self.name, key=str(key)):
                try:
                    async with asyncio.timeout(limit) as deadline:
                        delay = await handler(key)
                except Exception as exc:
                    result = "error"
                    late = isinstance(exc, TimeoutError) and deadline.expired()
                    delay = self._failed(key, _HandlerLateError(f"it took longer than {limit} s") if late else exc)
                else:
                    self._forget_failures(key)
                    if delay is not None:
                        result = "requeue_after" if delay > 0 else "requeue"
        finally:
            self._running.discard(key)
            again = self._again.pop(key, None)
            now = loop.time()
            dues = [due for due in (again, None if delay is None else now + max(0.0, delay)) if due is not None]
            if dues:
                self._schedule(key, now, min(dues), bounded=False)
            self._measure(result=result, took=now - began)
            self._wake.set()

    def _failed(self, key: K, exc: Exception) -> float:
        delay = self._backoff.next(key)
        never = retry_of(exc) is Retry.NEVER
        if never:
            delay = self._backoff.maximum
        line = describe(exc)
        if self._errors.get(key) == line:
            log.debug("handler failed again", error=line, retry_seconds=round(delay, 3))
        else:
            self._errors[key] = line
            # Ours explain themselves; the place in the code matters for the others only.
            unexpected = exc if as_failure(exc) is None else None
            emit = log.error if never else log.warning
            emit("handler failed", error=line, retry_seconds=round(delay, 3), exc_info=unexpected)
        return delay

    def _forget_failures(self, key: K) -> None:
        self._backoff.reset(key)
        self._errors.pop(key, None)

    def _schedule(self, key: K, now: float, due: float, *, bounded: bool = True) -> None:
        """Make `key` (neither ready nor running) ready at `due`, unless it will be earlier."""
        timer = self._delayed.get(key)
        if timer is not None and timer.when() <= due:
            return
        # What comes back from a worker was counted when it was added: refusing it here would lose it.
        if bounded and timer is None and len(self._ready) + len(self._delayed) >= self._limit:
            raise QueueFullError(f"queue {self.name!r} holds {self._limit} keys already")
        if timer is not None:
            timer.cancel()
            del self._delayed[key]
        if due <= now:
            self._ready[key] = now
            self._measure(added=True)
            self._wake.set()
        else:
            self._delayed[key] = asyncio.get_running_loop().call_at(due, self._ripen, key)

    def _ripen(self, key: K) -> None:
        del self._delayed[key]
        self._ready[key] = asyncio.get_running_loop().time()
        self._measure(added=True)
        self._wake.set()

    async def _wake_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    def _measure(
        self, *, added: bool = False, waited: float | None = None, result: str = "", took: float = 0.0
    ) -> None:
        if self._instruments is None:
            return
        self._instruments.depth.set(len(self._ready))
        if added:
            self._instruments.adds.inc()
        if waited is not None:
            self._instruments.waited.observe(waited)
        if result:
            self._instruments.looked(result, took)


class _HandlerLateError(SawhorseError):
    """A handler took longer than it may."""

    reason = "HandlerLate"
    retry = Retry.BACKOFF


class _Instruments:
    """The metrics of one queue, under the names that dashboards for controllers read."""

    def __init__(self, name: str, metrics: Metrics) -> None:
        self._name = name
        labels = ("name",)
        self.depth = metrics.gauge("workqueue_depth", "Keys that wait for a worker.", labels).labels(name)
        self.adds = metrics.counter("workqueue_adds_total", "Keys that became ready.", labels).labels(name)
        self.waited = metrics.histogram("workqueue_queue_duration_seconds", "From ready to handled.", labels).labels(
            name
        )
        self._results = metrics.counter(
            "controller_runtime_reconcile_total", "Looks at a key, by result.", ("controller", "result")
        )
        self._errors = metrics.counter(
            "controller_runtime_reconcile_errors_total", "Looks that failed.", ("controller",)
        ).labels(name)
        self._took = metrics.histogram(
            "controller_runtime_reconcile_time_seconds", "How long a look took.", ("controller",)
        ).labels(name)

    def looked(self, result: str, took: float) -> None:
        """Count one look; `result` is success, error, requeue or requeue_after."""
        self._results.labels(self._name, result).inc()
        self._took.observe(took)
        if result == "error":
            self._errors.inc()
