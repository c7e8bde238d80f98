"""The service on a real Redis: what replicas share, and the whole wiring over a cloud that is scripted."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sawhorse_pricing.main import serve
from sawhorse_pricing.settings import Settings
from sawhorse_pricing.shared import RedisShared, Report
from sawhorse_proto.catalog.v1 import catalog_pb2 as pb
from sawhorse_proto.catalog.v1.catalog_pb2_grpc import CatalogServiceStub
from sawhorse_runtime.rpc import call, channel
from sawhorse_sandbox.redis import start_redis
from sawhorse_state.connection import State, connect_state
from sawhorse_testing.catalog_source import FakeCatalogSource
from sawhorse_testing.eventually import eventually
from sawhorse_testing.state import a_state

pytestmark = pytest.mark.integration

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def redis_url(tmp_path: Path) -> AsyncIterator[str]:
    async with await start_redis(tmp_path, password="of-this-test") as server:
        yield server.url


@pytest.fixture
async def state(redis_url: str) -> AsyncIterator[State]:
    async with a_state(redis_url) as made:
        yield made


async def test_one_owner_holds_the_lock_and_only_it_gives_it_back(state: State) -> None:
    shared = RedisShared(state)

    taken = [await shared.try_lock("a", MINUTE), await shared.try_lock("b", MINUTE)]
    await shared.unlock("b")
    still = await shared.try_lock("b", MINUTE)
    await shared.unlock("a")

    assert (taken, still, await shared.try_lock("b", MINUTE)) == ([True, False], False, True)


async def test_the_owner_may_hold_the_lock_for_longer(state: State) -> None:
    shared = RedisShared(state)
    await shared.try_lock("a", timedelta(milliseconds=200))

    assert await shared.try_lock("a", MINUTE)

    await asyncio.sleep(0.3)
    assert not await shared.try_lock("b", MINUTE)


async def test_a_lock_ends_by_itself(state: State) -> None:
    shared = RedisShared(state)
    await shared.try_lock("a", timedelta(milliseconds=30))

    await eventually(lambda: shared.try_lock("b", MINUTE), what="the next one fetches")

    assert not await shared.try_lock("a", MINUTE)


async def test_what_is_published_is_loaded_whole_under_its_name(state: State) -> None:
    shared = RedisShared(state)
    before = (await shared.current(), await shared.load())

    await shared.publish("v1", b"one")
    await shared.publish("v2", b"two")

    assert before == ("", None)
    assert (await shared.current(), await shared.load()) == ("v2", ("v2", b"two"))


async def test_marked_offerings_are_unavailable_to_every_replica(state: State) -> None:
    await RedisShared(state).mark([Report("spot", "m5.large", "a", "x"), Report("on-demand", "m5.large", "b", "x")])

    assert await RedisShared(state).unavailable() == {("spot", "m5.large", "a"), ("on-demand", "m5.large", "b")}


async def test_what_is_marked_for_some_is_no_lack_for_everybody_and_lasts_longer_at_each_repeat(state: State) -> None:
    full = Report("spot", "*", "a", "x", scope="subnet/subnet-1")
    await RedisShared(state).mark([full])

    replica = RedisShared(state)
    assert await replica.unavailable() == frozenset()
    assert await replica.scoped() == {("spot", "*", "a", "subnet/subnet-1")}
    key = state.key("unavailable:spot:*:a:subnet/subnet-1")
    first = await state.redis.pttl(key)
    await state.redis.delete(key)
    await replica.mark([full])
    assert await state.redis.pttl(key) > 1.5 * first


async def test_a_replica_that_waits_is_woken(state: State) -> None:
    shared = RedisShared(state)
    await shared.wait(timedelta(milliseconds=5))  # from here on nothing is missed

    await shared.wake_readers("catalogue-changed")
    async with asyncio.timeout(5):
        await shared.wait(timedelta(seconds=30))

    assert await state.redis.xlen(state.key("wake:provisioner")) == 1


@asynccontextmanager
async def a_replica(
    redis_url: str, cluster: str, directory: Path, source: FakeCatalogSource, name: str
) -> AsyncIterator[CatalogServiceStub]:
    ready = directory / f"{name}.json"
    password = directory / "password"
    parts = urlsplit(redis_url)
    password.write_text(parts.password or "")
    argv = {
        "--cluster-name": cluster,
        "--aws-region": "us-west-2",
        "--redis-url": f"redis://{parts.hostname}:{parts.port}/0",
        "--redis-password-file": str(password),
        "--grpc-address": "127.0.0.1:0",
        "--metrics-port": "0",
        "--health-probe-port": "0",
        "--bind-address": "127.0.0.1",
        "--ready-file": str(ready),
        "--drain-timeout": "5s",
    }
    settings = Settings.load([part for pair in argv.items() for part in pair], {}, prog="", description="")
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(settings, source, stop))
        try:
            await eventually(ready.exists, what="the ready file is there")
            port = json.loads(ready.read_text())["grpc"]
            async with channel(f"127.0.0.1:{port}") as connected:
                yield CatalogServiceStub(connected)
        finally:
            stop.set()


async def test_two_replicas_serve_one_fetch_and_share_what_is_out_of_capacity(redis_url: str, tmp_path: Path) -> None:
    first_source, second_source = FakeCatalogSource(), FakeCatalogSource()
    offering = pb.UnavailableOffering(
        capacity_type="spot", instance_type="m6i.large", zone="us-west-2a", reason="UnfulfillableCapacity"
    )

    async with (
        a_replica(redis_url, "two", tmp_path, first_source, "first") as first,
        a_replica(redis_url, "two", tmp_path, second_source, "second") as second,
    ):
        old = await call(second.ListInstanceTypes, pb.ListInstanceTypesRequest())
        reported = await call(first.ReportUnavailable, pb.ReportUnavailableRequest(offerings=[offering]))
        question = pb.ListInstanceTypesRequest(known_version=old.info.version)

        async def is_modified() -> bool:
            return not (await call(second.ListInstanceTypes, question)).not_modified

        await eventually(is_modified, what="the other replica knows")
        new = await call(second.ListInstanceTypes, question)

    assert len(old.instance_types) == 8
    fetched = [c for source in (first_source, second_source) for c in source.calls]
    assert sorted(fetched) == sorted(set(fetched))
    assert set(fetched) == {
        "fetch_account",
        "fetch_instance_types",
        "fetch_on_demand_prices",
        "fetch_spot_prices",
        "fetch_zones",
    }
    assert new.info.version == reported.version != old.info.version


async def has_catalogue(shared: RedisShared) -> bool:
    return bool(await shared.current())


async def test_after_a_flush_the_catalogue_comes_back_without_a_fetch(redis_url: str, tmp_path: Path) -> None:
    source = FakeCatalogSource()

    async with a_replica(redis_url, "flushed", tmp_path, source, "one"), connect_state(redis_url, "flushed") as state:
        await state.redis.flushall()
        shared = RedisShared(state)
        await eventually(lambda: has_catalogue(shared), what="the catalogue is published again")

    assert source.calls.count("fetch_instance_types") == 1
