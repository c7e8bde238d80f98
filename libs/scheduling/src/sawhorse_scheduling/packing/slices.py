"""From fluid to whole nodes: for each column the whole part of its nodes, filled with even slices of its pods.

What the whole parts leave over, a few nodes' worth, is filled one kind of node at a time: relaxing it again was tried
and costs far more than it gains.
"""

from collections import Counter

import numpy as np

from sawhorse_scheduling.arrays import BoolArray, FloatArray, IntArray
from sawhorse_scheduling.packing.compact import Compact
from sawhorse_scheduling.packing.grow import grow
from sawhorse_scheduling.packing.nodes import (
    Counts,
    NodeSet,
    affordable,
    budget_left,
    fill_in,
    greedy_fills,
    joined,
    openable,
    spread_over,
    total_cost,
)
from sawhorse_scheduling.packing.relaxation import Fluid

# A slice asks for a little more than its even part: rounding losses are then made up for at once.
_ROUND_UP = 0.8
_TRIED = 384  # columns filled on trial at each step


def pack_by_slices(small: Compact, fluid: Fluid, order: IntArray, work: Counter[str]) -> tuple[NodeSet, IntArray]:
    """Nodes and what found no place.

    Args:
        fluid: the relaxation's optimum.
        order: classes, large ones first.
    """
    rest = small.counts.copy()
    nodes = _whole_nodes(small, fluid, rest, order)
    work["nodes_filled"] += len(nodes)
    fill_in(small, nodes, rest, order)
    return place_rest(small, nodes, rest, order, fluid.class_values, work)


def place_rest(
    small: Compact, nodes: NodeSet, rest: IntArray, order: IntArray, values: FloatArray, work: Counter[str]
) -> tuple[NodeSet, IntArray]:
    """Nodes for what is left beside those there are: all of them new, or some room made first, whichever is cheaper."""
    ways = []
    for base, left in ((nodes, rest.copy()), grow(small, nodes, rest, order, values, work)):
        tail = fill_rest(small, left, order, values, budget_left(small, base.column), work)
        ways.append((int(left.sum()), total_cost(small, base) + total_cost(small, tail), base, tail, left))
    _, _, base, tail, left = min(ways, key=lambda way: way[:2])
    return joined([base, tail]), left


