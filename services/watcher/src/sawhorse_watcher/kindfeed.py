"""One kind from Kubernetes into the mirror: list, watch, write in batches, list again when something was missed.

Trouble with one kind stays with it: it is told in `trouble`, tried again with growing pauses, and the others go on.
Only that the mirror is not ours any more (flushed, deposed) leaves `run`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import structlog

from sawhorse_kube.api import Kube, WatchEvent, WatchType
from sawhorse_kube.errors import GoneError, KubeError, NotFoundError
from sawhorse_kube.kinds import Kind
from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.errors import describe
from sawhorse_runtime.failpoints import Steps
from sawhorse_state.errors import StateUnavailableError
from sawhorse_state.mirror import Change, MirrorWriter
from sawhorse_watcher.instruments import Instruments
from sawhorse_watcher.steps import Step
from sawhorse_watcher.wakeups import WakeRule

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FeedTimes:
    """The rhythm of a feed."""

    gather: timedelta = timedelta(milliseconds=20)  # how long a batch waits for company
    batch: int = 500  # changes in one write
    queue: int = 5000  # events that may wait for Redis; beyond them the watch is not read
    first_pause: timedelta = timedelta(milliseconds=200)
    longest_pause: timedelta = timedelta(seconds=30)
    write_deadline: timedelta = timedelta(seconds=60)  # Redis away for longer: the kind is listed again


@dataclass(frozen=True, slots=True)
class _Received:
    change: Change
    at: float  # loop time


class KindFeed:
    """Feeds one kind for one session of a leader.

    Args:
        notify: told the reason when the provisioner should look, after it can see the change.
    """

    def __init__(
        self,
        kind: Kind,
        kube: Kube,
        writer: MirrorWriter,
        rule: WakeRule,
        notify: Callable[[str], None],
        instruments: Instruments,
        times: FeedTimes,
        steps: Steps,
    ) -> None:
        self.kind = kind
        self.synced = False
        self.trouble = "not listed yet"  # what keeps it from being synced or fresh, for a person
        self._kube = kube
        self._writer = writer
        self._rule = rule
        self._notify = notify
        self._instruments = instruments
        self._times = times
        self._steps = steps
        self._backoff = Backoff(times.first_pause, maximum=times.longest_pause)

    async def run(self, why: str) -> None:
        """Feed until cancelled.

        Args:
            why: for metrics, the reason of the first list: "first" or "flushed".
        Raises:
            FlushedError, DeposedError: the mirror is not ours any more.
        """
        while True:
            try:
                version = await self._list(why)
                await self._follow(version)
                why = "gone"
                pause = self._times.first_pause.total_seconds()
            except NotFoundError as err:
                why = "failed"
                pause = self._failed(f"{self.kind.name} is not served by this cluster; install its CRD", err)
            except (KubeError, StateUnavailableError) as err:
                why = "failed"
                pause = self._failed(describe(err), err)
            await asyncio.sleep(pause)

    async def _list(self, why: str) -> str:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with self._steps.at(Step.LISTED):
            listing = await self._kube.list(self.kind)
        name = self.kind.name
        self._instruments.relists.labels(name, why).inc()
        if listing.unreadable:
            self._instruments.unreadable.labels(name).inc(listing.unreadable)
        with self._steps.at(Step.SYNCED):
            changed = await self._writer.replace_all(name, listing.objects, listing.resource_version)
        self._instruments.written.labels(name).inc(changed)
        self._instruments.objects.labels(name).set(len(listing.objects))
        self._instruments.list_seconds.labels(name).observe(loop.time() - began)
        self._instruments.synced.labels(name).set(1)
        self._backoff.reset("list")
        self.synced, self.trouble = True, ""
        log.info("kind listed", kind=name, objects=len(listing.objects), changed=changed, why=why)
        self._notify(self._rule.replace(listing.objects))
        return listing.resource_version

    async def _follow(self, version: str) -> None:
        """Watch and write until the watch has fallen behind; everything received before is written then."""
        queue: asyncio.Queue[_Received | None] = asyncio.Queue(self._times.queue)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write(queue), name=f"write:{self.kind.name}")
                await self._read(version, queue)
                await queue.put(None)
        except ExceptionGroup as group_error:
            # One task at most fails by itself: the other is cancelled then.
            raise group_error.exceptions[0] from None

    async def _read(self, version: str, queue: "asyncio.Queue[_Received | None]") -> None:
        """Put changes into the queue; returns when the version is too old to go on from."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            pause = 0.0
            try:
                async for event in self._kube.watch(self.kind, resource_version=version):
                    version = event.resource_version
                    self._instruments.events.labels(self.kind.name, event.type.value).inc()
                    self._recovered()
                    if event.type is not WatchType.BOOKMARK:
                        await queue.put(_Received(self._change(event), loop.time()))
            except GoneError as err:
                log.info("watch fell behind", kind=self.kind.name, error=str(err))
                return
            except NotFoundError:
                raise
            except KubeError as err:
                pause = self._failed(describe(err), err)
            else:
                # A server that ends watches at once must not be asked in a tight loop.
                pause = 0.0 if loop.time() - began > 1 else self._times.first_pause.total_seconds()
            await asyncio.sleep(pause)

    def _change(self, event: WatchEvent) -> Change:
        if event.object is None:
            # As in a list: what cannot be read is left out rather than shown as it was.
            self._instruments.unreadable.labels(self.kind.name).inc()
            metadata = event.raw["metadata"]
            namespace = metadata.get("namespace", "")
            key = f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
            return Change(key, None, event.resource_version)
        gone = event.type is WatchType.DELETED
        return Change(event.object.meta.key, None if gone else event.object, event.resource_version)

    async def _write(self, queue: "asyncio.Queue[_Received | None]") -> None:
        loop = asyncio.get_running_loop()
        ended = False
        while not ended:
            batch = [await queue.get()]
            await asyncio.sleep(self._times.gather.total_seconds())
            while batch[-1] is not None and len(batch) < self._times.batch and not queue.empty():
                batch.append(queue.get_nowait())
            received = [each for each in batch if each is not None]
            ended = len(received) < len(batch)
            if received:
                await self._apply([each.change for each in received])
                now = loop.time()
                for each in received:
                    self._instruments.lag.labels(self.kind.name).observe(now - each.at)

    async def _apply(self, changes: Sequence[Change]) -> None:
        deadline = asyncio.get_running_loop().time() + self._times.write_deadline.total_seconds()
        while True:
            try:
                with self._steps.at(Step.SEEN):
                    changed = await self._writer.apply(self.kind.name, changes)
                break
            except StateUnavailableError as err:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(self._failed(describe(err), err))
        self._recovered()
        self._instruments.written.labels(self.kind.name).inc(changed)
        self._instruments.objects.labels(self.kind.name).set(self._writer.objects.get(self.kind.name, 0))
        for change in changes:
            self._notify(self._rule.change(change.key, change.obj))

    def _failed(self, trouble: str, err: Exception) -> float:
        """Note trouble, logged when it is new; how long to wait."""
        pause = self._backoff.next("list")
        emit = log.warning if trouble != self.trouble else log.debug
        emit("kind not followed", kind=self.kind.name, error=describe(err), retry_seconds=round(pause, 2))
        self.trouble = trouble
        return pause

    def _recovered(self) -> None:
        if self.trouble and self.synced:
            self.trouble = ""
            self._backoff.reset("list")
