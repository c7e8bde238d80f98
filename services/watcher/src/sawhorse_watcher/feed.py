"""What a leader does: owns the mirror by its epoch and feeds every kind into it, again from the start after a flush."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

import structlog

from sawhorse_kube.api import Kube
from sawhorse_kube.errors import KubeError
from sawhorse_kube.kinds import Kind
from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.errors import describe, leaves
from sawhorse_runtime.failpoints import Steps
from sawhorse_state.connection import State
from sawhorse_state.errors import DeposedError, FlushedError, StateUnavailableError
from sawhorse_state.mirror import MirrorWriter
from sawhorse_watcher.instruments import Instruments
from sawhorse_watcher.kindfeed import FeedTimes, KindFeed
from sawhorse_watcher.steps import Step
from sawhorse_watcher.wakeups import MIRROR_SYNCED, WakeRule

log = structlog.get_logger(__name__)

CHECK = timedelta(seconds=2)  # how soon a flush is noticed when nothing is written


class Elector(Protocol):
    """What is needed of `sawhorse_kube.leases.LeaderElector`."""

    @property
    def is_leading(self) -> bool: ...
    async def advance_epoch(self, beyond: int) -> int: ...


class Feed:
    """Feeds the mirror while this replica leads.

    Args:
        kinds: what to mirror, besides NodeClasses.
        node_classes: the clouds' NodeClass kinds.
        notify: told why the provisioner should look.
    """

    def __init__(
        self,
        kube: Kube,
        state: State,
        *,
        kinds: Sequence[Kind],
        node_classes: Sequence[Kind],
        notify: Callable[[str], None],
        instruments: Instruments,
        times: FeedTimes | None = None,
        check: timedelta = CHECK,
        steps: Steps | None = None,
    ) -> None:
        self._kube = kube
        self._state = state
        self._kinds = (*kinds, *node_classes)
        self._notify = notify
        self._instruments = instruments
        self._times = times if times is not None else FeedTimes()
        self._check_every = check.total_seconds()
        self._steps = steps if steps is not None else Steps()
        # Kept over sessions, so that a flush is not taken for a change of everything.
        self._rules = {kind.name: WakeRule(kind.name, node_class=kind in node_classes) for kind in self._kinds}
        self._feeds: tuple[KindFeed, ...] = ()
        self._trouble = "not leading"

    @property
    def trouble(self) -> str:
        """What keeps the mirror from being complete and fresh, for a person; empty when it is."""
        if self._trouble:
            return self._trouble
        return "; ".join(f"{f.kind.name}: {f.trouble}" for f in self._feeds if f.trouble)

    @property
    def synced(self) -> bool:
        """Whether every kind's full list is in the mirror."""
        return not self._trouble and all(feed.synced for feed in self._feeds)

    async def lead(self, elector: Elector, epoch: int, stop: asyncio.Event) -> None:
        """Own the mirror and feed it until `stop` is set, or until another leader owns it."""
        self._instruments.leading.set(1)
        try:
            why = "first"
            writer = MirrorWriter(self._state, epoch)
            while not stop.is_set():
                try:
                    await self._session(writer, why, stop)
                except ExceptionGroup as group:
                    deposed = self._deposed(group)
                    if deposed is None:
                        why = "flushed"
                        continue
                    if not elector.is_leading:
                        log.warning("deposed", epoch=epoch, by=deposed.epoch)
                        return
                    # The Lease is ours, so that epoch is of a Lease that was deleted since: count on from it.
                    epoch = await elector.advance_epoch(deposed.epoch)
                    writer = MirrorWriter(self._state, epoch)
                    log.info("epoch advanced", epoch=epoch)
        except KubeError as err:
            log.warning("epoch not advanced, standing down", error=describe(err))
        finally:
            self._feeds = ()
            self._trouble = "not leading"
            self._instruments.leading.set(0)
            for kind in self._kinds:
                self._instruments.synced.labels(kind.name).set(0)

    @staticmethod
    def _deposed(group: ExceptionGroup) -> DeposedError | None:
        """The deposition among the errors; None when Redis was only flushed; any other error is raised."""
        errors = list(leaves(group))
        for err in errors:
            if isinstance(err, DeposedError):
                return err
        if all(isinstance(err, FlushedError) for err in errors):
            log.warning("the mirror was flushed, writing it again")
            return None
        raise group

    async def _session(self, writer: MirrorWriter, why: str, stop: asyncio.Event) -> None:
        """Begin, list and watch everything, until `stop` is set.

        Raises:
            ExceptionGroup: of FlushedError or DeposedError.
        """
        self._trouble = "the mirror is being begun"
        async with asyncio.TaskGroup() as group:
            if not await self._begin(writer, stop):
                return
            feeds = [self._feed(kind, writer) for kind in self._kinds]
            self._feeds = tuple(feeds)
            self._trouble = ""
            tasks = [group.create_task(feed.run(why), name=f"feed:{feed.kind.name}") for feed in feeds]
            tasks.append(group.create_task(self._check(writer), name="check-mirror"))
            tasks.append(group.create_task(self._announce(), name="announce-synced"))
            await stop.wait()
            self._steps.before(Step.HAND_OVER)
            for task in tasks:
                task.cancel()
        self._steps.after(Step.HAND_OVER)

    def _feed(self, kind: Kind, writer: MirrorWriter) -> KindFeed:
        self._instruments.synced.labels(kind.name).set(0)
        rule = self._rules[kind.name]
        return KindFeed(kind, self._kube, writer, rule, self._notify, self._instruments, self._times, self._steps)

    async def _begin(self, writer: MirrorWriter, stop: asyncio.Event) -> bool:
        backoff = Backoff(0.1, maximum=5.0)
        while not stop.is_set():
            try:
                with self._steps.at(Step.EPOCH):
                    await writer.begin(kind.name for kind in self._kinds)
                return True
            except StateUnavailableError as err:
                if self._trouble != describe(err):
                    log.warning("mirror out of reach", error=describe(err))
                self._trouble = describe(err)
                await asyncio.sleep(backoff.next("begin"))
        return False

    async def _check(self, writer: MirrorWriter) -> None:
        """Notice a flush or a later leader also while nothing changes in the cluster."""
        while True:
            await asyncio.sleep(self._check_every)
            try:
                await writer.check()
            except StateUnavailableError as err:
                log.debug("mirror not checked", error=describe(err))

    async def _announce(self) -> None:
        # Readers decide nothing before the whole mirror is there: once it is, they need not wait for their next look.
        while not self.synced:  # noqa: ASYNC110  eighteen flags of eighteen tasks
            await asyncio.sleep(0.05)
        log.info("mirror synced", kinds=len(self._kinds))
        self._notify(MIRROR_SYNCED)
