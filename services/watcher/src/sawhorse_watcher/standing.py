"""Readiness: the leader is ready when the mirror is complete, a standby when it could take over now."""

import asyncio
from datetime import timedelta
from typing import Protocol

from sawhorse_runtime.errors import describe
from sawhorse_runtime.health import Readiness
from sawhorse_state.errors import StateError

MIRROR = "mirror"
KUBERNETES = "kubernetes"
REDIS = "redis"
CHECKS = (KUBERNETES, MIRROR, REDIS)

_LOOK = 0.2
_PING = 5.0


class Elector(Protocol):
    """What is read of `sawhorse_kube.leases.LeaderElector`."""

    looked_at: float
    holder: str

    @property
    def is_leading(self) -> bool: ...


class Fed(Protocol):
    """What is read of `sawhorse_watcher.feed.Feed`."""

    @property
    def synced(self) -> bool: ...
    @property
    def trouble(self) -> str: ...


class Pinged(Protocol):
    """What is needed of `sawhorse_state.connection.State`."""

    async def ping(self) -> None: ...


class Standing:
    """Keeps the readiness checks up to date.

    Args:
        fresh: how old the last answer about the Lease may be.
    """

    def __init__(self, readiness: Readiness, elector: Elector, feed: Fed, state: Pinged, *, fresh: timedelta) -> None:
        self._readiness = readiness
        self._elector = elector
        self._feed = feed
        self._state = state
        self._fresh = fresh.total_seconds()

    async def run(self, stop: asyncio.Event) -> None:
        """Look every moment until `stop` is set."""
        loop = asyncio.get_running_loop()
        pinged = float("-inf")
        while not stop.is_set():
            if loop.time() - pinged >= _PING:
                await self._ping()
                pinged = loop.time()
            self._look(loop.time())
            try:
                async with asyncio.timeout(_LOOK):
                    await stop.wait()
            except TimeoutError:
                continue

    def _look(self, now: float) -> None:
        heard = now - self._elector.looked_at <= self._fresh
        self._readiness.set(KUBERNETES, heard, "" if heard else "the leader Lease cannot be read")
        if self._elector.is_leading:
            trouble = self._feed.trouble or ("" if self._feed.synced else "full lists are being written")
            self._readiness.set(MIRROR, not trouble, trouble)
        else:
            other = bool(self._elector.holder)
            self._readiness.set(MIRROR, other, "" if other else "nobody leads yet")

    async def _ping(self) -> None:
        try:
            await self._state.ping()
        except StateError as err:
            self._readiness.set(REDIS, False, describe(err))
        else:
            self._readiness.set(REDIS, True)
