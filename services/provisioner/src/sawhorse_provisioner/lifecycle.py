"""A NodeClaim from its creation to an initialized node, level by level; its end is `termination`'s.

One look reads the claim as it is and does the next thing: finalizer, launch (by `launching`), `registered`,
`initialized`, `tagged` with the measured memory. What takes too long is given up by `liveness`.
"""

from collections.abc import Awaitable, Callable, Mapping

import structlog

from sawhorse_cloud.cloud import Cloud
from sawhorse_cloud.errors import CloudError
from sawhorse_kube.api import Kube
from sawhorse_kube.errors import ConflictError, KubeError, NotFoundError
from sawhorse_kube.kinds import NODE, NODECLAIM
from sawhorse_model.labels import TERMINATION_FINALIZER, ZONE
from sawhorse_model.meta import find_condition
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import INITIALIZED, REGISTERED, NodeClaim
from sawhorse_provisioner.announcer import Announcer
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.launching import Launcher
from sawhorse_provisioner.liveness import Liveness
from sawhorse_provisioner.measuring import MemoryMeter
from sawhorse_provisioner.pool_health import PoolHealth
from sawhorse_provisioner.registration import (
    MULTIPLE_NODES,
    RESOURCE_NOT_REGISTERED,
    evicts_as_unregistered,
    initialization_patch,
    lacks_unregistered_taint,
    missing_for_initialization,
    registration_patch,
    softening_patch,
)
from sawhorse_provisioner.steps import Step
from sawhorse_provisioner.termination import ClaimTermination
from sawhorse_provisioner.together import each
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_provisioner.writes import Judgement, Writer
from sawhorse_runtime.errors import describe
from sawhorse_runtime.failpoints import Steps

log = structlog.get_logger(__name__)

Hook = Callable[[NodeClaim, Node], Awaitable[bool]]
"""Runs before a node is opened to pods; whether it may be. Repeated until it says so."""

_CONFLICT_RETRY = 0.2
_HOOK_LOOK = 5.0  # seconds


