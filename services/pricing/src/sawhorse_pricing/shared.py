"""What the replicas share through Redis: the published catalogue, what is out of capacity, and who fetches."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from sawhorse_catalog.aws import Unavailable
from sawhorse_catalog.measured import Measured
from sawhorse_pricing.scopes import ScopedMark
from sawhorse_state.catalog import CatalogStore
from sawhorse_state.connection import State
from sawhorse_state.unavailable import UnavailableOfferings
from sawhorse_state.wake import Wake, wake

SERVICE = "pricing"
_READERS = ("provisioner", SERVICE)
_ACCOUNT = "catalog:account"
_AT_ONCE = 500
_LOCK = "lease:pricing-refresh"
_TAKE = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0"
_TAKE_OR_KEEP = (
    f"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end {_TAKE}"
)
# Only our own: after a pause longer than the bound somebody else may hold it.
_GIVE_BACK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


@dataclass(frozen=True, slots=True)
class Report:
    """An offering that had no capacity, and the cloud's word for it. `scope`: for whom; empty for everybody."""

    capacity_type: str
    instance_type: str
    zone: str
    reason: str
    scope: str = ""


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
        """Offerings out of capacity now, to everybody."""
        ...

    async def scoped(self) -> frozenset[ScopedMark]:
        """Offerings out of capacity now to some only."""
        ...

    async def account(self) -> bytes:
        """The account's facts as published; empty when there are none."""
        ...

    async def publish_account(self, blob: bytes, longest: timedelta) -> None:
        """Publish the account's facts; they are gone after `longest` unless published again."""
        ...

    async def take_turn(self, what: str, every: timedelta) -> bool:
        """Whether it is this replica's turn to do something that all together do once in `every`."""
        ...

    async def measured_memory(self) -> Measured:
        """All measurements of nodes' memory."""
        ...

    async def mark(self, reports: Sequence[Report]) -> None:
        """Note offerings without capacity; each repeat lasts longer."""
        ...

    async def try_lock(self, owner: str, longest: timedelta) -> bool:
        """Become the one that fetches, or stay it, for `longest` from now at most.

        It only saves work: two that fetch do no harm.
        """
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

    async def scoped(self) -> frozenset[ScopedMark]:
        return await self._offerings.scoped()

    async def account(self) -> bytes:
        found = await self._state.do("read the account's facts", self._state.redis.get(self._state.key(_ACCOUNT)))
        return bytes(found or b"")

    async def publish_account(self, blob: bytes, longest: timedelta) -> None:
        milliseconds = int(longest.total_seconds() * 1000)
        key = self._state.key(_ACCOUNT)
        await self._state.do("publish the account's facts", self._state.redis.set(key, blob, px=milliseconds))

    async def take_turn(self, what: str, every: timedelta) -> bool:
        milliseconds = int(every.total_seconds() * 1000)
        return bool(await self._state.eval("take a turn", _TAKE, [f"turn:pricing-{what}"], ["", milliseconds]))

    async def measured_memory(self) -> Measured:
        prefix = self._state.key("memory:")
        keys = await self._state.do("list measurements", self._scan(prefix + "*"))
        found: dict[tuple[str, str, str], int] = {}
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            values = await self._state.do("read measurements", self._state.redis.mget(some))
            for key, value in zip(some, values, strict=True):
                parts = key.decode()[len(prefix) :].split(":")
                # The two commands are no transaction, and other versions may have other keys.
                if len(parts) == 3 and value is not None and value.isdigit():
                    found[parts[0], parts[1], parts[2]] = int(value)
        return found

    async def _scan(self, pattern: str) -> list[bytes]:
        return sorted([key async for key in self._state.redis.scan_iter(match=pattern, count=_AT_ONCE)])

    async def mark(self, reports: Sequence[Report]) -> None:
        async with asyncio.TaskGroup() as group:
            for report in reports:
                group.create_task(
                    self._offerings.mark(
                        report.capacity_type, report.instance_type, report.zone, report.reason, scope=report.scope
                    ),
                    name=f"mark-{report.instance_type}",
                )

    async def try_lock(self, owner: str, longest: timedelta) -> bool:
        milliseconds = int(longest.total_seconds() * 1000)
        return bool(await self._state.eval("take the refresh lock", _TAKE_OR_KEEP, [_LOCK], [owner, milliseconds]))

    async def unlock(self, owner: str) -> None:
        await self._state.eval("give the refresh lock back", _GIVE_BACK, [_LOCK], [owner])

    async def wake_readers(self, why: str) -> None:
        for service in _READERS:
            await wake(self._state, service, why)

    async def wait(self, longest: timedelta) -> None:
        await self._wake.wait(longest)
