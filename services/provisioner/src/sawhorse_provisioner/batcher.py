"""Batches of reasons to plan: a window that closes when nothing new came for a while, or after long enough."""

import asyncio
from datetime import timedelta


class Batcher:
    """Collects keys. A window opens with the first key; each new one restarts the idle time, up to the longest.

    Args:
        idle: the window closes after this long without a new key.
        longest: and after this long at most.
        urgent_idle: the idle time once an urgent key is in it: an interrupted node cannot wait.
    """

    def __init__(
        self, *, idle: timedelta, longest: timedelta, urgent_idle: timedelta = timedelta(seconds=0.25)
    ) -> None:
        self._idle = idle.total_seconds()
        self._longest = longest.total_seconds()
        self._urgent_idle = min(urgent_idle.total_seconds(), self._idle)
        self._keys: set[str] = set()
        self._opened = 0.0
        self._last = 0.0
        self._urgent = False
        self._changed = asyncio.Event()

    def add(self, key: str, *, urgent: bool = False) -> None:
        """One more reason. A key that is in the window already changes nothing, unless it has become urgent."""
        if key in self._keys and (self._urgent or not urgent):
            return
        now = asyncio.get_running_loop().time()
        if not self._keys:
            self._opened = now
        self._keys.add(key)
        self._last = now
        self._urgent = self._urgent or urgent
        self._changed.set()

    @property
    def is_open(self) -> bool:
        """Whether a window is open."""
        return bool(self._keys)

    async def next_batch(self) -> frozenset[str]:
        """The keys of the next window, once it has closed; waits as long as there is none."""
        while not self._keys:
            await self._changed.wait()
            self._changed.clear()
        while True:
            self._changed.clear()
            idle = self._urgent_idle if self._urgent else self._idle
            try:
                async with asyncio.timeout_at(min(self._last + idle, self._opened + self._longest)):
                    await self._changed.wait()
            except TimeoutError:
                break
        batch = frozenset(self._keys)
        self._keys.clear()
        self._urgent = False
        return batch
