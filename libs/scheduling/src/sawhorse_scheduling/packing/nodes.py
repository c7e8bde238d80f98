"""Nodes being filled: how many pods of a class each can still take, and the ways to put pods on them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawhorse_scheduling.arrays import UNBOUNDED, BoolArray, FloatArray, IntArray
from sawhorse_scheduling.packing.compact import Compact

Counts = NDArray[np.int32]


@dataclass(eq=False, slots=True)
class NodeSet:
    """N nodes: column, pods of each class, room left, owners and matches of each rule.

    Changed in place by the functions here only. Nodes are filled class by class and looked at resource by resource, so
    the tables are kept column after column in memory.
    """

    column: IntArray  # (N,)
    counts: Counts  # (N, C)
    room: IntArray  # (N, R)
    tally: IntArray  # (N, 2 G + groups) pods that own and that match each rule, in turn, and that are in each group

    @classmethod
    def empty(cls, small: Compact, columns: IntArray) -> "NodeSet":
        """New nodes without pods."""
        return cls(
            columns,
            np.zeros((len(columns), len(small.counts)), dtype=np.int32, order="F"),
            np.asfortranarray(small.capacity[columns]),
            np.zeros((len(columns), small.tallied.shape[1]), dtype=np.int64, order="F"),
        )

    @classmethod
    def filled(cls, small: Compact, columns: IntArray, counts: Counts) -> "NodeSet":
        """Nodes with these pods on them."""
        whole = counts.astype(np.int64)
        # Products stay far below 2**53 for each term, but sums of bytes may not: integers throughout.
        room = small.capacity[columns] - whole @ small.requests
        return cls(columns, counts, np.asfortranarray(room), np.asfortranarray(whole @ small.tallied))

    def take(self, which: IntArray | BoolArray) -> "NodeSet":
        """A copy of some of the nodes."""
        if which.dtype == np.bool_:
            which = np.flatnonzero(which)
        return NodeSet(
            self.column[which],
            np.take(self.counts.T, which, axis=1).T,
            np.take(self.room.T, which, axis=1).T,
            np.take(self.tally.T, which, axis=1).T,
        )

    def __len__(self) -> int:
        """How many nodes."""
        return len(self.column)


def joined(parts: list[NodeSet]) -> NodeSet:
    """All nodes of several sets, in order. At least one part."""
    if len(parts) == 1:
        return parts[0]
    return NodeSet(
        np.concatenate([part.column for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.room for part in parts]),
        np.concatenate([part.tally for part in parts]),
    )


def space_for(small: Compact, nodes: NodeSet, index: int) -> IntArray:
    """(N,) how many more pods of the class each node can take."""
    space: IntArray = small.fit[index][nodes.column] - nodes.counts[:, index]
    for resource, amount in small.asked[index]:
        np.minimum(space, nodes.room[:, resource] // amount, out=space)
    for number, limit in small.limits_of[index]:
        np.minimum(space, limit - nodes.tally[:, number], out=space)
    if small.conflicts is not None:
        rivals = np.flatnonzero(small.conflicts[index])
        if len(rivals):
            space[np.logical_or.reduce(nodes.counts[:, rivals] > 0, axis=1)] = 0
    for rule, limit, owns, matches in small.rules_of[index]:
        owners, matched = nodes.tally[:, 2 * rule], nodes.tally[:, 2 * rule + 1]
        np.minimum(space, _by_rule(limit, owns, matches, owners, matched), out=space)
    return np.maximum(space, 0, out=space)


def _by_rule(limit: int, owns: bool, matches: bool, owners: IntArray, matched: IntArray) -> IntArray:
    """(N,) how many pods of a class a rule still allows on nodes with so many owners and matches."""
    if limit == 0:
        if owns and matches:
            return np.where((owners > 0) | (matched > 0), 0, 1)
        return np.where((matched if owns else owners) > 0, 0, UNBOUNDED)
    if not matches:
        return np.where(matched > limit, 0, UNBOUNDED)
    return limit - matched if owns else np.where(owners > 0, limit - matched, UNBOUNDED)


def put(small: Compact, nodes: NodeSet, index: int, where: IntArray, amount: IntArray) -> None:
    """Place pods of a class: `amount` (one number for each) on the nodes `where`."""
    nodes.counts[where, index] += amount.astype(np.int32)
    for resource, asked in small.asked[index]:
        nodes.room[where, resource] -= amount * asked
    for number in small.marked[index]:
        nodes.tally[where, number] += amount


def hardest_first(small: Compact) -> IntArray:
    """Classes in the order in which they are placed.

    First those that share a limit per node or have one: each of them needs its own slot, so room that other pods took
    costs a whole node. Then by size: the greatest part of the largest node, ties by the sum of parts.
    """
    parts = small.requests / np.maximum(small.capacity.max(axis=0, initial=1), 1)
    limited = small.node_cap < small.counts
    for members, _ in small.groups:
        limited[members] = True
    limited |= (small.marks[:, ::2] > 0).any(axis=1)
    return np.lexsort((-parts.sum(axis=1), -parts.max(axis=1, initial=0.0), ~limited)).astype(np.int64)


def spread_over(small: Compact, column: int, number: int, wanted: IntArray, order: IntArray) -> NodeSet:
    """New equal nodes that share `wanted` (C,) pods evenly; what does not fit is left out.

    Large pods go first, each class to the nodes with most room in what it asks for: so all nodes stay about equally
    full in every resource, and the small pods at the end level them.
    """
    nodes = NodeSet.empty(small, np.full(number, column, dtype=np.int64))
    weight = small.requests / np.maximum(small.capacity[column], 1).astype(np.float64) ** 2
    for index in order[wanted[order] > 0].tolist():
        left = int(wanted[index])
        while left > 0:
            space = space_for(small, nodes, index)
            each = max(1, left // number)
            open_nodes = np.flatnonzero(space > 0)
            if not len(open_nodes):
                break
            if each > 1:
                amount = np.minimum(space[open_nodes], each)
                put(small, nodes, index, open_nodes, amount)
                left -= int(amount.sum())
                continue
            if len(open_nodes) > left:
                slack = np.zeros(len(open_nodes))
                for resource, _ in small.asked[index]:
                    slack += nodes.room[open_nodes, resource] * weight[index, resource]
                open_nodes = open_nodes[np.argsort(-slack, kind="stable")[:left]]
            put(small, nodes, index, open_nodes, np.ones(len(open_nodes), dtype=np.int64))
            left -= len(open_nodes)
    return nodes


Placed = list[tuple[int, IntArray, IntArray]]  # class, on which nodes, how many on each


def fill_in(small: Compact, nodes: NodeSet, rest: IntArray, order: IntArray, closed: IntArray | None = None) -> Placed:
    """Put what is left (`rest`, changed) onto nodes that have room, large pods first, fullest nodes first.

    Args:
        closed: nodes that take nothing.
    Returns:
        what was put where, for `take_back`.
    """
    placed: Placed = []
    if not len(nodes):
        return placed
    for index in order[rest[order] > 0].tolist():
        left = int(rest[index])
        space = space_for(small, nodes, index)
        if closed is not None:
            space[closed] = 0
        where = np.flatnonzero(space)
        if not len(where):
            continue
        slack = (nodes.room[where] / np.maximum(small.capacity[nodes.column[where]], 1)).max(axis=1)
        where = where[np.argsort(slack, kind="stable")]
        space = space[where]
        before = np.cumsum(space) - space
        amount = np.minimum(space, np.maximum(left - before, 0))
        used = amount > 0
        where, amount = where[used], amount[used]
        put(small, nodes, index, where, amount)
        placed.append((index, where, amount))
        rest[index] -= int(amount.sum())
    return placed


def take_back(small: Compact, nodes: NodeSet, placed: Placed) -> None:
    """Undo `fill_in`."""
    for index, where, amount in placed:
        put(small, nodes, index, where, -amount)


def greedy_fills(small: Compact, columns: IntArray, rest: IntArray, order: IntArray) -> Counts:
    """(K, C) one node of each column filled with what is left, class after class as often as it fits."""
    nodes = NodeSet.empty(small, columns)
    top_up(small, nodes, rest, order)
    return nodes.counts


def top_up(small: Compact, nodes: NodeSet, most: IntArray, order: IntArray) -> None:
    """Fill each node on its own: class after class as often as it fits, at most `most` (C,) on each."""
    live = order[most[order] > 0]
    for index, left in zip(live.tolist(), most[live].tolist(), strict=True):
        amount = np.minimum(space_for(small, nodes, index), left)
        if not amount.any():
            continue
        nodes.counts[:, index] += amount.astype(np.int32)
        for resource, asked in small.asked[index]:
            nodes.room[:, resource] -= amount * asked
        for number in small.marked[index]:
            nodes.tally[:, number] += amount


def openable(small: Compact, columns: IntArray, counts: Counts) -> BoolArray:
    """(N,) whether each node holds a pod of a class that may open its column."""
    if small.opens is None:
        return np.ones(len(columns), dtype=np.bool_)
    opened: BoolArray = np.logical_or.reduce((counts > 0) & small.opens[:, columns].T, axis=1)
    return opened


def able_columns(small: Compact, nodes: NodeSet, which: IntArray) -> BoolArray:
    """(len(which), T) the columns that could hold what the node holds, budgets apart."""
    held = (nodes.counts[which] > 0).astype(np.float32)
    load = small.capacity[nodes.column[which]] - nodes.room[which]
    able = (held @ small.of_kind) @ small.barred < 0.5
    for resource in range(load.shape[1]):
        able &= load[:, None, resource] <= small.capacity[None, :, resource]
    if small.opens is not None:
        able &= held @ small.opens.astype(np.float32) > 0.5
    return able


def affordable(small: Compact, budget: IntArray) -> IntArray:
    """(T,) how many nodes of each column the budgets still allow."""
    most = np.full(len(small.price), np.iinfo(np.int64).max)
    for number in range(len(budget)):
        use = small.budget_use[:, number]
        most = np.where(use > 0, np.minimum(most, max(int(budget[number]), 0) // np.maximum(use, 1)), most)
    return most


def budget_left(small: Compact, columns: IntArray) -> IntArray:
    """(L,) what these nodes leave of the budgets."""
    left: IntArray = small.budget - small.budget_use[columns].sum(axis=0)
    return left


def total_cost(small: Compact, nodes: NodeSet) -> float:
    """Price and fixed cost of all nodes."""
    costs: FloatArray = small.cost[nodes.column]
    return float(costs.sum())
