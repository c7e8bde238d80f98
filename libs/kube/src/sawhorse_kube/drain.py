"""Draining one node, for whoever ends it: performs what `drain_plan` decides, and writes the drain's conditions.

Every look derives its work from the pods given; what is kept between looks is only which evictions were refused, when
to ask again, and what has been told in Events. So two drainers on one node are harmless: evictions carry the pod's uid.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

import structlog

from sawhorse_kube.api import Kube
from sawhorse_kube.conditions import patch_conditions
from sawhorse_kube.drain_plan import (
    DrainPlanner,
    DrainPolicy,
    DrainStep,
    deadline_of,
    is_evictable,
    pods_to_drain,
    policy_of,
    shortened_grace,
    tolerates_disruption,
)
from sawhorse_kube.errors import ConflictError, EvictionBlockedError, KubeError, NotFoundError
from sawhorse_kube.events import WARNING, Clock, EventRecorder
from sawhorse_kube.kinds import NODE, NODECLAIM, POD
from sawhorse_model.meta import find_condition, set_condition
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import DRAINED, NodeClaim
from sawhorse_model.pod import Pod

__all__ = [
    "MANAGER",
    "DrainPlanner",
    "DrainPolicy",
    "DrainStep",
    "Drainer",
    "Outcome",
    "deadline_of",
    "pods_to_drain",
    "policy_of",
    "tolerates_disruption",
]

log = structlog.get_logger(__name__)

MANAGER = "sawhorse-drain"  # field manager of the drain's conditions, whoever drains

_PARALLEL = 32  # evictions in flight over all nodes of one drainer
_FIRST_PAUSE = timedelta(milliseconds=100)
_LONGEST_PAUSE = timedelta(seconds=10)
_FORGET = timedelta(minutes=10)
_LONGEST_DRAIN = timedelta(days=1)
_TRIES = 4


class Outcome(StrEnum):
    """What came of one eviction or deletion; a label of metrics."""

    EVICTED = "evicted"
    FORCED = "forced"
    BLOCKED = "blocked"
    GONE = "gone"
    CHANGED = "changed"  # read live, it may not be evicted after all
    FAILED = "failed"


@dataclass(slots=True)
class _Refusal:
    again: datetime
    pause: timedelta


class Drainer:
    """Performs drains. One per service; it may drain many nodes at the same time.

    Args:
        on_outcome: told the outcome of each eviction, for metrics.
    """

    def __init__(
        self,
        kube: Kube,
        recorder: EventRecorder,
        clock: Clock,
        *,
        on_outcome: Callable[[Outcome, Pod], None] | None = None,
    ) -> None:
        self._kube = kube
        self._recorder = recorder
        self._clock = clock
        self._on_outcome = on_outcome
        self._slots = asyncio.Semaphore(_PARALLEL)
        self._refused: dict[str, _Refusal] = {}  # by pod uid
        self._began: dict[str, datetime] = {}  # by claim uid: our first look

    async def step(
        self,
        node: Node,
        pods: Sequence[Pod],
        deadline: datetime | None,
        policy: DrainPolicy | None = None,
        claim: NodeClaim | None = None,
    ) -> DrainStep:
        """Look at the node once and do what is due. May be repeated at any time, by any number of drainers.

        The claim's condition Drained becomes Unknown at the first look and True with the last. A node without a claim
        is drained without the minimum time. Errors of single pods are logged and tried again at a later look.

        Args:
            pods: those bound to the node, from the mirror or live.
            deadline: when the node must be empty; see `deadline_of`.
            policy: see `policy_of`.
        Returns:
            What was decided. With `done`, nothing is left to drain and Drained=True is written.
        Raises:
            KubeError: the condition could not be written.
        """
        rules = policy if policy is not None else DrainPolicy()
        now = self._clock.now()
        since: datetime | None = None
        if claim is None:
            rules = replace(rules, minimum=timedelta(0))
        else:
            claim, since = await self._begin(claim)
            if since is not None:
                # Written by whoever began, by its clock: one that is ahead of ours must not hold the drain up.
                since = min(since, self._began.setdefault(claim.meta.uid, now))
        blocked = {uid: refusal.again for uid, refusal in self._refused.items()}
        step = DrainPlanner(rules).decide(now, pods, deadline, since=since, blocked=blocked)
        async with asyncio.TaskGroup() as group:
            for pod in step.evict:
                group.create_task(self._evict(pod, deadline, rules), name=f"evict:{pod.meta.key}")
            for pod, grace in step.force_delete:
                group.create_task(self._force(pod, grace, rules), name=f"delete:{pod.meta.key}")
        if step.waiting:
            await self._tell_waiting(node, step)
        if step.done and claim is not None:
            await self.set_condition(claim, DRAINED, "True", reason="Drained")
        self._forget(now)
        return step

    async def set_condition(
        self, claim: NodeClaim, kind: str, status: str, *, reason: str = "", message: str = ""
    ) -> NodeClaim:
        """Set one condition of a claim under the drain's field manager; on conflict read it live and try again.

        Returns:
            The claim as it is now; unchanged when it no longer exists.
        Raises:
            KubeError: it could not be written.
        """
        for attempt in range(_TRIES):
            conditions = set_condition(
                claim.conditions,
                kind,
                status,
                now=self._clock.now(),
                generation=claim.meta.generation,
                reason=reason,
                message=message,
            )
            try:
                written: NodeClaim = await patch_conditions(self._kube, NODECLAIM, claim, conditions, manager=MANAGER)
                return written
            except NotFoundError:
                return claim
            except ConflictError:
                if attempt == _TRIES - 1:
                    raise
                try:
                    claim = await self._kube.get(NODECLAIM, claim.meta.name)
                except NotFoundError:
                    return claim
        raise AssertionError("the last attempt returns or raises")

    async def _begin(self, claim: NodeClaim) -> tuple[NodeClaim, datetime | None]:
        found = find_condition(claim.conditions, DRAINED)
        if found is None:
            # The copy given may be older than our own first look: only the live one tells when the drain began.
            try:
                claim = await self._kube.get(NODECLAIM, claim.meta.name)
            except NotFoundError:
                return claim, None
            found = find_condition(claim.conditions, DRAINED)
        if found is None or found.status == "False":
            claim = await self.set_condition(claim, DRAINED, "Unknown", reason="Draining", message="Evicting pods")
            found = find_condition(claim.conditions, DRAINED)
        return claim, found.last_transition if found is not None else None

    async def _evict(self, pod: Pod, deadline: datetime | None, rules: DrainPolicy) -> None:
        async with self._slots:
            live = await self._reread(pod)
            if live is None:
                return
            now = self._clock.now()
            if not is_evictable(live, now):
                self._count(Outcome.CHANGED, pod)
                return
            try:
                await self._kube.evict(live, grace_seconds=shortened_grace(live, now, deadline))
            except EvictionBlockedError as err:
                self._refuse(pod, now)
                self._count(Outcome.BLOCKED, pod)
                await self._recorder.publish(
                    POD, pod.meta, type=WARNING, reason="FailedDraining", message=f"Eviction is blocked: {err}"
                )
                return
            except (NotFoundError, ConflictError):
                self._count(Outcome.GONE, pod)
                return
            except KubeError as err:
                self._failed(pod, err)
                return
        self._refused.pop(pod.meta.uid, None)
        self._count(Outcome.EVICTED, pod)
        log.info("pod evicted", pod=pod.meta.key, node=pod.node_name, reason=rules.reason)
        await self._recorder.publish(
            POD, pod.meta, reason="Evicted", message=f"Evicted from {pod.node_name}: {rules.reason}"
        )

    async def _force(self, pod: Pod, grace: int, rules: DrainPolicy) -> None:
        async with self._slots:
            live = await self._reread(pod)
            if live is None:
                return
            try:
                await self._kube.delete(
                    POD, live.meta.name, live.meta.namespace, uid=live.meta.uid, grace_seconds=max(1, grace)
                )
            except (NotFoundError, ConflictError):
                self._count(Outcome.GONE, pod)
                return
            except KubeError as err:
                self._failed(pod, err)
                return
        self._refused.pop(pod.meta.uid, None)
        self._count(Outcome.FORCED, pod)
        log.info("pod deleted at its deadline", pod=pod.meta.key, node=pod.node_name, grace_seconds=grace)
        await self._recorder.publish(
            POD,
            pod.meta,
            type=WARNING,
            reason="Disrupted",
            message=f"Deleted from {pod.node_name} with {grace} s of grace, as its node must be empty: {rules.reason}",
        )

    async def _reread(self, pod: Pod) -> Pod | None:
        """The pod as it is, when it is still this pod on this node and not ended."""
        try:
            live: Pod = await self._kube.get(POD, pod.meta.name, pod.meta.namespace)
        except NotFoundError:
            self._count(Outcome.GONE, pod)
            return None
        except (KubeError, ValueError) as err:
            self._failed(pod, err)
            return None
        if live.meta.uid != pod.meta.uid or live.node_name != pod.node_name or live.is_terminal:
            self._count(Outcome.GONE, pod)
            return None
        return live

    async def _tell_waiting(self, node: Node, step: DrainStep) -> None:
        count = len(step.waiting)
        some = ", ".join(p.meta.key for p in step.waiting[:3])
        more = f" and {count - 3} more" if count > 3 else ""
        await self._recorder.publish(
            NODE,
            node.meta,
            type=WARNING,
            reason="FailedDraining",
            message=f"Waiting for {count} pod{'s' if count > 1 else ''} to leave: {some}{more}",
        )

    def _refuse(self, pod: Pod, now: datetime) -> None:
        old = self._refused.get(pod.meta.uid)
        pause = min(old.pause * 2, _LONGEST_PAUSE) if old is not None else _FIRST_PAUSE
        self._refused[pod.meta.uid] = _Refusal(now + pause, pause)

    def _forget(self, now: datetime) -> None:
        for uid in [uid for uid, refusal in self._refused.items() if refusal.again + _FORGET < now]:
            del self._refused[uid]
        for uid in [uid for uid, began in self._began.items() if began + _LONGEST_DRAIN < now]:
            del self._began[uid]

    def _failed(self, pod: Pod, err: Exception) -> None:
        self._count(Outcome.FAILED, pod)
        log.warning("pod not evicted, will try again", pod=pod.meta.key, node=pod.node_name, error=str(err))

    def _count(self, outcome: Outcome, pod: Pod) -> None:
        if self._on_outcome is not None:
            self._on_outcome(outcome, pod)
