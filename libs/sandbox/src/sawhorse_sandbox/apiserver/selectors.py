"""Label and field selectors, parsed once and then matched. Pure; test double for the server's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sawhorse_sandbox.apiserver.errors import bad_request

_SET_BASED = re.compile(r"^([A-Za-z0-9][\w./-]*)\s+(in|notin)\s*\(([^()]*)\)$")
_EQUALITY = re.compile(r"^([A-Za-z0-9][\w./-]*)\s*(==|=|!=)\s*([\w.-]*)$")
_PRESENCE = re.compile(r"^(!?)\s*([A-Za-z0-9][\w./-]*)$")
_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]*\))")

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    key: str
    operator: str  # in, notin, exists or "!"
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value not in self.values
        return (value is not None) == (self.operator == "exists")


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; none at all selects everything."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    path: tuple[str, ...]
    equal: bool
    value: str

    def matches(self, obj: Mapping[str, Any]) -> bool:
        return (field_text(obj, self.path) == self.value) == self.equal


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or watch asks for."""

    labels: LabelSelector = LabelSelector()
    fields: tuple[FieldRequirement, ...] = ()

    @property
    def selects_all(self) -> bool:
        return not self.labels.requirements and not self.fields

    def matches(self, obj: Mapping[str, Any]) -> bool:
        if not self.labels.matches(obj["metadata"].get("labels") or {}):
            return False
        return all(requirement.matches(obj) for requirement in self.fields)


ALL = Selection()


def parse_label_selector(text: str) -> LabelSelector:
    """`a=b,c!=d,e in (x,y),f notin (z),g,!h`. Raises ApiError 400 for anything else."""
    return LabelSelector(tuple(_label_requirement(part.strip()) for part in _split(text)))


def _split(text: str) -> list[str]:
    return [part for part in _OUTSIDE_PARENTHESES.split(text) if part.strip()]


def _label_requirement(part: str) -> LabelRequirement:
    if found := _SET_BASED.match(part):
        key, operator, inside = found.groups()
        return LabelRequirement(key, operator, frozenset(value.strip() for value in inside.split(",")))
    if found := _EQUALITY.match(part):
        key, operator, value = found.groups()
        return LabelRequirement(key, "notin" if operator == "!=" else "in", frozenset({value}))
    if found := _PRESENCE.match(part):
        return LabelRequirement(found.group(2), "!" if found.group(1) else "exists")
    raise bad_request(f"unable to parse requirement: {part!r} is not a label selector")


def label_selector(selector: Mapping[str, Any] | None) -> LabelSelector | None:
    """A LabelSelector object of the API; None (no selector) selects nothing."""
    if selector is None:
        return None
    found = [LabelRequirement(k, "in", frozenset({str(v)})) for k, v in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        values = frozenset(str(value) for value in expression.get("values") or ())
        found.append(LabelRequirement(expression["key"], _OPERATORS[expression["operator"]], values))
    return LabelSelector(tuple(found))


def parse_field_selector(text: str) -> tuple[FieldRequirement, ...]:
    """`spec.nodeName=a,status.phase!=Running`; any dotted path. Raises ApiError 400 where there is no operator."""
    found: list[FieldRequirement] = []
    for part in _split(text):
        path, operator, value = re.split(r"(!=|==|=)", part, maxsplit=1) if "=" in part else (part, "", "")
        if not operator:
            raise bad_request(f"invalid selector: {part!r}; can't understand it")
        found.append(FieldRequirement(tuple(path.strip().split(".")), operator != "!=", value.strip()))
    return tuple(found)


def field_text(obj: Mapping[str, Any], path: Sequence[str]) -> str:
    """The field as a selector compares it: absent is the empty string, booleans are true and false."""
    value: Any = obj
    for step in path:
        if not isinstance(value, Mapping):
            return ""
        value = value.get(step)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def selection(label_text: str, field_text_: str) -> Selection:
    labels = parse_label_selector(label_text) if label_text else LabelSelector()
    return Selection(labels, parse_field_selector(field_text_) if field_text_ else ())
