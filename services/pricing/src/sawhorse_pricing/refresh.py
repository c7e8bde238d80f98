"""Keeping the catalogue fresh: one replica fetches and publishes, all follow what is published.

A fetch that fails, or that looks as if something were missing, changes nothing: the last good catalogue stays, and the
log says how old it is.
"""

import asyncio
import contextlib
import math
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import structlog

from sawhorse_catalog.account import AccountFacts, decode_account
from sawhorse_catalog.snapshot import (
    CatalogSnapshot,
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
    is_plausible,
    why_implausible,
)
from sawhorse_pricing.fetch import Fetcher
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.serving import Catalogue
from sawhorse_pricing.shared import Shared
from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import Retry, SawhorseError, UnavailableError, describe

log = structlog.get_logger(__name__)

LOOK = timedelta(seconds=2)  # how often a replica asks itself whether something is due
POLL = timedelta(seconds=1)  # how often it asks Redis for news when nobody wakes it
MEASURED = timedelta(seconds=30)  # how often it asks for measured memory
SECOND_LOOK = timedelta(seconds=30)
LOCK = timedelta(seconds=15)  # a crashed fetcher holds the others up for no longer; a living one renews it
_WARN_AGAIN = timedelta(hours=1)


class ImplausibleCatalogError(SawhorseError):
    """A fetch looks as if something were missing."""

    reason = "ImplausibleCatalog"
    retry = Retry.BACKOFF


Report = Callable[[bool, str], None]
"""Told whether there is a catalogue to serve, and if not, why."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often to fetch. `jitter` is the share by which each interval is lengthened at random, at most."""

    interval: timedelta = timedelta(hours=12)
    spot_interval: timedelta = timedelta(minutes=30)
    fetch_timeout: timedelta = timedelta(minutes=5)
    max_age: timedelta = timedelta(hours=26)
    jitter: float = 0.1


def published_name(snapshot: CatalogSnapshot) -> str:
    """The name to publish under: the content's and the time's, so that followers learn of a fetch without news too."""
    return f"{snapshot.version}-{max(snapshot.fetched_at, snapshot.spot_fetched_at):.3f}"


class Follower:
    """Brings what is published, and what is out of capacity, into memory."""

    def __init__(self, shared: Shared, catalogue: Catalogue, *, report: Report) -> None:
        self._shared = shared
        self._catalogue = catalogue
        self._report = report
        self._held = ""  # the name of what is in memory
        self._account = b""
        self._measure_again = -math.inf
        self._refused = ""  # the name of what could not be read, so that it is read and logged once

    async def run(self, stop: asyncio.Event) -> None:
        """Follow until `stop`. While Redis is away, what is in memory is served."""
        backoff = Backoff(0.5, maximum=10.0)
        failing = False
        while not stop.is_set():
            try:
                await self.look()
                if failing:
                    log.info("following the published catalogue again")
                failing = False
                backoff.reset("")
                async with asyncio.timeout(POLL.total_seconds() * 10):
                    await self._shared.wait(POLL)
            except Exception as error:
                level = log.debug if failing else log.warning
                level("published catalogue out of reach, serving what is in memory", error=describe(error))
                failing = True
                await pause(stop, backoff.next(""))

    async def look(self) -> None:
        """Take over what is published and what is out of capacity."""
        name = await self._shared.current()
        if name and name not in (self._held, self._refused):
            await self.load()
        await self.look_account()
        await self.look_measured()
        await self.look_unavailable()

    async def look_account(self) -> None:
        """Take over the account's reservations and placement groups."""
        blob = await self._shared.account()
        if blob == self._account:
            return
        self._account = blob
        try:
            self._catalogue.set_account(decode_account(blob) if blob else AccountFacts())
        except ValueError as error:
            log.warning("published reservations cannot be read, keeping the last", error=str(error))

    async def look_measured(self) -> None:
        """Take over what nodes have reported about their memory; looked at twice a minute, for it changes rarely."""
        now = asyncio.get_running_loop().time()
        if now < self._measure_again:
            return
        self._catalogue.set_measured(await self._shared.measured_memory())
        self._measure_again = now + MEASURED.total_seconds()

    async def look_unavailable(self) -> None:
        """Take over what is out of capacity."""
        self._catalogue.set_unavailable(await self._shared.unavailable(), await self._shared.scoped())

    async def load(self) -> None:
        """Take over the published catalogue, if there is a readable one."""
        loaded = await self._shared.load()
        if loaded is None or loaded[0] == self._held:
            return
        name, blob = loaded
        try:
            snapshot = await asyncio.to_thread(decode_snapshot, blob)
        except SnapshotError as error:
            self._refused = name
            log.warning("published catalogue cannot be read, keeping the last", version=name, error=str(error))
            return
        self.hold(snapshot, name)

    def hold(self, snapshot: CatalogSnapshot, name: str) -> None:
        """Serve a snapshot that is published under `name`."""
        self._catalogue.take(snapshot)
        self._held = name
        self._report(True, "")


