"""The leader's work over FakeKube and a real Redis: the mirror follows Kubernetes whatever happens to either."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_kube.errors import KubeUnavailableError
from sawhorse_kube.kinds import EC2_NODECLASS, MIRRORED, NODE, NODECLAIM, POD, Kind
from sawhorse_runtime.metrics import Metrics
from sawhorse_state.connection import State, connect_state
from sawhorse_state.mirror import Mirror, MirrorWriter
from sawhorse_testing.eventually import eventually
from sawhorse_testing.kube import FakeKube
from sawhorse_watcher.feed import Feed
from sawhorse_watcher.instruments import Instruments
from sawhorse_watcher.kindfeed import FeedTimes

pytestmark = pytest.mark.integration

KINDS = (POD, NODE, NODECLAIM)
FAST = FeedTimes(first_pause=timedelta(milliseconds=20), longest_pause=timedelta(milliseconds=200))


@dataclass
class FakeElector:
    """Leads as it is told."""

    is_leading: bool = True
    advanced: list[int] = field(default_factory=list)

    async def advance_epoch(self, beyond: int) -> int:
        self.advanced.append(beyond)
        return beyond + 1


@dataclass
class World:
    """A running feed and a reader of what it writes."""

    kube: FakeKube
    feed: Feed
    mirror: Mirror
    reasons: list[str]
    metrics: Metrics
    elector: FakeElector
    leading: asyncio.Task[None]

    def names(self, kind: Kind) -> list[str]:
        return sorted(self.mirror.all(kind.name))

    async def until_names(self, kind: Kind, *names: str) -> None:
        await eventually(lambda: self.mirror.synced and self.names(kind) == sorted(names), what=f"{kind.name} {names}")

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def watching(
    kube: FakeKube, state: State, *, kinds: Sequence[Kind] = KINDS, classes: Sequence[Kind] = (), epoch: int = 1
) -> AsyncIterator[World]:
    stop = asyncio.Event()
    metrics, reasons, elector = Metrics(), list[str](), FakeElector()
    feed = Feed(
        kube,
        state,
        kinds=kinds,
        node_classes=classes,
        notify=lambda why: reasons.append(why) if why else None,
        instruments=Instruments(metrics),
        times=FAST,
        check=timedelta(milliseconds=100),
    )
    mirror = Mirror(state, [kind.name for kind in (*kinds, *classes)])
    async with asyncio.TaskGroup() as group:
        leading = group.create_task(feed.lead(elector, epoch, stop))
        group.create_task(mirror.run(stop))
        yield World(kube, feed, mirror, reasons, metrics, elector, leading)
        stop.set()


def a_pod(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": []}, **more}


def pending(name: str) -> dict[str, Any]:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return a_pod(name, status={"phase": "Pending", "conditions": [unschedulable]})


async def flush(state: State) -> None:
    keys = [key async for key in state.redis.scan_iter(state.key("*"))]
    await state.redis.delete(*keys)


async def test_the_mirror_has_what_is_there_and_then_every_change(state: State) -> None:
    kube = FakeKube()
    kube.put(POD, a_pod("a"))
    kube.put(NODE, {"metadata": {"name": "n"}})

    async with watching(kube, state) as world:
        await world.until_names(POD, "default/a")
        kube.put(POD, a_pod("b"))
        kube.remove(POD, "a", "default")

        await world.until_names(POD, "default/b")
        assert world.names(NODE) == ["n"]
        assert world.feed.trouble == ""


async def test_every_mirrored_kind_is_fed(state: State) -> None:
    kube = FakeKube()

    async with watching(kube, state, kinds=MIRRORED, classes=[EC2_NODECLASS]) as world:
        kube.put(EC2_NODECLASS, {"metadata": {"name": "default"}, "spec": {"role": "r"}})

        await world.until_names(EC2_NODECLASS, "default")
        listed = set(kube.calls) and {call.kind for call in kube.calls if call.verb == "list"}
        assert listed == {kind.name for kind in (*MIRRORED, EC2_NODECLASS)}


async def test_a_watch_that_fell_behind_lists_again_and_drops_what_vanished_meanwhile(state: State) -> None:
    kube = FakeKube()
    kube.put(POD, a_pod("a"))

    async with watching(kube, state) as world:
        await world.until_names(POD, "default/a")
        kube.break_watches()
        kube.remove(POD, "a", "default")
        kube.put(POD, a_pod("b"))
        kube.compact()

        await world.until_names(POD, "default/b")
        assert world.metric("sawhorse_watcher_relists_total", kind="Pod", why="gone") >= 1


async def test_a_watch_that_ends_goes_on_where_it_was_without_a_new_list(state: State) -> None:
    kube = FakeKube()

    async with watching(kube, state) as world:
        await eventually(lambda: world.mirror.synced)
        for name in ("a", "b", "c"):
            kube.break_watches()
            kube.put(POD, a_pod(name))

        await world.until_names(POD, "default/a", "default/b", "default/c")
        assert kube.called("list", "Pod") == [""]


async def test_a_flush_is_noticed_though_nothing_changes_and_everything_is_written_again(state: State) -> None:
    kube = FakeKube()
    kube.put(POD, a_pod("a"))

    async with watching(kube, state) as world:
        await world.until_names(POD, "default/a")
        await flush(state)
        await eventually(lambda: world.reasons.count("mirror-synced") == 2)

        await world.until_names(POD, "default/a")
        assert await state.redis.hkeys(state.key("mirror:Pod")) == [b"default/a"]
        assert world.metric("sawhorse_watcher_relists_total", kind="Pod", why="flushed") == 1


async def test_a_flush_in_the_middle_of_changes_loses_none(state: State) -> None:
    kube = FakeKube()

    async with watching(kube, state) as world:
        await eventually(lambda: world.mirror.synced)
        for n in range(60):
            kube.put(POD, a_pod(f"p{n:02}"))
            if n == 30:
                await flush(state)
            await asyncio.sleep(0.002)

        await world.until_names(POD, *(f"default/p{n:02}" for n in range(60)))


async def test_a_later_leader_ends_the_work_of_one_that_lost_its_lease(state: State) -> None:
    async with watching(FakeKube(), state, epoch=3) as world:
        await eventually(lambda: world.mirror.synced)
        world.elector.is_leading = False
        await MirrorWriter(state, 4).begin()

        await eventually(world.leading.done)
        assert world.elector.advanced == []
        assert await state.redis.get(state.key("mirror:epoch")) == b"4"


async def test_a_lease_that_was_made_anew_counts_on_from_the_epoch_in_redis(state: State) -> None:
    await MirrorWriter(state, 41).begin()
    kube = FakeKube()
    kube.put(POD, a_pod("a"))

    async with watching(kube, state, epoch=1) as world:
        await world.until_names(POD, "default/a")

        assert world.elector.advanced == [41]
        assert await state.redis.get(state.key("mirror:epoch")) == b"42"


async def test_a_missing_crd_is_told_and_tried_again_while_the_other_kinds_go_on(state: State) -> None:
    kube = FakeKube()
    kube.missing_kinds.add("NodeClaim")

    async with watching(kube, state) as world:
        await eventually(lambda: "install its CRD" in world.feed.trouble)
        kube.put(POD, a_pod("a"))
        await eventually(lambda: world.mirror.get("Pod", "default/a") is not None)
        synced_without = world.feed.synced
        trouble = world.feed.trouble
        kube.missing_kinds.clear()

        await eventually(lambda: world.feed.synced and world.mirror.synced)
        assert not synced_without
        assert trouble == "NodeClaim: NodeClaim is not served by this cluster; install its CRD"
        assert world.feed.trouble == ""


async def test_an_api_server_that_is_away_is_told_and_what_happened_meanwhile_arrives(state: State) -> None:
    kube = FakeKube()

    async with watching(kube, state) as world:
        await eventually(lambda: world.mirror.synced)
        kube.fail("watch", KubeUnavailableError("watch pods: refused"), kind="Pod", times=4)
        kube.break_watches()
        await eventually(lambda: "Pod: watch pods: refused" in world.feed.trouble)
        kube.put(POD, a_pod("a"))

        await world.until_names(POD, "default/a")
        await eventually(lambda: world.feed.trouble == "")
        assert kube.called("list", "Pod") == [""]


async def test_one_object_that_cannot_be_read_stops_no_kind(state: State) -> None:
    kube = FakeKube()
    kube.put(POD, a_pod("odd", spec={"priority": "high"}))

    async with watching(kube, state) as world:
        await eventually(lambda: world.mirror.synced)
        kube.put(POD, a_pod("odder", spec={"tolerations": "none"}))
        kube.put(POD, a_pod("fine"))

        await world.until_names(POD, "default/fine")
        assert world.metric("sawhorse_watcher_unreadable_total", kind="Pod") == 2


async def test_the_provisioner_is_woken_after_it_can_see_the_pod(state: State) -> None:
    kube = FakeKube()

    async with watching(kube, state) as world:
        await eventually(lambda: "mirror-synced" in world.reasons)
        kube.put(POD, a_pod("running"))
        kube.put(POD, pending("waiting"))
        await eventually(lambda: "pods-pending" in world.reasons)

        assert await state.redis.hexists(state.key("mirror:Pod"), "default/waiting")
        assert world.reasons == ["mirror-synced", "pods-pending"]


async def test_redis_away_at_the_start_is_told_until_it_is_there() -> None:
    async with connect_state("redis://127.0.0.1:1/0", "none") as nowhere, watching(FakeKube(), nowhere) as world:
        await eventually(lambda: "Redis at 127.0.0.1:1" in world.feed.trouble)

        assert not world.feed.synced


async def test_two_thousand_pods_are_mirrored_in_batches(state: State) -> None:
    kube = FakeKube()

    async with watching(kube, state, kinds=[POD]) as world:
        await eventually(lambda: world.mirror.synced)
        for n in range(2000):
            kube.put(POD, a_pod(f"p{n}"))

        await eventually(lambda: len(world.mirror.all("Pod")) == 2000, seconds=30)
        assert world.metric("sawhorse_watcher_changes_total", kind="Pod") == 2000
        assert world.metric("sawhorse_watcher_mirror_objects", kind="Pod") == 2000
