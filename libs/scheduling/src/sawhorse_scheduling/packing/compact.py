"""The problem in canonical order with equal classes merged and useless columns gone, and the way back.

Two problems that differ only in the order of classes and columns become the same compact problem, so they get the
same answer.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sawhorse_scheduling.arrays import UNBOUNDED, BoolArray, FloatArray, IntArray, times
from sawhorse_scheduling.packing.problem import NodeGroup, PackedNode, PackingProblem

_Hash: TypeAlias = NDArray[np.uint64]
_Table: TypeAlias = NDArray[np.int64] | NDArray[np.uint8]


# With more classes than this, each try of an improvement costs more and finds less: fewer are made.
_MANY_CLASSES = 512

# Counts on nodes are 32-bit: pods that ask for nothing are spread over more nodes beyond this.
_MOST_ON_A_NODE = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Compact:
    """C merged classes, T columns that can matter. `groups` are (members, limit per node), with two
    members or more: limits of one class are in `node_cap`."""

    requests: IntArray  # (C, R)
    counts: IntArray  # (C,) > 0
    capacity: IntArray  # (T, R)
    price: FloatArray  # (T,)
    fit: IntArray  # (C, T) most pods of the class alone on a node of the column; 0 where not allowed
    node_cap: IntArray  # (C,) most pods of the class on one node, UNBOUNDED without a cap
    opens: BoolArray | None  # (C, T)
    groups: tuple[tuple[IntArray, int], ...]
    rule_limits: IntArray  # (G,)
    marks: IntArray  # (C, 2 G) one where the class owns, and where it matches, each rule, in turn
    conflicts: BoolArray | None  # (C, C), symmetric
    budget_use: IntArray  # (T, L)
    budget: IntArray  # (L,)
    fixed_cost: float
    kind: IntArray  # (C,)
    barred: NDArray[np.float32]  # (S, T) one where a kind of class may not be on a column, whatever its size
    columns: IntArray  # (T,) number in the problem
    members: tuple[IntArray, ...]  # per merged class, its classes in the problem
    member_counts: tuple[IntArray, ...]

    @cached_property
    def budget_scale(self) -> FloatArray:
        """(L,) the most of each budget that one node takes: beside bytes the solver would take nodes for nothing."""
        scale: FloatArray = np.maximum(self.budget_use.max(axis=0, initial=1), 1).astype(np.float64)
        return scale

    @cached_property
    def asked(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each class the resources that one pod asks for, with how much."""
        return tuple(
            tuple((resource, amount) for resource, amount in enumerate(row) if amount) for row in self.requests.tolist()
        )

    @cached_property
    def tallied(self) -> IntArray:
        """(C, 2 G + groups) what is counted on each node: `marks`, and one where the class is in each group."""
        inside = np.zeros((len(self.counts), len(self.groups)), dtype=np.int64)
        for number, (members, _) in enumerate(self.groups):
            inside[members, number] = 1
        return np.concatenate([self.marks, inside], axis=1)

    @cached_property
    def limits_of(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each class the groups it is in: column of `tallied`, and limit."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.counts]
        for number, (members, limit) in enumerate(self.groups, start=self.marks.shape[1]):
            for c in members.tolist():
                found[c].append((number, limit))
        return tuple(map(tuple, found))

    @cached_property
    def rules_of(self) -> tuple[tuple[tuple[int, int, bool, bool], ...], ...]:
        """For each class the rules that it has to do with: number, limit, whether it owns and whether it matches."""
        limits = self.rule_limits.tolist()
        return tuple(
            tuple(
                (rule, limits[rule], bool(marks[2 * rule]), bool(marks[2 * rule + 1]))
                for rule in range(len(limits))
                if marks[2 * rule] or marks[2 * rule + 1]
            )
            for marks in self.marks.tolist()
        )

    def tries(self, most: int, least: int = 1) -> int:
        """How many tries of an improvement are worth their time, `most` where there are few classes."""
        return max(least, most * _MANY_CLASSES // max(_MANY_CLASSES, len(self.counts)))

    def only(self, classes: IntArray) -> "Compact":
        """The problem of some classes, in this order, with all columns: for nodes that hold no others."""
        position = np.full(len(self.counts), -1, dtype=np.int64)
        position[classes] = np.arange(len(classes))
        groups = ((position[members], limit) for members, limit in self.groups)
        return replace(
            self,
            requests=self.requests[classes],
            counts=self.counts[classes],
            fit=self.fit[classes],
            node_cap=self.node_cap[classes],
            opens=None if self.opens is None else self.opens[classes],
            groups=tuple((here, limit) for at, limit in groups if len(here := at[at >= 0])),
            marks=self.marks[classes],
            conflicts=None if self.conflicts is None else self.conflicts[np.ix_(classes, classes)],
            kind=self.kind[classes],
            members=tuple(self.members[c] for c in classes.tolist()),
            member_counts=tuple(self.member_counts[c] for c in classes.tolist()),
        )

    @cached_property
    def marked(self) -> tuple[tuple[int, ...], ...]:
        """For each class the columns of `tallied` that are one."""
        return tuple(tuple(at for at, mark in enumerate(marks) if mark) for marks in self.tallied.tolist())

    @cached_property
    def of_kind(self) -> NDArray[np.float32]:
        """(C, S) one where the class is of the kind: classes of a kind may be on the same columns, size apart."""
        members: NDArray[np.float32] = (self.kind[:, None] == np.arange(len(self.barred))).astype(np.float32)
        return members

    @cached_property
    def cost(self) -> FloatArray:
        """(T,) price with the fixed cost: what the search minimises."""
        cost: FloatArray = self.price + self.fixed_cost
        return cost


def compact(problem: PackingProblem) -> Compact:
    """Merge, prune and sort. Classes that fit nowhere, or have no pods, are left out."""
    column_order, class_order = _canonical(problem)
    masks = problem.allowed[np.ix_(class_order, column_order)]
    requests = problem.requests[class_order]
    capacity = problem.columns_capacity[column_order]
    allowed = masks.copy()
    for resource in range(requests.shape[1]):
        allowed &= requests[:, resource, None] <= capacity[None, :, resource]
    counts = problem.counts[class_order]
    cap = np.full(len(class_order), UNBOUNDED, dtype=np.int64)
    if problem.node_cap is not None:
        cap = np.minimum(cap, problem.node_cap[class_order])
    opens = None if problem.may_open is None else problem.may_open[np.ix_(class_order, column_order)] & allowed
    alone = allowed if problem.node_cap is None else allowed & (cap > 0)[:, None]
    live = (counts > 0) & np.logical_or.reduce(alone, axis=1)

    position = np.empty(len(class_order), dtype=np.int64)
    position[class_order] = np.arange(len(class_order))
    for group in problem.groups:
        if group.limit <= 0:
            live[position[list(group.classes)]] = False
    groups = _live_groups(problem.groups, position, live)
    special = np.full(len(class_order), -1, dtype=np.int64)
    for first, second in problem.exclusions:
        for one in (int(position[first]), int(position[second])):
            special[one] = one
    special[cap < UNBOUNDED] = np.flatnonzero(cap < UNBOUNDED)
    marks = _marks(problem)[class_order]
    keys: list[_Table] = [requests, special[:, None], marks, _packed(allowed)]
    if opens is not None:
        keys.append(_packed(opens))
    for members, _ in groups:
        inside = np.zeros((len(class_order), 1), dtype=np.int64)
        inside[members] = 1
        keys.append(inside)
    where = np.flatnonzero(live)
    merged, representative = _merge(keys, where)
    rows = where[representative]

    use = _budget_use(problem)
    useful = _undominated(
        masks=[masks[rows]] if opens is None else [masks[rows], opens[rows]],
        fits=allowed[rows],
        price=problem.price[column_order],
        capacity=capacity,
        use=use[column_order],
    )
    columns = column_order[useful]
    class_of = np.full(len(class_order), -1, dtype=np.int64)
    class_of[where] = merged
    fit = np.where(allowed[np.ix_(rows, useful)], times(capacity[useful][None], requests[rows][:, None, :]), 0)
    total = np.bincount(merged, weights=counts[where].astype(np.float64), minlength=len(rows)).astype(np.int64)
    compact_groups = tuple((np.unique(class_of[members]), limit) for members, limit in groups)
    node_cap = cap[rows]
    for members, limit in compact_groups:
        node_cap[members] = np.minimum(node_cap[members], limit)
    fit = np.minimum(fit, np.minimum(np.minimum(total, node_cap), _MOST_ON_A_NODE)[:, None])
    kind, sample = _merge([_packed(masks[rows])], np.arange(len(rows)))
    by_class = [where[merged == index] for index in range(len(rows))]
    return Compact(
        requests=requests[rows],
        counts=total,
        capacity=capacity[useful],
        price=problem.price[columns],
        fit=fit,
        node_cap=node_cap,
        opens=None if opens is None else opens[np.ix_(rows, useful)],
        groups=tuple(group for group in compact_groups if len(group[0]) > 1),
        rule_limits=np.zeros(0, dtype=np.int64) if problem.rules is None else problem.rules.limits,
        marks=marks[rows],
        conflicts=_conflicts(problem, position, class_of, len(rows)),
        budget_use=use[columns],
        budget=np.zeros(0, dtype=np.int64) if problem.budget is None else np.maximum(problem.budget, 0),
        fixed_cost=problem.fixed_cost,
        kind=kind,
        barred=(~masks[np.ix_(rows[sample], useful)]).astype(np.float32),
        columns=columns,
        members=tuple(class_order[each] for each in by_class),
        member_counts=tuple(counts[each] for each in by_class),
    )


def without_rules(small: Compact) -> tuple[Compact, IntArray]:
    """The problem with its rules left out and the classes merged that only they told apart; each class's number in it.

    What is cheapest there is at most what is cheapest here: it guides the search, and a bound of it is one of this.
    """
    if not small.marks.shape[1]:
        return small, np.arange(len(small.counts))
    keys: list[_Table] = [small.requests, small.kind[:, None], small.node_cap[:, None]]
    if small.opens is not None:
        keys.append(_packed(small.opens))
    for members, _ in small.groups:
        inside = np.zeros((len(small.counts), 1), dtype=np.int64)
        inside[members] = 1
        keys.append(inside)
    of, first = _merge(keys, np.arange(len(small.counts)))
    counts = np.bincount(of, weights=small.counts.astype(np.float64), minlength=len(first)).astype(np.int64)
    alone = times(small.capacity[None], small.requests[first][:, None, :])
    most = np.minimum(np.minimum(counts, small.node_cap[first]), _MOST_ON_A_NODE)
    fit = np.where(small.fit[first] > 0, np.minimum(alone, most[:, None]), 0)
    lean = replace(
        small,
        requests=small.requests[first],
        counts=counts,
        fit=fit,
        node_cap=small.node_cap[first],
        opens=None if small.opens is None else small.opens[first],
        groups=tuple((np.unique(of[members]), limit) for members, limit in small.groups),
        rule_limits=small.rule_limits[:0],
        marks=np.zeros((len(first), 0), dtype=np.int64),
        conflicts=None,
        kind=small.kind[first],
    )
    return lean, of


def expand(
    small: Compact, column: IntArray, counts: NDArray[np.int32], classes: int
) -> tuple[list[PackedNode], IntArray]:
    """Nodes of the compact problem as nodes of the problem, and how many pods of each class they hold.

    A merged class is dealt out node by node, its classes one after the other.

    Args:
        column: (N,) compact column of each node.
        counts: (N, C) pods of each merged class.
        classes: how many classes the problem has.
    """
    placed = np.zeros(classes, dtype=np.int64)
    index, node = np.nonzero(counts.T)
    if not len(index):
        return [], placed
    amount = counts[node, index].astype(np.int64)
    rank = _ranked(column, node, index, amount)
    by_class = np.lexsort((rank[node], index))
    index, node, amount = index[by_class], rank[node[by_class]], amount[by_class]
    starts = np.searchsorted(index, np.arange(len(small.members) + 1)).tolist()
    nodes, whom, pods = [], [], []
    for number, (members, available) in enumerate(zip(small.members, small.member_counts, strict=True)):
        span = slice(starts[number], starts[number + 1])
        here = node[span]
        if len(members) == 1:
            nodes.append(here)
            whom.append(np.full(len(here), members[0]))
            pods.append(amount[span])
        elif len(here):
            ends = np.cumsum(amount[span])
            limits = np.cumsum(available)
            cuts = np.unique(np.concatenate([ends, limits[limits < ends[-1]]]))
            nodes.append(here[np.searchsorted(ends, cuts)])
            whom.append(members[np.searchsorted(limits, cuts)])
            pods.append(np.diff(cuts, prepend=0))
    node, member, held = np.concatenate(nodes), np.concatenate(whom), np.concatenate(pods)
    np.add.at(placed, member, held)
    sorting = np.lexsort((member, node))
    node = node[sorting]
    entries = list(zip(member[sorting].tolist(), held[sorting].tolist(), strict=True))
    edges = np.searchsorted(node, np.arange(len(column) + 1)).tolist()
    in_order = np.empty(len(column), dtype=np.int64)
    in_order[rank] = small.columns[column]
    runs: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
    for at, of in enumerate(in_order.tolist()):
        key = (of, tuple(entries[edges[at] : edges[at + 1]]))
        runs[key] = runs.get(key, 0) + 1
    return [PackedNode(of, on, repeated) for (of, on), repeated in runs.items()], placed


def _ranked(column: IntArray, node: IntArray, index: IntArray, amount: IntArray) -> IntArray:
    """(N,) the place of each node in the order of column, then of its pods of each class in turn.

    Args:
        node, index, amount: so many pods of this class on that node, sorted by class; only what is there.
    """
    held: list[list[int]] = [[of] for of in column.tolist()]
    # Whoever has a class that comes earlier, or more of it, comes later: so two numbers stand for a row of many.
    for at, earlier, pods in zip(node.tolist(), (-index).tolist(), amount.tolist(), strict=True):
        held[at] += (earlier, pods)
    order = sorted(range(len(held)), key=held.__getitem__)
    rank = np.empty(len(held), dtype=np.int64)
    rank[order] = np.arange(len(held))
    return rank


def _mix(values: _Hash) -> _Hash:
    """A fixed scrambling of 64-bit words (the finaliser of splitmix64)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scrambled: _Hash = mixed ^ (mixed >> np.uint64(31))
    return scrambled


def _hash_rows(table: IntArray) -> _Hash:
    """(n,) one word for each row."""
    words = np.zeros(len(table), dtype=np.uint64)
    for values in np.ascontiguousarray(table.T).view(np.uint64):
        words = _mix(words ^ _mix(values))
    return words


def _canonical(problem: PackingProblem) -> tuple[IntArray, IntArray]:
    """Orders of columns and classes that depend on what they are, not on where they stand.

    Both start as hashes of their own figures, then take in those of what they are allowed with, twice.
    """
    cap = np.full(len(problem.counts), UNBOUNDED, dtype=np.int64)
    if problem.node_cap is not None:
        cap = np.minimum(cap, problem.node_cap)
    prices = np.ascontiguousarray(problem.price + 0.0).view(np.int64)[:, None]
    of_class = _hash_rows(
        np.concatenate([problem.requests, problem.counts[:, None], cap[:, None], _marks(problem)], axis=1)
    )
    of_column = _hash_rows(np.concatenate([problem.columns_capacity, prices, _budget_use(problem)], axis=1))
    for group in problem.groups:
        inside = list(group.classes)
        of_class[inside] += _mix(of_class[inside].sum(keepdims=True) + np.uint64(max(group.limit, 0)))
    for first, second in problem.exclusions:
        of_class[[first, second]] += _mix(of_class[[second, first]])
    whole = bool(problem.allowed.all()) and problem.may_open is None
    for _ in range(0 if whole else 2):
        of_column = _mix(of_column + _masked_sums(problem, _mix(of_class), along_classes=True))
        of_class = _mix(of_class + _masked_sums(problem, _mix(of_column), along_classes=False))
    column_order = np.lexsort((of_column, problem.price))
    class_order = np.lexsort((of_class, *problem.requests.T))
    return column_order.astype(np.int64), class_order.astype(np.int64)


def _masked_sums(problem: PackingProblem, words: _Hash, along_classes: bool) -> _Hash:
    """Sums of words over the allowed pairs (and, weighted otherwise, over those that may open)."""
    mask = problem.allowed.T if along_classes else problem.allowed
    # Halves as doubles: a matrix product is fast, and sums of 2**21 words below 2**32 are exact.
    low, high = words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)
    halves = np.stack([low, high], axis=1).astype(np.float64)
    sums = (mask.astype(np.float64) @ halves).astype(np.uint64)
    mixed: _Hash = sums[:, 0] + _mix(sums[:, 1])
    if problem.may_open is not None:
        openers = problem.may_open.T if along_classes else problem.may_open
        opened = (openers.astype(np.float64) @ halves).astype(np.uint64)
        mixed = mixed + _mix(opened[:, 0]) + _mix(opened[:, 1] ^ np.uint64(1))
    return mixed


def _budget_use(problem: PackingProblem) -> IntArray:
    if problem.budget_use is None:
        return np.zeros((len(problem.price), 0), dtype=np.int64)
    return problem.budget_use


def _marks(problem: PackingProblem) -> IntArray:
    if problem.rules is None:
        return np.zeros((len(problem.counts), 0), dtype=np.int64)
    both = np.stack([problem.rules.owns, problem.rules.matches], axis=2)
    return both.reshape(len(problem.counts), -1).astype(np.int64)


def _packed(mask: BoolArray) -> NDArray[np.uint8]:
    return np.packbits(mask, axis=1)


def _as_keys(parts: list[_Table]) -> NDArray[np.void]:
    """Rows as opaque byte strings, which compare fast."""
    rows = np.concatenate([np.ascontiguousarray(part).view(np.uint8).reshape(len(part), -1) for part in parts], axis=1)
    whole = np.ascontiguousarray(rows)
    return whole.view(np.dtype((np.void, whole.shape[1]))).ravel()


def _merge(keys: list[_Table], where: IntArray) -> tuple[IntArray, IntArray]:
    """Number equal rows in order of first appearance: (number of each row, first row of each number)."""
    if not len(where):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    _, first, inverse = np.unique(_as_keys([part[where] for part in keys]), return_index=True, return_inverse=True)
    by_appearance = np.argsort(first, kind="stable")
    rank = np.empty(len(first), dtype=np.int64)
    rank[by_appearance] = np.arange(len(first))
    return rank[inverse.ravel()], first[by_appearance].astype(np.int64)


def _live_groups(groups: tuple[NodeGroup, ...], position: IntArray, live: BoolArray) -> list[tuple[IntArray, int]]:
    found = []
    for group in groups:
        members = np.unique(position[list(group.classes)])
        members = members[live[members]]
        if len(members):
            found.append((members, group.limit))
    return sorted(found, key=lambda each: (each[0].tolist(), each[1]))


def _conflicts(problem: PackingProblem, position: IntArray, class_of: IntArray, size: int) -> BoolArray | None:
    if not problem.exclusions:
        return None
    matrix = np.zeros((size, size), dtype=np.bool_)
    for first, second in problem.exclusions:
        one, other = int(class_of[position[first]]), int(class_of[position[second]])
        if one >= 0 and other >= 0:
            matrix[one, other] = matrix[other, one] = True
    return matrix


def _undominated(
    masks: list[BoolArray], fits: BoolArray, price: FloatArray, capacity: IntArray, use: IntArray
) -> IntArray:
    """Columns that no other column of the same signature beats in price, budgets and every resource.

    Columns of one signature serve the same classes, size apart.
    """
    if not fits.size:
        return np.zeros(0, dtype=np.int64)
    keys = _as_keys([_packed(np.ascontiguousarray(mask.T)) for mask in masks])
    _, signature = np.unique(keys, return_inverse=True)
    keep = []
    for number in range(int(signature.max()) + 1):
        inside = np.flatnonzero(signature.ravel() == number)
        better = price[inside, None] >= price[None, inside]
        for resource in range(capacity.shape[1]):
            better &= capacity[inside, None, resource] <= capacity[None, inside, resource]
        for limit in range(use.shape[1]):
            better &= use[inside, None, limit] >= use[None, inside, limit]
        # Of equal columns the first stays.
        beaten = better & (~better.T | np.tri(len(inside), k=-1, dtype=np.bool_))
        keep.append(inside[~np.logical_or.reduce(beaten, axis=1)])
    kept = np.sort(np.concatenate(keep))
    return kept[np.logical_or.reduce(fits[:, kept], axis=0)]
