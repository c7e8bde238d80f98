"""A leader's term: every controller of the service, wired for as long as the Lease is held, and who looks at what.

Made anew for each term, so that nothing is remembered that Kubernetes does not say.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from sawhorse_cloud.cloud import Cloud
from sawhorse_kube.api import Kube
from sawhorse_kube.drain import Drainer
from sawhorse_kube.events import EventRecorder
from sawhorse_kube.kinds import NODE, NODECLAIM, NODEPOOL, POD
from sawhorse_model.labels import INTERRUPTED_AT
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_provisioner.announcer import Announcer
from sawhorse_provisioner.batcher import Batcher
from sawhorse_provisioner.catalog_client import Catalog
from sawhorse_provisioner.catch_up import catch_up
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.collector import Collector
from sawhorse_provisioner.heal import heal_taints
from sawhorse_provisioner.hints import Hints
from sawhorse_provisioner.indexing import Index
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.interruptions import Replacements
from sawhorse_provisioner.joining import PartitionHook
from sawhorse_provisioner.launching import Launcher
from sawhorse_provisioner.lifecycle import Lifecycle
from sawhorse_provisioner.liveness import Limits, Liveness
from sawhorse_provisioner.measuring import Memory, MemoryMeter
from sawhorse_provisioner.node_termination import Heartbeats, NodeTermination
from sawhorse_provisioner.nodeclasses import NodeClasses
from sawhorse_provisioner.nodepools import NodePools
from sawhorse_provisioner.planning import Planner
from sawhorse_provisioner.pool_health import PoolHealth
from sawhorse_provisioner.provisioning import Journal, Placements, Provisioner
from sawhorse_provisioner.reservations import ReservedMachines
from sawhorse_provisioner.settings import Settings
from sawhorse_provisioner.steps import Step
from sawhorse_provisioner.termination import ClaimTermination
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_provisioner.writes import Writer
from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.failpoints import Steps
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.supervise import supervise
from sawhorse_runtime.tasks import KeyedQueue

log = structlog.get_logger(__name__)

_RESYNC = 60.0  # seconds: every object is looked at again, whatever was missed
_POOL_PAUSE = 1.0  # a pool's usage changes with each of its nodes: one look for many
_SYNC_LOOK = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a term works with; all of it outlives the term."""

    kube: Kube
    cloud: Cloud
    catalog: Catalog
    state: ClusterState
    planner: Planner
    index: Index
    heartbeats: Heartbeats
    memory: Memory
    placements: Placements
    journal: Journal
    instruments: Instruments
    metrics: Metrics
    clock: Clock
    words: NodeClassWords
    settings: Settings
    steps: Steps


