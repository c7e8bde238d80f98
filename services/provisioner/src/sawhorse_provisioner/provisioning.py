"""Pending pods to NodeClaims. A round: `batch`, `snapshot`, `plan`, `commit`, `claims-created`, `placement`."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import structlog

from sawhorse_kube.api import Kube
from sawhorse_kube.errors import KubeError, KubeUnavailableError, NotFoundError
from sawhorse_kube.kinds import NODECLAIM
from sawhorse_kube.kinds import NODEPOOL as NODEPOOL_KIND
from sawhorse_model.manifests import nodeclaim_to_raw
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_provisioner.announcer import Announcer
from sawhorse_provisioner.batcher import Batcher
from sawhorse_provisioner.catalog_client import ResolvedTypes
from sawhorse_provisioner.claims import claim_from_plan, claim_name
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.pending import by_effective_zone, ignored
from sawhorse_provisioner.planning import Planner
from sawhorse_provisioner.pods import class_name, owner_uid
from sawhorse_provisioner.pool_types import NO_COMPATIBLE_INSTANCE_TYPES
from sawhorse_provisioner.promises import Promises
from sawhorse_provisioner.snapshots import Frozen, price_table
from sawhorse_provisioner.steps import Step
from sawhorse_provisioner.together import each
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe, reason_of
from sawhorse_runtime.failpoints import Steps
from sawhorse_scheduling.plan import Plan, PlannedNode

log = structlog.get_logger(__name__)

LOOK_EVERY = 10.0  # seconds: a lost wake-up costs no more
_PARALLEL_CREATES = 50
_LOOK_FOR_CLAIM = 30.0  # seconds that a claim is looked for whose creation was not answered
_TARGETS_LISTED = 50  # nodes of one plan that the journal lists


class Placements(Protocol):
    """What is needed of `sawhorse_state.placements`."""

    async def put(self, claim: str, placed: Sequence[Mapping[str, Any]]) -> None: ...


class Journal(Protocol):
    """What is needed of `sawhorse_state.journal`."""

    async def append(self, entry: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round did. `targets` has for each pod that found a place the node or claim it is expected on."""

    plan: Plan | None = None
    created: Mapping[str, NodeClaim] = field(default_factory=dict)  # by the planned node's name
    targets: Mapping[str, str] = field(default_factory=dict)
    unplaced: Mapping[str, str] = field(default_factory=dict)  # pod → why
    sent_back: tuple[str, ...] = ()  # pods whose part of the plan was not kept


