"""Cordons before evictions: drains stand back while effects of warnings are under way.

Both send requests through one rate limit, and a late cordon costs more than a late eviction: until it is there, the
scheduler goes on putting pods on a node that ends.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_STAND_BACK = 2.0  # seconds: a storm of warnings must not stop drains that have begun


class Precedence:
    """Counts effects under way. Belongs to one event loop."""

    def __init__(self) -> None:
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @contextmanager
    def effects(self) -> Iterator[None]:
        """The block is the effects of one message."""
        self._under_way += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    async def stand_back(self, seconds: float = LONGEST_STAND_BACK) -> None:
        """Return when no effects are under way, after `seconds` at the latest."""
        try:
            async with asyncio.timeout(seconds):
                await self._quiet.wait()
        except TimeoutError:
            return
