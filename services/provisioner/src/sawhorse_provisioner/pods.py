"""Which pods want a node that we may have to make, and which of them are equal. Pure."""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime

from sawhorse_kube.drain_plan import protected_until, tolerates_disruption
from sawhorse_model.cluster import PodDisruptionBudget
from sawhorse_model.labels import NODEPOOL
from sawhorse_model.pod import Pod
from sawhorse_model.requirements import Operator
from sawhorse_scheduling.snapshot import PodGroup

ClassKey = tuple[object, ...]


def class_key(pod: Pod) -> ClassKey:
    """What makes pods equal: namespace, labels and spec. Hashable; cheap enough for ten thousand pods a batch."""
    spec = pod.spec
    return (
        pod.meta.namespace,
        frozenset(pod.meta.labels.items()),
        frozenset(spec.requests.items()),
        frozenset(spec.node_selector.items()),
        spec.required_terms,
        spec.preferred_terms,
        spec.tolerations,
        spec.spread,
        spec.affinity,
        spec.anti_affinity,
        spec.host_ports,
        spec.claims,
        spec.ephemeral_claims,
        spec.resource_claims,
        spec.priority,
        spec.priority_class,
        spec.scheduler,
        spec.grace_seconds,
        spec.runtime_class,
    )


def class_name(pod: Pod) -> str:
    """A short name of a pod's class that is the same in every process, for `placement:<claim>`."""
    key = [sorted(map(repr, part)) if isinstance(part, frozenset) else repr(part) for part in class_key(pod)]
    return hashlib.sha256(repr(key).encode()).hexdigest()[:16]


def owner_uid(pod: Pod) -> str:
    """The uid of the pod's controller; its own when nobody controls it."""
    owner = pod.meta.controller()
    return owner.uid if owner is not None else pod.meta.uid


def opts_out(pod: Pod) -> bool:
    """Whether the pod's hard rules say that it must not be on a node of a pool: it is none of our business."""
    first = pod.spec.required_terms[:1]
    return any(e.key == NODEPOOL and e.operator is Operator.DOES_NOT_EXIST for term in first for e in term.expressions)


def group_pods(pods: Iterable[Pod]) -> tuple[PodGroup, ...]:
    """Equal pods together, oldest first in each group; groups in order of their oldest pod."""
    groups: dict[ClassKey, list[Pod]] = {}
    for pod in sorted(pods, key=age_of):
        groups.setdefault(class_key(pod), []).append(pod)
    return tuple(PodGroup(members[0], tuple(p.meta.key for p in members)) for members in groups.values())


def age_of(pod: Pod) -> tuple[float, str]:
    """Sorts pods oldest first."""
    return (pod.meta.created.timestamp() if pod.meta.created else 0.0, pod.meta.key)


def is_evictable(pod: Pod) -> bool:
    """Whether a drain has to move this pod, whatever budgets say: it will be made anew elsewhere."""
    if pod.is_daemon or pod.is_mirror or pod.is_terminal:
        return False
    # A StatefulSet makes the replacement only once the old pod is gone; its place must be there by then.
    return not pod.meta.is_deleting or pod.is_stateful


def is_reschedulable(pod: Pod, budgets: Sequence[PodDisruptionBudget], now: datetime) -> bool:
    """Whether a pod of a node that is going counts as one that wants a place now."""
    return is_evictable(pod) and not is_protected(pod, now) and not is_fully_blocked(pod, budgets)


def is_protected(pod: Pod, now: datetime) -> bool:
    """Whether the pod's own annotation forbids moving it now."""
    return protected_until(pod, now) is not None


def is_fully_blocked(pod: Pod, budgets: Sequence[PodDisruptionBudget]) -> bool:
    """Whether budgets allow no eviction of this pod ever, so that planning a place for it is idle."""
    if tolerates_disruption(pod):
        return False  # a drain leaves it alone
    mine = [
        b
        for b in budgets
        if b.meta.namespace == pod.meta.namespace and b.selector is not None and b.selector.matches(pod.meta.labels)
    ]
    if not pod.ready and any(b.unhealthy_policy == "AlwaysAllow" for b in mine):
        return False
    return len(mine) > 1 or any(b.max_unavailable in ("0", "0%") or b.min_available == "100%" for b in mine)
