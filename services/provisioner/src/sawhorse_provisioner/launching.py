"""Launching claims as fleets, so that no crash and no repeat ever makes two machines of one claim.

Steps of a fleet: `token` (the launch token on every claim, waited for), `template` and `fleet` (the cloud's business),
`launched` (the answer onto the claims). After a restart a claim with a token and without an instance is looked up by
its token first: adoption. What is in memory here may be lost at any time; the tokens on the claims may not.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from sawhorse_cloud.cloud import Cloud, Launched
from sawhorse_cloud.errors import CloudError, FailedOffering, InsufficientCapacityError, NodeClassNotReadyError
from sawhorse_kube.errors import ConflictError, KubeError, NotFoundError
from sawhorse_kube.kinds import NODECLAIM, NODEPOOL
from sawhorse_model.labels import LAUNCH_TOKEN
from sawhorse_model.nodeclaim import LAUNCHED, NodeClaim
from sawhorse_model.resources import format_resources
from sawhorse_provisioner.announcer import Announcer
from sawhorse_provisioner.asking import Asked, FleetCalls
from sawhorse_provisioner.catalog_client import Catalog
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.fleets import form_fleets
from sawhorse_provisioner.indexing import Index, index_put
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.measuring import MEMORY_SOURCE
from sawhorse_provisioner.nodeclasses import launchable_class
from sawhorse_provisioner.pacing import PoolSlots
from sawhorse_provisioner.steps import Step
from sawhorse_provisioner.together import each
from sawhorse_provisioner.writes import Judgement, Writer
from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.errors import describe, reason_of
from sawhorse_runtime.failpoints import Steps
from sawhorse_runtime.tasks import KeyedQueue

log = structlog.get_logger(__name__)

LOOK_UP_EVERY = 5.0  # seconds between two look-ups by token

_FORM_IDLE, _FORM_LONGEST = 0.035, 0.5  # seconds: claims that come together are launched together
_WORKERS = 40
_MOST_OF_A_POOL = 20
_LONGEST_LOOK = timedelta(minutes=3)
_SETTLED_REMEMBERED = 10_000


@dataclass(slots=True)
class _Fleet:
    token: str
    claims: dict[str, str]  # uid → name
    resumed: float | None = None  # loop time at which adoption began; None: we launch it ourselves
    pool: str = ""
    asked: Asked | None = None
    measured: frozenset[str] = frozenset()  # types whose memory is known from nodes
    answers: dict[str, Launched] = field(default_factory=dict)  # by claim, not written yet
    answered: bool = False


class Launcher:
    """Brings claims to machines. One per leader's term.

    Args:
        replan: called when pods need a new plan now.
        look_up_window: how long adoption looks for instances before a new token is taken.
    """

    def __init__(
        self,
        *,
        writer: Writer,
        state: ClusterState,
        cloud: Cloud,
        catalog: Catalog,
        index: Index,
        announcer: Announcer,
        instruments: Instruments,
        replan: Callable[[str], None],
        look_up_window: timedelta,
        steps: Steps,
    ) -> None:
        self._writer = writer
        self._state = state
        self._cloud = cloud
        self._catalog = catalog
        self._index = index
        self._announcer = announcer
        self._instruments = instruments
        self._replan = replan
        self._window = look_up_window.total_seconds()
        self._steps = steps
        self._calls = FleetCalls(cloud=cloud, instruments=instruments, steps=steps)
        self._queue: KeyedQueue[str] = KeyedQueue("launch", backoff=Backoff(1.0, maximum=60.0))
        self._fleets: dict[str, _Fleet] = {}  # by token
        self._owned: dict[str, str] = {}  # uid of a claim → token of its fleet; empty while it waits for one
        self._waiting: dict[str, NodeClaim] = {}  # by uid: claims that wait for a fleet
        self._slots = PoolSlots(_MOST_OF_A_POOL)
        self._settled: dict[str, None] = {}  # tokens of which every machine is accounted for
        self._wake = asyncio.Event()

    # What others call

    def offer(self, claims: Iterable[NodeClaim]) -> None:
        """Launch these claims; those that have a fleet or wait for one already are left as they are."""
        for claim in claims:
            if claim.meta.uid not in self._owned:
                self._owned[claim.meta.uid] = ""
                self._waiting[claim.meta.uid] = claim
        self._wake.set()

    def ensure(self, claim: NodeClaim) -> None:
        """A claim without an instance: launch it, or after a restart adopt what was launched for it."""
        if claim.meta.uid in self._owned:
            return
        if claim.launch_token and claim.launch_token not in self._settled:
            self._resume(claim)
        else:
            self.offer([claim])

    def may_have_instance(self, claim: NodeClaim) -> bool:
        """Whether a deleting claim without provider id may still turn out to have a machine: wait, then ask again."""
        token = claim.launch_token
        if not token or token in self._settled:
            return False
        fleet = self._fleets.get(token)
        if fleet is None:
            self._resume(claim)
        elif fleet.resumed is None and not self._members(fleet):
            self._queue.add(token)  # nobody waits for the launch any more: do not wait for its next try
        return True

    @property
    def is_idle(self) -> bool:
        """Whether no claim waits for a machine."""
        return not self._waiting and not self._fleets

    async def run(self, stop: asyncio.Event) -> None:
        """Form fleets and launch them until `stop`; launches that run then are waited for."""
        async with asyncio.TaskGroup() as group:
            former = group.create_task(self._form_fleets(), name="form-fleets")
            await self._queue.run(self._look, workers=_WORKERS, stop=stop, timeout=_LONGEST_LOOK)
            former.cancel()

    # Forming

    async def _form_fleets(self) -> None:
        while True:
            await self._wake.wait()
            opened = self._now()
            while True:
                self._wake.clear()
                try:
                    async with asyncio.timeout(_FORM_IDLE):
                        await self._wake.wait()
                except TimeoutError:
                    break
                if self._now() - opened >= _FORM_LONGEST:
                    break
            self._wake.clear()
            waiting, self._waiting = self._waiting, {}
            for members in form_fleets(waiting.values()):
                self._start(members)

    def _start(self, members: Sequence[NodeClaim]) -> None:
        token = secrets.token_hex(16)
        self._fleets[token] = _Fleet(token, {c.meta.uid: c.meta.name for c in members}, pool=members[0].nodepool)
        self._owned |= {c.meta.uid: token for c in members}
        self._queue.add(token)

    def _resume(self, claim: NodeClaim) -> None:
        token = claim.launch_token
        fleet = self._fleets.setdefault(token, _Fleet(token, {}, resumed=self._now(), pool=claim.nodepool))
        fleet.claims[claim.meta.uid] = claim.meta.name
        self._owned[claim.meta.uid] = token
        # A moment for the other claims of the fleet to be seen.
        self._queue.add(token, 0.1)

    def _forget(self, fleet: _Fleet) -> None:
        self._fleets.pop(fleet.token, None)
        self._slots.forget(fleet.token)
        for uid in fleet.claims:
            if self._owned.get(uid) == fleet.token:
                del self._owned[uid]

    def _settle(self, token: str) -> None:
        self._settled[token] = None
        while len(self._settled) > _SETTLED_REMEMBERED:
            del self._settled[next(iter(self._settled))]

    # One fleet

    async def _look(self, token: str) -> float | None:
        fleet = self._fleets.get(token)
        if fleet is None:
            return None
        if not self._slots.enter(token, fleet.pool):
            return None
        try:
            if fleet.answers:
                await self._write_answers(fleet)
            if fleet.answered:
                return self._finish(fleet)
            if fleet.resumed is not None:
                return await self._adopt(fleet)
            return await self._launch(fleet)
        finally:
            if (waiting := self._slots.leave(token)) is not None:
                self._queue.add(waiting)

    def _members(self, fleet: _Fleet) -> list[NodeClaim]:
        """The claims of the fleet that still want a machine, by name."""
        found = []
        for uid, name in fleet.claims.items():
            claim = self._state.claim(name)
            if (
                claim is not None
                and claim.meta.uid == uid
                and not claim.provider_id
                and not self._state.is_going(claim)
            ):
                found.append(claim)
        return sorted(found, key=lambda c: c.meta.name)

    async def _launch(self, fleet: _Fleet) -> float | None:
        if fleet.asked is None:
            with self._steps.at(Step.TOKEN):
                claims = await self._put_token(fleet, self._members(fleet))
        else:
            claims = self._members(fleet)
        if not claims:
            if fleet.asked is not None:
                # Nobody wants it any more, but the cloud was asked: find out what it made.
                fleet.resumed = self._now()
                return 0.0
            self._settle(fleet.token)
            self._forget(fleet)
            return None
        try:
            if fleet.asked is None:
                node_class = launchable_class(self._state, claims[0].node_class_ref.name)
                types = await self._catalog.resolve(node_class)
                # Kept: a repeat with the same token must ask for the same, or the cloud refuses it.
                fleet.asked = (tuple(claims), node_class, types.instance_types)
                fleet.measured = types.measured
            result = await self._calls.ask(fleet.token, fleet.asked)
        except InsufficientCapacityError as error:
            self._settle(fleet.token)
            await self._no_capacity(fleet, claims, error)
            return None
        except NodeClassNotReadyError as error:
            self._settle(fleet.token)
            await self._class_not_ready(fleet, claims, error)
            return None
        except Exception as error:
            await self._not_launched(fleet, claims, error)
            raise
        self._count(result.failed)
        fleet.answers = dict(result.launched)
        fleet.answered = True
        log.info(
            "fleet launched",
            token=fleet.token,
            nodeclaims=len(result.launched),
            asked=len(fleet.asked[0]),
            nodepool=claims[0].nodepool,
            instance_types=sorted({a.instance.instance_type for a in result.launched.values()}),
        )
        await self._report(claims[0].nodepool, result.failed)
        await self._write_answers(fleet)
        return self._finish(fleet)

    async def _put_token(self, fleet: _Fleet, claims: Sequence[NodeClaim]) -> list[NodeClaim]:
        """Step `token`: the intent, durable before the cloud is asked. Returns the claims that carry it."""
        marked = await each(claims, lambda c: self._put_one_token(fleet.token, c))
        return [c for c in marked if c is not None]

    async def _put_one_token(self, token: str, claim: NodeClaim) -> NodeClaim | None:
        while claim.launch_token != token:
            try:
                claim = await self._writer.annotate(NODECLAIM, claim, {LAUNCH_TOKEN: token}, locked=True)
            except NotFoundError:
                return None
            except ConflictError:
                # Read again, so that neither a deletion nor another leader's token is overlooked.
                try:
                    live: NodeClaim = await self._writer.kube.get(NODECLAIM, claim.meta.name)
                except NotFoundError:
                    return None
                same = live.meta.uid == claim.meta.uid and live.launch_token == claim.launch_token
                if not same or live.provider_id or live.meta.is_deleting:
                    return None
                claim = live
        return None if claim.meta.is_deleting or claim.provider_id else claim

    async def _write_answers(self, fleet: _Fleet) -> None:
        """Step `launched`: the machines onto their claims. What cannot be written now is tried again."""
        uids = {name: uid for uid, name in fleet.claims.items()}

        async def write(name: str) -> None:
            await self._write_launched(fleet, name, uids.get(name, ""))
            del fleet.answers[name]

        with self._steps.at(Step.LAUNCHED):
            await each(list(fleet.answers), write)

    async def _write_launched(self, fleet: _Fleet, name: str, uid: str) -> None:
        launched = fleet.answers[name]
        instance = launched.instance

        def is_its_machine(claim: NodeClaim) -> bool:
            # Another leader may have launched it anew while we waited for the answer.
            return claim.launch_token == fleet.token and claim.provider_id in ("", instance.provider_id)

        source = "measured" if instance.instance_type in fleet.measured else "estimate"
        annotations = {**launched.annotations, MEMORY_SOURCE: source}
        try:
            claim = await self._label_launched(name, uid, launched.labels, annotations, is_its_machine)
            if claim is None:
                log.warning("claim has another launch by now, instance left to the collector", instance_id=instance.id)
                return
            await self._writer.judge(
                NODECLAIM,
                claim,
                [Judgement(LAUNCHED, "True")],
                extra_status={
                    "providerID": instance.provider_id,
                    "imageID": instance.image_id,
                    "capacity": format_resources(launched.capacity),
                    "allocatable": format_resources(launched.allocatable),
                },
                still=is_its_machine,
            )
        except NotFoundError:
            # Deleted for good meanwhile: nobody else knows the machine.
            log.info("instance without a claim terminated", nodeclaim=name, instance_id=instance.id)
            await self._cloud.terminate([instance.id])
            return
        await index_put(self._index, instance.id, name)

    async def _label_launched(
        self,
        name: str,
        uid: str,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        is_its_machine: Callable[[NodeClaim], bool],
    ) -> NodeClaim | None:
        """Labels and annotations of the machine onto its claim; None when the claim is not for it any more."""
        while True:  # as long as others write it; a look has its bound
            claim: NodeClaim = await self._writer.kube.get(NODECLAIM, name)
            if claim.meta.uid != uid:
                raise NotFoundError(f"NodeClaim {name!r} was made anew")
            if not is_its_machine(claim):
                return None
            missing = {k: v for k, v in labels.items() if k not in claim.meta.labels}
            try:
                written: NodeClaim = await self._writer.annotate(
                    NODECLAIM, claim, annotations, labels=missing, locked=True
                )
            except ConflictError:
                continue
            return written

    def _finish(self, fleet: _Fleet) -> float | None:
        """All answers are written; claims that got no machine take part in a new fleet."""
        self._settle(fleet.token)
        rest = self._members(fleet)
        self._forget(fleet)
        pools = {c.nodepool for c in rest}
        if fleet.asked is not None and len(rest) < len(fleet.asked[0]):
            for pool in {c.nodepool for c in fleet.asked[0]} - pools:
                if self._state.pace.worked(pool):
                    self._replan("launches work again")
        self.offer(rest)
        return None

    # Answers that are no machine

    async def _no_capacity(self, fleet: _Fleet, claims: Sequence[NodeClaim], error: InsufficientCapacityError) -> None:
        self._count(error.failed)
        pool = claims[0].nodepool
        log.warning(
            "no capacity", nodepool=pool, nodeclaims=len(claims), offerings=len(error.failed), error=describe(error)
        )
        marked = await self._report(pool, error.failed)
        held = self._state.pace.failed(pool, at_once=not marked)
        if held:
            self._tell_held(pool, held, error)
        await self._give_up(fleet, claims, "InsufficientCapacityError", describe(error), "insufficient_capacity")

    async def _class_not_ready(self, fleet: _Fleet, claims: Sequence[NodeClaim], error: Exception) -> None:
        self._tell_held(claims[0].nodepool, self._state.pace.failed(claims[0].nodepool, at_once=True), error)
        await self._give_up(fleet, claims, "NodeClassNotReady", describe(error), "nodeclass_not_ready")

    def _tell_held(self, pool: str, seconds: float, error: Exception) -> None:
        log.warning("pool left out for a while, as its launches fail", nodepool=pool, retry_seconds=round(seconds, 1))
        known = self._state.pool(pool)
        if known is not None:
            message = f"No node is asked of this pool for {seconds:.0f} s, as its launches fail: {describe(error)}"
            self._announcer.warn(NODEPOOL, known.meta, "LaunchBackoff", message)

    async def _give_up(self, fleet: _Fleet, claims: Sequence[NodeClaim], event: str, message: str, reason: str) -> None:
        for claim in claims:
            self._announcer.warn(NODECLAIM, claim.meta, event, message)
        await each(claims, lambda c: self._writer.delete_claim(c, reason))
        self._forget(fleet)
        self._replan(reason)

    async def _not_launched(self, fleet: _Fleet, claims: Sequence[NodeClaim], error: Exception) -> None:
        reason = reason_of(error) if isinstance(error, CloudError) else "InstanceTypeResolutionFailed"
        self._instruments.cloud_errors.labels("Create", reason).inc()
        if isinstance(error, CloudError) and error.failed:
            # Whatever went wrong: these had no capacity on the way.
            self._count(error.failed)
            await self._report(claims[0].nodepool, error.failed)
        if reason == "IdempotentParameterMismatch":
            fleet.resumed = self._now()  # the cloud knows the token: what it made is found by it
        for claim in claims:
            try:
                await self._writer.judge(NODECLAIM, claim, [Judgement(LAUNCHED, "Unknown", reason, describe(error))])
            except KubeError as problem:
                log.debug("condition not written", nodeclaim=claim.meta.name, error=str(problem))

    async def _report(self, pool: str, failed: Sequence[FailedOffering]) -> bool:
        """Whether the catalogue knows which offerings to leave out now."""
        if not failed:
            return False
        try:
            await self._catalog.report_unavailable(failed)
        except Exception as error:
            log.warning("unavailable offerings not reported", nodepool=pool, error=describe(error))
            return False
        return True

    def _count(self, failed: Sequence[FailedOffering]) -> None:
        for f in failed:
            self._instruments.launch_failures.labels(f.zone, f.capacity_type, f.code).inc()

    # Adoption

    async def _adopt(self, fleet: _Fleet) -> float | None:
        """A-adopt: find the machines of a token whose launch nobody remembers, and give them to its claims."""
        # Live: the mirror may not show yet what the former leader wrote last.
        listed: Sequence[NodeClaim] = (await self._writer.kube.list(NODECLAIM)).objects
        taken = {c.provider_id for c in listed if c.provider_id}
        waiting = sorted(
            (c for c in listed if c.launch_token == fleet.token and not c.provider_id),
            key=lambda c: (c.meta.is_deleting, c.meta.name),
        )
        fleet.claims |= {c.meta.uid: c.meta.name for c in waiting}
        self._owned |= {c.meta.uid: fleet.token for c in waiting}
        if not waiting:
            self._settle(fleet.token)
            self._forget(fleet)
            return None
        found = [i for i in await self._cloud.find_by_token(fleet.token) if i.provider_id not in taken]
        pairs = list(zip(waiting, found, strict=False))
        if pairs:
            node_class = self._state.node_class(waiting[0].node_class_ref.name)
            resolved = await self._catalog.resolve(node_class) if node_class is not None else None
            types = resolved.instance_types if resolved is not None else ()
            fleet.measured = resolved.measured if resolved is not None else frozenset()
            fleet.answers = dict(
                await self._cloud.adopt([c for c, _ in pairs], [i for _, i in pairs], node_class, types)
            )
            log.info("instances adopted", token=fleet.token, instance_ids=[i.id for _, i in pairs])
            await self._write_answers(fleet)
        rest = waiting[len(pairs) :]
        if not rest:
            self._settle(fleet.token)
            self._forget(fleet)
            return None
        assert fleet.resumed is not None
        left = fleet.resumed + self._window - self._now()
        if left > 0:
            return min(LOOK_UP_EVERY, left)
        # This was the look after the window: nothing will come. Late ones are garbage, as no claim holds the token.
        self._settle(fleet.token)
        self._forget(fleet)
        self.offer(c for c in rest if not c.meta.is_deleting)
        return None

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
