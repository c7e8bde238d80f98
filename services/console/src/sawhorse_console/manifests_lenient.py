"""Requirements that are legal YAML and can never hold, such as `Gt` without a number: kept, not refused.

The API server takes such a pod. So the object is read without the requirement, and that is then added as it stands:
planning finds no place for its pods, and says why.
"""

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sawhorse_model.manifests import ManifestError, Raw
from sawhorse_model.nodepool import NodePool
from sawhorse_model.pod import NodeSelectorTerm, Pod, PodSpec
from sawhorse_model.requirements import NUMERIC, Operator, RequirementSpec

T = TypeVar("T")
_FIELD = re.compile(r"(?P<list>.+\.(?:requirements|matchExpressions))\[(?P<index>\d+)\]\.values")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Odd:
    """A requirement that was set aside: where it is, and what is wrong with it."""

    field: str
    problem: str
    spec: RequirementSpec

    @property
    def is_wish(self) -> bool:
        """Whether it was only preferred: then nothing hangs on it."""
        return ".preference." in self.field

    def told(self, *, pool: bool) -> str:
        """What is wrong and what becomes of it."""
        if self.is_wish:
            return f"{self.problem}; it is passed over"
        return f"{self.problem}; {'the pool is not used' if pool else 'its pods find no place'}"


def read_leniently(raw: Raw, parse: Callable[[Raw], T]) -> tuple[T, list[Odd]]:
    """Parse an object; numeric requirements without a number are set aside.

    Raises:
        ManifestError: anything else is wrong.
    """
    odd: list[Odd] = []
    while True:
        try:
            return parse(raw), odd
        except ManifestError as error:
            found = _FIELD.fullmatch(error.field)
            there = _follow(raw, found["list"]) if found is not None else None
            index = int(found["index"]) if found is not None else 0
            spec = _numeric(there[index]) if isinstance(there, list) and index < len(there) else None
            if found is None or spec is None:
                raise
            odd.append(Odd(error.field, error.problem, spec))
            raw = copy.deepcopy(dict(raw))
            _follow(raw, found["list"]).pop(index)


def with_odd(parsed: Any, odd: list[Odd]) -> Any:
    """The object with the requirements that were set aside, for planning to stumble over."""
    specs = tuple(entry.spec for entry in odd if not entry.is_wish)
    if not specs:
        return parsed
    if isinstance(parsed, NodePool):
        template = parsed.template
        return replace(parsed, template=replace(template, requirements=(*template.requirements, *specs)))
    if isinstance(parsed, Pod):
        return replace(parsed, spec=_with_terms(parsed.spec, specs))
    if isinstance(getattr(parsed, "pod", None), Pod):
        return replace(parsed, pod=replace(parsed.pod, spec=_with_terms(parsed.pod.spec, specs)))
    return None


def _with_terms(spec: PodSpec, odd: tuple[RequirementSpec, ...]) -> PodSpec:
    return replace(spec, required_terms=(*spec.required_terms, NodeSelectorTerm(odd)))


def _numeric(entry: Any) -> RequirementSpec | None:
    """A requirement that only lacks its number."""
    if not isinstance(entry, dict) or entry.get("operator") not in set(NUMERIC):
        return None
    values = entry.get("values") or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return None
    return RequirementSpec(str(entry.get("key") or ""), Operator(entry["operator"]), tuple(values))


def _follow(raw: Any, path: str) -> Any:
    """The value at a path; None where it does not lead anywhere."""
    for step in _steps(path):
        try:
            raw = raw[step]
        except (KeyError, IndexError, TypeError):
            return None
    return raw


def _steps(path: str) -> Iterator[str | int]:
    for name, index in _STEP.findall(path):
        yield name or int(index)
