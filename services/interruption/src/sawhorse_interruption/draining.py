"""Empties doomed nodes: a level-based loop over all claims that an interruption has deleted.

What to do is derived anew at each look from the claim's annotations and the pods there are, so any replica can go on
where another stopped. A heartbeat per node in Redis only keeps two from doing the same work. Where the mirror is
synced, looks read it; before anything ends, pods are read live.
"""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime

import structlog

from sawhorse_interruption.cache import Cache
from sawhorse_interruption.cordon import cordon, is_cordoned
from sawhorse_interruption.index import ClaimIndex, MirrorView
from sawhorse_interruption.instruments import Instruments
from sawhorse_interruption.policy import is_doomed
from sawhorse_interruption.precedence import Precedence
from sawhorse_interruption.steps import Step, Steps
from sawhorse_kube.api import Kube
from sawhorse_kube.drain import Drainer, Outcome, deadline_of, pods_to_drain, policy_of
from sawhorse_kube.errors import NotFoundError
from sawhorse_kube.events import EventRecorder
from sawhorse_kube.kinds import NODE, NODECLAIM, POD
from sawhorse_model.labels import NODEPOOL, REPLACEMENT_READY
from sawhorse_model.meta import is_true
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import DRAINED, NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.tasks import KeyedQueue

log = structlog.get_logger(__name__)

DISCOVER_SECONDS = 1.0
DISCOVER_LIVE_SECONDS = 5.0  # without a mirror each round is a list
NO_NODE_SECONDS = 5.0
OTHERS_SECONDS = 2.0  # another replica drains; its mark is stale after 10 s
BEAT_SECONDS = 3.0
LOOK_SECONDS = 30.0
CAUSE = "Interruption"  # told in Events of pods


@dataclass(frozen=True, slots=True)
class DrainState:
    """A drain under way here, as last looked at."""

    node: str
    claim: str
    deadline: datetime | None
    pods_left: int


@dataclass(slots=True)
class _Drain:
    """What is remembered of a drain between looks: figures for people, and when the heartbeat is due."""

    received: float | None = None  # monotonic; None: another replica, or a former life, received the message
    node: str = ""
    nodepool: str = ""
    deadline: datetime | None = None
    pods_left: int = 0
    next_beat: float = float("-inf")
    ours: bool = False
    has_replacement: bool = False


