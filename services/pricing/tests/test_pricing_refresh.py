"""Who fetches when, what is published, and what a failed or odd fetch leaves behind."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sawhorse_catalog.aws import ResolveSettings
from sawhorse_catalog.snapshot import CatalogSnapshot, decode_snapshot
from sawhorse_cloud.cloud import SpotPrice
from sawhorse_cloud.errors import CloudUnavailableError
from sawhorse_pricing.fetch import Fetcher
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.refresh import Follower, ImplausibleCatalogError, Refresher, Schedule
from sawhorse_pricing.serving import Catalogue
from sawhorse_runtime.errors import UnavailableError
from sawhorse_runtime.metrics import Metrics
from sawhorse_state.errors import StateUnavailableError
from sawhorse_testing.catalog import common_facts
from sawhorse_testing.catalog_source import FakeCatalogSource, FakeSharedCatalog

HOUR = 3600.0


@dataclass
class LoopClock:
    """A wall clock that goes with the loop's time, which `looptime` makes virtual; `offset` sets it forward."""

    offset: float = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + self.offset

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Replica:
    """One pricing replica without its gRPC server."""

    shared: FakeSharedCatalog
    source: FakeCatalogSource = field(default_factory=FakeCatalogSource)
    clock: LoopClock = field(default_factory=LoopClock)
    schedule: Schedule = field(default_factory=lambda: Schedule(jitter=0.0))
    metrics: Metrics = field(default_factory=Metrics)
    reports: list[tuple[bool, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        instruments = Instruments(self.metrics)
        self.catalogue = Catalogue(settings=ResolveSettings(), instruments=instruments)
        self.follower = Follower(self.shared, self.catalogue, report=self.report)
        self.refresher = Refresher(
            fetcher=Fetcher(self.source, region="us-west-2", ask_prices=True, instruments=instruments),
            shared=self.shared,
            follower=self.follower,
            catalogue=self.catalogue,
            schedule=self.schedule,
            clock=self.clock,
            instruments=instruments,
            report=self.report,
        )

    def report(self, ready: bool, why: str) -> None:
        self.reports.append((ready, why))

    @property
    def snapshot(self) -> CatalogSnapshot:
        assert self.catalogue.snapshot is not None
        return self.catalogue.snapshot

    def fetches(self) -> int:
        return self.source.calls.count("fetch_instance_types")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.refresher.run(stop))
            group.create_task(self.follower.run(stop))
            try:
                yield
            finally:
                stop.set()


async def test_the_first_look_fetches_publishes_whole_and_is_ready() -> None:
    replica = Replica(FakeSharedCatalog())

    await replica.refresher.look()

    assert decode_snapshot(replica.shared.blob) == replica.snapshot
    assert replica.reports == [(True, "")]
    assert replica.shared.woken == ["catalogue-changed"]


async def test_one_of_two_replicas_fetches_and_the_other_follows() -> None:
    shared = FakeSharedCatalog()
    first, second = Replica(shared), Replica(shared)
    first.source.latency = 0.01

    async with asyncio.TaskGroup() as group:
        group.create_task(first.refresher.look())
        group.create_task(second.refresher.look())
    await second.follower.look()

    assert (first.fetches(), second.fetches()) == (1, 0)
    assert second.snapshot == first.snapshot
    assert second.catalogue.version == first.catalogue.version


async def test_what_another_replica_has_just_published_is_not_fetched_again() -> None:
    shared = FakeSharedCatalog()
    await Replica(shared).refresher.look()
    late = Replica(shared)

    await late.refresher.look()

    assert late.fetches() == 0
    assert late.catalogue.is_loaded


async def test_the_lock_is_given_back_after_a_failed_fetch() -> None:
    replica = Replica(FakeSharedCatalog())
    replica.source.errors["fetch_zones"] = [CloudUnavailableError("no route")]

    with pytest.raises(ExceptionGroup):
        await replica.refresher.look()

    assert replica.shared.lock_owner == ""
    assert replica.shared.published == []


async def test_nothing_is_fetched_before_it_is_due_and_spot_prices_come_due_sooner() -> None:
    replica = Replica(FakeSharedCatalog())
    await replica.refresher.look()
    replica.source.calls.clear()

    replica.clock.offset += HOUR / 2 - 5
    await replica.refresher.look()
    early = list(replica.source.calls)
    replica.clock.offset += 10
    await replica.refresher.look()
    spot = list(replica.source.calls)
    replica.clock.offset += 12 * HOUR
    await replica.refresher.look()

    assert early == []
    assert spot == ["fetch_spot_prices"]
    assert replica.fetches() == 1


async def test_jitter_only_delays_and_is_drawn_once_per_catalogue() -> None:
    shared = FakeSharedCatalog()
    schedule = Schedule(interval=timedelta(seconds=100), spot_interval=timedelta(hours=9), jitter=0.5)
    replica = Replica(shared, schedule=schedule)
    await replica.refresher.look()

    due_at = None
    for second in range(151):
        replica.clock.offset += 1
        await replica.refresher.look()
        if replica.fetches() == 2:
            due_at = second + 1
            break

    assert due_at is not None
    assert 100 <= due_at <= 151


async def test_a_fetch_without_news_is_published_for_its_time_and_wakes_nobody() -> None:
    replica = Replica(FakeSharedCatalog())
    await replica.refresher.look()
    before = replica.catalogue.version
    other = Replica(replica.shared)
    await other.follower.look()

    replica.clock.offset += 13 * HOUR
    await replica.refresher.look()
    await other.follower.look()

    assert len(replica.shared.published) == 2
    assert replica.shared.woken == ["catalogue-changed"]
    assert replica.catalogue.version == before == other.catalogue.version
    assert other.snapshot.fetched_at == replica.snapshot.fetched_at


async def test_changed_spot_prices_change_the_version_and_wake_readers() -> None:
    replica = Replica(FakeSharedCatalog())
    await replica.refresher.look()
    before = replica.catalogue.version

    replica.source.spot = [SpotPrice("m6i.large", "us-west-2a", 0.9)]
    replica.clock.offset += HOUR
    await replica.refresher.look()

    assert replica.catalogue.version != before
    assert len(replica.shared.woken) == 2


async def test_a_fetch_that_lost_half_is_believed_only_at_the_second_look() -> None:
    replica = Replica(FakeSharedCatalog())
    await replica.refresher.look()
    replica.source.facts = common_facts()[:2]
    replica.clock.offset += 13 * HOUR

    with pytest.raises(ImplausibleCatalogError, match="2 instance types, before there were 8"):
        await replica.refresher.look()
    kept = len(replica.snapshot.facts)
    await replica.refresher.look()

    assert kept == 8
    assert sum(not f.retired for f in replica.snapshot.facts) == 2


async def test_p11_a_type_that_ec2_lists_no_more_keeps_size_and_last_price_and_is_not_launched() -> None:
    replica = Replica(FakeSharedCatalog())
    await replica.refresher.look()
    gone = next(f for f in common_facts() if f.name == "g5.xlarge")
    before = (await replica.catalogue.resolve(None, "")).types
    replica.source.facts = [f for f in common_facts() if f != gone]
    replica.source.on_demand = {k: v for k, v in replica.source.on_demand.items() if k != gone.name}
    replica.clock.offset += 13 * HOUR

    await replica.refresher.look()

    resolved = await replica.catalogue.resolve(None, "")
    (was,) = (t for t in before if t.name == gone.name)
    (now,) = (t for t in resolved.types if t.name == gone.name)
    assert (now.capacity, now.allocatable) == (was.capacity, was.allocatable)
    assert {o.price for o in now.offerings} == {o.price for o in was.offerings}
    assert not any(o.available for o in now.offerings)
    assert resolved.excluded[gone.name] == "EC2 no longer lists it"


async def test_a_type_that_comes_back_is_launched_again() -> None:
    replica = Replica(FakeSharedCatalog())
    await replica.refresher.look()
    replica.source.facts = common_facts()[1:]
    replica.clock.offset += 13 * HOUR
    await replica.refresher.look()
    replica.source.facts = common_facts()
    replica.clock.offset += 14 * HOUR

    await replica.refresher.look()

    assert not any(f.retired for f in replica.snapshot.facts)


async def test_a_second_look_that_finds_everything_again_keeps_everything() -> None:
    replica = Replica(FakeSharedCatalog())
    await replica.refresher.look()
    replica.source.facts = common_facts()[:2]
    replica.clock.offset += 13 * HOUR
    with pytest.raises(ImplausibleCatalogError):
        await replica.refresher.look()

    replica.source.facts = common_facts()
    await replica.refresher.look()

    assert len(replica.snapshot.facts) == 8


async def test_an_empty_answer_is_never_believed() -> None:
    replica = Replica(FakeSharedCatalog())
    await replica.refresher.look()
    replica.source.facts = []
    replica.clock.offset += 13 * HOUR

    for _ in range(3):
        with pytest.raises(ImplausibleCatalogError):
            await replica.refresher.look()

    assert len(replica.snapshot.facts) == 8


async def test_a_fetch_that_takes_too_long_fails_with_its_bound() -> None:
    replica = Replica(FakeSharedCatalog(), schedule=Schedule(fetch_timeout=timedelta(milliseconds=20)))
    replica.source.latency = 30.0

    with pytest.raises(UnavailableError, match=r"no complete answer within 0\.02 s"):
        await replica.refresher.look()


async def test_after_a_flush_the_catalogue_is_published_again_without_a_fetch() -> None:
    replica = Replica(FakeSharedCatalog())
    await replica.refresher.look()
    name = replica.shared.name

    replica.shared.flush()
    await replica.refresher.look()

    assert replica.shared.name == name
    assert replica.fetches() == 1


async def test_a_published_catalogue_that_cannot_be_read_keeps_the_last() -> None:
    replica = Replica(FakeSharedCatalog())
    await replica.refresher.look()

    replica.shared.name, replica.shared.blob = "other", b"damaged"
    await replica.follower.look()
    await replica.follower.look()

    assert len(replica.snapshot.facts) == 8


async def test_what_runs_out_of_capacity_elsewhere_is_followed() -> None:
    shared = FakeSharedCatalog()
    replica = Replica(shared)
    await replica.refresher.look()
    before = replica.catalogue.version

    shared.out_of_stock.add(("spot", "m6i.large", "us-west-2a"))
    await replica.follower.look()

    assert replica.catalogue.version != before


@pytest.mark.looptime
async def test_while_the_cloud_is_away_the_service_says_why_and_tries_again_until_it_works() -> None:
    replica = Replica(FakeSharedCatalog())
    replica.source.errors["fetch_instance_types"] = [CloudUnavailableError("no route to ec2")] * 2

    async with replica.running():
        await asyncio.sleep(30)

    assert replica.reports[0][0] is False
    assert "no route to ec2" in replica.reports[0][1]
    assert replica.reports[-1] == (True, "")
    assert replica.fetches() == 3


@pytest.mark.looptime
async def test_while_redis_is_away_the_last_catalogue_is_served_and_followed_again_afterwards() -> None:
    shared = FakeSharedCatalog()
    replica = Replica(shared)

    async with replica.running():
        await asyncio.sleep(3)
        shared.down = StateUnavailableError("redis is away")
        await asyncio.sleep(120)
        served = replica.catalogue.is_loaded
        shared.down = None
        shared.out_of_stock.add(("spot", "m6i.large", "us-west-2a"))
        await asyncio.sleep(15)
        found = await replica.catalogue.resolve(None, "")

    m6i = next(t for t in found.types if t.name == "m6i.large")
    assert served
    assert [o.available for o in m6i.offerings if o.capacity_type == "spot"] == [False, True, True]


@pytest.mark.looptime
async def test_an_old_catalogue_is_served_and_shows_its_age() -> None:
    replica = Replica(FakeSharedCatalog(), schedule=Schedule(interval=timedelta(minutes=1), jitter=0.0))

    async with replica.running():
        await asyncio.sleep(3)
        replica.source.errors["fetch_instance_types"] = [CloudUnavailableError("no route")] * 1000
        await asyncio.sleep(1000)

    age: Any = replica.metrics.registry.get_sample_value("sawhorse_catalog_age_seconds")
    assert 700 < age <= 1010
    assert replica.catalogue.is_loaded


async def test_a_lock_that_cannot_be_given_back_does_not_fail_the_fetch() -> None:
    class Unlucky(FakeSharedCatalog):
        async def unlock(self, owner: str) -> None:
            raise StateUnavailableError("gone")

    replica = Replica(Unlucky())

    with contextlib.suppress(StateUnavailableError):
        await replica.refresher.look()

    assert replica.catalogue.is_loaded