class Lifecycle:
    """Handles claims by name; `look` is a KeyedQueue handler.

    Args:
        initialized: told when a claim's node is complete.
        hooks: by name; all must say so before a node is opened. That of step `hinted` is one of them.
        opening: awaited with a claim's name right before its node is opened, so that several can be at once.
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
        words: NodeClassWords,
        liveness: Liveness,
        health: PoolHealth,
        meter: MemoryMeter,
        initialized: Callable[[NodeClaim], None],
        hooks: Mapping[str, Hook],
        opening: Callable[[str], Awaitable[None]],
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
        self._words = words
        self._liveness = liveness
        self._health = health
        self._meter = meter
        self._initialized = initialized
        self._hooks = dict(hooks)
        self._opening = opening
        self._steps = steps

    async def look(self, name: str) -> float | None:
        """The next thing for one claim; returns seconds until the next look, or None for "at the next change"."""
        claim = self._state.claim(name)
        if claim is None or claim.meta.is_deleting or claim.is_initialized:
            self._liveness.forget(name)
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
        left = self._liveness.time_left(claim)
        if left is not None and left <= 0:
            await self._liveness.give_up(claim)
            return None
        if not claim.is_launched:
            self._launcher.ensure(claim)
            return _soon(left)
        if not claim.is_registered:
            claim = await self._register(claim)
        if claim.is_registered and not claim.is_initialized:
            claim = await self._initialize(claim)
        if claim.is_registered:
            for node in self._state.nodes_of(claim.provider_id):
                await self._meter.measure(claim, node)
        if claim.is_registered and claim.node_name and self._words.tagged not in claim.meta.annotations:
            with self._steps.at(Step.TAGGED):
                await self._tag(claim)
        left = self._liveness.time_left(claim)
        registered = find_condition(claim.conditions, REGISTERED)
        if registered is not None and registered.reason == "RegistrationHookPending":
            return min(_HOOK_LOOK, _soon(left) or _HOOK_LOOK)
        return _soon(left)

    # Step `registered`

    async def _register(self, claim: NodeClaim) -> NodeClaim:
        nodes = self._state.nodes_of(claim.provider_id)
        if not nodes:
            return await self._judge(claim, REGISTERED, "NodeNotFound", "No node of this instance has joined yet")
        if len(nodes) > 1:
            names = ", ".join(sorted(n.meta.name for n in nodes))
            message = f"Several nodes say that they are this instance: {names}; delete the wrong ones"
            self._announcer.warn(NODECLAIM, claim.meta, MULTIPLE_NODES, message)
            return await self._judge(claim, REGISTERED, MULTIPLE_NODES, message, status="False")
        with self._steps.at(Step.NODE_SEEN):
            node = nodes[0]
        if lacks_unregistered_taint(node):
            message = f"Node {node.meta.name} joined without the taint karpenter.sh/unregistered; check spec.userData"
            self._announcer.warn(NODECLAIM, claim.meta, "UnregisteredTaintMissing", message)
        with self._steps.at(Step.HINTED):
            if evicts_as_unregistered(node) and (
                patch := softening_patch(await self._kube.get_raw(NODE, node.meta.name))
            ):
                self._state.note(NODE, await self._kube.patch(NODE, node.meta.name, patch))
            pending = await self._pending_hooks(claim, node)
        claim = self._state.claim(claim.meta.name) or claim  # a hook may have written it
        raw = await self._kube.get_raw(NODE, node.meta.name)
        live: Node = NODE.parse(raw)
        if live.provider_id != claim.provider_id:
            raise ConflictError(f"Node {node.meta.name!r} is another instance by now")
        if not pending:
            await self._opening(claim.meta.name)
        with self._steps.at(Step.REGISTERED):
            if patch := registration_patch(raw, claim, lift=not pending):
                self._state.note(NODE, await self._kube.patch(NODE, node.meta.name, patch))
            if pending:
                message = f"Waiting before pods may come: {', '.join(pending)}"
                return await self._judge(claim, REGISTERED, "RegistrationHookPending", message)
            claim = await self._writer.judge(
                NODECLAIM, claim, [Judgement(REGISTERED, "True")], extra_status={"nodeName": node.meta.name}
            )
        self._instruments.nodes_created.labels(claim.nodepool, claim.meta.labels.get(ZONE, "")).inc()
        log.info("node registered", nodeclaim=claim.meta.name, node=node.meta.name, nodepool=claim.nodepool)
        self._health.record(claim)
        return claim

    async def _pending_hooks(self, claim: NodeClaim, node: Node) -> list[str]:
        """Names of the hooks that do not let pods in yet; one that fails is one of them, and stops no other."""

        async def is_ready(name: str) -> bool:
            try:
                return await self._hooks[name](claim, node)
            except (CloudError, KubeError) as error:
                log.warning("registration hook failed", nodeclaim=claim.meta.name, hook=name, error=describe(error))
                return False

        names = sorted(self._hooks)
        return [name for name, ready in zip(names, await each(names, is_ready), strict=True) if not ready]

    # Step `initialized`

    async def _initialize(self, claim: NodeClaim) -> NodeClaim:
        nodes = self._state.nodes_of(claim.provider_id)
        if len(nodes) != 1:
            return await self._judge(claim, INITIALIZED, "NodeNotFound", "The node is gone")
        node = nodes[0]
        if missing := missing_for_initialization(node, claim, self._words.plugins):
            if missing[0] == RESOURCE_NOT_REGISTERED:
                await self._liveness.tell_missing_resources(claim, node)
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
        tags = {"Name": claim.node_name, "karpenter.sh/nodeclaim": claim.meta.name}
        node_class = self._state.node_class(claim.node_class_ref.name)
        if node_class is not None and "Name" in (node_class.spec.get("tags") or {}):
            del tags["Name"]  # machines of this class have a name of their user's choice
        try:
            await self._cloud.tag(claim.instance_id, tags)
        except CloudError as error:
            log.warning("instance not tagged", nodeclaim=claim.meta.name, error=describe(error))
            return
        done = dict.fromkeys((self._words.tagged, *self._words.tagged_also), "true")
        await self._writer.annotate(NODECLAIM, claim, done)


def _soon(left: float | None) -> float | None:
    return None if left is None else max(0.1, left)
