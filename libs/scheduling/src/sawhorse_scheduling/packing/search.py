"""Good fills of one node for given values: a beam search over partial fills, many columns at once.

Exact knapsacks are too slow in Python; a beam guided by the right prices of resources finds fills about as good where
few pods share a node.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from sawhorse_scheduling.arrays import UNBOUNDED, BoolArray, FloatArray, IntArray
from sawhorse_scheduling.packing.compact import Compact
from sawhorse_scheduling.packing.linear import INFINITE, LinearProgram
from sawhorse_scheduling.packing.nodes import Counts, NodeSet, top_up

_DEPTH = 40  # pods chosen by search; further ones are added greedily
_CLASSES = 64  # classes considered for one column, best value for their resources first
_NOTHING = -1e18


def knapsack_prices(small: Compact, values: FloatArray, columns: IntArray, work: Counter[str]) -> FloatArray | None:
    """(K, R) resource prices of each column's own best fractional fill: one linear program for all columns."""
    resources = small.requests.shape[1]
    which, at = np.nonzero((small.fit[:, columns] > 0) & (values > 0)[:, None])
    share = small.requests[which] / np.maximum(small.capacity[columns[at]], 1)
    rows = len(columns) * (resources + len(small.groups))
    first = resources * len(columns)
    variable = [np.repeat(np.arange(len(which)), resources)]
    row = [(at[:, None] * resources + np.arange(resources)).ravel()]
    value = [share.ravel()]
    for number, (members, limit) in enumerate(small.groups):
        inside = np.flatnonzero(np.isin(which, members))
        variable.append(inside)
        row.append(first + number * len(columns) + at[inside])
        value.append(np.full(len(inside), 1.0 / limit))
    program = LinearProgram(np.full(rows, -INFINITE), np.ones(rows))
    program.add_variables(
        -values[which],
        np.concatenate(variable),
        np.concatenate(row),
        np.concatenate(value),
        small.fit[which, columns[at]].astype(np.float64),
    )
    solved = program.solve()
    work["lp_steps"] += program.steps
    if solved is None:
        return None
    duals = np.maximum(-solved.duals[:first].reshape(len(columns), resources), 0.0)
    prices: FloatArray = duals / np.maximum(small.capacity[columns], 1)
    return prices


def search_fills(
    small: Compact,
    values: FloatArray,
    columns: IntArray,
    prices: FloatArray,
    width: int,
    keep: int,
    order: IntArray,
    work: Counter[str],
) -> tuple[IntArray, Counts]:
    """Fills of one node that are worth much, up to `keep` for each column.

    A partial fill is judged by what it holds plus what its room is worth at the column's resource prices: an upper
    limit of what it can become. Classes are added in one fixed order, so each fill is met once.

    Args:
        columns: (K,), prices: (K, R) of `knapsack_prices`.
        width: partial fills kept for each column after each pod.
    Returns:
        column of each fill, and its pods (F, C).
    """
    asked = small.requests @ prices.T  # (C, K)
    usable = (small.fit[:, columns] > 0) & (values > 0)[:, None]
    density = np.where(usable, values[:, None] / np.maximum(asked, 1e-300), -1.0)
    ranks = int(min(_CLASSES, (density > 0.5).sum(axis=0).max(initial=0)))
    if not ranks:
        return np.zeros(0, dtype=np.int64), np.zeros((0, len(values)), dtype=np.int32)
    by_rank = np.argsort(-density, axis=0, kind="stable")[:ranks].T  # (K, L)
    every = np.arange(len(columns))[:, None]
    request = small.requests[by_rank]  # (K, L, R)
    value = values[by_rank]
    gain = value - np.take_along_axis(asked.T, by_rank, axis=1)
    able = np.take_along_axis(usable.T, by_rank, axis=1)
    most = np.minimum(small.fit[by_rank, columns[:, None]], small.node_cap[by_rank])
    room = small.capacity[columns][:, None, :]
    held = np.zeros((len(columns), 1))
    last = np.zeros((len(columns), 1), dtype=np.int64)
    run = np.zeros((len(columns), 1), dtype=np.int64)
    steps: list[tuple[IntArray, IntArray, FloatArray]] = []
    rank = np.arange(ranks)
    shared = _Shared.of(small, by_rank)
    for _ in range(_DEPTH):
        fits = able[:, None, :] & (rank >= last[:, :, None])
        for resource in range(request.shape[2]):
            fits &= request[:, None, :, resource] <= room[:, :, None, resource]
        fits &= ~((rank == last[:, :, None]) & (run[:, :, None] >= most[:, None, :]))
        if shared is not None:
            fits &= shared.open()
        promise = held + (room * prices[:, None, :]).sum(axis=2)
        score = np.where(fits, promise[:, :, None] + gain[:, None, :], -np.inf).reshape(len(columns), -1)
        work["search_steps"] += score.size
        chosen = _best(score, width)
        alive = np.take_along_axis(score, chosen, axis=1) > -np.inf
        if not np.logical_or.reduce(alive, axis=None):
            break
        parent, added = chosen // ranks, chosen % ranks
        run = np.where(last[every, parent] == added, run[every, parent] + 1, 1)
        held = np.where(alive, held[every, parent] + value[every, added], _NOTHING)
        room = np.where(alive[:, :, None], room[every, parent] - request[every, added], -1)
        if shared is not None:
            shared.step(parent, added)
        last = added
        steps.append((parent, added, held))
    return _collect(small, columns, by_rank, steps, keep, order, values)


