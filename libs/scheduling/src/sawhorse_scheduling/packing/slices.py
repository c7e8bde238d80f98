"""From fluid to whole nodes: for each column the whole part of its nodes, filled with even slices of its pods.

What the whole parts leave over, a few nodes' worth, is filled one kind of node at a time: relaxing it again was tried
and costs far more than it gains.
"""

from collections import Counter

import numpy as np

from sawhorse_scheduling.arrays import FloatArray, IntArray
from sawhorse_scheduling.packing.compact import Compact
from sawhorse_scheduling.packing.nodes import (
    NodeSet,
    affordable,
    budget_left,
    fill_in,
    greedy_fills,
    joined,
    openable,
    spread_over,
)
from sawhorse_scheduling.packing.relaxation import Fluid

# A slice asks for a little more than its even part: rounding losses are then made up for at once.
_ROUND_UP = 0.8


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
    tail = fill_rest(small, rest, order, fluid.class_values, budget_left(small, nodes.column), work)
    return joined([nodes, tail]), rest


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

    Args:
        values: (C,) what a pod of each class is worth.
        budget: (L,) what is left of each budget.
    """
    parts = [NodeSet.empty(small, np.zeros(0, dtype=np.int64))]
    worth = np.maximum(values, values[values > 0].min(initial=1.0) * 1e-3)
    while rest.any():
        live = order[rest[order] > 0]
        most = affordable(small, budget)
        columns = _worth_a_try(small, live, rest, np.flatnonzero(most > 0))
        if not len(columns):
            break
        counts = greedy_fills(small, columns, rest, live)
        earned = (counts @ worth) / np.maximum(small.cost[columns], 1e-9)
        earned[~openable(small, columns, counts)] = 0.0
        best = int(earned.argmax())
        if earned[best] <= 0.0:
            break
        held = np.flatnonzero(counts[best])
        number = int(min((rest[held] // counts[best, held]).min(), most[columns[best]]))
        rest[held] -= number * counts[best, held].astype(np.int64)
        column = np.full(number, columns[best], dtype=np.int64)
        budget = budget - number * small.budget_use[columns[best]]
        parts.append(NodeSet.filled(small, column, np.repeat(counts[best : best + 1], number, axis=0)))
        work["nodes_filled"] += number
    return joined(parts)


def _worth_a_try(small: Compact, live: IntArray, rest: IntArray, columns: IntArray) -> IntArray:
    """Columns that take any of the live classes; of those with room for all that is left, the cheapest of a kind."""
    fits = small.fit[np.ix_(live, columns)] > 0
    some = np.logical_or.reduce(fits, axis=0)
    columns, fits = columns[some], fits[:, some]
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