class Draining:
    """Drains the nodes of doomed claims.

    Args:
        identity: this replica, in heartbeats.
        mirror: None, or not synced: everything is read live.
        cache: for the heartbeats.
    """

    def __init__(
        self,
        kube: Kube,
        index: ClaimIndex,
        cache: Cache,
        recorder: EventRecorder,
        clock: Clock,
        instruments: Instruments,
        precedence: Precedence,
        *,
        identity: str,
        mirror: MirrorView | None = None,
        workers: int = 32,
        steps: Steps | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._kube = kube
        self._index = index
        self._clock = clock
        self._instruments = instruments
        self._precedence = precedence
        self._identity = identity
        self._mirror = mirror
        self._cache = cache
        self._workers = workers
        self._steps = steps if steps is not None else Steps()
        self._drainer = Drainer(kube, recorder, clock, on_outcome=self._counted)
        self._queue: KeyedQueue[str] = KeyedQueue(
            "interruption-drain", backoff=Backoff(0.5, maximum=5.0), metrics=metrics
        )
        self._drains: dict[str, _Drain] = {}  # by claim
        if mirror is not None:
            mirror.subscribe(self._changed)

    def doomed(self, claim: str, received: float) -> None:
        """Its message has had its effects: look at it at once. Any replica would find it a little later."""
        self._drains.setdefault(claim, _Drain()).received = received
        self._queue.add(claim)

    def states(self) -> Sequence[DrainState]:
        """The drains that this replica performs, by node."""
        mine = [
            DrainState(drain.node, claim, drain.deadline, drain.pods_left)
            for claim, drain in self._drains.items()
            if drain.ours and drain.node
        ]
        return sorted(mine, key=lambda state: state.node)

    async def run(self, stop: asyncio.Event) -> None:
        """Drain until `stop`; then others go on at once."""
        async with asyncio.TaskGroup() as group:
            finder = group.create_task(self._discover(), name="find-drains")
            await self._queue.run(self._look, workers=self._workers, stop=stop, timeout=LOOK_SECONDS)
            finder.cancel()
        for drain in [drain for drain in self._drains.values() if drain.ours]:
            await self._drop_beat(drain)

    async def _discover(self) -> None:
        while True:
            pause = DISCOVER_SECONDS
            try:
                if self._mirror is not None and self._mirror.synced:
                    claims = tuple(self._mirror.all("NodeClaim").values())
                else:
                    pause = DISCOVER_LIVE_SECONDS
                    claims = (await self._kube.list(NODECLAIM)).objects
            except Exception as exc:
                log.warning("claims not listed, trying again", error=describe(exc))
            else:
                for claim in claims:
                    if _is_due(claim) and claim.meta.name not in self._drains:
                        self._drains[claim.meta.name] = _Drain()
                        self._queue.add(claim.meta.name)
            await self._clock.sleep(pause)

    def _changed(self, kind: str, key: str, op: str) -> None:
        # The place of its pods became ready, or it is gone: no need to wait for the next look.
        if kind == "NodeClaim" and key in self._drains:
            self._queue.add(key)

    async def _look(self, name: str) -> float | None:
        """One look at one claim; seconds until the next."""
        drain = self._drains.setdefault(name, _Drain())
        claim = await self._claim(name)
        if claim is None or not _is_due(claim):
            await self._drop_beat(drain)
            del self._drains[name]
            return None
        drain.deadline = deadline_of(claim)
        drain.nodepool = claim.nodepool
        self._note_replacement(claim, drain)
        node = await self._node(claim)
        if node is None:
            drain.node = ""
            return NO_NODE_SECONDS
        drain.node = node.meta.name
        drain.nodepool = drain.nodepool or node.meta.labels.get(NODEPOOL, "")
        if not await self._beat(drain):
            return OTHERS_SECONDS
        await self._precedence.stand_back()
        if not is_cordoned(node):
            # It joined after its warning, or somebody undid the cordon.
            node = await cordon(self._kube, node.meta.name, claim.provider_id) or node
        return await self._step(claim, node, drain)

    async def _step(self, claim: NodeClaim, node: Node, drain: _Drain) -> float | None:
        pods = await self._pods(node)
        empty = not pods_to_drain(pods, self._clock.now())
        if empty:
            self._steps.before(Step.DRAINED)
        with nullcontext() if empty else self._steps.at(Step.EVICTING):
            step = await self._drainer.step(node, pods, deadline_of(claim), policy_of(claim, reason=CAUSE), claim)
        drain.pods_left = len(step.waiting)
        if not step.done:
            return step.next_look.total_seconds()
        self._steps.after(Step.DRAINED)
        if drain.received is not None:
            self._instruments.drained(drain.nodepool, max(0.0, self._clock.monotonic() - drain.received))
        log.info("node drained", node=node.meta.name, nodeclaim=claim.meta.name)
        await self._drop_beat(drain)
        del self._drains[claim.meta.name]
        return None

    async def _claim(self, name: str) -> NodeClaim | None:
        if self._mirror is not None and self._mirror.synced:
            mirrored = self._mirror.all("NodeClaim").get(name)
            if mirrored is not None and _is_due(mirrored):
                claim: NodeClaim = mirrored
                return claim
        # Not in the mirror, or not as doomed as we know it to be: only Kubernetes can say what is true.
        return await self._index.read(name)

    async def _node(self, claim: NodeClaim) -> Node | None:
        if self._mirror is not None and self._mirror.synced and claim.provider_id:
            mirrored = self._mirror.node_by_provider_id(claim.provider_id)
            if mirrored is not None:
                return mirrored
        name = await self._index.node_name(claim)
        try:
            node: Node | None = await self._kube.get(NODE, name) if name else None
        except NotFoundError:
            return None
        return node if node is not None and node.provider_id == claim.provider_id else None

    async def _pods(self, node: Node) -> Sequence[Pod]:
        if self._mirror is not None and self._mirror.synced:
            mirrored = self._mirror.pods_on(node.meta.name)
            # A mirror that lags must not call a node empty: whoever ends the machine trusts that.
            if pods_to_drain(mirrored, self._clock.now()):
                return mirrored
        listing = await self._kube.list(POD, field_selector=f"spec.nodeName={node.meta.name}")
        pods: Sequence[Pod] = listing.objects
        return pods

    async def _beat(self, drain: _Drain) -> bool:
        """Whether this replica is the one to drain the node. Without Redis all are: evictions carry the pod's uid."""
        now = self._clock.monotonic()
        if drain.ours and now < drain.next_beat:
            return True
        drain.ours = await self._cache.renew_drain(drain.node, self._identity)
        drain.next_beat = now + BEAT_SECONDS
        return drain.ours

    async def _drop_beat(self, drain: _Drain) -> None:
        if drain.ours and drain.node:
            drain.ours = False
            await self._cache.drop_drain(drain.node, self._identity)

    def _note_replacement(self, claim: NodeClaim, drain: _Drain) -> None:
        if drain.has_replacement or REPLACEMENT_READY not in claim.meta.annotations:
            return
        drain.has_replacement = True
        if drain.received is not None:
            self._instruments.replaced.observe(max(0.0, self._clock.monotonic() - drain.received))

    def _counted(self, outcome: Outcome, pod: Pod) -> None:
        if outcome is Outcome.FORCED:
            pool = next((d.nodepool for d in self._drains.values() if d.node == pod.node_name), "")
            self._instruments.killed(pool)


def _is_due(claim: NodeClaim) -> bool:
    """Whether an interruption has deleted the claim and its node is not empty yet."""
    return claim.meta.is_deleting and is_doomed(claim.meta.annotations) and not is_true(claim.conditions, DRAINED)
