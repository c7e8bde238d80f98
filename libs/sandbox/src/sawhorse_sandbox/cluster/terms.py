"""Node selector terms, tolerations and taints: parsed once, then matched. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: tuple[str, ...]

    def matches(self, fields: Mapping[str, str]) -> bool:
        value = fields.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False

    def _compares(self, value: str | None) -> bool:
        try:
            number, bound = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return number > bound if self.operator == "Gt" else number < bound


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """All requirements of a term must hold; a term without any matches nothing."""

    labels: tuple[NodeRequirement, ...]
    fields: tuple[NodeRequirement, ...]

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if not self.labels and not self.fields:
            return False
        own = {"metadata.name": name}
        return all(r.matches(labels) for r in self.labels) and all(r.matches(own) for r in self.fields)


def node_term(term: Mapping[str, Any]) -> NodeTerm:
    return NodeTerm(_requirements(term.get("matchExpressions")), _requirements(term.get("matchFields")))


def _requirements(expressions: Iterable[Mapping[str, Any]] | None) -> tuple[NodeRequirement, ...]:
    return tuple(
        NodeRequirement(e["key"], e["operator"], tuple(str(value) for value in e.get("values") or ()))
        for e in expressions or ()
    )


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str  # empty tolerates every key
    operator: str
    value: str
    effect: str  # empty tolerates every effect
    seconds: int | None  # for NoExecute: how long; None for ever

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


def taints_of(node: Mapping[str, Any]) -> tuple[Taint, ...]:
    listed = (node.get("spec") or {}).get("taints") or ()
    return tuple(Taint(t["key"], t.get("value") or "", t["effect"]) for t in listed)


def tolerations_of(spec: Mapping[str, Any]) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            t.get("key") or "",
            t.get("operator") or "Equal",
            t.get("value") or "",
            t.get("effect") or "",
            t.get("tolerationSeconds"),
        )
        for t in spec.get("tolerations") or ()
    )


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: frozenset[str]) -> Taint | None:
    """The first taint of these effects that nothing tolerates."""
    tolerations = tuple(tolerations)
    for taint in taints:
        if taint.effect in effects and not any(toleration.tolerates(taint) for toleration in tolerations):
            return taint
    return None
