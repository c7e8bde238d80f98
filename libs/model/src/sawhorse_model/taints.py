"""Taints and tolerations, as kube-scheduler reads them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sawhorse_model.labels import UNREGISTERED_TAINT

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"

_INTEGER = re.compile(r"-?\d{1,19}")


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's refusal of pods that do not tolerate it."""

    key: str
    effect: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's consent. An empty key with Exists tolerates all; an empty effect matches every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration matches the taint, numeric operators Gt and Lt included."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator or "Equal":
            case "Exists":
                return True
            case "Equal":
                return bool(self.key) and self.value == taint.value
            case "Gt" | "Lt" as operator:
                if not (self.key and _INTEGER.fullmatch(self.value) and _INTEGER.fullmatch(taint.value)):
                    return False
                node, pod = int(taint.value), int(self.value)
                return node > pod if operator == "Gt" else node < pod
            case _:
                return False


# On a managed node that is not initialised yet these will go away by themselves.
EPHEMERAL: frozenset[tuple[str, str]] = frozenset(
    {
        ("node.kubernetes.io/not-ready", NO_SCHEDULE),
        ("node.kubernetes.io/not-ready", NO_EXECUTE),
        ("node.kubernetes.io/unreachable", NO_SCHEDULE),
        ("node.cloudprovider.kubernetes.io/uninitialized", NO_SCHEDULE),
        (UNREGISTERED_TAINT, NO_EXECUTE),
        (UNREGISTERED_TAINT, NO_SCHEDULE),  # on its way to being lifted
    },
)


def is_ephemeral(taint: Taint) -> bool:
    """Whether the taint only marks a node that is still starting (judged by key and effect)."""
    return (taint.key, taint.effect) in EPHEMERAL or taint.key.startswith("readiness.k8s.io/")


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], *, prefer_counts: bool = False
) -> Taint | None:
    """Return the first taint that keeps the pod off, or None.

    PreferNoSchedule keeps nobody off unless `prefer_counts`.
    """
    consents = tuple(tolerations)
    for taint in taints:
        if taint.effect == PREFER_NO_SCHEDULE and not prefer_counts:
            continue
        if not any(consent.tolerates(taint) for consent in consents):
            return taint
    return None
