"""From fluid to whole nodes: for each column the whole part of its nodes, filled with even slices of its pods.

What the whole parts leave over, a few nodes' worth, is filled one kind of node at a time: relaxing it again was tried
and costs far more than it gains.
"""

from collections import Counter
from collections.abc import Callable

import numpy as np

from sawhorse_scheduling.arrays import FloatArray, IntArray
from sawhorse_scheduling.packing.compact import Compact
from sawhorse_scheduling.packing.grow import grow
from sawhorse_scheduling.packing.nodes import (
    NodeSet,
    affordable,
    budget_left,
    fill_in,
    joined,
    openable,
    spread_over,
    total_cost,
)
from sawhorse_scheduling.packing.relaxation import Fluid
from sawhorse_scheduling.packing.rest import fill_rest

# A slice asks for a little more than its even part: rounding losses are then made up for at once.
_ROUND_UP = 0.8


def pack_by_slices(
    small: Compact, fluid: Fluid, order: IntArray, work: Counter[str], on_whole: Callable[[NodeSet], bool]
) -> tuple[NodeSet, IntArray]:
    """Nodes and what found no place.

    Args:
        fluid: the relaxation's optimum.
        order: classes, large ones first.
        on_whole: told the first nodes that hold all pods, before anything is tried to better them; true: leave it at
            that.
    """
    rest = small.counts.copy()
    nodes = _whole_nodes(small, fluid, rest, order)
    work["nodes_filled"] += len(nodes)
    fill_in(small, nodes, rest, order)
    return place_rest(small, nodes, rest, order, fluid.class_values, work, on_whole)


def place_rest(
    small: Compact,
    nodes: NodeSet,
    rest: IntArray,
    order: IntArray,
    values: FloatArray,
    work: Counter[str],
    on_whole: Callable[[NodeSet], bool] | None = None,
) -> tuple[NodeSet, IntArray]:
    """Nodes for what is left beside those there are: all of them new, or some room made first, whichever is cheaper."""
    left = rest.copy()
    tail = fill_rest(small, left, order, values, budget_left(small, nodes.column), work)
    if on_whole is not None and not left.any() and on_whole(joined([nodes, tail])):
        return joined([nodes, tail]), left
    grown, less = grow(small, nodes, rest, order, values, work)
    if (less == rest).all():
        return joined([nodes, tail]), left
    other = fill_rest(small, less, order, values, budget_left(small, grown.column), work)
    cost = total_cost(small, nodes) + total_cost(small, tail)
    if (int(less.sum()), total_cost(small, grown) + total_cost(small, other)) < (int(left.sum()), cost):
        return joined([grown, other]), less
    return joined([nodes, tail]), left


def _whole_nodes(small: Compact, fluid: Fluid, rest: IntArray, order: IntArray) -> NodeSet:
    """The whole part of the fluid's nodes, with pods; takes them from `rest`."""
    parts = [NodeSet.empty(small, np.zeros(0, dtype=np.int64))]
    budget = small.budget
    for position in np.argsort(-fluid.nodes, kind="stable"):
        number = int(np.floor(fluid.nodes[position] + 1e-6))
        if number < 1:
            break
        column = int(fluid.active[position])
        # The fluid keeps to the budgets as far as the solver's tolerance goes.
        number = min(number, int(affordable(small, budget)[column])) if len(budget) else number
        if number < 1:
            continue
        budget = budget - number * small.budget_use[column]
        wanted = np.floor(fluid.spread[:, position] * (number / fluid.nodes[position]) + _ROUND_UP).astype(np.int64)
        made = spread_over(small, column, number, np.minimum(wanted, rest), order)
        made = made.take(openable(small, made.column, made.counts))
        rest -= made.counts.sum(axis=0)
        parts.append(made)
    return joined(parts)