def _whole_nodes(small: Compact, fluid: Fluid, rest: IntArray, order: IntArray) -> NodeSet:
    """The whole part of the fluid's nodes, with pods; takes them from `rest`."""
    parts = [NodeSet.empty(small, np.zeros(0, dtype=np.int64))]
    for position in np.argsort(-fluid.nodes, kind="stable"):
        number = int(np.floor(fluid.nodes[position] + 1e-6))
        if number < 1:
            break
        wanted = np.floor(fluid.spread[:, position] * (number / fluid.nodes[position]) + _ROUND_UP).astype(np.int64)
        made = spread_over(small, int(fluid.active[position]), number, np.minimum(wanted, rest), order)
        made = made.take(openable(small, made.column, made.counts))
        rest -= made.counts.sum(axis=0)
        parts.append(made)
    return joined(parts)


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
    steps: list[tuple[int, Counts, int]] = []  # column, pods of one node (1, C), nodes
    spent = 0.0
    ending: tuple[float, int, tuple[int, Counts, int]] | None = None  # whole cost, after how many steps, last step
    while rest.any():
        live = order[rest[order] > 0]
        most = affordable(small, budget)
        columns = _worth_a_try(small, live, rest, worth, np.flatnonzero(most > 0))
        if not len(columns):
            break
        counts, earned = _fills(small, columns, rest, live, worth)
        whole = np.flatnonzero(np.logical_and.reduce(counts[:, live] == rest[live], axis=1) & (earned > 0.0))
        if len(whole):
            last = int(whole[small.cost[columns[whole]].argmin()])
            total = spent + float(small.cost[columns[last]])
            if ending is None or total < ending[0] - 1e-12:
                ending = total, len(steps), (int(columns[last]), counts[last : last + 1], 1)
        best = int(earned.argmax())
        if earned[best] <= 0.0:
            break
        column = int(columns[best])
        held = np.flatnonzero(counts[best])
        number = int(min((rest[held] // counts[best, held]).min(), most[column]))
        rest[held] -= number * counts[best, held].astype(np.int64)
        budget = budget - number * small.budget_use[column]
        spent += number * float(small.cost[column])
        steps.append((column, counts[best : best + 1], number))
    if ending is not None and (rest.any() or ending[0] < spent - 1e-12):
        steps = [*steps[: ending[1]], ending[2]]
        rest[:] = 0
    work["nodes_filled"] += sum(number for _, _, number in steps)
    parts = [NodeSet.empty(small, np.zeros(0, dtype=np.int64))]
    parts += [
        NodeSet.filled(small, np.full(number, column, dtype=np.int64), np.repeat(counts, number, axis=0))
        for column, counts, number in steps
    ]
    return joined(parts)


def _fills(
    small: Compact, columns: IntArray, rest: IntArray, live: IntArray, worth: FloatArray
) -> tuple[Counts, FloatArray]:
    """One node of each column filled with what is left: pods (K, C) and what that earns (K,)."""
    counts = greedy_fills(small, columns, rest, live)
    earned = _earned(small, columns, counts, worth, live)
    if small.opens is not None and not (earned > 0.0).any():
        # Pods that may not open a column took the room of those that may: one that may goes first.
        for opener in live[np.logical_or.reduce(small.opens[np.ix_(live, columns)], axis=1)]:
            counts = greedy_fills(small, columns, rest, np.concatenate([[opener], live[live != opener]]))
            earned = _earned(small, columns, counts, worth, live)
            if (earned > 0.0).any():
                break
    return counts, earned


def _earned(small: Compact, columns: IntArray, counts: Counts, worth: FloatArray, live: IntArray) -> FloatArray:
    """(K,) what each fill is worth for its cost; 0 where no pod of it may open the column."""
    earned = (counts[:, live] @ worth[live]) / np.maximum(small.cost[columns], 1e-9)
    earned[~openable(small, columns, counts)] = 0.0
    return earned


def _most_promising(
    small: Compact, live: IntArray, rest: IntArray, worth: FloatArray, columns: IntArray, fits: BoolArray
) -> tuple[IntArray, BoolArray]:
    """The columns on which an even part of all that is left and fits would be worth most for its cost."""
    asked = (rest[live, None] * small.requests[live]).T.astype(np.float64) @ fits  # (R, K)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(asked > 0, small.capacity[columns].T / asked, np.inf).min(axis=0, initial=1.0)
    earned = part * ((rest[live] * worth[live]) @ fits) / np.maximum(small.cost[columns], 1e-9)
    best = np.sort(np.argsort(-earned, kind="stable")[:_TRIED])
    return columns[best], fits[:, best]


def _worth_a_try(small: Compact, live: IntArray, rest: IntArray, worth: FloatArray, columns: IntArray) -> IntArray:
    """Columns that take any of the live classes; of those with room for all that is left, the cheapest of a kind."""
    fits = small.fit[np.ix_(live, columns)] > 0
    some = np.logical_or.reduce(fits, axis=0)
    columns, fits = columns[some], fits[:, some]
    if len(columns) > _TRIED:
        columns, fits = _most_promising(small, live, rest, worth, columns, fits)
    total = rest[live] @ small.requests[live]
    roomy = np.flatnonzero(np.logical_and.reduce(small.capacity[columns] >= total, axis=1))
    if len(roomy) < 2:
        return columns
    by_cost = roomy[np.argsort(small.cost[columns[roomy]], kind="stable")]
    kinds = np.packbits(fits[:, by_cost], axis=0).T
    if small.opens is not None:
        opens = small.opens[np.ix_(live, columns[by_cost])]
        kinds = np.concatenate([kinds, np.packbits(opens, axis=0).T], axis=1)
    _, first = np.unique(kinds, axis=0, return_index=True)
    keep = np.ones(len(columns), dtype=np.bool_)
    keep[roomy] = False
    keep[by_cost[first]] = True
    return columns[keep]
