"""The requirement algebra: what a label may be, and how two such wishes meet.

A requirement is a set of label values: a listed set or the complement of one, within optional integer bounds.
`Requirements` holds one per key. Rules and names follow the Kubernetes operators plus Gte and Lte; an absent key
means "anything". Pure: it knows no cloud and no object.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from sawhorse_model.labels import normalize

_INTEGER = re.compile(r"[+-]?\d{1,19}")
LARGEST_INTEGER = 2**63 - 1


class Operator(StrEnum):
    """How values are read."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"
    GTE = "Gte"
    LTE = "Lte"


NUMERIC = frozenset({Operator.GT, Operator.LT, Operator.GTE, Operator.LTE})


@dataclass(frozen=True, slots=True)
class RequirementSpec:
    """One entry as users write it, kept as typed."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    min_values: int | None = None


@dataclass(frozen=True, slots=True)
class Requirement:
    """The allowed values of one label.

    `values` are the allowed ones, or with `complement` the forbidden ones. Bounds are inclusive; with any bound only
    integers are allowed. A requirement with nothing listed and no complement means the label must not exist. `present`:
    some values are forbidden and the label must be there all the same (Exists and NotIn together).
    """

    key: str
    values: frozenset[str] = frozenset()
    complement: bool = False
    low: int | None = None
    high: int | None = None
    min_values: int | None = None
    present: bool = False

    @classmethod
    def of(cls, key: str, operator: Operator | str, values: Iterable[str] = (), min_values: int | None = None) -> Self:
        """Build from an operator; the key is normalised.

        Raises:
            ValueError: a numeric operator without exactly one integer.
        """
        operator = Operator(operator)
        key = normalize(key)
        listed = tuple(values)
        if operator in NUMERIC:
            if len(listed) != 1 or not _INTEGER.fullmatch(listed[0]):
                raise ValueError(f"{key}: operator {operator} takes exactly one integer, got {list(listed)}")
            bound = int(listed[0])
            if operator is Operator.GT:
                if bound >= LARGEST_INTEGER:
                    return cls(key, min_values=min_values)
                return cls(key, complement=True, low=bound + 1, min_values=min_values)
            if operator is Operator.LT:
                return cls(key, complement=True, high=bound - 1, min_values=min_values)
            if operator is Operator.GTE:
                return cls(key, complement=True, low=bound, min_values=min_values)
            return cls(key, complement=True, high=bound, min_values=min_values)
        if operator is Operator.IN:
            return cls(key, frozenset(listed), min_values=min_values)
        if operator is Operator.NOT_IN:
            return cls(key, frozenset(listed), complement=True, min_values=min_values)
        return cls(key, complement=operator is Operator.EXISTS, min_values=min_values)

    @classmethod
    def from_spec(cls, spec: RequirementSpec) -> Self:
        """Build from an entry of an object."""
        return cls.of(spec.key, spec.operator, spec.values, spec.min_values)

    def has(self, value: str) -> bool:
        """Whether a label with this value satisfies the requirement."""
        return ((value in self.values) != self.complement) and self._within(value)

    def _within(self, value: str) -> bool:
        if self.low is None and self.high is None:
            return True
        if not _INTEGER.fullmatch(value):
            return False
        number = int(value)
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)

    @property
    def operator(self) -> Operator:
        """The effective operator: bounds count as Exists."""
        if self.complement:
            bounded = self.low is not None or self.high is not None
            return Operator.NOT_IN if self.values and not bounded and not self.present else Operator.EXISTS
        return Operator.IN if self.values else Operator.DOES_NOT_EXIST

    def intersection(self, other: "Requirement") -> "Requirement":
        """Return the values both allow. Keys must be equal."""
        low = _pick(max, self.low, other.low)
        high = _pick(min, self.high, other.high)
        minimum = _pick(max, self.min_values, other.min_values)
        if low is not None and high is not None and low > high:
            return Requirement(self.key, min_values=minimum)
        if self.complement and other.complement:
            bounded = Requirement(self.key, complement=True, low=low, high=high)
            excluded = frozenset(v for v in self.values | other.values if bounded._within(v))
            asked = Operator.EXISTS in (self.operator, other.operator)
            present = asked and bool(excluded) and low is None and high is None
            return replace(bounded, values=excluded, min_values=minimum, present=present)
        if self.complement:
            listed = other.values - self.values
        elif other.complement:
            listed = self.values - other.values
        else:
            listed = self.values & other.values
        bounds = Requirement(self.key, complement=True, low=low, high=high)
        return Requirement(self.key, frozenset(v for v in listed if bounds._within(v)), min_values=minimum)

    def intersects(self, other: "Requirement") -> bool:
        """Whether some value satisfies both; exclusions alone never empty an open set."""
        low = _pick(max, self.low, other.low)
        high = _pick(min, self.high, other.high)
        if low is not None and high is not None and low > high:
            return False
        if self.complement and other.complement:
            return True
        if self.complement:
            return any(self.has(v) and other.has(v) for v in other.values)
        return any(self.has(v) and other.has(v) for v in self.values)

    def to_specs(self) -> tuple[RequirementSpec, ...]:
        """Write as API entries, values sorted; several entries per key are legal, so bounds and exclusions survive."""
        entries: list[RequirementSpec] = []
        if self.low is not None:
            entries.append(RequirementSpec(self.key, Operator.GTE, (str(self.low),), self.min_values))
        if self.high is not None:
            entries.append(RequirementSpec(self.key, Operator.LTE, (str(self.high),), self.min_values))
        if self.present:
            entries.append(RequirementSpec(self.key, Operator.EXISTS, (), self.min_values))
        if not entries or self.values:
            operator = Operator.NOT_IN if self.complement and self.values else self.operator
            entries.append(RequirementSpec(self.key, operator, tuple(sorted(self.values)), self.min_values))
        return tuple(entries)

    def __str__(self) -> str:
        return " and ".join(
            f"{e.key} {e.operator}" + (f" [{', '.join(e.values)}]" if e.values else "") for e in self.to_specs()
        )


def _pick(choose: object, left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return max(left, right) if choose is max else min(left, right)


_FORGIVING = frozenset({Operator.NOT_IN, Operator.DOES_NOT_EXIST})


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Why two sets of requirements do not meet: the key, what is there (None: unknown label) and what is asked."""

    key: str
    have: Requirement | None
    want: Requirement

    def __str__(self) -> str:
        if self.have is None:
            return f"label {self.key} has no known values"
        return f"{self.want} is asked, {self.have} is there"


