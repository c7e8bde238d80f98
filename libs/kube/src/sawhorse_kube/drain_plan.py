"""Which pods of a node to evict or delete now: a pure decision, made anew from the pod list each time.

Nothing is remembered between two looks but which evictions a disruption budget refused. So a missed event, a crash or
a second drainer changes nothing: the next look derives the same work again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sawhorse_model.labels import (
    DISRUPTED_TAINT,
    DO_NOT_DISRUPT,
    INTERRUPTED_AT,
    REPLACEMENT_READY,
    TERMINATION_TIMESTAMP,
)
from sawhorse_model.manifests import ManifestError, parse_duration, parse_time
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_model.taints import NO_SCHEDULE, Taint

TAINT = Taint(DISRUPTED_TAINT, NO_SCHEDULE)

LOOK_AGAIN = timedelta(seconds=1)
SOONEST_LOOK = timedelta(milliseconds=50)
STUCK_AFTER = timedelta(minutes=1)  # past its deletionTimestamp a pod will not end by itself: nobody waits for it
MINIMUM = timedelta(seconds=5)  # a scheduler that had not seen the taint may still bind a pod
_LONGEST_GRACE = 10 * 365 * 86_400  # seconds; the API allows more than a date can be moved by
WARNED_LATEST = timedelta(seconds=45)  # after the warning
WARNED_MARGIN = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """How a node is drained.

    `warned_at` is set for a node that its cloud takes away: its pods wait for their new place as long as time allows.
    Without it every pod is evicted as soon as its group is due.
    """

    warned_at: datetime | None = None
    replacement_requested: bool = True  # of a warned node: nothing is evicted before
    replacement_ready: bool = False
    minimum: timedelta = MINIMUM  # from the start of the drain to its end
    reason: str = "Forceful Termination"  # told in Events


@dataclass(frozen=True, slots=True)
class DrainStep:
    """What to do now. `waiting` is every pod that still holds the drain, those in `evict` and `force_delete` included.

    `force_delete` has grace periods in seconds, at least 1: with 0 a pod could run twice.
    """

    evict: tuple[Pod, ...]
    force_delete: tuple[tuple[Pod, int], ...]
    waiting: tuple[Pod, ...]
    next_look: timedelta
    done: bool


def deadline_of(claim: NodeClaim) -> datetime | None:
    """When the node must be empty, from the claim's annotation; None without one or when it cannot be read."""
    return _time(claim, TERMINATION_TIMESTAMP)


def policy_of(claim: NodeClaim, *, reason: str = "Forceful Termination") -> DrainPolicy:
    """The policy that the annotations of an interruption ask for; the plain one without them."""
    return DrainPolicy(
        warned_at=_time(claim, INTERRUPTED_AT),
        replacement_ready=REPLACEMENT_READY in claim.meta.annotations,
        reason=reason,
    )


def tolerates_disruption(pod: Pod) -> bool:
    """Whether the pod consents to the disruption taint: then it is neither evicted nor waited for."""
    return any(t.tolerates(TAINT) for t in pod.spec.tolerations)


def is_stuck(pod: Pod, now: datetime) -> bool:
    """Whether the pod should have ended a minute ago."""
    deleted = pod.meta.deletion_timestamp
    return deleted is not None and now > deleted + STUCK_AFTER


def is_drainable(pod: Pod, now: datetime) -> bool:
    """Whether a drain is about this pod at all."""
    return not (tolerates_disruption(pod) or pod.is_mirror or is_stuck(pod, now))


def pods_to_drain(pods: Iterable[Pod], now: datetime) -> tuple[Pod, ...]:
    """The pods that hold a drain: drainable and not ended. Protected ones do hold it."""
    return tuple(p for p in pods if is_drainable(p, now) and not p.is_terminal)


def protected_until(pod: Pod, now: datetime) -> datetime | None:
    """Until when `do-not-disrupt` protects the pod: None when it does not, the far future when for good."""
    value = pod.meta.annotations.get(DO_NOT_DISRUPT, "")
    forever = datetime.max.replace(tzinfo=now.tzinfo)
    if value == "true":
        return forever
    try:
        length = parse_duration(value, DO_NOT_DISRUPT) if value else timedelta(0)
        if length <= timedelta(0):
            return None
        if pod.started is None:
            return forever
        until = pod.started + length
    except (ManifestError, OverflowError):
        return None
    return until if now < until else None


def is_evictable(pod: Pod, now: datetime) -> bool:
    """Whether the pod may be asked to go; a PodDisruptionBudget may still refuse."""
    return pod.is_active and not tolerates_disruption(pod) and not pod.is_mirror and protected_until(pod, now) is None


