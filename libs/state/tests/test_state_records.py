"""The small shared records over a real Redis, and what their users see without one."""

import asyncio
from datetime import timedelta

import pytest

from sawhorse_state.catalog import CatalogStore
from sawhorse_state.connection import State, connect_state
from sawhorse_state.errors import StateUnavailableError
from sawhorse_state.instances import InstanceIndex
from sawhorse_state.journal import PLANS, Journal
from sawhorse_state.marks import DrainHeartbeat, SeenMarks
from sawhorse_state.memory import MeasuredMemory
from sawhorse_state.placements import PlacementStore
from sawhorse_state.unavailable import UnavailableOfferings
from sawhorse_state.wake import Wake, wake
from sawhorse_testing.eventually import eventually

pytestmark = pytest.mark.integration

OFFERING = ("spot", "m5.large", "us-east-1a")
SOON = timedelta(seconds=5)
AT_ONCE = timedelta(milliseconds=50)


async def expire_now(state: State, name: str) -> None:
    """As if the time of an offering's mark had passed."""
    await state.redis.delete(state.key(f"unavailable:{name}"))
    await state.redis.zadd(state.key("unavailable"), {name: 1})
    await state.redis.incr(state.key("unavailable-version"))


async def test_a_wake_up_reaches_every_replica_with_its_reasons_once(state: State) -> None:
    one, two = Wake(state, "provisioner"), Wake(state, "provisioner")
    await one.wait(AT_ONCE)
    await two.wait(AT_ONCE)

    for why in ("pods-pending", "node-interrupted", "pods-pending"):
        await wake(state, "provisioner", why)

    assert await one.wait(SOON) == ("pods-pending", "node-interrupted")
    assert await two.wait(SOON) == ("pods-pending", "node-interrupted")
    assert await one.wait(AT_ONCE) == ()


async def test_a_wake_up_ends_a_wait_at_once_and_is_not_heard_by_other_services(state: State) -> None:
    waiting = Wake(state, "provisioner")
    await waiting.wait(AT_ONCE)
    loop = asyncio.get_running_loop()
    began = loop.time()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(waiting.wait(timedelta(seconds=10)))
        await wake(state, "interruption", "other")
        await wake(state, "provisioner", "mine")

    assert task.result() == ("mine",)
    assert loop.time() - began < 5


async def test_a_wake_up_from_before_the_first_wait_is_not_told(state: State) -> None:
    await wake(state, "provisioner", "old")

    assert await Wake(state, "provisioner").wait(AT_ONCE) == ()


async def test_without_redis_a_wait_lasts_its_time_and_says_nothing() -> None:
    async with connect_state("redis://127.0.0.1:1/0", "none") as nowhere:
        assert await Wake(nowhere, "provisioner").wait(timedelta(milliseconds=500)) == ()


async def test_an_offering_without_capacity_is_left_out_for_three_minutes_at_first(state: State) -> None:
    offerings = UnavailableOfferings(state)

    pause = await offerings.mark(*OFFERING, "InsufficientInstanceCapacity")

    assert pause == timedelta(minutes=3)
    assert await offerings.all() == {OFFERING}
    assert await state.redis.ttl(state.key("unavailable:spot:m5.large:us-east-1a")) in (179, 180)


async def test_the_pause_doubles_at_each_repeat_up_to_half_an_hour(state: State) -> None:
    offerings = UnavailableOfferings(state)
    pauses = []

    for _ in range(6):
        pauses.append(await offerings.mark(*OFFERING, "x"))
        await expire_now(state, "spot:m5.large:us-east-1a")

    assert [p.total_seconds() / 60 for p in pauses] == [3, 6, 12, 24, 30, 30]


async def test_a_repeat_while_it_is_marked_does_not_lengthen_the_pause(state: State) -> None:
    offerings = UnavailableOfferings(state)

    pauses = {await offerings.mark(*OFFERING, "SpotInterruption") for _ in range(5)}

    assert pauses == {timedelta(minutes=3)}


async def test_a_mark_ends_by_time_and_other_readers_see_it(state: State) -> None:
    mine, theirs = UnavailableOfferings(state), UnavailableOfferings(state)
    await mine.mark(*OFFERING, "x")
    before = await theirs.all()

    await expire_now(state, "spot:m5.large:us-east-1a")

    assert before == {OFFERING}
    assert await theirs.all() == frozenset()


async def test_a_scoped_mark_counts_for_its_scope_only(state: State) -> None:
    offerings = UnavailableOfferings(state)

    await offerings.mark(*OFFERING, "x", scope="cr-123")

    assert await offerings.all() == frozenset()
    assert await offerings.all(scope="cr-123") == {OFFERING}


async def test_the_version_published_last_counts_and_the_one_before_can_still_be_loaded(state: State) -> None:
    store = CatalogStore(state)
    early = await store.load_current()
    await store.publish("v1", b"one", {"age": "0s"})
    await store.publish("v2", b"two")

    assert early is None
    assert await store.load_current() == ("v2", b"two")
    assert await state.redis.ttl(state.key("catalog:v1")) > 500
    assert await state.redis.ttl(state.key("catalog:v2")) == -1


