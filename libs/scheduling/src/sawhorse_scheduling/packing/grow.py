"""Making room for the last pods by moving nodes to larger columns, where that costs less than new nodes do.

Where prices rise evenly with size, a node of its own for a few pods pays for another system's share of a machine; the
next size of a machine that is there does not.
"""

from collections import Counter

import numpy as np

from sawhorse_scheduling.arrays import FloatArray, IntArray
from sawhorse_scheduling.packing.compact import Compact
from sawhorse_scheduling.packing.nodes import NodeSet, able_columns, budget_left, greedy_fills, top_up

_SIZES = 3  # larger columns tried for each node
_NODES, _CELLS = 1024, 2**19  # nodes looked at, and nodes × classes
_PASSES = 8


def grow(
    small: Compact, nodes: NodeSet, rest: IntArray, order: IntArray, values: FloatArray, work: Counter[str]
) -> tuple[NodeSet, IntArray]:
    """Nodes of which some are larger, and what is still left; the arguments stay as they are.

    A larger column is taken only where the pods it makes room for are worth more for what it costs more than on the
    best new node.
    """
    rest = rest.copy()
    nodes = nodes.take(np.ones(len(nodes), dtype=np.bool_))
    for _ in range(small.tries(_PASSES, least=2)):
        live = order[rest[order] > 0]
        if not len(live) or not len(nodes):
            break
        work["grown_passes"] += 1
        if not _grow_once(small, nodes, rest, live, values):
            break
    return nodes, rest


def _grow_once(small: Compact, nodes: NodeSet, rest: IntArray, live: IntArray, values: FloatArray) -> bool:
    """One pass over the nodes with most room; both are changed."""
    room = (nodes.room / np.maximum(small.capacity[nodes.column], 1)).sum(axis=1)
    looked_at = max(64, min(_NODES, _CELLS // len(small.counts)))
    which = np.sort(np.argsort(-room, kind="stable")[:looked_at])
    extra = small.cost[None, :] - small.cost[nodes.column[which], None]
    extra = np.where(able_columns(small, nodes, which) & (extra > 1e-12), extra, np.inf)
    sizes = min(_SIZES, extra.shape[1])
    nearest = np.sort(np.argpartition(extra, sizes - 1, axis=1)[:, :sizes], axis=1)
    at, size = np.nonzero(np.isfinite(np.take_along_axis(extra, nearest, axis=1)))
    if not len(at):
        return False
    column, node = nearest[at, size], which[at]
    cost = extra[at, column]
    held = nodes.counts[node]
    larger = NodeSet(
        column,
        held.copy(),
        small.capacity[column] - (small.capacity[nodes.column[node]] - nodes.room[node]),
        nodes.tally[node].copy(),
    )
    top_up(small, larger, rest, live)
    added = larger.counts - held
    earned = (added @ values) / cost
    best_new = _best_new(small, rest, live, values)
    budget = budget_left(small, nodes.column)
    moved: set[int] = set()
    for pick in np.argsort(-earned, kind="stable"):
        if earned[pick] <= best_new or not rest.any():
            break
        place = int(node[pick])
        pods = np.minimum(added[pick], rest)
        if place in moved or float(pods @ values) <= best_new * cost[pick]:
            continue
        use = small.budget_use[column[pick]] - small.budget_use[nodes.column[place]]
        if (use > np.maximum(budget, 0)).any():
            continue
        budget = budget - use
        moved.add(place)
        rest -= pods
        nodes.counts[place] += pods.astype(np.int32)
        nodes.column[place] = column[pick]
        nodes.tally[place] += pods @ small.tallied
        nodes.room[place] = larger.room[pick] + (added[pick] - pods) @ small.requests
    return bool(moved)


def _best_new(small: Compact, rest: IntArray, live: IntArray, values: FloatArray) -> float:
    """What the best new node would earn for its cost."""
    columns = np.flatnonzero(np.logical_or.reduce(small.fit[live] > 0, axis=0))
    counts = greedy_fills(small, columns, rest, live)
    return float(((counts @ values) / np.maximum(small.cost[columns], 1e-9)).max(initial=0.0))