class Refresher:
    """Fetches when it is time, publishes whole, and publishes again what Redis has lost."""

    def __init__(
        self,
        *,
        fetcher: Fetcher,
        shared: Shared,
        follower: Follower,
        catalogue: Catalogue,
        schedule: Schedule,
        clock: Clock,
        instruments: Instruments,
        report: Report,
        rng: random.Random | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._shared = shared
        self._follower = follower
        self._catalogue = catalogue
        self._schedule = schedule
        self._clock = clock
        self._instruments = instruments
        self._report = report
        self._rng = rng or random.Random()
        self._owner = uuid.uuid4().hex
        self._late: tuple[str, float] = ("", 0.0)  # what is published, and how much later than due we look at it
        self._doubted: CatalogSnapshot | None = None
        self._warned = -math.inf

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop`; failures back off."""
        backoff = Backoff(5.0, maximum=300.0)
        while not stop.is_set():
            wait = LOOK.total_seconds()
            try:
                await self.look()
                backoff.reset("")
            except Exception as error:
                wait = backoff.next("")
                if isinstance(error, ImplausibleCatalogError):
                    wait = SECOND_LOOK.total_seconds()
                why = describe(error)
                if not self._catalogue.is_loaded:
                    self._report(False, why)
                log.warning(
                    "catalogue not refreshed, keeping the last",
                    error=why,
                    age_seconds=self._age(),
                    retry_seconds=round(wait, 1),
                )
            self._watch_age()
            await pause(stop, wait)

    async def look(self) -> None:
        """Fetch what is due, or publish again what Redis has lost; else nothing.

        Raises:
            ImplausibleCatalogError: the fetch looks incomplete.
            Exception: the fetch failed, or Redis is out of reach.
        """
        lost = self._catalogue.is_loaded and not await self._shared.current()
        if not lost and not self._due():
            return
        async with self._exclusive() as mine:
            if not mine:
                return
            await self._follower.load()  # another replica may just have done it
            due = self._due()
            if due:
                await self._fetch(due)
            elif self._catalogue.snapshot is not None and not await self._shared.current():
                log.info("published catalogue is gone, publishing it again")
                await self._publish(self._catalogue.snapshot)

    async def _fetch(self, what: str) -> None:
        began = self._clock.monotonic()
        result = "failed"
        try:
            async with asyncio.timeout(self._schedule.fetch_timeout.total_seconds()):
                result = await (self._fetch_all() if what == "catalog" else self._fetch_spot())
        except ImplausibleCatalogError:
            result = "doubted"
            raise
        except TimeoutError as error:
            limit = self._schedule.fetch_timeout.total_seconds()
            raise UnavailableError(f"the cloud gave no complete answer within {limit:g} s") from error
        finally:
            self._instruments.refreshes.labels(what, result).inc()
            self._instruments.refresh_seconds.labels(what).observe(self._clock.monotonic() - began)

    async def _fetch_all(self) -> str:
        last = self._catalogue.snapshot
        found = await self._fetcher.fetch(last, self._now())
        why = why_implausible(found, last)
        if why:
            doubted, self._doubted = self._doubted, found
            if doubted is None or not is_plausible(found, doubted):
                raise ImplausibleCatalogError(f"{why}; a second look will tell")
            log.warning("catalogue shrank, and a second look confirms it", why=why)
        self._doubted = None
        return await self._publish(found)

    async def _fetch_spot(self) -> str:
        last = self._catalogue.snapshot
        assert last is not None  # spot prices are due only where there is a catalogue
        found = await self._fetcher.fetch_spot(last, self._now())
        if found is None:
            raise UnavailableError("spot prices could not be fetched")
        return await self._publish(found)

    async def _publish(self, snapshot: CatalogSnapshot) -> str:
        before = self._catalogue.snapshot
        name = published_name(snapshot)
        await self._shared.publish(name, await asyncio.to_thread(encode_snapshot, snapshot))
        self._follower.hold(snapshot, name)
        if before is not None and before.version == snapshot.version:
            return "unchanged"
        await self._shared.wake_readers("catalogue-changed")
        return "published"

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[bool]:
        if not await self._shared.try_lock(self._owner, LOCK):
            yield False
            return
        failed: Exception | None = None
        async with asyncio.TaskGroup() as group:
            keeper = group.create_task(self._keep_lock(), name="keep-refresh-lock")
            try:
                yield True
            except Exception as error:
                failed = error  # the group would wrap it
            finally:
                keeper.cancel()
                with contextlib.suppress(Exception):  # it ends by itself
                    await self._shared.unlock(self._owner)
        if failed is not None:
            raise failed

    async def _keep_lock(self) -> None:
        while True:
            await asyncio.sleep(LOCK.total_seconds() / 3)
            with contextlib.suppress(Exception):  # two that fetch do no harm
                await self._shared.try_lock(self._owner, LOCK)

    def _due(self) -> str:
        """What is due: "catalog", "spot" or nothing."""
        snapshot = self._catalogue.snapshot
        if snapshot is None:
            return "catalog"
        name = published_name(snapshot)
        if self._late[0] != name:
            # Drawn once per catalogue: drawn at each look, the earliest draw would win.
            self._late = (name, self._rng.uniform(0, self._schedule.jitter))
        stretch, now = 1 + self._late[1], self._now()
        if now - snapshot.fetched_at >= self._schedule.interval.total_seconds() * stretch:
            return "catalog"
        if now - snapshot.spot_fetched_at >= self._schedule.spot_interval.total_seconds() * stretch:
            return "spot"
        return ""

    def _watch_age(self) -> None:
        age = self._age()
        if age is None:
            return
        self._instruments.age.set(age)
        now = self._clock.monotonic()
        if age > self._schedule.max_age.total_seconds() and now - self._warned > _WARN_AGAIN.total_seconds():
            self._warned = now
            log.warning("catalogue is old, prices and types may have changed", age_seconds=age)

    def _age(self) -> float | None:
        snapshot = self._catalogue.snapshot
        return None if snapshot is None else round(max(self._now() - snapshot.fetched_at, 0.0), 1)

    def _now(self) -> float:
        return self._clock.now().timestamp()


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait that long, or until `stop`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