async def test_publishing_a_version_again_keeps_it(state: State) -> None:
    store = CatalogStore(state)
    await store.publish("v1", b"one")

    await store.publish("v1", b"one", {"checked": "again"})

    current = await store.current()
    assert current is not None
    assert current.meta == {"checked": "again"}
    assert await state.redis.ttl(state.key("catalog:v1")) == -1


async def test_the_instance_index_finds_drops_and_is_rebuilt(state: State) -> None:
    index = InstanceIndex(state)
    await index.put("i-1", "claim-a")
    found = await index.get("i-1")
    await index.replace({"i-2": "claim-b", "i-3": "claim-c"})
    await index.drop("i-3")

    assert found == "claim-a"
    assert await index.get("i-1") is None
    assert await index.all() == {"i-2": "claim-b"}


async def test_a_message_is_seen_after_it_was_marked_for_ten_minutes(state: State) -> None:
    marks = SeenMarks(state)
    before = await marks.seen("m-1")
    await marks.mark_seen("m-1")

    assert (before, await marks.seen("m-1")) == (False, True)
    assert await state.redis.ttl(state.key("seen:m-1")) in (599, 600)


async def test_one_owner_at_a_time_drains_a_node_until_it_stops_or_falls_silent(state: State) -> None:
    heartbeat = DrainHeartbeat(state)
    first = await heartbeat.renew("n", "one", timedelta(milliseconds=100))
    second = await heartbeat.renew("n", "two")
    await eventually(lambda: _free(heartbeat))
    third = await heartbeat.renew("n", "two")
    await heartbeat.drop("n", "one")
    still = await heartbeat.holder("n")
    await heartbeat.drop("n", "two")

    assert (first, second, third, still) == (True, False, True, "two")
    assert await heartbeat.holder("n") == ""


async def _free(heartbeat: DrainHeartbeat) -> bool:
    return not await heartbeat.holder("n")


async def test_a_placement_is_kept_for_an_hour_and_dropped(state: State) -> None:
    store = PlacementStore(state)
    rows = [{"owner_uid": "u", "class": "c", "count": 3}]
    await store.put("claim-a", rows)
    kept = await store.get("claim-a")
    ttl = await state.redis.ttl(state.key("placement:claim-a"))
    await store.drop("claim-a")

    assert kept == tuple(rows)
    assert ttl in (3599, 3600)
    assert await store.get("claim-a") == ()


async def test_the_journal_gives_its_last_records_oldest_first(state: State) -> None:
    journal = Journal(state, PLANS)
    ids = [await journal.append({"n": n}) for n in range(5)]

    assert await journal.tail(2) == ({"n": 3, "id": ids[3]}, {"n": 4, "id": ids[4]})


async def test_measured_memory_is_found_by_type_image_and_kubelet(state: State) -> None:
    memory = MeasuredMemory(state)
    await memory.put("m5.large", "ami-1", "h", 7_900_000_000)

    assert await memory.get("m5.large", "ami-1", "h") == 7_900_000_000
    assert await memory.get("m5.large", "ami-2", "h") is None


async def test_z02_of_several_measurements_the_lowest_counts_and_only_it_stays_longer(state: State) -> None:
    memory = MeasuredMemory(state)
    key = state.key("memory:m5.large:ami-1:h")
    kept = [await memory.put("m5.large", "ami-1", "h", size) for size in (7_900_000_000, 7_800_000_000)]
    await state.redis.pexpire(key, 1_000_000)
    kept.append(await memory.put("m5.large", "ami-1", "h", 7_950_000_000))
    after_a_higher_one = await state.redis.pttl(key)

    kept.append(await memory.put("m5.large", "ami-1", "h", 7_800_000_000))

    assert kept == [7_900_000_000, 7_800_000_000, 7_800_000_000, 7_800_000_000]
    assert after_a_higher_one <= 1_000_000
    assert await state.redis.pttl(key) > 59 * 24 * 3600 * 1000


async def test_z02_a_measurement_of_24_tebibytes_is_kept_to_the_byte(state: State) -> None:
    memory = MeasuredMemory(state)
    size = 24 * 2**40 + 1

    assert await memory.put("u-24tb1.metal", "ami-1", "h", size) == size
    assert await memory.put("u-24tb1.metal", "ami-1", "h", size + 1) == size


async def test_a_wrong_password_and_an_absent_server_are_told_in_one_line(redis_url: str) -> None:
    wrong = f"redis://:wrong@{redis_url.rpartition('@')[2]}"

    async with connect_state(wrong, "c") as refused, connect_state("redis://127.0.0.1:1/0", "c") as absent:
        with pytest.raises(StateUnavailableError, match="refuses us") as first:
            await refused.ping()
        with pytest.raises(StateUnavailableError, match=r"ping: Redis at 127\.0\.0\.1:1: ") as second:
            await absent.ping()

    assert "--redis-url" in first.value.action
    assert second.value.retry == "backoff"


async def test_a_password_beside_the_url_is_used(redis_url: str) -> None:
    password, _, where = redis_url.removeprefix("redis://:").rpartition("@")

    async with connect_state(f"redis://{where}", "c", password=password) as state:
        await state.ping()

        assert state.key("mirror:Pod") == "sawhorse:{c}:mirror:Pod"


async def test_a_cluster_name_cannot_leave_its_own_keys() -> None:
    with pytest.raises(ValueError, match="no braces"):
        async with connect_state("redis://127.0.0.1:1/0", "a}:b"):
            pass
