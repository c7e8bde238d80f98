"""Nodes for pods that are left over, a few nodes' worth: one kind of node after the other, each filled on trial."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from sawhorse_scheduling.arrays import BoolArray, FloatArray, IntArray
from sawhorse_scheduling.packing.compact import Compact
from sawhorse_scheduling.packing.nodes import Counts, NodeSet, affordable, greedy_fills, openable

_TRIED = 384  # columns filled on trial at each step


def fill_rest(
    small: Compact, rest: IntArray, order: IntArray, values: FloatArray, budget: IntArray, work: Counter[str]
) -> NodeSet:
    """Nodes for all that is left (`rest`, changed): again and again the fill that is worth most for its price.

    At each step one node for all that is left is considered too; the cheapest way of ending is taken.

    Args:
        values: (C,) what a pod of each class is worth.
        budget: (L,) what is left of each budget.
    """
    worth = np.maximum(values, values[values > 0].min(initial=1.0) * 1e-3)
    live = order[rest[order] > 0]
    trials = _Trials(small.only(live), rest[live], worth[live])
    steps: list[_Step] = []
    spent = 0.0
    ending: tuple[float, int, _Step] | None = None  # whole cost, after how many steps, last step
    while trials.rest.any():
        most = affordable(small, budget)
        columns = trials.worth_a_try(most > 0)
        if not len(columns):
            break
        counts, earned = trials.fills(columns)
        whole = np.flatnonzero(np.logical_and.reduce(counts == trials.rest, axis=1) & (earned > 0.0))
        if len(whole):
            last = int(whole[small.cost[columns[whole]].argmin()])
            total = spent + float(small.cost[columns[last]])
            if ending is None or total < ending[0] - 1e-12:
                ending = total, len(steps), _Step(int(columns[last]), counts[last], 1)
        best = int(earned.argmax())
        if earned[best] <= 0.0:
            break
        column, fill = int(columns[best]), counts[best]
        held = np.flatnonzero(fill)
        number = int(min((trials.rest[held] // fill[held]).min(), most[column]))
        trials.take(fill, held, number)
        budget = budget - number * small.budget_use[column]
        spent += number * float(small.cost[column])
        steps.append(_Step(column, fill, number))
    rest[live] = trials.rest
    if ending is not None and (rest.any() or ending[0] < spent - 1e-12):
        steps = [*steps[: ending[1]], ending[2]]
        rest[:] = 0
    work["nodes_filled"] += sum(step.number for step in steps)
    return _nodes(small, live, steps)


@dataclass(frozen=True, slots=True)
class _Step:
    """So many nodes of a column with the same pods: of each live class, in order."""

    column: int
    fill: Counts  # (L,)
    number: int


def _nodes(small: Compact, live: IntArray, steps: list[_Step]) -> NodeSet:
    if not steps:
        return NodeSet.empty(small, np.zeros(0, dtype=np.int64))
    numbers = [step.number for step in steps]
    fills = np.repeat(np.stack([step.fill for step in steps]), numbers, axis=0)
    counts = np.zeros((len(fills), len(small.counts)), dtype=np.int32, order="F")
    counts[:, live] = fills
    return NodeSet.filled(small, np.repeat([step.column for step in steps], numbers), counts)


class _Trials:
    """One node of each column filled with what is left. A fill is kept for as long as it would turn out the same."""

    def __init__(self, small: Compact, rest: IntArray, worth: FloatArray) -> None:
        """`small` has only classes of which pods are left (`rest`), those first that are placed first."""
        self.rest = rest
        self._small = small
        self._order = np.arange(len(rest))
        self._worth = worth
        self._fits = small.fit > 0
        self._as_numbers = self._fits.astype(np.float64)
        # What all pods of a class ask for and are worth, divided by their number.
        self._weights = np.concatenate([small.requests, worth[:, None]], axis=1).T
        self._row = np.full(len(small.price), -1, dtype=np.int64)  # of each column in the table, -1: to be filled
        self._table: Counts = np.zeros((0, len(rest)), dtype=np.int32)

    def fills(self, columns: IntArray) -> tuple[Counts, FloatArray]:
        """Pods (K, L) on a node of each column, and what those earn for its cost (K,); 0 where none may open it."""
        small, row = self._small, self._row
        fresh = columns[row[columns] < 0]
        if len(fresh):
            kept = columns[row[columns] >= 0]
            made = greedy_fills(small, fresh, self.rest, self._order)
            self._table = np.concatenate([self._table[row[kept]], made])
            row[:] = -1
            row[kept] = np.arange(len(kept))
            row[fresh] = len(kept) + np.arange(len(fresh))
        counts = self._table[row[columns]]
        earned = self._earned(columns, counts)
        if small.opens is not None and not (earned > 0.0).any():
            # Pods that may not open a column took the room of those that may: one that may goes first.
            live = self._order[self.rest > 0]
            for opener in live[np.logical_or.reduce(small.opens[np.ix_(live, columns)], axis=1)]:
                counts = greedy_fills(small, columns, self.rest, np.concatenate([[opener], live[live != opener]]))
                earned = self._earned(columns, counts)
                if (earned > 0.0).any():
                    break
        return counts, earned

    def take(self, fill: Counts, held: IntArray, number: int) -> None:
        """So many nodes of a fill are made. Other fills with no more of its classes than are left stay as they are."""
        self.rest[held] -= number * fill[held].astype(np.int64)
        known = np.flatnonzero(self._row >= 0)
        enough = np.logical_and.reduce(self._table[np.ix_(self._row[known], held)] <= self.rest[held], axis=1)
        self._row[known[~enough]] = -1

    def _earned(self, columns: IntArray, counts: Counts) -> FloatArray:
        earned: FloatArray = (counts @ self._worth) / np.maximum(self._small.cost[columns], 1e-9)
        earned[~openable(self._small, columns, counts)] = 0.0
        return earned

    def worth_a_try(self, affordable: BoolArray) -> IntArray:
        """Columns that take any class; of those with room for all that is left, only the cheapest of a kind."""
        small, rest = self._small, self.rest
        live = np.flatnonzero(rest)
        columns = np.flatnonzero(np.logical_or.reduce(self._fits[live], axis=0) & affordable)
        if len(columns) > _TRIED:
            columns = self._most_promising(columns)
        total = rest @ small.requests
        roomy = np.flatnonzero(np.logical_and.reduce(small.capacity[columns] >= total, axis=1))
        if len(roomy) < 2:
            return columns
        by_cost = roomy[np.argsort(small.cost[columns[roomy]], kind="stable")]
        kinds = np.packbits(self._fits[np.ix_(live, columns[by_cost])], axis=0).T
        if small.opens is not None:
            opens = small.opens[np.ix_(live, columns[by_cost])]
            kinds = np.concatenate([kinds, np.packbits(opens, axis=0).T], axis=1)
        _, first = np.unique(kinds, axis=0, return_index=True)
        keep = np.ones(len(columns), dtype=np.bool_)
        keep[roomy] = False
        keep[by_cost[first]] = True
        return columns[keep]

    def _most_promising(self, columns: IntArray) -> IntArray:
        """Those on which an even part of all that is left and fits would be worth most for its cost."""
        small = self._small
        sums = (self._weights * self.rest) @ self._as_numbers  # (R + 1, T)
        asked, value = sums[:-1, columns], sums[-1, columns]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(asked > 0, small.capacity[columns].T / asked, np.inf).min(axis=0, initial=1.0)
        earned = part * value / np.maximum(small.cost[columns], 1e-9)
        return columns[np.sort(np.argsort(-earned, kind="stable")[:_TRIED])]
