"""Whom selectors mean among many pods: each label is looked up once, then a selector costs a few array operations."""

from collections.abc import Sequence

import numpy as np

from sawhorse_model.pod import Pod
from sawhorse_model.selectors import SelectorExpression
from sawhorse_scheduling.arrays import BoolArray, IntArray
from sawhorse_scheduling.matching import AllOf, Matcher


class Selection:
    """Some pods, and which of them a matcher means."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        """The order of the pods is the order of the answers."""
        self._pods = pods
        self._values: dict[str | None, tuple[IntArray, dict[str, int]]] = {}
        self._known: dict[Matcher, BoolArray] = {}

    def of(self, matcher: Matcher | AllOf) -> BoolArray:
        """(P,) whether the matcher means each pod; not to be changed."""
        if isinstance(matcher, AllOf):
            found = np.ones(len(self._pods), dtype=np.bool_)
            for part in matcher.matchers:
                found = found & self.of(part)
            return found
        known = self._known.get(matcher)
        if known is None:
            known = self._known[matcher] = self._find(matcher)
        return known

    def _find(self, matcher: Matcher) -> BoolArray:
        if matcher.selector is None:
            return np.zeros(len(self._pods), dtype=np.bool_)
        found = np.ones(len(self._pods), dtype=np.bool_)
        if matcher.namespaces is not None:
            found &= self._has(None, matcher.namespaces)
        for expression in matcher.selector.expressions:
            found &= self._holds(expression)
        return found

    def _holds(self, expression: SelectorExpression) -> BoolArray:
        match expression.operator:
            case "In":
                return self._has(expression.key, expression.values)
            case "NotIn":
                return ~self._has(expression.key, expression.values)
            case "Exists":
                return self._of_key(expression.key)[0] >= 0
            case "DoesNotExist":
                return self._of_key(expression.key)[0] < 0
            case _:
                return np.zeros(len(self._pods), dtype=np.bool_)

    def _has(self, key: str | None, values: Sequence[str]) -> BoolArray:
        numbers, number_of = self._of_key(key)
        wanted = [number_of[value] for value in values if value in number_of]
        if not wanted:
            return np.zeros(len(self._pods), dtype=np.bool_)
        there: BoolArray = numbers == wanted[0]
        for number in wanted[1:]:
            there |= numbers == number
        return there

    def _of_key(self, key: str | None) -> tuple[IntArray, dict[str, int]]:
        """(P,) the number of each pod's value of a label (None: its namespace), −1 without; and each value's number."""
        if key not in self._values:
            numbers: dict[str, int] = {}
            if key is None:
                found = [numbers.setdefault(pod.meta.namespace, len(numbers)) for pod in self._pods]
            else:
                found = [
                    -1 if (value := pod.meta.labels.get(key)) is None else numbers.setdefault(value, len(numbers))
                    for pod in self._pods
                ]
            self._values[key] = np.array(found, dtype=np.int64), numbers
        return self._values[key]


class BoundSelection:
    """How many pods of each of some nodes a matcher means."""

    def __init__(self, nodes: Sequence[Sequence[Pod]]) -> None:
        """Rows of the answers are the nodes in this order, each given by its pods."""
        pods = [pod for on in nodes for pod in on]
        self._size = len(nodes)
        self._row = np.repeat(np.arange(len(nodes)), [len(on) for on in nodes])
        self._active = np.array([pod.is_active for pod in pods], dtype=np.bool_)
        self._selection = Selection(pods)

    def of(self, matcher: Matcher | AllOf) -> IntArray:
        """(N,) pods."""
        return self._counted(self._selection.of(matcher))

    def active_of(self, matcher: Matcher | AllOf) -> IntArray:
        """(N,) pods that have not ended and are not being deleted."""
        return self._counted(self._selection.of(matcher) & self._active)

    def _counted(self, meant: BoolArray) -> IntArray:
        return np.bincount(self._row[meant], minlength=self._size).astype(np.int64)
