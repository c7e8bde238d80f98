"""Writes that every controller here shares: locked, repeated on conflict, visible at once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from sawhorse_kube.api import Kube
from sawhorse_kube.conditions import HasConditions, patch_conditions
from sawhorse_kube.errors import ConflictError, NotFoundError
from sawhorse_kube.kinds import NODECLAIM, Kind
from sawhorse_model.labels import CAPACITY_TYPE
from sawhorse_model.meta import Condition, set_condition, with_root
from sawhorse_model.nodeclaim import DEPENDENTS, NodeClaim
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.instruments import Instruments
from sawhorse_runtime.clock import Clock

log = structlog.get_logger(__name__)

LONGEST_MESSAGE = 300

_TRIES = 4
_PAUSE = 0.05  # seconds between two tries after a conflict

C = TypeVar("C", bound=HasConditions)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A condition to set: True needs no reason."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Writer:
    """Performs the writes; each returns the object as it is then."""

    def __init__(self, kube: Kube, state: ClusterState, clock: Clock, instruments: Instruments) -> None:
        self.kube = kube
        self._state = state
        self._clock = clock
        self._instruments = instruments

    async def judge(
        self,
        kind: Kind,
        obj: C,
        judgements: Sequence[Judgement],
        *,
        dependents: Sequence[str] = DEPENDENTS,
        extra_status: Mapping[str, Any] | None = None,
        still: Callable[[C], bool] | None = None,
    ) -> C:
        """Set conditions, recompute Ready, and set other status fields in the same patch. Nothing changed, no write.

        Args:
            still: whether an object that others wrote meanwhile is to be written all the same; None: it is.
        Raises:
            NotFoundError: it is gone.
            ConflictError: others wrote it again and again.
        """
        for attempt in range(_TRIES):
            try:
                conditions = self._judged(obj, judgements, dependents)
                written: C = await patch_conditions(self.kube, kind, obj, conditions, extra_status)
            except ConflictError:
                if attempt == _TRIES - 1:
                    raise
                await asyncio.sleep(_PAUSE)
                obj = await self.kube.get(kind, obj.meta.name)
                if still is not None and not still(obj):
                    raise
            else:
                if written is not obj:
                    self._state.note(kind, written)
                return written
        raise AssertionError("the last try raises")

    def _judged(
        self, obj: HasConditions, judgements: Sequence[Judgement], dependents: Sequence[str]
    ) -> tuple[Condition, ...]:
        now, generation = self._clock.now(), obj.meta.generation
        conditions = obj.conditions
        if obj.meta.is_deleting:
            # A deleting object's generation moves without a new spec: what was judged still holds.
            conditions = tuple(replace(c, observed_generation=generation) for c in conditions)
        for j in judgements:
            conditions = set_condition(
                conditions,
                j.type,
                j.status,
                now=now,
                generation=generation,
                reason=j.reason,
                message=j.message[:LONGEST_MESSAGE],
            )
        created = obj.meta.created or now
        return with_root(conditions, dependents, now=now, generation=generation, created=created)

    async def judge_claim(self, claim: NodeClaim, judgements: Sequence[Judgement]) -> NodeClaim:
        """`judge` for a claim that may be gone by now; then it is left at that."""
        try:
            return await self.judge(NODECLAIM, claim, judgements)
        except NotFoundError:
            return claim

    async def annotate(
        self,
        kind: Kind,
        obj: Any,
        annotations: Mapping[str, str | None],
        *,
        labels: Mapping[str, str | None] | None = None,
        locked: bool = False,
    ) -> Any:
        """Set annotations and labels; None removes one.

        Args:
            locked: only if the object is as read.
        Raises:
            NotFoundError: it is gone, or it is another of the same name.
            ConflictError: `locked`, and it changed.
        """
        # The uid makes the server refuse an object that was made anew under the name.
        metadata: dict[str, Any] = {"uid": obj.meta.uid, "annotations": dict(annotations)}
        if labels:
            metadata["labels"] = dict(labels)
        if locked:
            metadata["resourceVersion"] = obj.meta.resource_version
        written = await self.kube.patch(kind, obj.meta.name, {"metadata": metadata})
        self._state.note(kind, written)
        return written

    async def set_finalizers(self, kind: Kind, obj: Any, finalizers: Sequence[str]) -> Any:
        """Replace the finalizers of an object as read.

        Raises:
            ConflictError: it changed since.
        """
        body = {"metadata": {"resourceVersion": obj.meta.resource_version, "finalizers": list(finalizers)}}
        return await self.kube.patch(kind, obj.meta.name, body)

    async def add_finalizer(self, kind: Kind, obj: Any, finalizer: str) -> Any:
        """Add a finalizer; the object as it is then."""
        written = await self.set_finalizers(kind, obj, (*obj.meta.finalizers, finalizer))
        self._state.note(kind, written)
        return written

    async def release(self, kind: Kind, name: str, uid: str, finalizer: str) -> None:
        """Remove a finalizer from the object as it is live. Gone already, or another one by now, is fine."""
        for _ in range(_TRIES):
            try:
                live = await self.kube.get(kind, name)
                if live.meta.uid != uid or finalizer not in live.meta.finalizers:
                    return
                await self.set_finalizers(kind, live, [f for f in live.meta.finalizers if f != finalizer])
            except NotFoundError:
                return
            except ConflictError:
                await asyncio.sleep(_PAUSE)
            else:
                self._state.note_deleted(uid)
                return
        raise ConflictError(f"{kind.name} {name!r}: others write it all the time; the finalizer stays for now")

    async def delete_claim(self, claim: NodeClaim, reason: str) -> None:
        """Ask for the deletion of this very claim; gone already is fine. `reason` is a metric label."""
        try:
            await self.kube.delete(NODECLAIM, claim.meta.name, uid=claim.meta.uid)
        except (NotFoundError, ConflictError):
            self._state.note_deleted(claim.meta.uid)
            return
        self._state.note_deleted(claim.meta.uid)
        capacity_type = claim.meta.labels.get(CAPACITY_TYPE, "")
        self._instruments.claims_disrupted.labels(reason, claim.nodepool, capacity_type).inc()
        log.info("nodeclaim deleted", nodeclaim=claim.meta.name, nodepool=claim.nodepool, reason=reason)