class Provisioner:
    """The loop. One per leader's term.

    Args:
        launch: takes created claims.
        planned: told of each round: which pods go where.
    """

    def __init__(
        self,
        *,
        kube: Kube,
        state: ClusterState,
        planner: Planner,
        batcher: Batcher,
        words: NodeClassWords,
        announcer: Announcer,
        placements: Placements,
        journal: Journal,
        instruments: Instruments,
        clock: Clock,
        launch: Callable[[Sequence[NodeClaim]], None],
        planned: Callable[[Frozen, Outcome], None],
        steps: Steps,
    ) -> None:
        self._kube = kube
        self._state = state
        self._planner = planner
        self._batcher = batcher
        self._words = words
        self._announcer = announcer
        self._placements = placements
        self._journal = journal
        self._instruments = instruments
        self._clock = clock
        self._launch = launch
        self._planned = planned
        self._steps = steps
        self._promises = Promises()
        self._told: dict[str, str] = {}  # uid of a waiting pod → the place that it was told

    async def run(self, stop: asyncio.Event) -> None:
        """Rounds until `stop`; a round that runs then ends first. A failed round is logged and tried again."""
        async with asyncio.TaskGroup() as group:
            ticker = group.create_task(self._tick(), name="provision-tick")
            rounds = group.create_task(self._rounds(stop), name="provision-rounds")
            await stop.wait()
            if self._between:
                rounds.cancel()
            ticker.cancel()

    _between = True  # no round is running: the loop waits for a batch

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(LOOK_EVERY)
            self._batcher.add("tick")

    async def _rounds(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            with self._steps.at(Step.BATCH):
                batch = await self._batcher.next_batch()
            self._between = False
            try:
                async with asyncio.timeout(300):
                    await self.round(batch)
            except Exception as error:
                self._instruments.plan_failures.labels(reason_of(error)).inc()
                log.warning("round failed, will try again", error=describe(error))
                await self._clock.sleep(1.0)
                self._batcher.add("failed-round")
            finally:
                self._between = True

    async def round(self, batch: frozenset[str] = frozenset()) -> Outcome:
        """One round, from a snapshot to created claims."""
        if not self._state.synced:
            log.debug("mirror not complete, nothing is decided")
            return Outcome()
        with self._steps.at(Step.SNAPSHOT):
            frozen, resolved = await self._planner.freeze()
        self._settle_prices(resolved)
        strict = frozen.snapshot.options.min_values_strict
        for pool, why in self._state.pool_types.look(frozen.snapshot.pools, strict=strict):
            meta = pool.nodepool.meta
            self._announcer.warn(NODEPOOL_KIND, meta, NO_COMPATIBLE_INSTANCE_TYPES, why, timedelta(minutes=1))
        self._instruments.pending_by_zone.clear()
        for zone, number in by_effective_zone(frozen.snapshot).items():
            self._instruments.pending_by_zone.labels("provisioner", zone).set(number)
        if not frozen.pods:
            self._instruments.unschedulable_pods.labels("provisioner").set(0)
            self._instruments.ignored_pods.set(0)
            outcome = Outcome(targets=frozen.expected)
            self._planned(frozen, outcome)
            self._tell_where(frozen, outcome.targets)
            return outcome
        started = self._clock.monotonic()
        self._instruments.queue_depth.labels("provisioner").set(len(frozen.pods))
        with self._steps.at(Step.PLAN):
            plan = await self._planner.solve(frozen)
        seconds = self._clock.monotonic() - started
        self._instruments.queue_depth.labels("provisioner").set(0)
        self._instruments.scheduling_seconds.labels("provisioner").observe(seconds)
        self._instruments.ignored_pods.set(ignored(plan))
        outcome = await self._act(frozen, plan, resolved)
        self._planned(frozen, outcome)
        await self._tell(frozen, outcome, seconds, batch)
        if outcome.sent_back:
            self._instruments.plan_failures.labels("Changed").inc()
            self._batcher.add("sent-back", urgent=True)
        return outcome

    def _settle_prices(self, resolved: Mapping[str, ResolvedTypes]) -> None:
        if self._promises.is_waiting:
            counted = self._instruments.launched_price
            for kept in self._promises.settle(self._state.claims(), price_table(resolved)):
                counted.labels("best").inc(kept.best)
                counted.labels("expected").inc(kept.expected)
                counted.labels("launched").inc(kept.launched)

    async def _act(self, frozen: Frozen, plan: Plan, resolved: Mapping[str, ResolvedTypes]) -> Outcome:
        with self._steps.at(Step.COMMIT):
            kept, sent_back = self._commit(frozen, plan)
        with self._steps.at(Step.CLAIMS_CREATED):
            created = await self._create_claims(kept, frozen, resolved)
        sent_back += [pod for node in kept if node.name not in created for pod in node.pods]
        targets = dict(frozen.expected)
        for filled in plan.existing_nodes:
            if self._is_there(filled.claim or filled.name, is_claim=bool(filled.claim)):
                self._expect(filled.claim or filled.name, filled.pods, frozen)
                targets |= dict.fromkeys(filled.pods, filled.name)
            else:
                sent_back += filled.pods
        for node in kept:
            claim = created.get(node.name)
            if claim is not None:
                self._promises.note(claim.meta.name, node)
                self._expect(claim.meta.name, node.pods, frozen)
                targets |= dict.fromkeys(node.pods, claim.meta.name)
        self._launch(tuple(created.values()))
        with self._steps.at(Step.PLACEMENT):
            await self._place(kept, created, frozen)
        return Outcome(
            plan=plan,
            created=created,
            targets=targets,
            unplaced={pod: group.message + self._left_out() for group in plan.unschedulable for pod in group.pods},
            sent_back=tuple(sent_back),
        )

    def _expect(self, target: str, keys: Sequence[str], frozen: Frozen) -> None:
        self._state.nominate(target)
        self._state.expected.add(self._state, target, [frozen.pods[k] for k in keys if k in frozen.pods])

    # Step `commit`

    def _commit(self, frozen: Frozen, plan: Plan) -> tuple[list[PlannedNode], list[str]]:
        """The planned nodes that still hold, and the pods of the others.

        A pool whose launches fail makes few claims at a time; pods beyond them wait for the launch that is tried, whose
        outcome brings the next plan.
        """
        kept: list[PlannedNode] = []
        sent_back: list[str] = []
        room = {name: self._room(name) for name in {node.nodepool for node in plan.new_nodes}}
        for node in plan.new_nodes:
            pool = self._state.pool(node.nodepool)
            before = frozen.pools.get(node.nodepool)
            same_pool = (
                pool is not None
                and before is not None
                and pool.meta.generation == before.meta.generation
                and pool.is_ready
                and not pool.meta.is_deleting
                and not self._state.is_held(node.nodepool)
            )
            left = room[node.nodepool]
            if not (same_pool and all(self._still_wants(frozen, pod) for pod in node.pods)):
                sent_back += node.pods
            elif left is None:
                kept.append(node)
            elif left > 0:
                room[node.nodepool] = left - 1
                kept.append(node)
            else:
                log.debug("pods wait, as launches of the pool fail", nodepool=node.nodepool, pods=len(node.pods))
        return kept, sent_back

    def _left_out(self) -> str:
        """What a plan's own words cannot say: pools that were not asked at all."""
        held = self._state.pace.held()
        return "".join(f"; NodePool {pool} rests for {left:.0f} s, as its launches fail" for pool, left in held.items())

    def _room(self, pool: str) -> int | None:
        """How many claims the pool may make now; None: as many as are planned."""
        claims = self._state.claims_of_pool(pool)
        return self._state.pace.room(pool, sum(not c.provider_id and not self._state.is_going(c) for c in claims))

    def _still_wants(self, frozen: Frozen, key: str) -> bool:
        before, now = frozen.pods.get(key), self._state.pod(key)
        if before is None or now is None or now.meta.uid != before.meta.uid or now.is_terminal:
            return False
        return now.node_name == before.node_name and (now.is_provisionable or key in frozen.doomed)

    def _is_there(self, name: str, *, is_claim: bool) -> bool:
        if is_claim and (claim := self._state.claim(name)) is not None:
            return not self._state.is_going(claim)
        node = self._state.node(name)
        return node is not None and not self._state.is_node_going(node)

    # Step `claims-created`

    async def _create_claims(
        self, kept: Sequence[PlannedNode], frozen: Frozen, resolved: Mapping[str, ResolvedTypes]
    ) -> dict[str, NodeClaim]:
        """The claims by planned node; a node whose claim could not be created is missing."""
        created: dict[str, NodeClaim] = {}

        async def create(node: PlannedNode) -> None:
            pool = frozen.pools[node.nodepool]
            class_labels = resolved[pool.template.node_class_ref.name].node_labels
            claim = claim_from_plan(node, pool, class_labels, self._words, name=claim_name(node.nodepool))
            try:
                made = await self._create(claim)
            except KubeError as error:
                log.warning("nodeclaim not created", nodepool=node.nodepool, error=describe(error))
                self._announcer.warn(
                    NODEPOOL_KIND, pool.meta, "NodeClaimCreationFailed", describe(error), timedelta(minutes=1)
                )
                return
            self._state.note(NODECLAIM, made)
            relaxed = "true" if node.relaxed else "false"
            self._instruments.claims_created.labels("provisioned", node.nodepool, relaxed).inc()
            created[node.name] = made

        await each(kept, create, limit=_PARALLEL_CREATES)
        return {node.name: created[node.name] for node in kept if node.name in created}

    async def _create(self, claim: NodeClaim) -> NodeClaim:
        """Create one. Where no answer came it may be there all the same, and must not be made a second time."""
        try:
            made: NodeClaim = await self._kube.create(NODECLAIM, nodeclaim_to_raw(claim))
        except KubeUnavailableError as error:
            until = self._clock.monotonic() + _LOOK_FOR_CLAIM
            while True:
                try:
                    made = await self._kube.get(NODECLAIM, claim.meta.name)
                except NotFoundError:
                    raise error from None
                except KubeUnavailableError:
                    if self._clock.monotonic() >= until:
                        raise error from None
                    await self._clock.sleep(1.0)
                else:
                    break
        return made

    # Step `placement`

    async def _place(self, kept: Sequence[PlannedNode], created: Mapping[str, NodeClaim], frozen: Frozen) -> None:
        """What was planned for each claim, for hints: owners and classes, since pods get new names."""
        for node in kept:
            claim = created.get(node.name)
            if claim is None:
                continue
            counts = Counter(
                (owner_uid(frozen.pods[key]), class_name(frozen.pods[key])) for key in node.pods if key in frozen.pods
            )
            placed = [{"owner_uid": uid, "class": word, "count": n} for (uid, word), n in sorted(counts.items())]
            try:
                await self._placements.put(claim.meta.name, placed)
            except Exception as error:
                log.warning("placement not written", nodeclaim=claim.meta.name, error=describe(error))
                return  # the store is away: hints are lost, nothing else

    def _tell_where(self, frozen: Frozen, targets: Mapping[str, str]) -> None:
        """Each waiting pod is told its place once, also one that took the place of a pod that is gone."""
        told: dict[str, str] = {}
        for key, target in targets.items():
            pod = frozen.pods.get(key) or self._state.pod(key)
            if pod is None or key in frozen.doomed:
                continue
            told[pod.meta.uid] = target
            if self._told.get(pod.meta.uid) != target:
                kind = "node" if self._state.claim(target) is None else "nodeclaim"
                self._announcer.nominated(pod, f"{kind}/{target}")
        self._told = told

    async def _tell(self, frozen: Frozen, outcome: Outcome, seconds: float, batch: frozenset[str]) -> None:
        plan = outcome.plan
        assert plan is not None
        for key, message in outcome.unplaced.items():
            if (pod := frozen.pods.get(key)) is not None and key not in frozen.doomed:
                self._announcer.failed_scheduling(pod, message)
        self._tell_where(frozen, outcome.targets)
        self._instruments.unschedulable_pods.labels("provisioner").set(len(outcome.unplaced))
        self._instruments.plan_price.set(plan.price_per_hour)
        if not outcome.created and not outcome.unplaced:
            return
        log.info(
            "planned",
            pods=len(frozen.pods),
            new_nodeclaims=len(outcome.created),
            on_existing=sum(len(n.pods) for n in plan.existing_nodes),
            unschedulable=len(outcome.unplaced),
            price_per_hour=round(plan.price_per_hour, 4),
            seconds=round(seconds, 3),
            why=sorted(batch)[:5],
        )
        entry = {
            "at": self._clock.now().isoformat(),
            "pods": len(frozen.pods),
            "seconds": seconds,
            "pricePerHour": plan.price_per_hour,
            "lowerBoundPerHour": plan.lower_bound_per_hour,
            "claims": [
                {
                    "name": claim.meta.name,
                    "nodePool": node.nodepool,
                    "instanceType": node.instance_type,
                    "zone": node.zone,
                    "capacityType": node.capacity_type.value,
                    "pricePerHour": node.price_per_hour,
                    "pods": len(node.pods),
                }
                for node in plan.new_nodes
                if (claim := outcome.created.get(node.name)) is not None
            ][:_TARGETS_LISTED],
            "unschedulable": [
                {"pods": len(g.pods), "message": g.message, "reasons": [r.code for r in g.reasons]}
                for g in plan.unschedulable
            ][:_TARGETS_LISTED],
            "warnings": list(plan.warnings)[:_TARGETS_LISTED],
        }
        try:
            await self._journal.append(entry)
        except Exception as error:
            log.warning("plan not noted in the journal", error=describe(error))
