"""Local search on whole nodes: cheaper columns for what they hold, and taking poor nodes apart to pack them again."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from sawhorse_scheduling.arrays import FloatArray, IntArray
from sawhorse_scheduling.packing.compact import Compact
from sawhorse_scheduling.packing.nodes import NodeSet, able_columns, budget_left, fill_in, joined, take_back, total_cost
from sawhorse_scheduling.packing.rest import fill_rest
from sawhorse_scheduling.packing.slices import place_rest

_SIZES = (4, 12, 2, 32, 8, 1, 20)  # how many nodes are taken apart at once, in turn
_BLOCK = 256  # nodes looked at together: bounds the memory of nodes × columns


def right_size(small: Compact, nodes: NodeSet) -> NodeSet:
    """Each node on the cheapest column that holds its pods, within the budgets."""
    if not len(nodes):
        return nodes
    column = nodes.column.copy()
    load = small.capacity[column] - nodes.room
    for start in range(0, len(nodes), _BLOCK):
        block = np.arange(start, min(start + _BLOCK, len(nodes)))
        able = able_columns(small, nodes, block)
        for number in range(len(small.budget)):
            use = small.budget_use[:, number]
            able &= use[None, :] <= use[column[block], None]
        cost = np.where(able, small.cost[None, :], np.inf)
        best = cost.argmin(axis=1)
        gain = cost[np.arange(len(best)), best] < small.cost[column[block]]
        column[block] = np.where(gain, best, column[block])
    return NodeSet(column, nodes.counts, small.capacity[column] - load, nodes.tally)


def settle(
    small: Compact, nodes: NodeSet, rest: IntArray, order: IntArray, values: FloatArray, work: Counter[str]
) -> tuple[NodeSet, IntArray]:
    """Right-sized nodes; pods that budgets left out are tried again as long as smaller nodes free something."""
    nodes = right_size(small, nodes)
    while rest.any():
        left = rest.copy()
        fill_in(small, nodes, left, order)
        nodes, left = place_rest(small, nodes, left, order, values, work)
        nodes = right_size(small, nodes)
        if int(left.sum()) == int(rest.sum()):
            break
        rest = left
    return nodes, rest


def take_apart(
    small: Compact,
    nodes: NodeSet,
    leftover: IntArray,
    values: FloatArray,
    order: IntArray,
    which: IntArray,
    work: Counter[str],
) -> tuple[NodeSet, IntArray] | None:
    """Without the nodes `which`: their pods go to the others where they fit, the rest to new nodes.

    Returns:
        nodes and leftover pods if that is cheaper and places no fewer pods, else None.
    """
    work["repairs"] += 1
    stay = np.ones(len(nodes), dtype=np.bool_)
    stay[which] = False
    rest = leftover + nodes.counts[which].sum(axis=0)
    placed = fill_in(small, nodes, rest, order, closed=which)
    budget = budget_left(small, nodes.column[stay])
    made = right_size(small, fill_rest(small, rest, order, values, budget, work))
    fewer = int(rest.sum()) - int(leftover.sum())
    saved = float(small.cost[nodes.column[which]].sum()) - total_cost(small, made)
    if fewer > 0 or (fewer == 0 and saved <= 1e-9 * max(1.0, total_cost(small, nodes))):
        take_back(small, nodes, placed)
        return None
    return joined([nodes.take(stay), made]), rest


def waste(small: Compact, nodes: NodeSet, values: FloatArray) -> FloatArray:
    """(N,) what each node costs above what its pods are worth."""
    above: FloatArray = small.cost[nodes.column] - nodes.counts @ values
    return above


def repair(
    small: Compact,
    nodes: NodeSet,
    leftover: IntArray,
    values: FloatArray,
    order: IntArray,
    tries: int,
    stall: int,
    enough: float,
    stop: Callable[[], bool],
    work: Counter[str],
) -> tuple[NodeSet, IntArray]:
    """Take the most wasteful nodes apart, few or many, as long as that helps.

    Args:
        tries: how often at most.
        stall: stop after so many tries in a row without gain.
        enough: a total cost at which there is nothing left to gain worth the work.
        stop: asked before each try.
    """
    orders = [order, *_other_orders(small, values)]
    idle, turn = 0, 0
    for _ in range(tries):
        if idle >= stall or not len(nodes) or stop():
            break
        if total_cost(small, nodes) <= enough and not leftover.any():
            break
        size, skip = _SIZES[turn % len(_SIZES)], turn // len(_SIZES)
        wasted = waste(small, nodes, values)
        if turn % 2:
            wasted = wasted / np.maximum(small.cost[nodes.column], 1e-9)  # of its own cost: finds the small ones
        worst = np.argsort(-wasted, kind="stable")[skip * size : (skip + 1) * size]
        placing = orders[turn % len(orders)]
        result = take_apart(small, nodes, leftover, values, placing, worst, work) if len(worst) else None
        if result is None:
            idle += 1
            turn += 1
        else:
            nodes, leftover = result
            idle = 0
    return nodes, leftover


def _other_orders(small: Compact, values: FloatArray) -> list[IntArray]:
    """Other ways round to place classes: by value, and by each resource."""
    size = small.requests / np.maximum(small.capacity.max(axis=0, initial=1), 1)
    busiest = np.argsort(-(small.counts @ size), kind="stable")[:2]
    found = [np.argsort(-values, kind="stable")]
    return found + [np.argsort(-size[:, resource], kind="stable") for resource in busiest]