def shortened_grace(pod: Pod, now: datetime, deadline: datetime | None) -> int | None:
    """Seconds of grace where the deadline leaves less than the pod's own, at least 1; None: its own."""
    if deadline is None:
        return None
    left = max(1, int((deadline - now).total_seconds()))
    return left if left < pod.spec.grace_seconds else None


class DrainPlanner:
    """Decides by one policy. Holds no state."""

    def __init__(self, policy: DrainPolicy | None = None) -> None:
        self.policy = policy if policy is not None else DrainPolicy()

    def decide(
        self,
        now: datetime,
        pods: Iterable[Pod],
        deadline: datetime | None,
        *,
        since: datetime | None = None,
        blocked: Mapping[str, datetime] | None = None,
    ) -> DrainStep:
        """What to do with the pods of one node now.

        Args:
            pods: all pods bound to the node.
            deadline: when it must be empty; None: pods may take for ever.
            since: when the drain began; None: it has only now.
            blocked: by uid, pods whose eviction a budget refused, and when to ask again.
        """
        refused = blocked or {}
        waiting = pods_to_drain(pods, now)
        force: list[tuple[Pod, int]] = []
        evict: list[Pod] = []
        times: list[datetime] = []
        rest: list[Pod] = []
        for pod in waiting:
            if deadline is not None and self._is_past(pod, now, deadline):
                if self._may_still_ask(pod, now, refused):
                    evict.append(pod)
                elif not pod.meta.is_deleting or _shortens(pod, now, deadline):
                    force.append((pod, max(1, int((deadline - now).total_seconds()))))
                continue
            rest.append(pod)
            if deadline is not None and not pod.meta.is_deleting:
                times.append(deadline - _grace(pod))
        first = _first_group(rest)
        for pod in rest:
            if not pod.is_active:
                continue
            protected = protected_until(pod, now)
            due = now if protected is None else protected
            due = max(due, self._due(pod, now, deadline, in_turn=_group(pod) == first))
            due = max(due, refused.get(pod.meta.uid, due))
            if due <= now:
                evict.append(pod)
            else:
                times.append(due)
        begun = since if since is not None else now
        if not waiting:
            times.append(begun + self.policy.minimum)
        done = not waiting and now >= begun + self.policy.minimum
        return DrainStep(tuple(evict), tuple(force), waiting, _until(now, times), done)

    def _is_past(self, pod: Pod, now: datetime, deadline: datetime) -> bool:
        """Whether the pod's grace would end after the deadline if it began now (or as it has begun)."""
        if pod.meta.deletion_timestamp is not None:
            return pod.meta.deletion_timestamp > deadline
        return now >= deadline - _grace(pod)

    def _may_still_ask(self, pod: Pod, now: datetime, refused: Mapping[str, datetime]) -> bool:
        # A warned pod with a long grace is past its threshold from the start: it is asked first, so that budgets
        # count; refused once, it is deleted.
        return (
            self.policy.warned_at is not None
            and pod.meta.uid not in refused
            and is_evictable(pod, now)
            and self.policy.replacement_requested
        )

    def _due(self, pod: Pod, now: datetime, deadline: datetime | None, *, in_turn: bool) -> datetime:
        """When the pod's eviction may begin, budgets and protection aside."""
        never = datetime.max.replace(tzinfo=now.tzinfo)
        policy = self.policy
        if policy.warned_at is None:
            return now if in_turn else never
        if not policy.replacement_requested:
            return never
        # Its own last moment goes before the order of the groups.
        latest = deadline - _grace(pod) - WARNED_MARGIN if deadline is not None else never
        if not in_turn:
            return latest
        return min(latest, now if policy.replacement_ready else policy.warned_at + WARNED_LATEST)


def _shortens(pod: Pod, now: datetime, deadline: datetime) -> bool:
    # The API counts whole seconds: without the slack a pod whose grace was cut would be deleted again at each look.
    assert pod.meta.deletion_timestamp is not None
    ends = max(now + timedelta(seconds=1), deadline)
    return ends + timedelta(seconds=1) < pod.meta.deletion_timestamp


def _grace(pod: Pod) -> timedelta:
    return timedelta(seconds=min(max(0, pod.spec.grace_seconds), _LONGEST_GRACE))


def _group(pod: Pod) -> int:
    """Order of eviction: what serves the others goes last."""
    return 2 * pod.is_critical + pod.is_daemon


def _first_group(pods: Sequence[Pod]) -> int:
    return min((_group(p) for p in pods), default=0)


def _until(now: datetime, times: Iterable[datetime]) -> timedelta:
    soonest = min((t for t in times if t > now), default=now + LOOK_AGAIN)
    return min(LOOK_AGAIN, max(SOONEST_LOOK, soonest - now))


def _time(claim: NodeClaim, annotation: str) -> datetime | None:
    value = claim.meta.annotations.get(annotation)
    if not value:
        return None
    try:
        return parse_time(value, annotation)
    except ManifestError:
        return None
