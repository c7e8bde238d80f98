"""The loop under every controller: a change names keys to look at, a worker looks at each, and says when to look again.

Level-based: losing the reason of a look costs nothing, a key that changes often is looked at once.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

import structlog

from sawhorse_sandbox.apiserver.errors import ApiError
from sawhorse_sandbox.apiserver.resources import Kind
from sawhorse_sandbox.apiserver.storage import Change, Store

_log = structlog.get_logger(__name__)

SLICE = 0.01  # seconds of work before others get the loop
FIRST_RETRY = 0.1  # seconds
LONGEST_RETRY = 10.0  # seconds


class Reconciler(Protocol):
    """A controller. Both methods are synchronous, so what `reconcile` reads stays true until it returns."""

    @property
    def name(self) -> str: ...

    @property
    def kinds(self) -> tuple[Kind, ...] | None:
        """The collections whose changes it wants to see; None for all."""
        ...

    def keys(self, change: Change) -> Iterable[Hashable]:
        """What to look at after a change. Called inside the write: quick, and writes nothing."""
        ...

    def reconcile(self, key: Hashable) -> float | None:
        """Bring one key nearer to what is wanted. May be repeated. Returns in how many seconds to look again."""
        ...


class Worker:
    """Runs one reconciler. At the start it looks at all that exists."""

    def __init__(self, store: Store, reconciler: Reconciler, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._reconciler = reconciler
        self._ready: dict[Hashable, None] = {}
        self._due: dict[Hashable, float] = {}
        self._timers: list[tuple[float, int, Hashable]] = []
        self._timer_number = 0
        self._failures: dict[Hashable, int] = {}
        self._wake = asyncio.Event()
        kinds = reconciler.kinds
        self._kinds = frozenset(kinds) if kinds is not None else None
        for kind in kinds if kinds is not None else store.kinds():
            for stored in store.items(kind):
                metadata = stored.obj["metadata"]
                key = (metadata.get("namespace", ""), metadata["name"])
                self.observe(Change("ADDED", kind, key, stored, None))
        store.listen(self.observe)

    def observe(self, change: Change) -> None:
        if self._kinds is None or change.kind in self._kinds:
            for key in self._reconciler.keys(change):
                self._ready[key] = None
            if self._ready:
                self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            self.work(SLICE)
            if self._ready:
                await asyncio.sleep(0)
            else:
                await self._sleep()

    def work(self, seconds: float) -> bool:
        """Look at what is ready, for so long at most. Returns whether there was anything."""
        started = self._monotonic()
        self._collect_due(started)
        worked = bool(self._ready)
        while self._ready:
            key = next(iter(self._ready))
            del self._ready[key]
            self._look(key)
            if self._monotonic() - started >= seconds:
                break
        return worked

    async def _sleep(self) -> None:
        until = self._timers[0][0] - self._monotonic() if self._timers else None
        try:
            async with asyncio.timeout(max(until, 0) if until is not None else None):
                await self._wake.wait()
        except TimeoutError:
            return

    def _look(self, key: Hashable) -> None:
        self._due.pop(key, None)
        try:
            again = self._reconciler.reconcile(key)
        except ApiError as err:
            _log.debug("controller will retry", controller=self._reconciler.name, key=key, reason=err.reason)
            again = self._failed(key)
        except Exception as err:  # one bad object must not stop the rest
            _log.error("controller failed", controller=self._reconciler.name, key=key, exc_info=err)
            again = self._failed(key)
        else:
            self._failures.pop(key, None)
        if again is not None:
            self._schedule(key, self._monotonic() + again)

    def _failed(self, key: Hashable) -> float:
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        return min(FIRST_RETRY * 2.0 ** min(count, 10), LONGEST_RETRY)

    def _schedule(self, key: Hashable, when: float) -> None:
        self._due[key] = when
        self._timer_number += 1
        heapq.heappush(self._timers, (when, self._timer_number, key))

    def _collect_due(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            when, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == when:  # else it was looked at since, and said something newer
                del self._due[key]
                self._ready[key] = None
