"""Looking up reservations and placement groups: once for all replicas, and a failure changes nothing."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_catalog.account import AccountFacts, PlacementGroup, Reservation, decode_account, encode_account
from sawhorse_catalog.aws import ResolveSettings
from sawhorse_cloud.errors import ThrottledError, UnauthorizedError
from sawhorse_pricing.account import AccountWatch
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.refresh import MEASURED, Follower
from sawhorse_pricing.serving import Catalogue
from sawhorse_pricing.shared import RedisShared
from sawhorse_runtime.metrics import Metrics
from sawhorse_sandbox.redis import start_redis
from sawhorse_state.connection import connect_state
from sawhorse_state.memory import MeasuredMemory
from sawhorse_testing.catalog_source import FakeCatalogSource, FakeSharedCatalog

MINUTE = timedelta(minutes=1)
HELD = AccountFacts(
    (Reservation(id="cr-1", instance_type="m6i.large", zone="us-west-2a", free=2),),
    (PlacementGroup(id="pg-1", name="near", strategy="cluster"),),
)


def a_watch(shared: FakeSharedCatalog, source: FakeCatalogSource) -> AccountWatch:
    return AccountWatch(source, shared=shared, interval=MINUTE, instruments=Instruments(Metrics()))


@pytest.mark.looptime
async def test_replicas_together_look_once_in_an_interval(looptime: Any) -> None:
    shared, source = FakeSharedCatalog(), FakeCatalogSource(account=HELD)
    watches = [a_watch(shared, source) for _ in range(3)]

    for _ in range(10):
        for watch in watches:
            await watch.look()
        await asyncio.sleep(9)

    assert source.calls == ["fetch_account"] * 2
    assert decode_account(shared.account_blob) == HELD


@pytest.mark.looptime
async def test_news_wake_the_readers_and_the_same_again_does_not(looptime: Any) -> None:
    shared, source = FakeSharedCatalog(), FakeCatalogSource(account=HELD)
    watch = a_watch(shared, source)

    await watch.look()
    await asyncio.sleep(61)
    await watch.look()

    assert shared.woken == ["account-changed"]


@pytest.mark.looptime
@pytest.mark.parametrize("error", [UnauthorizedError("no"), ThrottledError("slow down")])
async def test_a_failed_look_keeps_what_was_known(looptime: Any, error: Exception) -> None:
    shared = FakeSharedCatalog(account_blob=encode_account(HELD))
    watch = a_watch(shared, FakeCatalogSource(errors={"fetch_account": [error]}))

    await watch.look()

    assert decode_account(shared.account_blob) == HELD
    assert shared.woken == []


async def test_facts_that_cannot_be_read_keep_the_last() -> None:
    shared = FakeSharedCatalog(account_blob=encode_account(HELD))
    catalogue = Catalogue(settings=ResolveSettings(), instruments=Instruments(Metrics()))
    follower = Follower(shared, catalogue, report=lambda ready, why: None)
    await follower.look_account()
    version = catalogue.version
    shared.account_blob = b"{"

    await follower.look_account()

    assert catalogue.version == version


@pytest.mark.looptime
async def test_measured_memory_is_asked_for_twice_a_minute(looptime: Any) -> None:
    shared, asked = FakeSharedCatalog(), list[float]()

    async def measured() -> Mapping[Any, int]:
        asked.append(looptime)
        return {}

    shared.measured_memory = measured  # type: ignore[method-assign, assignment]
    catalogue = Catalogue(settings=ResolveSettings(), instruments=Instruments(Metrics()))
    follower = Follower(shared, catalogue, report=lambda ready, why: None)

    for _ in range(60):
        await follower.look_measured()
        await asyncio.sleep(1)

    assert len(asked) == 60 / MEASURED.total_seconds()


def test_an_expiring_block_has_no_free_place() -> None:
    ending = Reservation(id="cr-1", instance_type="p5.48xlarge", zone="z", free=4, kind="capacity-block", expiring=True)

    assert AccountFacts((ending,)).free == {"cr-1": 0}


def test_a_group_is_found_by_id_before_its_name() -> None:
    other = PlacementGroup(id="pg-2", name="near", strategy="spread")
    facts = AccountFacts((), (*HELD.placement_groups, other))

    assert facts.group_of({"id": "pg-2"}) == other
    assert facts.group_of({"name": "near"}) == HELD.placement_groups[0]
    assert facts.group_of({"id": "pg-9"}) is None
    assert facts.group_of({}) is None


@pytest.mark.integration
async def test_z02_measurements_survive_a_restart_in_redis_and_other_keys_are_left_alone(tmp_path: Any) -> None:
    async with await start_redis(tmp_path, password="of-this-test") as redis, connect_state(redis.url, "demo") as state:
        await MeasuredMemory(state).put("m6i.large", "ami-1", "abc", 8_000_000_000)
        await state.redis.set(state.key("memory:odd"), b"x")

        async with connect_state(redis.url, "demo") as later:
            found = await RedisShared(later).measured_memory()

    assert found == {("m6i.large", "ami-1", "abc"): 8_000_000_000}


@pytest.mark.integration
async def test_one_of_two_takes_the_turn_and_the_facts_are_read_back(tmp_path: Any) -> None:
    async with await start_redis(tmp_path, password="of-this-test") as redis, connect_state(redis.url, "demo") as state:
        one, two = RedisShared(state), RedisShared(state)

        turns = [await shared.take_turn("account", MINUTE) for shared in (one, two, one)]
        await one.publish_account(encode_account(HELD), MINUTE)

        assert turns == [True, False, False]
        assert decode_account(await two.account()) == HELD
