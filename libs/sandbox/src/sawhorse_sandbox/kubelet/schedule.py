"""Keys that become due at a time, worked on by a bounded number of workers, never two at once for one key."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog

log = structlog.get_logger(__name__)

_FIRST_RETRY, _LAST_RETRY = 0.2, 10.0  # seconds


class Schedule:
    """Looks at each key when it is due.

    The handler returns the loop time of its next look, or None to wait for `add`. When it fails the key comes again
    after a pause that doubles up to 10 s. Times are those of the running loop.
    """

    def __init__(self, name: str, handle: Callable[[str], Awaitable[float | None]], *, workers: int) -> None:
        self._name = name
        self._handle = handle
        self._workers = workers
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._ready: asyncio.Queue[str] = asyncio.Queue()  # bounded by the number of keys: each is in it at most once
        self._active: set[str] = set()
        self._missed: set[str] = set()  # became due while being worked on
        self._wake = asyncio.Event()
        self._failures: dict[str, int] = {}
        self.failed = 0  # looks that raised, since the start

    def add(self, key: str, due: float = 0.0) -> None:
        """Look at `key` at `due` (0: now), unless an earlier look is planned."""
        planned = self._due.get(key)
        if planned is not None and planned <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatch(), name=f"{self._name}-dispatch")
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self._name}-{number}")

    async def _dispatch(self) -> NoReturn:
        now = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            while self._heap and self._heap[0][0] <= now():
                due, _, key = heapq.heappop(self._heap)
                if self._due.get(key) != due:
                    continue  # replaced by an earlier one
                del self._due[key]
                if key in self._active:
                    self._missed.add(key)
                else:
                    self._active.add(key)
                    self._ready.put_nowait(key)
            timeout = self._heap[0][0] - now() if self._heap else None
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _work(self) -> NoReturn:
        now = asyncio.get_running_loop().time
        while True:
            key = await self._ready.get()
            try:
                again = await self._handle(key)
                self._failures.pop(key, None)
            except Exception as err:
                self.failed += 1
                count = self._failures[key] = self._failures.get(key, 0) + 1
                again = now() + min(_LAST_RETRY, _FIRST_RETRY * 2 ** min(count - 1, 10))
                log.warning("look failed", queue=self._name, key=key, attempt=count, error=repr(err))
            self._active.discard(key)
            if key in self._missed:
                self._missed.discard(key)
                again = 0.0
            if again is not None:
                self.add(key, again)
