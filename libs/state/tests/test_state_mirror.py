"""The mirror over a real Redis: what the writer puts in, readers have; and neither survives a flush unnoticed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from sawhorse_model.meta import ObjectMeta
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodepool import NodeClassRef
from sawhorse_model.pod import Pod
from sawhorse_state import mirror_keys
from sawhorse_state.connection import State, connect_state
from sawhorse_state.errors import DeposedError, FlushedError
from sawhorse_state.mirror import Change, Mirror, MirrorWriter
from sawhorse_testing.eventually import eventually

pytestmark = pytest.mark.integration

SOON = timedelta(seconds=10)


def a_pod(name: str, version: int = 1, *, node: str = "") -> Pod:
    return Pod(ObjectMeta(name, "default", uid=f"uid-{name}", resource_version=str(version)), node_name=node)


def a_claim(name: str, version: int = 1, *, provider_id: str = "") -> NodeClaim:
    meta = ObjectMeta(name, resource_version=str(version))
    return NodeClaim(meta, NodeClassRef("karpenter.k8s.aws", "EC2NodeClass", "default"), provider_id=provider_id)


def changed(obj: Pod | NodeClaim | Node) -> Change:
    return Change(obj.meta.key, obj, obj.meta.resource_version)


def gone(key: str, version: int) -> Change:
    return Change(key, None, str(version))


@asynccontextmanager
async def reading(state: State, *kinds: str) -> AsyncIterator[Mirror]:
    stop = asyncio.Event()
    mirror = Mirror(state, kinds)
    async with asyncio.TaskGroup() as group:
        group.create_task(mirror.run(stop))
        yield mirror
        stop.set()


async def a_writer(state: State, epoch: int = 1, **lists: list[object]) -> MirrorWriter:
    writer = MirrorWriter(state, epoch)
    await writer.begin()
    for kind, objects in lists.items():
        await writer.replace_all(kind, objects, "100")
    return writer


async def flush(state: State) -> None:
    keys = [key async for key in state.redis.scan_iter(state.key("*"))]
    await state.redis.delete(*keys)


async def test_a_reader_has_the_full_list_and_then_each_change(state: State) -> None:
    writer = await a_writer(state, Pod=[a_pod("a"), a_pod("b")])

    async with reading(state, "Pod") as mirror:
        assert await mirror.wait_synced(SOON)
        assert sorted(mirror.all("Pod")) == ["default/a", "default/b"]

        await writer.apply("Pod", [changed(a_pod("c", 101)), gone("default/a", 102)])

        await eventually(lambda: sorted(mirror.all("Pod")) == ["default/b", "default/c"])


async def test_a_reader_is_not_synced_before_every_kind_has_its_full_list(state: State) -> None:
    writer = await a_writer(state, Pod=[a_pod("a")])

    async with reading(state, "Pod", "Node") as mirror:
        await eventually(lambda: mirror.get("Pod", "default/a") is not None)
        early = mirror.synced
        why = mirror.missing
        await writer.replace_all("Node", [], "100")

        assert await mirror.wait_synced(SOON)
        assert (early, why) == (False, "no full list yet of Node")


async def test_a_full_list_removes_what_is_not_in_it_and_tells_only_what_differs(state: State) -> None:
    writer = await a_writer(state, Pod=[a_pod("a"), a_pod("b"), a_pod("c")])

    told = await writer.replace_all("Pod", [a_pod("a"), a_pod("b", 2)], "200")

    fields = await state.redis.hkeys(state.key("mirror:Pod"))
    assert told == 2
    assert sorted(fields) == [b"default/a", b"default/b"]


async def test_of_several_changes_of_an_object_in_one_batch_the_last_counts(state: State) -> None:
    writer = await a_writer(state, Pod=[])

    told = await writer.apply(
        "Pod", [changed(a_pod("a", 101)), gone("default/a", 102), changed(a_pod("a", 103, node="n"))]
    )

    async with reading(state, "Pod") as mirror:
        assert await mirror.wait_synced(SOON)
        assert told == 1
        assert mirror.all("Pod")["default/a"].node_name == "n"


async def test_an_older_resource_version_than_the_list_had_is_ignored(state: State) -> None:
    writer = await a_writer(state, Pod=[a_pod("a", 90, node="new")])

    told = await writer.apply("Pod", [changed(a_pod("a", 80, node="old"))])

    assert told == 0


async def test_a_deposed_writer_cannot_write(state: State) -> None:
    old = await a_writer(state, 1, Pod=[])
    await a_writer(state, 2)

    with pytest.raises(DeposedError) as caught:
        await old.apply("Pod", [changed(a_pod("a"))])

    assert caught.value.epoch == 2
    assert await state.redis.hlen(state.key("mirror:Pod")) == 0


async def test_a_writer_with_an_older_epoch_cannot_begin(state: State) -> None:
    await a_writer(state, 7)

    with pytest.raises(DeposedError) as caught:
        await MirrorWriter(state, 3).begin()

    assert caught.value.epoch == 7


async def test_an_epoch_belongs_to_one_writer_only(state: State) -> None:
    first = await a_writer(state, 7)

    with pytest.raises(DeposedError) as caught:
        await MirrorWriter(state, 7).begin()
    await first.begin()

    assert caught.value.epoch == 7
    assert await first.apply("Pod", [changed(a_pod("a"))]) == 1


async def test_a_new_writer_makes_readers_wait_for_its_own_full_lists(state: State) -> None:
    await a_writer(state, 1, Pod=[a_pod("a")])

    async with reading(state, "Pod") as mirror:
        assert await mirror.wait_synced(SOON)
        writer = await a_writer(state, 2)
        await eventually(lambda: not mirror.synced)
        await writer.replace_all("Pod", [a_pod("b")], "300")

        assert await mirror.wait_synced(SOON)
        assert sorted(mirror.all("Pod")) == ["default/b"]


async def test_a_flush_is_noticed_by_writer_and_reader_and_healed_by_a_new_list(state: State) -> None:
    writer = await a_writer(state, 1, Pod=[a_pod("a")])

    async with reading(state, "Pod") as mirror:
        assert await mirror.wait_synced(SOON)
        await flush(state)
        await eventually(lambda: not mirror.synced)
        kept = sorted(mirror.all("Pod"))
        with pytest.raises(FlushedError):
            await writer.apply("Pod", [changed(a_pod("b", 101))])
        with pytest.raises(FlushedError):
            await writer.check()
        await writer.begin()
        await writer.replace_all("Pod", [a_pod("b", 101)], "101")

        await eventually(lambda: mirror.synced and sorted(mirror.all("Pod")) == ["default/b"])
        assert kept == ["default/a"]


async def test_a_flush_that_is_written_over_before_anyone_looks_is_noticed_too(state: State) -> None:
    writer = await a_writer(state, 1, Pod=[a_pod("a")])

    async with reading(state, "Pod") as mirror:
        assert await mirror.wait_synced(SOON)
        async with state.redis.pipeline(transaction=True) as pipe:
            for name in ("changes", "mirror:count", "mirror:Pod", "mirror:epoch"):
                pipe.delete(state.key(name))
            pipe.set(state.key("mirror:epoch"), 1)
            await pipe.execute()
        await writer.replace_all("Pod", [a_pod("b", 101)], "101")

        await eventually(lambda: mirror.synced and sorted(mirror.all("Pod")) == ["default/b"])


async def test_a_reader_that_missed_trimmed_changes_loads_again(state: State, redis_url: str) -> None:
    writer = await a_writer(state, 1, Pod=[a_pod("a")])

    async with reading(state, "Pod") as mirror:
        assert await mirror.wait_synced(SOON)
        async with state.redis.pipeline(transaction=True) as pipe:
            # As if a thousand changes had come and gone while the reader was away.
            pipe.hset(
                state.key("mirror:Pod"), "default/late", (await state.redis.hget(state.key("mirror:Pod"), "default/a"))
            )
            pipe.incrby(state.key("mirror:count"), 1000)
            pipe.xtrim(state.key("changes"), maxlen=0, approximate=False)
            await pipe.execute()
        await writer.apply("Pod", [changed(a_pod("b", 101))])

        await eventually(lambda: mirror.synced and len(mirror.all("Pod")) == 3)


async def test_the_stream_of_changes_is_trimmed(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawhorse_state.mirror_writer.MAX_CHANGES", 100)
    writer = await a_writer(state, 1)

    await writer.replace_all("Pod", [a_pod(f"p{i}") for i in range(1000)], "100")

    length = await state.redis.xlen(state.key("changes"))
    assert 100 <= length < 400
    assert await state.redis.hlen(state.key("mirror:Pod")) == 1000


async def test_a_reader_waits_when_no_watcher_has_ever_written(state: State) -> None:
    async with reading(state, "Pod") as mirror:
        early = await mirror.wait_synced(timedelta(milliseconds=300))
        why = mirror.missing
        await a_writer(state, 1, Pod=[a_pod("a")])

        assert await mirror.wait_synced(SOON)
        assert (early, why) == (False, "no watcher has written the mirror yet")


async def test_redis_out_of_reach_makes_a_reader_unsynced_but_keeps_its_copy(state: State, redis_url: str) -> None:
    async with connect_state("redis://127.0.0.1:1/0", "none") as nowhere, reading(nowhere, "Pod") as mirror:
        await eventually(lambda: "Redis at 127.0.0.1:1" in mirror.missing)

        assert not mirror.synced


async def test_subscribers_are_told_each_change_once_and_a_failing_one_stops_nobody(state: State) -> None:
    writer = await a_writer(state, Pod=[a_pod("a")])
    told: list[tuple[str, str, str]] = []

    def failing(kind: str, key: str, op: str) -> None:
        raise RuntimeError("bad subscriber")

    with capture_logs() as logs:
        async with reading(state, "Pod") as mirror:
            mirror.subscribe(failing)
            mirror.subscribe(lambda kind, key, op: told.append((kind, key, op)))
            assert await mirror.wait_synced(SOON)
            await writer.apply("Pod", [changed(a_pod("b", 101))])
            await writer.apply("Pod", [gone("default/a", 102)])

            await eventually(lambda: len(told) == 3)
            failures = [line for line in logs if line["event"] == "mirror subscriber failed"]
            assert len(failures) == 3
            assert told == [("Pod", "default/a", "set"), ("Pod", "default/b", "set"), ("Pod", "default/a", "del")]


async def test_indexes_follow_pods_and_claims(state: State) -> None:
    writer = await a_writer(
        state, Pod=[a_pod("a", node="n1"), a_pod("b", node="n1")], NodeClaim=[a_claim("c")], Node=[]
    )

    async with reading(state, "Pod", "NodeClaim", "Node") as mirror:
        assert await mirror.wait_synced(SOON)
        await writer.apply("NodeClaim", [changed(a_claim("c", 101, provider_id="aws:///a/i-1"))])
        await writer.apply("Pod", [gone("default/b", 102), changed(a_pod("d", 103, node="n2"))])
        node = replace(Node(ObjectMeta("n1", resource_version="104")), provider_id="aws:///a/i-1")
        await writer.apply("Node", [changed(node)])
        await eventually(lambda: mirror.node_by_provider_id("aws:///a/i-1") is not None)

        assert [p.meta.name for p in mirror.pods_on("n1")] == ["a"]
        assert [p.meta.name for p in mirror.pods_on("n2")] == ["d"]
        claim = mirror.claim_by_provider_id("aws:///a/i-1")
        assert claim is not None
        assert claim.meta.name == "c"


async def test_an_own_write_is_visible_until_the_mirror_is_as_new(state: State) -> None:
    writer = await a_writer(state, NodeClaim=[a_claim("c", 50)])

    async with reading(state, "NodeClaim") as mirror:
        assert await mirror.wait_synced(SOON)
        mirror.note_own("NodeClaim", a_claim("c", 110, provider_id="mine"))
        mirror.note_own("NodeClaim", a_claim("new", 111))
        await writer.apply("NodeClaim", [changed(a_claim("c", 105, provider_id="older")), changed(a_claim("x", 106))])
        await eventually(lambda: mirror.get("NodeClaim", "x") is not None)
        before = mirror.all("NodeClaim")["c"].provider_id
        await writer.apply("NodeClaim", [changed(a_claim("c", 112, provider_id="newer"))])
        await eventually(lambda: mirror.all("NodeClaim")["c"].provider_id == "newer")

        assert before == "mine"
        assert "new" in mirror.all("NodeClaim")


async def test_an_own_write_is_not_forgotten_while_no_watcher_runs_and_is_settled_by_the_next_ones_list(
    state: State,
) -> None:
    await a_writer(state, NodeClaim=[a_claim("c", 50)])

    async with reading(state, "NodeClaim") as mirror:
        assert await mirror.wait_synced(SOON)
        mirror.note_own("NodeClaim", a_claim("made", 110))
        mirror.note_own("NodeClaim", a_claim("made-later", 120))
        mirror._view.expire(asyncio.get_running_loop().time() + 3600)
        meanwhile = sorted(mirror.all("NodeClaim"))
        following = MirrorWriter(state, 2)
        await following.begin()
        await following.replace_all("NodeClaim", [a_claim("c", 50)], "115")  # "made" was deleted again
        await eventually(lambda: "made" not in mirror.all("NodeClaim"))

        assert meanwhile == ["c", "made", "made-later"]
        assert sorted(mirror.all("NodeClaim")) == ["c", "made-later"]


async def test_an_own_write_that_the_watch_passed_over_is_forgotten_after_a_while(state: State) -> None:
    writer = await a_writer(state, NodeClaim=[])

    async with reading(state, "NodeClaim") as mirror:
        assert await mirror.wait_synced(SOON)
        mirror.note_own("NodeClaim", a_claim("mine", 110))
        await writer.apply("NodeClaim", [changed(a_claim("x", 111))])
        await eventually(lambda: mirror.get("NodeClaim", "x") is not None)
        soon = "mine" in mirror.all("NodeClaim")
        mirror.note_own("NodeClaim", a_claim("late", 105))
        mirror._view.expire(asyncio.get_running_loop().time() + 60)

        assert soon
        assert sorted(mirror.all("NodeClaim")) == ["x"]


async def test_an_object_that_cannot_be_read_hides_no_other(state: State) -> None:
    await a_writer(state, Pod=[a_pod("a")])
    await state.redis.hset(state.key(mirror_keys.objects_key("Pod")), "default/odd", b'{"meta": 1}')

    async with reading(state, "Pod") as mirror:
        assert await mirror.wait_synced(SOON)

        assert sorted(mirror.all("Pod")) == ["default/a"]
