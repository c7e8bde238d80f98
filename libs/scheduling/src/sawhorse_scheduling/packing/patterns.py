"""Column generation: fills of whole nodes as the variables, so that what does not add up on a node is seen.

It pays where few pods share a node: the fluid's nodes cannot be filled there by any mix of whole pods.
"""

from collections import Counter
from collections.abc import Callable

import numpy as np

from sawhorse_scheduling.arrays import FloatArray, IntArray
from sawhorse_scheduling.packing.compact import Compact
from sawhorse_scheduling.packing.linear import INFINITE, LinearProgram, Solved
from sawhorse_scheduling.packing.nodes import (
    Counts,
    NodeSet,
    affordable,
    budget_left,
    fill_in,
    joined,
    openable,
)
from sawhorse_scheduling.packing.problem import Effort
from sawhorse_scheduling.packing.relaxation import Fluid, column_worth
from sawhorse_scheduling.packing.rest import fill_rest
from sawhorse_scheduling.packing.search import knapsack_prices, search_fills

_CENTRE = 0.7  # how far values for pricing stay at the fluid's: damps the swings of the master's duals
_PRICED = 48  # columns whose own prices are computed each round
_SEARCHED = 16  # columns that are searched each round
_KEPT = 3  # fills kept for each column and round
_PATIENCE, _GAIN = 8, 3e-4  # stop when so many rounds together gained less than this part of the cost
_LP_STEP, _ROUND = 12, 300_000  # what a step of a linear program, and the rest of a round, cost in steps of the search


class _Master:
    """The restricted master program over the patterns found so far."""

    def __init__(self, small: Compact) -> None:
        self._small = small
        classes, budgets = len(small.counts), len(small.budget)
        lower = np.concatenate([small.counts.astype(np.float64), np.full(budgets, -INFINITE)])
        upper = np.concatenate([np.full(classes, INFINITE), small.budget / small.budget_scale])
        self._program = LinearProgram(lower, upper)
        self._seen: set[tuple[int, bytes]] = set()
        self.column = np.zeros(0, dtype=np.int64)
        self.counts: Counts = np.zeros((0, classes), dtype=np.int32)
        self._unplaced = 0
        if budgets:
            alone = np.where(small.fit > 0, small.price[None, :], 0.0).max(axis=1) + small.fixed_cost
            every = np.arange(classes)
            self._program.add_variables(4.0 * alone + 1.0, every, every, np.ones(classes))
            self._unplaced = classes

    def add(self, column: IntArray, counts: Counts) -> int:
        """Take in the patterns not met before; how many."""
        fresh = []
        for number in range(len(column)):
            key = (int(column[number]), counts[number].tobytes())
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(number)
        if not fresh:
            return 0
        column, counts = column[fresh], counts[fresh]
        variable, row = np.nonzero(counts)
        value = counts[variable, row].astype(np.float64)
        classes = counts.shape[1]
        for number in range(len(self._small.budget)):
            variable = np.concatenate([variable, np.arange(len(column))])
            row = np.concatenate([row, np.full(len(column), classes + number)])
            value = np.concatenate([value, self._small.budget_use[column, number] / self._small.budget_scale[number]])
        self._program.add_variables(self._small.cost[column], variable, row, value)
        self.column = np.concatenate([self.column, column])
        self.counts = np.concatenate([self.counts, counts])
        return len(fresh)

    def solve(self, work: Counter[str]) -> Solved | None:
        before = self._program.steps
        solved = self._program.solve()
        work["lp_steps"] += self._program.steps - before
        return solved

    def amounts(self, solved: Solved) -> FloatArray:
        """How many nodes of each pattern."""
        return solved.values[self._unplaced :]

    def set_demand(self, counts: IntArray, budget: IntArray) -> None:
        classes = len(counts)
        lower = np.concatenate([counts.astype(np.float64), np.full(len(budget), -INFINITE)])
        upper = np.concatenate([np.full(classes, INFINITE), np.maximum(budget, 0) / self._small.budget_scale])
        self._program.set_rows(np.arange(len(lower)), lower, upper)


