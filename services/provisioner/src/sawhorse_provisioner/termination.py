"""The end of a NodeClaim: its Node first, then its machine, then its finalizer. Every step may repeat.

The Node's own end, with the drain, is `node_termination`'s. Each look reads the claim live.
"""

from collections.abc import Callable

import structlog

from sawhorse_cloud.cloud import Cloud
from sawhorse_kube.api import Kube
from sawhorse_kube.errors import ConflictError, NotFoundError
from sawhorse_kube.kinds import NODE, NODECLAIM
from sawhorse_model.labels import CAPACITY_TYPE, TERMINATION_FINALIZER, TERMINATION_TIMESTAMP, ZONE
from sawhorse_model.manifests import format_time
from sawhorse_model.meta import is_true
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import INSTANCE_TERMINATING, NodeClaim
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.indexing import Index, index_drop
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.launching import Launcher
from sawhorse_provisioner.machines import LOOK_EVERY, end_machine
from sawhorse_provisioner.steps import Step
from sawhorse_provisioner.writes import Judgement, Writer
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.failpoints import Steps

log = structlog.get_logger(__name__)

_LAUNCH_LOOK = 1.0  # seconds between looks at a launch that may still give a machine
_NODE_LOOK = 10.0  # Node events come by themselves; this is the net


class ClaimTermination:
    """Handles deleting claims.

    Args:
        finished: told when a claim has gone, with its uid.
    """

    def __init__(
        self,
        *,
        kube: Kube,
        writer: Writer,
        state: ClusterState,
        cloud: Cloud,
        launcher: Launcher,
        index: Index,
        instruments: Instruments,
        clock: Clock,
        finished: Callable[[NodeClaim], None],
        steps: Steps,
    ) -> None:
        self._kube = kube
        self._writer = writer
        self._state = state
        self._cloud = cloud
        self._launcher = launcher
        self._index = index
        self._instruments = instruments
        self._clock = clock
        self._finished = finished
        self._steps = steps

    async def look(self, claim: NodeClaim) -> float | None:
        """The next step of a deleting claim; returns seconds until the next look, None when it is gone."""
        try:
            live: NodeClaim = await self._kube.get(NODECLAIM, claim.meta.name)
        except NotFoundError:
            self._state.note_deleted(claim.meta.uid)
            return None
        self._state.note(NODECLAIM, live)
        if live.meta.uid != claim.meta.uid or not live.meta.is_deleting:
            return 0.0
        if TERMINATION_FINALIZER not in live.meta.finalizers:
            return None
        live = await self._set_deadline(live)
        if await self._nodes_remain(live):
            return _NODE_LOOK
        if not live.provider_id and self._launcher.may_have_instance(live):
            return _LAUNCH_LOOK
        if live.provider_id and not await self._end_machine(live):
            return LOOK_EVERY
        await self._remove_unregistered_nodes(live)
        return await self._release(live)

    async def _set_deadline(self, claim: NodeClaim) -> NodeClaim:
        """When the drain must be over. Whoever wrote an earlier one wins."""
        grace, deleted = claim.termination_grace_period, claim.meta.deletion_timestamp
        if grace is None or deleted is None or TERMINATION_TIMESTAMP in claim.meta.annotations:
            return claim
        written: NodeClaim = await self._writer.annotate(
            NODECLAIM, claim, {TERMINATION_TIMESTAMP: format_time(deleted + grace)}, locked=True
        )
        return written

    async def _nodes_remain(self, claim: NodeClaim) -> bool:
        """Delete the claim's Nodes; whether some that have to be drained are still there."""
        remain = False
        for node in self._nodes_with_finalizer(claim):
            remain = True
            if not node.meta.is_deleting:
                try:
                    await self._kube.delete(NODE, node.meta.name, uid=node.meta.uid)
                except (NotFoundError, ConflictError):
                    continue
                log.info("node deleted with its nodeclaim", node=node.meta.name, nodeclaim=claim.meta.name)
        return remain

    def _nodes_with_finalizer(self, claim: NodeClaim) -> list[Node]:
        return [n for n in self._state.nodes_of(claim.provider_id) if TERMINATION_FINALIZER in n.meta.finalizers]

    async def _end_machine(self, claim: NodeClaim) -> bool:
        with self._steps.at(Step.INSTANCE):
            gone = await end_machine(self._cloud, claim.instance_id)
            if not is_true(claim.conditions, INSTANCE_TERMINATING):
                await self._writer.judge(NODECLAIM, claim, [Judgement(INSTANCE_TERMINATING, "True")])
        return gone

    async def _remove_unregistered_nodes(self, claim: NodeClaim) -> None:
        """A Node that joined and was never taken in has nobody else to remove it; its machine is gone."""
        for node in self._state.nodes_of(claim.provider_id):
            if TERMINATION_FINALIZER not in node.meta.finalizers and not node.meta.is_deleting:
                try:
                    await self._kube.delete(NODE, node.meta.name, uid=node.meta.uid)
                except (NotFoundError, ConflictError):
                    continue

    # Step `terminated`

    async def _release(self, claim: NodeClaim) -> float | None:
        with self._steps.at(Step.TERMINATED):
            if claim.provider_id:
                await index_drop(self._index, claim.instance_id)
                await self._writer.release(NODECLAIM, claim.meta.name, claim.meta.uid, TERMINATION_FINALIZER)
            else:
                # Locked to what was read: a token that came in between must be seen, or its machine would leak.
                finalizers = [f for f in claim.meta.finalizers if f != TERMINATION_FINALIZER]
                await self._writer.set_finalizers(NODECLAIM, claim, finalizers)
                self._state.note_deleted(claim.meta.uid)
        labels = claim.meta.labels
        self._instruments.claims_terminated.labels(
            claim.nodepool, labels.get(CAPACITY_TYPE, ""), labels.get(ZONE, "")
        ).inc()
        if claim.meta.deletion_timestamp is not None:
            took = (self._clock.now() - claim.meta.deletion_timestamp).total_seconds()
            self._instruments.claim_termination_seconds.labels(claim.nodepool).observe(max(0.0, took))
        log.info("nodeclaim gone", nodeclaim=claim.meta.name, nodepool=claim.nodepool, instance_id=claim.instance_id)
        self._finished(claim)
        return None
