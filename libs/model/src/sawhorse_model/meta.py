"""What every Kubernetes object carries, and status conditions with Karpenter's readiness rules."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """An owner. `controller` marks the managing one."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """Identity and bookkeeping. Cluster-scoped objects have an empty namespace."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    created: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_seconds: int | None = None
    finalizers: tuple[str, ...] = ()
    owners: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for cluster-scoped objects."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def is_deleting(self) -> bool:
        """Whether deletion was asked for."""
        return self.deletion_timestamp is not None

    def controller(self) -> OwnerReference | None:
        """The managing owner, if any."""
        return next((o for o in self.owners if o.controller), None)


@dataclass(frozen=True, slots=True)
class Condition:
    """One status condition."""

    type: str
    status: str  # True, False or Unknown
    reason: str = ""
    message: str = ""
    last_transition: datetime | None = None
    observed_generation: int = 0


def find_condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Look a condition up by type; lists are not ordered by contract."""
    return next((c for c in conditions if c.type == kind), None)


def is_true(conditions: Iterable[Condition], kind: str) -> bool:
    """Whether the condition is there and True."""
    found = find_condition(conditions, kind)
    return found is not None and found.status == "True"


def set_condition(
    conditions: Sequence[Condition],
    kind: str,
    status: str,
    *,
    now: datetime,
    generation: int,
    reason: str = "",
    message: str = "",
) -> tuple[Condition, ...]:
    """Return the list with one condition set. The transition time moves only when the status changes."""
    reason = reason or (kind if status == "True" else "AwaitingReconciliation")
    old = find_condition(conditions, kind)
    moved = old.last_transition if old is not None and old.status == status else now
    fresh = Condition(kind, status, reason, message[:32768], moved, generation)
    if old is None:
        return (*conditions, fresh)
    return tuple(fresh if c.type == kind else c for c in conditions)


def with_root(
    conditions: Sequence[Condition], dependents: Sequence[str], *, now: datetime, generation: int, created: datetime
) -> tuple[Condition, ...]:
    """Fill missing dependents with Unknown and recompute `Ready` from them.

    Unhealthy dependents are False, Unknown, or judged at an older generation. None: Ready is True. Some False at this
    generation: Ready is False, reason UnhealthyDependents. Otherwise Unknown, reason ReconcilingDependents.
    """
    known = list(conditions)
    for kind in dependents:
        if find_condition(known, kind) is None:
            known.append(Condition(kind, "Unknown", "AwaitingReconciliation", "", created, generation))
    unhealthy = [
        c for c in known if c.type in dependents and (c.status != "True" or c.observed_generation != generation)
    ]
    if not unhealthy:
        status, reason, message = "True", "Ready", ""
    else:
        newest = sorted(unhealthy, key=lambda c: c.last_transition or created, reverse=True)
        message = ", ".join(f"{c.type}={c.status}" for c in newest)
        failed = any(c.status == "False" and c.observed_generation == generation for c in unhealthy)
        status, reason = ("False", "UnhealthyDependents") if failed else ("Unknown", "ReconcilingDependents")
    rest = sorted((c for c in known if c.type != "Ready"), key=lambda c: c.last_transition or created)
    root = set_condition(known, "Ready", status, now=now, generation=generation, reason=reason, message=message)
    ready = find_condition(root, "Ready")
    assert ready is not None
    return (*rest, replace(ready))