class Term:
    """See the module. `changed` is to be told of every change of the mirror while `run` runs."""

    def __init__(self, around: Surroundings) -> None:
        settings, state, kube, clock = around.settings, around.state, around.kube, around.clock
        steps = around.steps
        self._around = around
        self._state = state
        self._running = False
        self._pool_seen: dict[str, tuple[int, bool]] = {}
        self._urgent_seen: set[str] = set()
        recorder = EventRecorder(kube, clock)
        writer = Writer(kube, state, clock, around.instruments)
        announcer = Announcer(recorder)
        self.batcher = Batcher(idle=settings.batch_idle_duration, longest=settings.batch_max_duration)
        self.claim_queue = self._queue("nodeclaim.lifecycle")
        self.node_queue = self._queue("node.termination")
        self.pool_queue = self._queue("nodepool.status")
        self.class_queue = self._queue("nodeclass")
        self.replacements = Replacements(writer=writer, state=state, steps=steps)
        health = PoolHealth(state=state, changed=self.pool_queue.add)
        self.hints = Hints(kube=kube, state=state, mode=settings.nominate_pods)
        self.launcher = Launcher(
            writer=writer,
            state=state,
            cloud=around.cloud,
            catalog=around.catalog,
            index=around.index,
            announcer=announcer,
            instruments=around.instruments,
            replan=lambda why: self.batcher.add(why, urgent=True),
            look_up_window=settings.launch_lookup_window,
            steps=steps,
        )
        self.provisioner = Provisioner(
            kube=kube,
            state=state,
            planner=around.planner,
            batcher=self.batcher,
            words=around.words,
            announcer=announcer,
            placements=around.placements,
            journal=around.journal,
            instruments=around.instruments,
            clock=clock,
            launch=self.launcher.offer,
            planned=self.replacements.planned,
            steps=steps,
        )
        termination = ClaimTermination(
            kube=kube,
            writer=writer,
            state=state,
            cloud=around.cloud,
            launcher=self.launcher,
            index=around.index,
            instruments=around.instruments,
            clock=clock,
            finished=self._claim_gone,
            steps=steps,
        )
        self.lifecycle = Lifecycle(
            kube=kube,
            writer=writer,
            state=state,
            cloud=around.cloud,
            launcher=self.launcher,
            termination=termination,
            announcer=announcer,
            instruments=around.instruments,
            words=around.words,
            liveness=Liveness(
                writer=writer,
                state=state,
                cloud=around.cloud,
                announcer=announcer,
                health=health,
                words=around.words,
                clock=clock,
                limits=Limits(
                    launch=settings.launch_timeout,
                    registration=settings.registration_timeout,
                    initialization=settings.initialization_timeout,
                ),
            ),
            health=health,
            meter=MemoryMeter(memory=around.memory, state=state, words=around.words, clock=clock),
            initialized=self._claim_initialized,
            hooks={
                "Hints": self.hints.hinted,
                PartitionHook.name: PartitionHook(cloud=around.cloud, writer=writer, words=around.words),
            },
            opening=self.hints.opening,
            steps=steps,
        )
        self.node_termination = NodeTermination(
            kube=kube,
            writer=writer,
            state=state,
            cloud=around.cloud,
            drainer=Drainer(kube, recorder, clock),
            heartbeats=around.heartbeats,
            announcer=announcer,
            instruments=around.instruments,
            clock=clock,
            volume_timeout=settings.volume_detach_timeout,
            steps=steps,
        )
        self.node_pools = NodePools(
            writer=writer, state=state, words=around.words, health=health, instruments=around.instruments
        )
        self.reserved = ReservedMachines(
            kube=kube,
            writer=writer,
            state=state,
            cloud=around.cloud,
            announcer=announcer,
            words=around.words,
            clock=clock,
        )
        self.node_classes = NodeClasses(
            kube=kube,
            writer=writer,
            state=state,
            cloud=around.cloud,
            words=around.words,
            announcer=announcer,
            refresh=settings.node_class_refresh_interval,
            changed=self._class_changed,
        )
        self.collector = Collector(
            kube=kube,
            writer=writer,
            state=state,
            cloud=around.cloud,
            index=around.index,
            announcer=announcer,
            instruments=around.instruments,
            clock=clock,
            interval=settings.garbage_collection_interval,
            age=settings.garbage_collection_age,
        )
        self._announcer = announcer

    def _queue(self, name: str) -> KeyedQueue[str]:
        return KeyedQueue(name, backoff=Backoff(1.0, maximum=60.0), metrics=self._around.metrics)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`, then let what is in flight end. Waits for the mirror first: decides nothing without."""
        with self._around.steps.at(Step.START):
            while not self._state.synced:
                if stop.is_set():
                    return
                await self._around.clock.sleep(_SYNC_LOOK)
            if not await catch_up(self._around.kube, self._state, self._around.clock, stop):
                return
            await heal_taints(self._around.kube, self._state)
        self._running = True
        try:
            self._look_at_everything()
            self.batcher.add("start", urgent=True)
            minute = timedelta(minutes=1)

            async def claims(stop: asyncio.Event) -> None:
                await self.claim_queue.run(self.lifecycle.look, workers=50, stop=stop, timeout=minute)

            async def nodes(stop: asyncio.Event) -> None:
                await self.node_queue.run(self.node_termination.look, workers=50, stop=stop, timeout=minute)

            async def pools(stop: asyncio.Event) -> None:
                await self.pool_queue.run(self.node_pools.look, workers=4, stop=stop, timeout=minute)

            async def classes(stop: asyncio.Event) -> None:
                await self.class_queue.run(self.node_classes.look, workers=4, stop=stop, timeout=2 * minute)

            await supervise(
                {
                    "node-classes": classes,
                    "node-pools": pools,
                    "nodeclaims": claims,
                    "nodes": nodes,
                    "launch": self.launcher.run,
                    "provision": self.provisioner.run,
                    "replacements": self.replacements.run,
                    "hints": self.hints.run,
                    "collect": self.collector.run,
                    "reserved": self.reserved.run,
                    "announce": self._announcer.run,
                    "resync": self._resync,
                    "hand-over": self._hand_over,
                },
                stop=stop,
                drain=self._around.settings.drain_timeout,
            )
            self._around.steps.after(Step.HAND_OVER)
        finally:
            self._running = False

    async def _hand_over(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._around.steps.before(Step.HAND_OVER)  # from here on, what is in flight ends

    async def _resync(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                async with asyncio.timeout(_RESYNC):
                    await stop.wait()
            except TimeoutError:
                self._look_at_everything()

    def _look_at_everything(self) -> None:
        for node_class in self._state.node_classes():
            self.class_queue.add(node_class.meta.name)
        for pool in self._state.pools():
            self.pool_queue.add(pool.meta.name)
        for claim in self._state.claims():
            self.claim_queue.add(claim.meta.name)
            self._note_interrupted(claim)
        for node in self._state.nodes():
            self.node_queue.add(node.meta.name)

    # Who looks at what when something changes

    def changed(self, kind: str, key: str, op: str) -> None:
        """One change of the mirror. Cheap: it only says who has to look."""
        if not self._running:
            return
        if kind == POD.name:
            self._pod_changed(key)
        elif kind == NODECLAIM.name:
            self._claim_changed(key)
        elif kind == NODE.name:
            self._node_changed(key)
        elif kind == NODEPOOL.name:
            self._pool_changed(key)
        elif kind == self._around.words.kind.name:
            self.class_queue.add(key)
            for pool in self._state.pools():
                if pool.template.node_class_ref.name == key:
                    self.pool_queue.add(pool.meta.name)

    def _pod_changed(self, key: str) -> None:
        pod = self._state.pod(key)
        if pod is None:
            return
        if pod.is_provisionable:
            self.batcher.add(pod.meta.uid)
        elif pod.node_name:
            node = self._state.node(pod.node_name)
            if node is not None and node.meta.is_deleting:
                self.node_queue.add(pod.node_name)

    def _claim_changed(self, name: str) -> None:
        self.claim_queue.add(name)
        claim = self._state.claim(name)
        if claim is None:
            for node_class in self._state.node_classes():
                if node_class.meta.is_deleting:
                    self.class_queue.add(node_class.meta.name)
            for pool in self._state.pools():
                self.pool_queue.add(pool.meta.name, _POOL_PAUSE)
            return
        if claim.nodepool:
            self.pool_queue.add(claim.nodepool, _POOL_PAUSE)
        if claim.meta.is_deleting:
            self._note_interrupted(claim)
            for node in self._state.nodes_of(claim.provider_id):
                self.node_queue.add(node.meta.name)

    def _note_interrupted(self, claim: NodeClaim) -> None:
        """A claim that goes has pods that need a place; those of an interrupted one cannot wait."""
        if not claim.meta.is_deleting or claim.meta.uid in self._urgent_seen:
            return
        urgent = INTERRUPTED_AT in claim.meta.annotations
        if urgent:
            self._urgent_seen.add(claim.meta.uid)
        if claim.provider_id:
            self.batcher.add(f"deleting/{claim.meta.uid}", urgent=urgent)

    def _node_changed(self, name: str) -> None:
        self.node_queue.add(name)
        node = self._state.node(name)
        if node is None:
            # Whose it was is not known any more; those who wait for a Node to go are few.
            for claim in self._state.claims():
                if claim.meta.is_deleting:
                    self.claim_queue.add(claim.meta.name)
            return
        claim_of = self._state.claim_of(node)
        if claim_of is not None and not claim_of.is_initialized:
            self.claim_queue.add(claim_of.meta.name)

    def _pool_changed(self, name: str) -> None:
        self.pool_queue.add(name)
        pool = self._state.pool(name)
        if pool is None:
            self._pool_seen.pop(name, None)
            return
        seen = (pool.meta.generation, pool.is_ready)
        if self._pool_seen.get(name) != seen:
            self._pool_seen[name] = seen
            self.batcher.add(f"nodepool/{name}")

    def _class_changed(self, name: str) -> None:
        self.batcher.add(f"nodeclass/{name}")

    def _claim_initialized(self, claim: NodeClaim) -> None:
        self.replacements.poke()
        if self._state.interrupted():
            self.batcher.add(f"initialized/{claim.meta.uid}")

    def _claim_gone(self, claim: NodeClaim) -> None:
        self.replacements.forget(claim)
        self._urgent_seen.discard(claim.meta.uid)

    def wake(self, reasons: Sequence[str]) -> None:
        """Somebody asked to look now."""
        for reason in reasons:
            self.batcher.add(f"wake/{reason}", urgent="interrupt" in reason)
