"""The leading watcher dies before and after every named step, and the next one's mirror is whole. On a real Redis.

What a reader of the mirror sees is the judge: everything that Kubernetes has, nothing that it has not, and a wake-up
for a pod that waits.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_kube.errors import KubeUnavailableError
from sawhorse_kube.kinds import NODE, POD
from sawhorse_runtime.failpoints import Steps
from sawhorse_runtime.metrics import Metrics
from sawhorse_state.connection import State
from sawhorse_state.mirror import Mirror
from sawhorse_state.wake import Wake
from sawhorse_testing.crashes import Crash, Crashed, Fault, When
from sawhorse_testing.eventually import eventually
from sawhorse_testing.kube import FakeKube
from sawhorse_watcher.feed import Feed
from sawhorse_watcher.instruments import Instruments
from sawhorse_watcher.kindfeed import FeedTimes
from sawhorse_watcher.steps import Step
from sawhorse_watcher.wakeups import Waker

pytestmark = pytest.mark.integration

KINDS = (POD, NODE)
FAST = FeedTimes(first_pause=timedelta(milliseconds=20), longest_pause=timedelta(milliseconds=200))
SIDES: list[When] = ["before", "after"]


@dataclass
class Elector:
    """Leads as long as it is not told otherwise."""

    is_leading: bool = True

    async def advance_epoch(self, beyond: int) -> int:
        return beyond + 1


@dataclass
class Cluster:
    """Kubernetes, and watchers that follow one another."""

    kube: FakeKube
    state: State
    epoch: int = 0
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def lead(self, crash: Crash, *, kube: Any = None) -> None:
        """A watcher's life as leader: until its crash, or until it is told to stop."""
        self.epoch += 1
        steps, instruments = Steps(crash.failpoint), Instruments(Metrics())
        waker = Waker(self.state, instruments, pause=timedelta(milliseconds=10), steps=steps)
        feed = Feed(
            kube if kube is not None else self.kube,
            self.state,
            kinds=KINDS,
            node_classes=(),
            notify=waker.notify,
            instruments=instruments,
            times=FAST,
            check=timedelta(milliseconds=100),
            steps=steps,
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(waker.run(self.stop))
                group.create_task(feed.lead(Elector(), self.epoch, self.stop))
        except* Crashed:
            assert crash.happened

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Mirror]:
        """What a provisioner reads."""
        stop = asyncio.Event()
        mirror = Mirror(self.state, [kind.name for kind in KINDS])
        async with asyncio.TaskGroup() as group:
            group.create_task(mirror.run(stop))
            yield mirror
            stop.set()

    def pod(self, name: str) -> None:
        """A pod that waits."""
        unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status = {"phase": "Pending", "conditions": [unschedulable]}
        self.kube.put(POD, {"metadata": {"name": name}, "spec": {"containers": []}, "status": status})

    def is_mirrored(self, mirror: Mirror) -> bool:
        """Whether a reader sees what there is, and no more."""
        return mirror.synced and all(sorted(mirror.all(kind.name)) == self.kube.names(kind) for kind in KINDS)


@pytest.fixture
def cluster(state: State) -> Cluster:
    """Two pods that wait, and a node."""
    made = Cluster(FakeKube(), state)
    made.pod("a")
    made.pod("b")
    made.kube.put(NODE, {"metadata": {"name": "n"}})
    return made


@pytest.mark.parametrize("when", SIDES)
@pytest.mark.parametrize("step", [Step.EPOCH, Step.LISTED, Step.SYNCED, Step.WOKEN])
async def test_a_watcher_that_dies_while_it_begins_is_followed_by_a_whole_mirror(
    cluster: Cluster, step: Step, when: When
) -> None:
    async with asyncio.timeout(20):
        await cluster.lead(Crash(step, when))
    cluster.kube.remove(POD, "a", "default")
    cluster.pod("c")

    wakes = Wake(cluster.state, "provisioner")
    await wakes.wait(timedelta(milliseconds=1))
    told = ""

    async with cluster.read() as mirror, asyncio.TaskGroup() as group:
        group.create_task(cluster.lead(Crash()))
        await eventually(lambda: cluster.is_mirrored(mirror))
        async with asyncio.timeout(10):
            while "pods-pending" not in told:
                told += ",".join(await wakes.wait(timedelta(seconds=1)))
        cluster.stop.set()


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("when", SIDES)
async def test_a_watcher_that_dies_in_the_middle_of_changes_loses_none(cluster: Cluster, when: When, nth: int) -> None:
    crash = Crash(Step.SEEN, when, nth=nth)

    async def changes() -> None:
        for number in range(40):
            cluster.pod(f"late-{number}")
            await asyncio.sleep(0.005)
        cluster.kube.remove(POD, "a", "default")

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(cluster.lead(crash))
        group.create_task(changes())
    assert crash.happened

    async with cluster.read() as mirror, asyncio.TaskGroup() as group:
        group.create_task(cluster.lead(Crash()))
        await eventually(lambda: cluster.is_mirrored(mirror))
        cluster.stop.set()


@pytest.mark.parametrize("when", SIDES)
async def test_a_watcher_that_dies_while_it_hands_over_leaves_a_mirror_to_go_on_with(
    cluster: Cluster, when: When
) -> None:
    crash = Crash(Step.HAND_OVER, when)
    async with cluster.read() as mirror:
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(cluster.lead(crash))
            await eventually(lambda: cluster.is_mirrored(mirror))
            cluster.stop.set()
        assert crash.happened

        cluster.stop = asyncio.Event()
        cluster.pod("c")
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.lead(Crash()))
            await eventually(lambda: cluster.is_mirrored(mirror))
            cluster.stop.set()


async def test_a_reader_is_right_again_after_kubernetes_and_redis_failed_at_once(cluster: Cluster) -> None:
    """The watch is cut and its place forgotten, the API server refuses, Redis is flushed: all within a moment."""
    fault = Fault(lambda: KubeUnavailableError("refused"), only=frozenset({"list"}))

    async with cluster.read() as mirror, asyncio.TaskGroup() as group:
        group.create_task(cluster.lead(Crash(), kube=fault.link(cluster.kube)))
        await eventually(lambda: cluster.is_mirrored(mirror))
        fault.down = True
        cluster.kube.break_watches()
        cluster.kube.remove(POD, "a", "default")
        cluster.pod("c")
        cluster.kube.compact()
        keys = [key async for key in cluster.state.redis.scan_iter(cluster.state.key("*"))]
        await cluster.state.redis.delete(*keys)
        await eventually(lambda: fault.refused > 2)
        assert not cluster.is_mirrored(mirror)
        fault.down = False

        await eventually(lambda: cluster.is_mirrored(mirror))
        cluster.stop.set()


async def test_a_watcher_that_was_paused_while_another_took_over_writes_nothing_any_more(cluster: Cluster) -> None:
    async with cluster.read() as mirror, asyncio.TaskGroup() as group:
        paused = group.create_task(cluster.lead(Crash()))
        await eventually(lambda: cluster.is_mirrored(mirror))
        successor = group.create_task(cluster.lead(Crash()))
        await eventually(lambda: cluster.epoch == 2 and cluster.is_mirrored(mirror))
        owner = await cluster.state.redis.get(cluster.state.key("mirror:epoch"))
        cluster.pod("c")
        await eventually(lambda: cluster.is_mirrored(mirror))
        cluster.stop.set()
        await asyncio.wait({paused, successor}, timeout=10)

    assert int(owner) >= 2
