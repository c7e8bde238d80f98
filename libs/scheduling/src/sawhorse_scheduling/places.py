"""Where nodes are and what they are: labels and taints of existing capacity, looked at column by column."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sawhorse_model.requirements import Operator, Requirement, Requirements
from sawhorse_model.taints import Taint, Toleration, untolerated
from sawhorse_scheduling.arrays import BoolArray, IntArray

_FORGIVING = frozenset({Operator.NOT_IN, Operator.DOES_NOT_EXIST})


@dataclass(frozen=True, slots=True)
class KnownLabels:
    """What is certain of a node's labels.

    `possible` holds, for a claim that is not launched, the values a label may still get and whether it will be there
    at all. The claim is immutable, so a pod may count on it only where every outcome serves the pod.
    """

    certain: dict[str, str]
    possible: dict[str, tuple[frozenset[str], bool]] = field(default_factory=dict)

    def serve(self, wants: Requirements) -> bool:
        """Whether the node satisfies the requirements whatever it turns out to be."""
        return all(self.serve_one(want) for want in wants.values())

    def serve_one(self, want: Requirement) -> bool:
        """The same for one requirement."""
        value = self.certain.get(want.key)
        if value is not None:
            return want.has(value)
        values, always = self.possible.get(want.key, (frozenset(), False))
        if want.operator not in _FORGIVING and not (always and values):
            return False
        return all(want.has(v) for v in values)

    def might_serve(self, wants: Requirements) -> bool:
        """Whether the node may turn out to satisfy the requirements."""
        for key, want in wants.items():
            value = self.certain.get(key)
            values, always = self.possible.get(key, (frozenset(), False))
            found = {value} if value is not None else values
            absent = value is None and not always and want.operator in _FORGIVING
            if not absent and not any(want.has(v) for v in found):
                return False
        return True


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """One label over all nodes: whose value is whose, and the rows of which it is open."""

    number: IntArray  # (N,) of the value; −1: not there for certain
    values: tuple[str, ...]
    open_rows: tuple[int, ...]


class Places:
    """N nodes. Equal requirements, tolerations and keys are looked at once."""

    def __init__(self, labels: Sequence[KnownLabels], taints: Sequence[tuple[Taint, ...]]) -> None:
        """Rows of the answers are the nodes in this order."""
        self._labels = labels
        kinds: dict[tuple[Taint, ...], int] = {}
        self._taint_number = np.array([kinds.setdefault(each, len(kinds)) for each in taints], dtype=np.int64)
        self._taints = tuple(kinds)
        self._columns: dict[str, _Column] = {}
        self._served: dict[Requirements, BoolArray] = {}
        self._met: dict[Requirement, BoolArray] = {}
        self._ranks: dict[tuple[Toleration, ...], IntArray] = {}
        self._combined: dict[tuple[str, ...], tuple[IntArray, list[tuple[str | None, ...]]]] = {}

    def serve(self, wants: Requirements) -> BoolArray:
        """(N,) whether each node satisfies the requirements whatever it turns out to be; not to be changed."""
        if wants not in self._served:
            served = np.ones(len(self._labels), dtype=np.bool_)
            for want in wants.values():
                served &= self._meet(want)
            self._served[wants] = served
        return self._served[wants]

    def _meet(self, want: Requirement) -> BoolArray:
        if want not in self._met:
            column = self._column(want.key)
            # The last entry is for those without the label: it answers for the number −1.
            answers = [*map(want.has, column.values), want.operator in _FORGIVING]
            met: BoolArray = np.array(answers, dtype=np.bool_)[column.number]
            for row in column.open_rows:
                met[row] = self._labels[row].serve_one(want)
            self._met[want] = met
        return self._met[want]

    def has(self, key: str) -> BoolArray:
        """(N,) whether each node has the label for certain."""
        there: BoolArray = self._column(key).number >= 0
        return there

    def is_open(self, key: str) -> BoolArray:
        """(N,) whether the label of each node may still become one thing or another."""
        found = np.zeros(len(self._labels), dtype=np.bool_)
        found[list(self._column(key).open_rows)] = True
        return found

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> IntArray:
        """(N,) 0: all taints are tolerated; 1: only PreferNoSchedule taints are not; 2: kept off."""
        if tolerations not in self._ranks:
            found = []
            for taints in self._taints:
                hard = untolerated(taints, tolerations) is not None
                found.append(2 if hard else int(untolerated(taints, tolerations, prefer_counts=True) is not None))
            self._ranks[tolerations] = np.array(found, dtype=np.int64)[self._taint_number]
        return self._ranks[tolerations]

    def combined(self, keys: tuple[str, ...]) -> tuple[IntArray, list[tuple[str | None, ...]]]:
        """(N,) which combination of values each node has (None: not there), and the list of them.

        −1 where one of the labels may still become one thing or another.
        """
        if keys not in self._combined:
            numbers: dict[tuple[str | None, ...], int] = {}
            found = np.full(len(self._labels), -1, dtype=np.int64)
            for row, known in enumerate(self._labels):
                if not any(key in known.possible for key in keys):
                    values = tuple(known.certain.get(key) for key in keys)
                    found[row] = numbers.setdefault(values, len(numbers))
            self._combined[keys] = found, list(numbers)
        return self._combined[keys]

    def _column(self, key: str) -> _Column:
        if key not in self._columns:
            numbers: dict[str, int] = {}
            found = [
                -1 if (value := known.certain.get(key)) is None else numbers.setdefault(value, len(numbers))
                for known in self._labels
            ]
            open_rows = tuple(row for row, known in enumerate(self._labels) if found[row] < 0 and key in known.possible)
            self._columns[key] = _Column(np.array(found, dtype=np.int64), tuple(numbers), open_rows)
        return self._columns[key]
