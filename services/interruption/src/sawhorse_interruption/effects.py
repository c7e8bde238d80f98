"""What a message does, in the order of its named steps: marked, deadline, cordoned, woken, deleted.

Each step may be repeated, alone or by two replicas at a time. The deleting, annotated claim that they leave is the
durable request for a replacement and for a drain; the message is acknowledged only after it.

After a crash: the message comes back and all steps run again; those that are done change nothing.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import structlog

from sawhorse_interruption.cache import Cache
from sawhorse_interruption.cordon import cordon
from sawhorse_interruption.index import ClaimIndex
from sawhorse_interruption.instruments import Instruments
from sawhorse_interruption.marking import Marker
from sawhorse_interruption.messages import Kind
from sawhorse_interruption.policy import Response, annotations_to_set
from sawhorse_interruption.steps import Step, Steps
from sawhorse_kube.api import Kube
from sawhorse_kube.errors import ConflictError, NotFoundError
from sawhorse_kube.events import WARNING, EventRecorder
from sawhorse_kube.kinds import NODE, NODECLAIM
from sawhorse_model.labels import CAPACITY_TYPE
from sawhorse_model.manifests import format_time
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_runtime.clock import Clock

log = structlog.get_logger(__name__)

TRIES = 8
EVENT_SECONDS = 5.0


class Applied(StrEnum):
    """What the steps found."""

    ACTED = "acted"
    DUPLICATE = "duplicate"  # everything was in place
    GONE = "gone"  # the claim vanished meanwhile


@dataclass(frozen=True, slots=True)
class Doom:
    """What happens to an instance. `received` is monotonic seconds; `gone`: the cloud says that it no longer runs."""

    kind: Kind
    response: Response
    instance_id: str
    happened: datetime
    deadline: datetime | None
    received: float
    gone: bool = False


class Effects:
    """Performs the steps.

    Args:
        on_doomed: told of each claim whose drain is now due, with `Doom.received`.
    """

    def __init__(
        self,
        kube: Kube,
        index: ClaimIndex,
        recorder: EventRecorder,
        marker: Marker,
        cache: Cache,
        clock: Clock,
        instruments: Instruments,
        *,
        on_doomed: Callable[[str, float], None] = lambda claim, received: None,
        steps: Steps | None = None,
    ) -> None:
        self._kube = kube
        self._index = index
        self._recorder = recorder
        self._marker = marker
        self._clock = clock
        self._instruments = instruments
        self._cache = cache
        self._on_doomed = on_doomed
        self._steps = steps if steps is not None else Steps()

    async def apply(self, claim: NodeClaim, doom: Doom) -> Applied:
        """Perform all steps for a claim that was just read live.

        Raises:
            KubeError: Kubernetes refuses or does not answer; repeat all of it later.
        """
        was_deleting = claim.meta.is_deleting
        if not (was_deleting and self._is_annotated(claim, doom)):  # else a repeat, and marks grow with repeats
            with self._steps.at(Step.MARKED):
                await self._marker.mark(claim, doom.response)
        with self._steps.at(Step.DEADLINE):
            annotated, is_new = await self._annotate(claim, doom)
        if annotated is None:
            return Applied.GONE
        with self._steps.at(Step.CORDONED):
            node = await self._cordon(annotated, doom)
        with self._steps.at(Step.WOKEN):
            # Lost or not, the provisioner sees the claim; this only saves it waiting.
            await self._cache.wake_provisioner(claim.meta.name, node.meta.name if node is not None else "")
        with self._steps.at(Step.DELETED):
            deleted = await self._delete(annotated, doom)
        self._on_doomed(claim.meta.name, doom.received)
        if deleted or (was_deleting and is_new):
            # Only whoever made the change tells of it: two replicas, or a repeat, must not tell twice.
            await self._tell(annotated, node, doom, deleted=deleted)
        return Applied.ACTED if deleted or is_new else Applied.DUPLICATE

    def _is_annotated(self, claim: NodeClaim, doom: Doom) -> bool:
        return not annotations_to_set(claim.meta.annotations, happened=doom.happened, deadline=doom.deadline)

    async def _annotate(self, claim: NodeClaim, doom: Doom) -> tuple[NodeClaim | None, bool]:
        """The claim with its annotations, and whether they were missing; None when it is gone."""
        current: NodeClaim | None = claim
        for attempt in range(TRIES):
            if current is None or current.meta.uid != claim.meta.uid:
                return None, False
            wanted = annotations_to_set(current.meta.annotations, happened=doom.happened, deadline=doom.deadline)
            if not wanted:
                return current, False
            body = {"metadata": {"resourceVersion": current.meta.resource_version, "annotations": wanted}}
            try:
                annotated: NodeClaim = await self._kube.patch(NODECLAIM, current.meta.name, body)
            except NotFoundError:
                return None, False
            except ConflictError:
                if attempt == TRIES - 1:
                    raise
                current = await self._index.read(claim.meta.name)
            else:
                return annotated, True
        raise AssertionError("the last attempt returns or raises")

    async def _cordon(self, claim: NodeClaim, doom: Doom) -> Node | None:
        name = await self._index.node_name(claim)
        node = await cordon(self._kube, name, claim.provider_id) if name else None
        if node is not None:
            self._instruments.taint.observe(max(0.0, self._clock.monotonic() - doom.received))
        # Without a node there is nothing to keep pods off; one that joins later is cordoned by its drain.
        return node

    async def _delete(self, claim: NodeClaim, doom: Doom) -> bool:
        """Delete the claim; whether it was this call that did."""
        current: NodeClaim | None = claim
        for attempt in range(TRIES):
            if current is None or current.meta.uid != claim.meta.uid or current.meta.is_deleting:
                return False
            # The version tells which of two replicas did it. It is not needed for safety, so it does not fail for it.
            version = current.meta.resource_version if attempt < TRIES - 1 else ""
            try:
                await self._kube.delete(NODECLAIM, current.meta.name, uid=current.meta.uid, resource_version=version)
            except NotFoundError:
                return False
            except ConflictError:
                current = await self._index.read(claim.meta.name)
            else:
                self._instruments.requested.observe(max(0.0, self._clock.monotonic() - doom.received))
                labels = claim.meta.labels
                self._instruments.disrupted(doom.kind, claim.nodepool, labels.get(CAPACITY_TYPE, ""))
                log.info(
                    "nodeclaim deleted",
                    nodeclaim=claim.meta.name,
                    node=claim.node_name,
                    instance_id=doom.instance_id,
                    reason=doom.kind.value,
                    deadline=doom.deadline.isoformat() if doom.deadline else None,
                    instance_gone=doom.gone,
                )
                return True
        return False

    async def _tell(self, claim: NodeClaim, node: Node | None, doom: Doom, *, deleted: bool) -> None:
        told = [(doom.response.reason, doom.response.message)]
        if deleted:
            told.append(("TerminatingOnInterruption", f"Terminating: {doom.response.message}"))
        try:
            async with asyncio.timeout(EVENT_SECONDS), asyncio.TaskGroup() as group:
                for reason, message in told:
                    about = [(NODECLAIM, claim.meta), *([(NODE, node.meta)] if node is not None else [])]
                    for kind, meta in about:
                        group.create_task(
                            self._recorder.publish(kind, meta, type=WARNING, reason=reason, message=message),
                            name=f"event:{reason}:{meta.name}",
                        )
        except TimeoutError:
            log.warning("events not recorded in time", nodeclaim=claim.meta.name)
        await self._cache.record(
            {
                "kind": doom.kind.value,
                "instance": doom.instance_id,
                "claim": claim.meta.name,
                "node": node.meta.name if node is not None else "",
                "nodepool": claim.nodepool,
                "happened": format_time(doom.happened),
                "deadline": format_time(doom.deadline) if doom.deadline is not None else "",
                "instanceGone": doom.gone,
            }
        )
