"""FakeCatalogSource: the CatalogSource protocol in memory; and FakeSharedCatalog: what pricing replicas share.

A test scripts the world: what the cloud lists, errors to raise, how long a call takes, whether Redis is out of reach.
Time is the running loop's, so virtual time works.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sawhorse_catalog.account import AccountFacts
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_cloud.cloud import SpotPrice
from sawhorse_testing.catalog import ZONES, common_facts, common_prices

Offering = tuple[str, str, str]


def _common_spot() -> list[SpotPrice]:
    return [SpotPrice(name, zone, price) for (name, zone), price in common_prices().spot.items()]


@dataclass
class FakeCatalogSource:
    """A region that lists the common fixture. Fields are the script; `calls` is what a test looks at.

    Args:
        latency: seconds that every call takes.
        errors: method name → errors to raise by the next calls, in order.
    """

    facts: Sequence[InstanceFacts] = field(default_factory=common_facts)
    zones: Mapping[str, str] = field(default_factory=lambda: dict(ZONES))
    on_demand: Mapping[str, float] = field(default_factory=lambda: dict(common_prices().on_demand))
    spot: Sequence[SpotPrice] = field(default_factory=_common_spot)
    account: AccountFacts = field(default_factory=AccountFacts)
    latency: float = 0.0
    errors: dict[str, list[Exception]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    async def fetch_instance_types(self) -> Sequence[InstanceFacts]:
        """See CatalogSource."""
        await self._call("fetch_instance_types")
        return list(self.facts)

    async def fetch_zones(self) -> Mapping[str, str]:
        """See CatalogSource."""
        await self._call("fetch_zones")
        return dict(self.zones)

    async def fetch_on_demand_prices(self) -> Mapping[str, float]:
        """See CatalogSource."""
        await self._call("fetch_on_demand_prices")
        return dict(self.on_demand)

    async def fetch_spot_prices(self) -> Sequence[SpotPrice]:
        """See CatalogSource."""
        await self._call("fetch_spot_prices")
        return list(self.spot)

    async def fetch_account(self) -> AccountFacts:
        """See CatalogSource."""
        await self._call("fetch_account")
        return self.account

    async def _call(self, method: str) -> None:
        self.calls.append(method)
        await asyncio.sleep(self.latency)
        if self.errors.get(method):
            raise self.errors[method].pop(0)


@dataclass
class FakeSharedCatalog:
    """What pricing replicas share, in memory: give one object to several replicas.

    Args:
        down: while set, every call raises it.
    """

    down: Exception | None = None
    name: str = ""
    blob: bytes = b""
    out_of_stock: set[Offering] = field(default_factory=set)
    scoped_marks: set[tuple[str, str, str, str]] = field(default_factory=set)
    lock_owner: str = ""
    published: list[str] = field(default_factory=list)
    woken: list[str] = field(default_factory=list)
    marked: list[Any] = field(default_factory=list)
    account_blob: bytes = b""
    turns: dict[str, float] = field(default_factory=dict)  # when the next is due
    measured: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def flush(self) -> None:
        """Lose everything, as FLUSHALL does."""
        self.name, self.blob, self.lock_owner, self.account_blob = "", b"", "", b""
        self.out_of_stock.clear()
        self.scoped_marks.clear()

    async def current(self) -> str:
        """The name of the published catalogue, or empty."""
        self._check()
        return self.name

    async def load(self) -> tuple[str, bytes] | None:
        """Name and bytes of the published catalogue."""
        self._check()
        return (self.name, self.blob) if self.name else None

    async def publish(self, name: str, blob: bytes) -> None:
        """Publish a catalogue."""
        self._check()
        self.name, self.blob = name, blob
        self.published.append(name)

    async def account(self) -> bytes:
        """The account's facts as published, or empty."""
        self._check()
        return self.account_blob

    async def publish_account(self, blob: bytes, longest: timedelta) -> None:
        """Publish the account's facts."""
        self._check()
        self.account_blob = blob

    async def take_turn(self, what: str, every: timedelta) -> bool:
        """Whether it is the caller's turn."""
        self._check()
        now = asyncio.get_running_loop().time()
        if now < self.turns.get(what, -math.inf):
            return False
        self.turns[what] = now + every.total_seconds()
        return True

    async def measured_memory(self) -> dict[tuple[str, str, str], int]:
        """Measurements by (type, image, kubelet hash)."""
        self._check()
        return dict(self.measured)

    async def unavailable(self) -> frozenset[Offering]:
        """Offerings out of capacity."""
        self._check()
        return frozenset(self.out_of_stock)

    async def scoped(self) -> frozenset[tuple[str, str, str, str]]:
        """The same where it is limited to a scope."""
        self._check()
        return frozenset(self.scoped_marks)

    async def mark(self, reports: Sequence[Any]) -> None:
        """Note offerings without capacity."""
        self._check()
        self.marked.extend(reports)
        self.out_of_stock |= {(r.capacity_type, r.instance_type, r.zone) for r in reports if not r.scope}
        self.scoped_marks |= {(r.capacity_type, r.instance_type, r.zone, r.scope) for r in reports if r.scope}

    async def try_lock(self, owner: str, longest: timedelta) -> bool:
        """Become the one that fetches, or stay it."""
        self._check()
        if self.lock_owner not in ("", owner):
            return False
        self.lock_owner = owner
        return True

    async def unlock(self, owner: str) -> None:
        """Let the next one fetch."""
        self._check()
        if self.lock_owner == owner:
            self.lock_owner = ""

    async def wake_readers(self, why: str) -> None:
        """Wake all that wait."""
        self._check()
        self.woken.append(why)
        waiting, self._wake = self._wake, asyncio.Event()
        waiting.set()

    async def wait(self, longest: timedelta) -> None:
        """Return when woken, or after `longest`."""
        self._check()
        try:
            async with asyncio.timeout(longest.total_seconds()):
                await self._wake.wait()
        except TimeoutError:
            return

    def _check(self) -> None:
        if self.down is not None:
            raise self.down
