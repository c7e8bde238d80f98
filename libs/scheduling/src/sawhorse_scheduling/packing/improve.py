"""Local search on whole nodes: cheaper columns for what they hold, and taking poor nodes apart to pack them again."""

from collections import Counter

import numpy as np

from sawhorse_scheduling.arrays import FloatArray, IntArray
from sawhorse_scheduling.packing.compact import Compact
from sawhorse_scheduling.packing.nodes import NodeSet, budget_left, fill_in, joined, total_cost
from sawhorse_scheduling.packing.slices import fill_rest

_BLOCK = 256  # nodes looked at together: bounds the memory of nodes × columns


def right_size(small: Compact, nodes: NodeSet) -> NodeSet:
    """Each node on the cheapest column that holds its pods, within the budgets."""
    if not len(nodes):
        return nodes
    # Equal nodes move together; there are far fewer kinds than nodes where counts are large.
    column = nodes.column.copy()
    load = small.capacity[column] - nodes.room
    forbidden = (small.fit == 0).astype(np.float32)
    for start in range(0, len(nodes), _BLOCK):
        block = slice(start, start + _BLOCK)
        held = nodes.counts[block] > 0
        able = held.astype(np.float32) @ forbidden < 0.5
        for resource in range(load.shape[1]):
            able &= load[block, None, resource] <= small.capacity[None, :, resource]
        if small.opens is not None:
            able &= held.astype(np.float32) @ small.opens.astype(np.float32) > 0.5
        for number in range(len(small.budget)):
            use = small.budget_use[:, number]
            able &= use[None, :] <= use[column[block], None]
        cost = np.where(able, small.cost[None, :], np.inf)
        best = cost.argmin(axis=1)
        gain = cost[np.arange(len(best)), best] < small.cost[column[block]]
        column[block] = np.where(gain, best, column[block])
    return NodeSet(column, nodes.counts, small.capacity[column] - load)


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
    others = nodes.take(stay)
    rest = leftover + nodes.counts[which].sum(axis=0)
    fill_in(small, others, rest, order)
    budget = budget_left(small, others.column)
    made = right_size(small, fill_rest(small, rest, order, values, budget, work))
    fewer = int(rest.sum()) - int(leftover.sum())
    saved = float(small.cost[nodes.column[which]].sum()) - total_cost(small, made)
    if fewer > 0 or (fewer == 0 and saved <= 1e-9 * max(1.0, total_cost(small, nodes))):
        return None
    return joined([others, made]), rest


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
    work: Counter[str],
) -> tuple[NodeSet, IntArray]:
    """Take the most wasteful nodes apart, few or many, as long as that helps.

    Args:
        tries: how often at most.
        stall: stop after so many tries in a row without gain.
        enough: a total cost at which there is nothing left to gain worth the work.
    """
    sizes = (4, 12, 2, 32, 8, 1, 20)
    idle, turn, skip = 0, 0, 0
    for _ in range(tries):
        if idle >= stall or len(nodes) < 2 or total_cost(small, nodes) <= enough:
            break
        worst = np.argsort(-waste(small, nodes, values), kind="stable")
        size = min(sizes[turn % len(sizes)], max(1, len(nodes) // 2))
        result = take_apart(small, nodes, leftover, values, order, worst[skip : skip + size], work)
        if result is None:
            idle += 1
            turn += 1
            skip = 0 if turn < len(sizes) else (skip + size) % max(1, len(nodes) // 2)
        else:
            nodes, leftover = result
            idle = 0
    return nodes, leftover
