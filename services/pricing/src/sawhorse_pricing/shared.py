"""What the replicas share through Redis: the published catalogue, what is out of capacity, and who fetches."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from sawhorse_catalog.aws import Unavailable
from sawhorse_state.catalog import CatalogStore
from sawhorse_state.connection import State
from sawhorse_state.unavailable import UnavailableOfferings
from sawhorse_state.wake import Wake, wake

SERVICE = "pricing"
_READERS = ("provisioner", SERVICE)
_LOCK = "lease:pricing-refresh"
_TAKE = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0"
# Only our own: after a pause longer than the bound somebody else may hold it.
_GIVE_BACK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


@dataclass(frozen=True, slots=True)
class Report:
    """An offering that had no capacity, and the cloud's word for it."""

    capacity_type: str
    instance_type: str
    zone: str
    reason: str


class Shared(Protocol):
    """See the module. Every call is bounded and raises StateUnavailableError when Redis is out of reach."""

    async def current(self) -> str:
        """The name of the published catalogue; empty when there is none (never published, or flushed)."""
        ...

    async def load(self) -> tuple[str, bytes] | None:
        """Name and bytes of the published catalogue."""
        ...

    async def publish(self, name: str, blob: bytes) -> None:
        """Publish a catalogue whole, then make it the current one."""
        ...

    async def unavailable(self) -> Unavailable:
        """Offerings out of capacity now."""
        ...

    async def mark(self, reports: Sequence[Report]) -> None:
        """Note offerings without capacity; each repeat lasts longer."""
        ...

    async def try_lock(self, owner: str, longest: timedelta) -> bool:
        """Become the one that fetches, for `longest` at most. It only saves work: two that fetch do no harm."""
        ...

    async def unlock(self, owner: str) -> None:
        """Let the next one fetch."""
        ...

    async def wake_readers(self, why: str) -> None:
        """Tell the provisioner and the other replicas to look now."""
        ...

    async def wait(self, longest: timedelta) -> None:
        """Return when woken, or after `longest`."""
        ...


class RedisShared:
    """`Shared` over Redis."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._store = CatalogStore(state)
        self._offerings = UnavailableOfferings(state)
        self._wake = Wake(state, SERVICE)

    async def current(self) -> str:
        found = await self._store.current()
        return found.version if found is not None else ""

    async def load(self) -> tuple[str, bytes] | None:
        return await self._store.load_current()

    async def publish(self, name: str, blob: bytes) -> None:
        await self._store.publish(name, blob)

    async def unavailable(self) -> Unavailable:
        return await self._offerings.all()

    async def mark(self, reports: Sequence[Report]) -> None:
        async with asyncio.TaskGroup() as group:
            for report in reports:
                group.create_task(
                    self._offerings.mark(report.capacity_type, report.instance_type, report.zone, report.reason),
                    name=f"mark-{report.instance_type}",
                )

    async def try_lock(self, owner: str, longest: timedelta) -> bool:
        milliseconds = int(longest.total_seconds() * 1000)
        return bool(await self._state.eval("take the refresh lock", _TAKE, [_LOCK], [owner, milliseconds]))

    async def unlock(self, owner: str) -> None:
        await self._state.eval("give the refresh lock back", _GIVE_BACK, [_LOCK], [owner])

    async def wake_readers(self, why: str) -> None:
        for service in _READERS:
            await wake(self._state, service, why)

    async def wait(self, longest: timedelta) -> None:
        await self._wake.wait(longest)
