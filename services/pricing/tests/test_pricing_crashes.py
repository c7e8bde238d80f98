"""Pricing dies before and after every named step, and the next replica serves a whole catalogue. In virtual time."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from sawhorse_catalog.aws import ResolveSettings
from sawhorse_catalog.snapshot import decode_snapshot
from sawhorse_cloud.errors import CloudUnavailableError
from sawhorse_pricing.fetch import Fetcher
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.refresh import LOCK, Follower, Refresher, Schedule
from sawhorse_pricing.serving import Catalogue
from sawhorse_pricing.shared import Report
from sawhorse_pricing.steps import Step, mark_fetcher, mark_shared
from sawhorse_runtime.failpoints import Steps
from sawhorse_runtime.metrics import Metrics
from sawhorse_state.errors import StateUnavailableError
from sawhorse_testing.catalog_source import FakeCatalogSource, FakeSharedCatalog
from sawhorse_testing.crashes import Crash, Crashed, When

pytestmark = pytest.mark.looptime

SIDES: list[When] = ["before", "after"]
AWAY = 20.0  # seconds
OFFERING = ("spot", "m5.large", "us-west-2a")


@dataclass
class LoopClock:
    """The loop's time, which is virtual, as a clock that may be off."""

    off: float = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 29, tzinfo=UTC) + timedelta(seconds=self.monotonic() + self.off)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Replica:
    """One process of pricing, without its gRPC server."""

    shared: FakeSharedCatalog
    source: FakeCatalogSource
    crash: Crash = field(default_factory=Crash)
    clock: LoopClock = field(default_factory=LoopClock)
    schedule: Schedule = field(default_factory=lambda: Schedule(jitter=0.0))

    def __post_init__(self) -> None:
        steps, instruments = Steps(self.crash.failpoint), Instruments(Metrics())
        self.marked = mark_shared(self.crash.link(self.shared), steps)
        self.catalogue = Catalogue(settings=ResolveSettings(), instruments=instruments)
        self.follower = Follower(self.marked, self.catalogue, report=lambda ready, why: None)
        fetcher = Fetcher(self.source, region="us-west-2", ask_prices=True, instruments=instruments)
        self.refresher = Refresher(
            fetcher=mark_fetcher(fetcher, steps),
            shared=self.marked,
            follower=self.follower,
            catalogue=self.catalogue,
            schedule=self.schedule,
            clock=self.clock,
            instruments=instruments,
            report=lambda ready, why: None,
        )

    async def run(self, seconds: float) -> None:
        """Work for a time, or until the crash."""
        stop = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.refresher.run(stop))
                group.create_task(self.follower.run(stop))
                group.create_task(stop_after(stop, seconds))
        except* Crashed:
            assert self.crash.happened


async def stop_after(stop: asyncio.Event, seconds: float) -> None:
    await asyncio.sleep(seconds)
    stop.set()


def is_whole(replica: Replica) -> bool:
    """Whether what is published is what the replica serves."""
    return replica.catalogue.snapshot is not None and decode_snapshot(replica.shared.blob) == replica.catalogue.snapshot


@pytest.mark.parametrize("when", SIDES)
@pytest.mark.parametrize("step", [Step.FETCHED, Step.PUBLISHED, Step.WOKEN])
async def test_a_replica_that_dies_at_any_step_is_followed_by_a_whole_catalogue(
    looptime: None, step: Step, when: When
) -> None:
    shared, source = FakeSharedCatalog(), FakeCatalogSource()
    dying = Replica(shared, source, Crash(step, when))
    await dying.run(600)
    assert dying.crash.happened

    shared.lock_owner = ""  # the fake's lock does not end by itself, as the real one does
    successor = Replica(shared, source)
    await successor.run(LOCK.total_seconds() + AWAY)

    assert is_whole(successor)
    assert len(set(shared.published)) == 1


@pytest.mark.parametrize("when", SIDES)
async def test_a_replica_that_dies_at_a_later_refresh_keeps_the_last_catalogue_published(
    looptime: None, when: When
) -> None:
    shared, source = FakeSharedCatalog(), FakeCatalogSource()
    crash = Crash(Step.PUBLISHED, when, nth=2)
    first = Replica(shared, source, crash)
    await first.run(3600)
    assert crash.happened

    assert decode_snapshot(shared.blob).facts
    shared.lock_owner = ""
    successor = Replica(shared, source)
    await successor.run(AWAY)
    assert is_whole(successor)


@pytest.mark.parametrize("when", SIDES)
async def test_an_offering_is_marked_again_by_whoever_reports_it_again(looptime: None, when: When) -> None:
    shared, source = FakeSharedCatalog(), FakeCatalogSource()
    crash = Crash(Step.MARKED, when)
    dying = Replica(shared, source, crash)
    report = Report(*OFFERING, "InsufficientInstanceCapacity")
    with pytest.raises(Crashed):
        await dying.marked.mark([report])

    successor = Replica(shared, source)
    await successor.marked.mark([report])
    await successor.run(AWAY)

    assert shared.out_of_stock == {OFFERING}


async def test_redis_flushed_and_away_and_aws_with_errors_leave_a_whole_catalogue(looptime: None) -> None:
    shared, source = FakeSharedCatalog(), FakeCatalogSource()
    replica = Replica(shared, source)

    async def trouble() -> None:
        await asyncio.sleep(30)
        source.errors["fetch_zones"] = [CloudUnavailableError("RequestLimitExceeded") for _ in range(3)]
        shared.down = StateUnavailableError("no answer")
        shared.flush()
        await asyncio.sleep(AWAY)
        shared.down = None

    async with asyncio.TaskGroup() as group:
        group.create_task(replica.run(600))
        group.create_task(trouble())

    assert is_whole(replica)


@pytest.mark.parametrize("off", [-300.0, 300.0], ids=["behind", "ahead"])
async def test_replicas_whose_clocks_differ_by_five_minutes_do_not_fetch_in_turns(looptime: None, off: float) -> None:
    shared, source = FakeSharedCatalog(), FakeCatalogSource()
    right, wrong = Replica(shared, source), Replica(shared, source, clock=LoopClock(off))

    async with asyncio.TaskGroup() as group:
        group.create_task(right.run(3 * 3600))
        group.create_task(wrong.run(3 * 3600))

    assert source.calls.count("fetch_instance_types") <= 2
    assert is_whole(right)
    assert wrong.catalogue.version == right.catalogue.version
