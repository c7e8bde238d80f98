"""A NodeClaim from its creation to an initialized node, level by level; its end is `termination`'s.

One look reads the claim as it is and does the next thing: finalizer, launch (by `launching`), `registered`,
`initialized`, `tagged`, and the liveness timeouts.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import structlog

from sawhorse_cloud.cloud import Cloud
from sawhorse_cloud.errors import CloudError
from sawhorse_kube.api import Kube
from sawhorse_kube.errors import ConflictError, NotFoundError
from sawhorse_kube.kinds import NODE, NODECLAIM
from sawhorse_model.labels import TERMINATION_FINALIZER, ZONE
from sawhorse_model.manifests import ManifestError, parse_duration
from sawhorse_model.meta import find_condition
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import DEPENDENTS, INITIALIZED, LAUNCHED, REGISTERED, NodeClaim
from sawhorse_provisioner.announcer import Announcer
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.launching import Launcher
from sawhorse_provisioner.registration import (
    initialization_patch,
    lacks_unregistered_taint,
    missing_for_initialization,
    registration_patch,
)
from sawhorse_provisioner.steps import Step
from sawhorse_provisioner.termination import ClaimTermination
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_provisioner.writes import Judgement, Writer
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe
from sawhorse_runtime.failpoints import Steps

log = structlog.get_logger(__name__)

Hook = Callable[[NodeClaim, Node], Awaitable[bool]]
"""Runs before a node is opened to pods; whether it may be. Repeated until it says so."""

LAUNCH_TIMEOUT = "sawhorse.dev/launch-timeout"
REGISTRATION_TIMEOUT = "sawhorse.dev/registration-timeout"
"""Annotations of a NodePool: its own timeouts, as Go durations."""

_CONFLICT_RETRY = 0.2


class Lifecycle:
    """Handles claims by name; `look` is a KeyedQueue handler.

    Args:
        initialized: told when a claim's node is complete.
        hook: step `hinted`.
    """

    def __init__(
        self,
        *,
        kube: Kube,
        writer: Writer,
        state: ClusterState,
        cloud: Cloud,
        launcher: Launcher,
        termination: ClaimTermination,
        announcer: Announcer,
        instruments: Instruments,
        clock: Clock,
        words: NodeClassWords,
        launch_timeout: timedelta,
        registration_timeout: timedelta,
        initialized: Callable[[NodeClaim], None],
        hook: Hook,
        steps: Steps,
    ) -> None:
        self._kube = kube
        self._writer = writer
        self._state = state
        self._cloud = cloud
        self._launcher = launcher
        self._termination = termination
        self._announcer = announcer
        self._instruments = instruments
        self._clock = clock
        self._words = words
        self._launch_timeout = launch_timeout
        self._registration_timeout = registration_timeout
        self._initialized = initialized
        self._hook = hook
        self._steps = steps
        self._watched: dict[str, tuple[str, str, float]] = {}  # claim → uid, what it waits for, monotonic time

    async def look(self, name: str) -> float | None:
        """The next thing for one claim; returns seconds until the next look, or None for "at the next change"."""
        claim = self._state.claim(name)
        if claim is None or claim.meta.is_deleting or claim.is_registered:
            self._watched.pop(name, None)
        if claim is None:
            return None
        try:
            if claim.meta.is_deleting:
                return await self._termination.look(claim)
            return await self._advance(claim)
        except ConflictError:
            # Somebody wrote in between: see what, at once.
            try:
                self._state.note(NODECLAIM, await self._kube.get(NODECLAIM, name))
            except NotFoundError:
                self._state.note_deleted(claim.meta.uid)
            return _CONFLICT_RETRY
        except NotFoundError:
            return 1.0  # gone, and the mirror will say so

    async def _advance(self, claim: NodeClaim) -> float | None:
        if TERMINATION_FINALIZER not in claim.meta.finalizers:
            claim = await self._writer.add_finalizer(NODECLAIM, claim, TERMINATION_FINALIZER)
        if find_condition(claim.conditions, "Ready") is None:
            claim = await self._writer.judge(NODECLAIM, claim, [])
        left = self._time_left(claim)
        if left is not None and left <= timedelta(0):
            await self._give_up(claim)
            return None
        if not claim.is_launched:
            self._launcher.ensure(claim)
            return _seconds(left)
        if not claim.is_registered:
            claim = await self._register(claim)
        if claim.is_registered and not claim.is_initialized:
            claim = await self._initialize(claim)
        if claim.is_registered and claim.node_name and self._words.tagged not in claim.meta.annotations:
            with self._steps.at(Step.TAGGED):
                await self._tag(claim)
        return _seconds(self._time_left(claim))

    # Step `registered`

    async def _register(self, claim: NodeClaim) -> NodeClaim:
        nodes = self._state.nodes_of(claim.provider_id)
        if not nodes:
            return await self._judge(claim, REGISTERED, "NodeNotFound", "No node of this instance has joined yet")
        if len(nodes) > 1:
            names = ", ".join(sorted(n.meta.name for n in nodes))
            message = f"Several nodes say that they are this instance: {names}; delete the wrong ones"
            return await self._judge(claim, REGISTERED, "MultipleNodesFound", message, status="False")
        with self._steps.at(Step.NODE_SEEN):
            node = nodes[0]
        if lacks_unregistered_taint(node):
            message = f"Node {node.meta.name} joined without the taint karpenter.sh/unregistered; check spec.userData"
            self._announcer.warn(NODECLAIM, claim.meta, "UnregisteredTaintMissing", message)
        with self._steps.at(Step.HINTED):
            ready = await self._hook(claim, node)
        raw = await self._kube.get_raw(NODE, node.meta.name)
        live: Node = NODE.parse(raw)
        if live.provider_id != claim.provider_id:
            raise ConflictError(f"Node {node.meta.name!r} is another instance by now")
        with self._steps.at(Step.REGISTERED):
            if patch := registration_patch(raw, claim, lift=ready):
                self._state.note(NODE, await self._kube.patch(NODE, node.meta.name, patch))
            if not ready:
                return await self._judge(claim, REGISTERED, "RegistrationHookPending", "Waiting before pods may come")
            claim = await self._writer.judge(
                NODECLAIM, claim, [Judgement(REGISTERED, "True")], extra_status={"nodeName": node.meta.name}
            )
        self._instruments.nodes_created.labels(claim.nodepool, claim.meta.labels.get(ZONE, "")).inc()
        log.info("node registered", nodeclaim=claim.meta.name, node=node.meta.name, nodepool=claim.nodepool)
        return claim

    # Step `initialized`

    async def _initialize(self, claim: NodeClaim) -> NodeClaim:
        nodes = self._state.nodes_of(claim.provider_id)
        if len(nodes) != 1:
            return await self._judge(claim, INITIALIZED, "NodeNotFound", "The node is gone")
        node = nodes[0]
        if missing := missing_for_initialization(node, claim):
            return await self._judge(claim, INITIALIZED, *missing)
        with self._steps.at(Step.INITIALIZED):
            if patch := initialization_patch(node):
                self._state.note(NODE, await self._kube.patch(NODE, node.meta.name, patch))
            claim = await self._writer.judge(NODECLAIM, claim, [Judgement(INITIALIZED, "True")])
        log.info("node initialized", nodeclaim=claim.meta.name, node=node.meta.name, nodepool=claim.nodepool)
        self._initialized(claim)
        return claim

    async def _judge(
        self, claim: NodeClaim, kind: str, reason: str, message: str, status: str = "Unknown"
    ) -> NodeClaim:
        return await self._writer.judge(NODECLAIM, claim, [Judgement(kind, status, reason, message)])

    # Step `tagged`

    async def _tag(self, claim: NodeClaim) -> None:
        """Names on the machine, for people who look at it in the cloud. A failure holds nothing up."""
        try:
            await self._cloud.tag(
                claim.instance_id, {"Name": claim.node_name, "karpenter.sh/nodeclaim": claim.meta.name}
            )
        except CloudError as error:
            log.warning("instance not tagged", nodeclaim=claim.meta.name, error=describe(error))
            return
        await self._writer.annotate(NODECLAIM, claim, {self._words.tagged: "true"})

    # Liveness

    def _time_left(self, claim: NodeClaim) -> timedelta | None:
        """Until the claim has taken too long to launch or register; None once it has registered."""
        for kind in (LAUNCHED, REGISTERED):
            condition = find_condition(claim.conditions, kind)
            if condition is not None and condition.status == "True":
                continue
            since = condition.last_transition if condition is not None else claim.meta.created
            limit = self._limit(claim, kind)
            left = limit - (self._clock.now() - (since or self._now_or(claim)))
            # Those times are of other clocks. One that is minutes off must not end what has only just begun.
            return max(left, limit / 2 - self._watched_for(claim, kind))
        return None

    def _watched_for(self, claim: NodeClaim, kind: str) -> timedelta:
        """How long this term has seen the claim wait for it."""
        now = self._clock.monotonic()
        uid, waited, since = self._watched.get(claim.meta.name, ("", "", now))
        if (uid, waited) != (claim.meta.uid, kind):
            self._watched[claim.meta.name], since = (claim.meta.uid, kind, now), now
        return timedelta(seconds=now - since)

    def _limit(self, claim: NodeClaim, kind: str) -> timedelta:
        """How long the claim may take: what its pool says, or the service's own."""
        default, annotation = (
            (self._launch_timeout, LAUNCH_TIMEOUT)
            if kind == LAUNCHED
            else (self._registration_timeout, REGISTRATION_TIMEOUT)
        )
        pool = self._state.pool(claim.nodepool)
        own = pool.meta.annotations.get(annotation, "") if pool is not None else ""
        if not own:
            return default
        try:
            return parse_duration(own, annotation)
        except ManifestError:
            return default

    def _now_or(self, claim: NodeClaim) -> datetime:
        return claim.meta.created or self._clock.now()

    async def _give_up(self, claim: NodeClaim) -> None:
        launched = claim.is_launched
        kind, reason = (REGISTERED, "registration_timeout") if launched else (LAUNCHED, "launch_timeout")
        limit = self._limit(claim, kind)
        condition = find_condition(claim.conditions, kind)
        why = f": {condition.message}" if condition is not None and condition.message else ""
        what = "registered" if launched else "launched"
        self._announcer.warn(
            NODECLAIM,
            claim.meta,
            "RegistrationTimeout" if launched else "LaunchTimeout",
            f"Deleted, as it was not {what} within {int(limit.total_seconds())} s{why}",
        )
        await self._writer.delete_claim(claim, reason)


def _seconds(left: timedelta | None) -> float | None:
    return None if left is None else max(0.1, left.total_seconds())


__all__ = ["DEPENDENTS", "Hook", "Lifecycle"]