@dataclass(slots=True)
class _Shared:
    """Limits that classes share, along the search. A class counts in its first group; the end checks the others."""

    group: IntArray  # (K, L) of the class at each rank; the last number is "none"
    limit: IntArray  # (G + 1,)
    used: IntArray  # (K, B, G + 1)

    @classmethod
    def of(cls, small: Compact, by_rank: IntArray) -> "_Shared | None":
        if not small.groups:
            return None
        none = len(small.groups)
        group = np.full(len(small.counts), none, dtype=np.int64)
        for number in range(none - 1, -1, -1):
            group[small.groups[number][0]] = number
        limit = np.array([limit for _, limit in small.groups] + [UNBOUNDED], dtype=np.int64)
        return cls(group[by_rank], limit, np.zeros((len(by_rank), 1, none + 1), dtype=np.int64))

    def open(self) -> BoolArray:
        """(K, B, L) whether the class at each rank may still be added to each partial fill."""
        full = self.used >= self.limit
        every = np.arange(len(full))[:, None]
        # Indexing the group axis first and last keeps the gather one call: (K, L, B) turned to (K, B, L).
        closed: BoolArray = full.transpose(0, 2, 1)[every, self.group].transpose(0, 2, 1)
        return ~closed

    def step(self, parent: IntArray, added: IntArray) -> None:
        """Follow the chosen extensions."""
        every = np.arange(len(parent))[:, None]
        self.used = self.used[every, parent]
        self.used[every, np.arange(parent.shape[1])[None, :], self.group[every, added]] += 1


def _best(score: FloatArray, width: int) -> IntArray:
    """(K, ≤ width) positions of the largest scores of each row."""
    if score.shape[1] <= width:
        return np.broadcast_to(np.arange(score.shape[1]), score.shape)
    return np.sort(np.argpartition(-score, width - 1, axis=1)[:, :width], axis=1)


def _collect(
    small: Compact,
    columns: IntArray,
    by_rank: IntArray,
    steps: list[tuple[IntArray, IntArray, FloatArray]],
    keep: int,
    order: IntArray,
    values: FloatArray,
) -> tuple[IntArray, Counts]:
    """Follow the best fills of each column back to their pods, and add pods that still fit."""
    width = max(row.shape[1] for _, _, row in steps)
    reached = np.full((len(columns), len(steps), width), _NOTHING)
    for step, (_, _, row) in enumerate(steps):
        reached[:, step, : row.shape[1]] = row
    flat = reached.reshape(len(columns), -1)
    fills, of_column = [], []
    for number in range(len(columns)):
        for end in np.argsort(-flat[number], kind="stable")[:keep]:
            if flat[number, end] <= 0:
                break
            step, at = divmod(int(end), width)
            fill = np.zeros(len(values), dtype=np.int32)
            while step >= 0:
                parent, added, _ = steps[step]
                fill[by_rank[number, added[number, at]]] += 1
                step, at = step - 1, int(parent[number, at])
            of_column.append(int(columns[number]))
            fills.append(fill)
    if not fills:
        return np.zeros(0, dtype=np.int64), np.zeros((0, len(values)), dtype=np.int32)
    nodes = NodeSet.filled(small, np.array(of_column, dtype=np.int64), np.stack(fills))
    nodes = nodes.take(keeps_limits(small, nodes))
    fits = np.logical_and.reduce(small.requests[order][:, None, :] <= nodes.room[None], axis=2)
    useful = order[np.logical_or.reduce(fits, axis=1) & (values[order] > 0)]
    top_up(small, nodes, small.counts, useful)
    return nodes.column, nodes.counts


def keeps_limits(small: Compact, nodes: NodeSet) -> BoolArray:
    """(N,) whether each node keeps the limits that classes share and holds no two that exclude each other."""
    sound = np.ones(len(nodes), dtype=np.bool_)
    for members, limit in small.groups:
        sound &= nodes.counts[:, members].sum(axis=1) <= limit
    for rule, limit in enumerate(small.rule_limits.tolist()):
        owners, matched = nodes.tally[:, 2 * rule], nodes.tally[:, 2 * rule + 1]
        if limit:
            sound &= (owners == 0) | (matched <= limit)
        else:
            both = (small.marks[:, 2 * rule] > 0) & (small.marks[:, 2 * rule + 1] > 0)
            alone = (owners == 1) & (matched == 1) & (nodes.counts[:, both].sum(axis=1) == 1)
            sound &= (owners == 0) | (matched == 0) | alone
    if small.conflicts is not None:
        held = (nodes.counts > 0).astype(np.float32)
        sound &= ((held @ small.conflicts.astype(np.float32)) * held).sum(axis=1) < 0.5
    return sound