def pack_by_patterns(
    small: Compact,
    fluid: Fluid,
    start: NodeSet,
    order: IntArray,
    effort: Effort,
    enough: float,
    stop: Callable[[], bool],
    work: Counter[str],
) -> tuple[NodeSet, IntArray, FloatArray] | None:
    """Nodes, what found no place, and what pods of each class are worth by whole patterns.

    Args:
        fluid: its class values centre the search, its resource prices sift columns.
        start: an answer to begin with.
        enough: stop generating when the master's cost is at or below this.
    """
    master = _Master(small)
    master.add(start.column, start.counts)
    classes = len(small.counts)
    prices = fluid.resource_prices
    solved = None
    path: list[float] = []
    for _ in range(effort.pattern_rounds):
        solved = master.solve(work)
        if solved is None:
            return None
        work["pattern_rounds"] += 1
        path.append(solved.objective)
        stalled = len(path) > _PATIENCE and path[-1 - _PATIENCE] - path[-1] < _GAIN * path[-1]
        if solved.objective <= enough or stalled or _spent(work) >= effort.pattern_work or stop():
            break
        own = np.maximum(solved.duals[:classes], 0.0)
        charge = small.cost + small.budget_use @ (np.maximum(-solved.duals[classes:], 0.0) / small.budget_scale)
        found = 0
        for centre in (_CENTRE, 0.0):
            values = centre * fluid.class_values + (1 - centre) * own
            column, counts, seen = _price(small, values, charge, prices, effort.pattern_width, order, work)
            prices = np.concatenate([fluid.resource_prices, seen])
            good = (counts @ own > charge[column] * (1 + 1e-5)) & openable(small, column, counts)
            found = master.add(column[good], counts[good])
            work["patterns"] += found
            if found:
                break
        if not found:
            break
    if solved is None:
        return None
    values = np.maximum(solved.duals[:classes], 0.0)
    nodes, rest = _round(small, master, values, order, work)
    return nodes, rest, values


def _spent(work: Counter[str]) -> int:
    return work["search_steps"] + _LP_STEP * work["lp_steps"] + _ROUND * work["pattern_rounds"]


def _price(
    small: Compact,
    values: FloatArray,
    charge: FloatArray,
    prices: FloatArray,
    width: int,
    order: IntArray,
    work: Counter[str],
) -> tuple[IntArray, Counts, FloatArray]:
    """Search the columns that may hold more than they cost: (column and pods of each fill, resource prices used)."""
    hopeful = _most_promising(column_worth(small, values, prices), charge, _PRICED)
    nothing = np.zeros(0, dtype=np.int64), np.zeros((0, len(values)), dtype=np.int32), prices[:0]
    if not len(hopeful):
        return nothing
    own = knapsack_prices(small, values, hopeful, work)
    if own is None:
        return nothing
    surplus = np.maximum(values[:, None] - small.requests @ own.T, 0.0)
    worth = (small.capacity[hopeful] * own).sum(axis=1) + (surplus * small.fit[:, hopeful]).sum(axis=0)
    chosen = _most_promising(worth, charge[hopeful], _SEARCHED)
    if not len(chosen):
        return nothing
    column, counts = search_fills(small, values, hopeful[chosen], own[chosen], width, _KEPT, order, work)
    return column, counts, own[chosen]


def _most_promising(worth: FloatArray, charge: FloatArray, most: int) -> IntArray:
    hopeful = np.flatnonzero(worth > charge * (1 + 1e-5))
    ratio = worth[hopeful] / np.maximum(charge[hopeful], 1e-12)
    return np.sort(hopeful[np.argsort(-ratio, kind="stable")[:most]])


def _round(
    small: Compact, master: _Master, values: FloatArray, order: IntArray, work: Counter[str]
) -> tuple[NodeSet, IntArray]:
    """Whole nodes from fractional patterns: whole parts, solve for what is left, again; the last pods greedily."""
    rest = small.counts.copy()
    parts = [NodeSet.empty(small, np.zeros(0, dtype=np.int64))]
    budget = small.budget
    for _ in range(12):
        master.set_demand(rest, budget)
        solved = master.solve(work)
        if solved is None:
            break
        amounts = master.amounts(solved)
        order_of = np.argsort(-amounts, kind="stable")
        took = False
        for least in (1.0, 0.5):
            for pattern in order_of:
                if amounts[pattern] < least - 1e-6:
                    break
                held = np.flatnonzero(master.counts[pattern])
                column = int(master.column[pattern])
                number = int(min((rest[held] // master.counts[pattern, held]).min(), affordable(small, budget)[column]))
                number = min(number, max(1, int(amounts[pattern] + 1e-6)))
                if number < 1:
                    continue
                took = True
                rest -= number * master.counts[pattern].astype(np.int64)
                budget = budget - number * small.budget_use[column]
                repeated = np.repeat(master.counts[pattern : pattern + 1], number, axis=0)
                parts.append(NodeSet.filled(small, np.full(number, column, dtype=np.int64), repeated))
                work["nodes_filled"] += number
            if took:
                break
        if not took or not rest.any():
            break
    nodes = joined(parts)
    fill_in(small, nodes, rest, order)
    tail = fill_rest(small, rest, order, values, budget_left(small, nodes.column), work)
    return joined([nodes, tail]), rest