class Requirements(Mapping[str, Requirement]):
    """One requirement per key; entries of equal key are intersected. Immutable."""

    __slots__ = ("_by_key", "_hash")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        by_key: dict[str, Requirement] = {}
        for requirement in requirements:
            present = by_key.get(requirement.key)
            by_key[requirement.key] = requirement if present is None else present.intersection(requirement)
        self._by_key = by_key
        self._hash: int | None = None

    @classmethod
    def from_specs(cls, specs: Iterable[RequirementSpec]) -> Self:
        """Build from API entries."""
        return cls(Requirement.from_spec(spec) for spec in specs)

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Self:
        """Each label as In with one value."""
        return cls(Requirement.of(key, Operator.IN, (value,)) for key, value in labels.items())

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._by_key.values()))
        return self._hash

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[Requirement, ...]]]:
        # The remembered hash must not travel: another process hashes texts with another seed.
        return (type(self), (tuple(self._by_key.values()),))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requirements) and self._by_key == other._by_key

    def __repr__(self) -> str:
        return f"Requirements({', '.join(str(self._by_key[k]) for k in sorted(self._by_key))})"

    def get_or_any(self, key: str) -> Requirement:
        """The requirement of a key; an absent key allows anything."""
        return self._by_key.get(key) or Requirement(key, complement=True)

    def intersection(self, other: "Requirements") -> "Requirements":
        """Both sets together, key by key."""
        if not other:
            return self
        if not self:
            return other
        return Requirements((*self._by_key.values(), *other._by_key.values()))

    def without(self, *keys: str) -> "Requirements":
        """A copy that says nothing about these keys."""
        return Requirements(r for k, r in self._by_key.items() if k not in keys)

    def conflict(self, other: "Requirements") -> Incompatibility | None:
        """The first shared key (in sorted order) without a common value, or None.

        Two sides that both only exclude are never in conflict.
        """
        small, large = (self, other) if len(self) <= len(other) else (other, self)
        for key in sorted(k for k in small._by_key if k in large._by_key):
            mine, theirs = self._by_key[key], other._by_key[key]
            if mine.operator in _FORGIVING and theirs.operator in _FORGIVING:
                continue
            if not mine.intersects(theirs):
                return Incompatibility(key, mine, theirs)
        return None

    def intersects(self, other: "Requirements") -> bool:
        """Whether no shared key is in conflict."""
        small, large = (self, other) if len(self) <= len(other) else (other, self)
        for key, first in small._by_key.items():
            second = large._by_key.get(key)
            if second is None or (first.operator in _FORGIVING and second.operator in _FORGIVING):
                continue
            if not first.intersects(second):
                return False
        return True

    def incompatibility(
        self, wants: "Requirements", allow_undefined: frozenset[str] = frozenset()
    ) -> Incompatibility | None:
        """Why something described by `self` cannot serve `wants`, or None when it can. Not symmetric.

        A key that `self` does not define serves only exclusions, unless it is in `allow_undefined` (labels that the
        catalogue will define).
        """
        for key in sorted(wants._by_key):
            want = wants._by_key[key]
            if key not in self._by_key and key not in allow_undefined and want.operator not in _FORGIVING:
                return Incompatibility(key, None, want)
        return self.conflict(wants)

    def is_compatible(self, wants: "Requirements", allow_undefined: frozenset[str] = frozenset()) -> bool:
        """Whether something described by `self` can serve `wants`; see `incompatibility`."""
        for key, want in wants._by_key.items():
            if key not in self._by_key and key not in allow_undefined and want.operator not in _FORGIVING:
                return False
        return self.intersects(wants)

    def labels(self) -> dict[str, str]:
        """The keys that allow exactly one listed value, as labels."""
        return {key: next(iter(r.values)) for key, r in self._by_key.items() if not r.complement and len(r.values) == 1}

    def to_specs(self) -> tuple[RequirementSpec, ...]:
        """Write as API entries, keys and values sorted."""
        return tuple(spec for key in sorted(self._by_key) for spec in self._by_key[key].to_specs())
