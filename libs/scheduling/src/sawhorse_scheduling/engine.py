"""A tier of pools handed to the packing engine: items become its classes, pivots its columns, its nodes patterns.

What the engine is told: which item may be on and which may open a column, limits of pools and free instances of
reservations as budgets, host spread and host anti-affinity as limits per node; pods with clashing host ports, or with
different requirements that only a node's labels settle, never share a node. The last is stricter than need be where
pools differ, which costs price at most. For minValues a column stands for several types at once (`choice.py`); what
finds no place so is left to the greedy opener.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sawhorse_model.requirements import Requirements
from sawhorse_scheduling.arrays import UNBOUNDED, BoolArray, FloatArray, IntArray, all_along, any_along
from sawhorse_scheduling.choice import Spots, with_choice
from sawhorse_scheduling.daemons import clash
from sawhorse_scheduling.filling import Item
from sawhorse_scheduling.hosts import APART
from sawhorse_scheduling.opening import Pattern, of_one_kind, take_loads
from sawhorse_scheduling.packing import Effort, NodeGroup, NodeRules, PackedNode, PackingProblem, pack
from sawhorse_scheduling.pools import PoolTable
from sawhorse_scheduling.problem import holds_daemons


@dataclass(frozen=True, slots=True)
class Watch:
    """Callbacks of the caller, who has a clock: whether time is up, and where the first whole answer's price goes."""

    deadline: Callable[[], bool] | None = None
    on_first: Callable[[float], None] | None = None


NO_WATCH = Watch()
_ROUGH = Effort(pattern_rounds=0, repairs=0)


@dataclass(frozen=True, slots=True, eq=False)
class _Pivots:
    """Ways to buy a node, K of them: those that no item tells apart are one, the cheapest."""

    pool_of: IntArray
    type_of: IntArray
    column_of: IntArray
    reserved: IntArray  # (K,) number of the reservation, −1 for none
    price: FloatArray  # the best of what a pivot stands for
    search: FloatArray  # what is minimised
    room: IntArray  # (K, R)
    taken: IntArray  # (K, L) of its pool's limits
    allowed: BoolArray  # (I, K)

    def take(self, which: BoolArray) -> "_Pivots":
        """Some of them."""
        return _Pivots(
            self.pool_of[which],
            self.type_of[which],
            self.column_of[which],
            self.reserved[which],
            self.price[which],
            self.search[which],
            self.room[which],
            self.taken[which],
            self.allowed[:, which],
        )


def pack_tier(
    tier: Sequence[PoolTable],
    items: Sequence[Item],
    limits: IntArray,
    rooms: dict[int, IntArray],
    fixed_cost: float,
    watch: Watch,
    *,
    strict: bool = True,
) -> tuple[list[Pattern], float | None]:
    """New nodes for the items, and a proven bound on their price; what finds no place stays in the demands.

    Args:
        limits: (G,) of the host rules.
        rooms: per pool (T, R) what pods may use of each type.
        strict: whether minValues holds to the letter; else as far as there are so many.
    """
    pools = {pool.index: pool for pool in tier}
    pivots, alone = _pivots(tier, items, rooms, strict=strict)
    if not len(pivots.price):
        return [], None
    problem = _problem(tier, items, limits, pivots, pivots.search, fixed_cost, watch)
    # What other packings took of reservations might have been worth more here: then nothing is proven of the whole.
    drawn = tier[0].stock.left != tier[0].stock.initial and any(pool.reserved.any() for pool in tier)
    packing = pack(problem)
    bound = None if drawn else packing.lower_bound
    if bound is not None and (pivots is not alone or (pivots.search != pivots.price).any()):
        # The bound is on the best price, whatever is minimised or minValues asks: proven by a packing that is not used.
        rough = _problem(tier, items, limits, alone, alone.price, fixed_cost, NO_WATCH)
        bound = pack(replace(rough, effort=_ROUGH, deadline=watch.deadline)).lower_bound
    maker = _Maker(pools, items, rooms)
    patterns = [maker.pattern(node, pivots) for node in packing.nodes]
    return patterns, bound


def _problem(
    tier: Sequence[PoolTable],
    items: Sequence[Item],
    limits: IntArray,
    pivots: _Pivots,
    price: FloatArray,
    fixed_cost: float,
    watch: Watch,
) -> PackingProblem:
    use, budget = _budgets(tier, pivots)
    groups, rules = _host_rules(items, limits)
    apart = _port_clashes(items) | _custom_clashes(items, {pool.index: pool for pool in tier})
    return PackingProblem(
        requests=np.array([item.requests for item in items], dtype=np.int64),
        counts=np.array([item.remaining for item in items], dtype=np.int64),
        columns_capacity=pivots.room,
        price=price,
        allowed=pivots.allowed,
        node_cap=np.array([1 if item.ports else UNBOUNDED for item in items], dtype=np.int64),
        groups=groups,
        rules=rules,
        exclusions=tuple((int(a), int(b)) for a, b in np.argwhere(np.triu(apart, 1))),
        may_open=_may_open(items, pivots),
        budget_use=use,
        budget=budget,
        fixed_cost=fixed_cost,
        deadline=watch.deadline,
        on_first=watch.on_first,
    )


def _pivots(
    tier: Sequence[PoolTable], items: Sequence[Item], rooms: dict[int, IntArray], *, strict: bool
) -> tuple[_Pivots, _Pivots]:
    """The pivots, and what they would be without minValues; the same object where there is none."""
    keep = {
        pool.index: np.isfinite(pool.price) & pool.in_stock() & all_along(rooms[pool.index] >= 0, 1)[:, None]
        for pool in tier
    }
    spots = [np.argwhere(keep[pool.index]) for pool in tier]
    masks, row_of = _masks(items, keep)
    pool_of = np.concatenate([np.full(len(s), pool.index) for pool, s in zip(tier, spots, strict=True)])
    type_of = np.concatenate([s[:, 0] for s in spots])
    column_of = np.concatenate([s[:, 1] for s in spots])
    price = np.concatenate([pool.price[keep[pool.index]] for pool in tier])
    search = np.concatenate([pool.search_price[keep[pool.index]] for pool in tier])
    numbers = {key: n for n, key in enumerate(tier[0].stock.left)} | {"": -1}
    of_column = {pool.index: np.array([numbers[key] for key in pool.reservations], dtype=np.int64) for pool in tier}
    reserved = np.concatenate([of_column[pool.index][s[:, 1]] for pool, s in zip(tier, spots, strict=True)])
    # Cheapest first among those of one pool and type that every item treats alike; equal prices by column.
    # Each reservation stands for itself: it has an end.
    keys = np.packbits(masks, axis=0).T
    order = np.lexsort((column_of, search, *keys.T[::-1], reserved, type_of, pool_of))
    identity = np.column_stack([pool_of, type_of, reserved, keys])[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (identity[1:] != identity[:-1]).any(axis=1)
    if len(order):
        price[order[new]] = np.minimum.reduceat(price[order], np.flatnonzero(new))
    chosen = np.sort(order[new & any_along(masks, 0)[order]])
    room = np.concatenate([rooms[pool.index][s[:, 0]] for pool, s in zip(tier, spots, strict=True)])
    taken = np.zeros((len(chosen), max((len(pool.limited) for pool in tier), default=0)), dtype=np.int64)
    for pool in tier:
        mine = pool_of[chosen] == pool.index
        taken[mine, : len(pool.limited)] = pool.capacity[type_of[chosen][mine]]
    alone = _Pivots(
        pool_of[chosen],
        type_of[chosen],
        column_of[chosen],
        reserved[chosen],
        price[chosen],
        search[chosen],
        room[chosen],
        taken,
        masks[:, chosen][row_of],
    )
    pivots = alone
    for pool in tier:
        if pool.min_values:
            mine = (pool_of == pool.index) & (reserved < 0)
            own = Spots(type_of[mine], column_of[mine], price[mine], search[mine], keys[mine])
            pivots = _choosy(pivots, pool, items, rooms[pool.index], own, (mine, chosen), row_of, strict=strict)
    kept = np.isfinite(pivots.price)
    return (pivots if kept.all() else pivots.take(kept)), alone


def _choosy(
    pivots: _Pivots,
    pool: PoolTable,
    items: Sequence[Item],
    room: IntArray,
    spots: Spots,
    places: tuple[BoolArray, IntArray],
    row_of: IntArray,
    *,
    strict: bool,
) -> _Pivots:
    """The pivots with those of a pool standing for as many types as its minValues asks; an infinite price: too few.

    Args:
        places: which of all spots are this pool's `spots`, and which spots are pivots.
        row_of: per item the bit of `Spots.marks` that says whom a spot serves.
    """
    mine, chosen = places
    rows = np.flatnonzero(mine[chosen])
    at = np.searchsorted(np.flatnonzero(mine), chosen[rows])
    wanted = {mark: pool.min_values for mark in {row.tobytes() for row in spots.marks[at]}}
    if not strict:
        most = _most_values(pool, items, row_of)
        for mark in wanted:
            served = np.flatnonzero(np.unpackbits(np.frombuffer(mark, dtype=np.uint8))).tolist()
            wanted[mark] = {
                key: min(number, max((most[bit][key] for bit in served if bit in most), default=1))
                for key, number in pool.min_values.items()
            }
    choice = with_choice(pool, room, spots, at, wanted)
    price, search, rooms, taken = pivots.price.copy(), pivots.search.copy(), pivots.room.copy(), pivots.taken.copy()
    price[rows] = np.where(choice.possible, choice.price, np.inf)
    search[rows], rooms[rows], taken[rows, : len(pool.limited)] = choice.search, choice.room, choice.taken
    return replace(pivots, price=price, search=search, room=rooms, taken=taken)


def _most_values(pool: PoolTable, items: Sequence[Item], row_of: IntArray) -> dict[int, dict[str, int]]:
    """Per bit of the marks, the most values of each label of minValues that a node for one pod has."""
    found: dict[int, dict[str, int]] = {}
    for item, bit in zip(items, row_of.tolist(), strict=True):
        option = item.options.get(pool.index)
        if option is not None:
            types = any_along(option.opens, 1)
            have = {key: pool.distinct(key, option.opens, types) for key in pool.min_values}
            old = found.setdefault(bit, have)
            found[bit] = {key: max(old[key], number) for key, number in have.items()}
    return found


def _masks(items: Sequence[Item], keep: dict[int, BoolArray]) -> tuple[BoolArray, IntArray]:
    """Distinct masks over pivots (M, P), and each item's row. Options of equal wishes share their arrays."""
    rows: dict[tuple[int, ...], int] = {}
    masks: list[BoolArray] = []
    row_of = []
    for item in items:
        joins = [None if (o := item.options.get(index)) is None else o.joins for index in keep]
        key = tuple(id(join) for join in joins)
        if key not in rows:
            rows[key] = len(masks)
            parts = [
                np.zeros(int(kept.sum()), dtype=np.bool_) if join is None else join[kept]
                for join, kept in zip(joins, keep.values(), strict=True)
            ]
            masks.append(np.concatenate(parts))
        row_of.append(rows[key])
    return np.array(masks, dtype=np.bool_).reshape(len(masks), -1), np.array(row_of, dtype=np.int64)


def _may_open(items: Sequence[Item], pivots: _Pivots) -> BoolArray | None:
    """(I, K) which item may make a node of which column; None where whoever fits may."""
    if not any(option.selective for item in items for option in item.options.values()):
        return None
    may = pivots.allowed.copy()
    for row, item in enumerate(items):
        for index, option in item.options.items():
            if option.selective:
                mine = np.flatnonzero(pivots.pool_of == index)
                may[row, mine] &= option.opens[pivots.type_of[mine], pivots.column_of[mine]]
    return may


def _budgets(tier: Sequence[PoolTable], pivots: _Pivots) -> tuple[IntArray | None, IntArray | None]:
    """What a node of each pivot takes of each limit (K, L), and what the limits leave (L,)."""
    uses, left = [], []
    for pool in tier:
        mine = pivots.pool_of == pool.index
        for number in range(len(pool.limited)):
            taken = pivots.taken[mine, number]
            use = np.zeros(len(pivots.price), dtype=np.int64)
            use[mine] = taken
            remaining = int(pool.remaining[number])
            # Nothing may be made of a pool that is over a limit already, not even what takes none of it.
            use[mine] = np.where(remaining < 0, np.maximum(use[mine], 1), use[mine])
            uses.append(use)
            left.append(max(remaining, 0))
    for number, left_over in enumerate(tier[0].stock.left.values()):
        mine = pivots.reserved == number
        if mine.any():
            uses.append(mine.astype(np.int64))
            left.append(left_over)
    if not uses:
        return None, None
    return np.column_stack(uses), np.array(left, dtype=np.int64)


def _host_rules(items: Sequence[Item], limits: IntArray) -> tuple[tuple[NodeGroup, ...], NodeRules | None]:
    """The host rules for the engine: limits that items share, and rules of which not all who are counted are owners."""
    if not len(limits):
        return (), None
    owns = np.array([item.owns for item in items], dtype=np.bool_)
    matches = np.array([item.matches for item in items], dtype=np.bool_)
    both = owns & matches
    groups = [
        NodeGroup(tuple(np.flatnonzero(both[:, rule]).tolist()), 1 if limits[rule] == APART else int(limits[rule]))
        for rule in np.flatnonzero(any_along(both, 0))
    ]
    at_work = any_along(owns, 0) & any_along(matches, 0)
    uneven = np.flatnonzero(at_work & any_along(owns != matches, 0))
    rules = NodeRules(limits[uneven], owns[:, uneven], matches[:, uneven]) if len(uneven) else None
    return tuple(groups), rules


def _port_clashes(items: Sequence[Item]) -> BoolArray:
    apart = np.zeros((len(items), len(items)), dtype=np.bool_)
    with_ports = [i for i, item in enumerate(items) if item.ports]
    for at, first in enumerate(with_ports):
        for second in with_ports[at + 1 :]:
            if clash(items[first].ports, items[second].ports) is not None:
                apart[first, second] = apart[second, first] = True
    return apart


def _custom_clashes(items: Sequence[Item], pools: dict[int, PoolTable]) -> BoolArray:
    """Items whose requirements some pool's nodes would have to settle in different ways."""
    apart = np.zeros((len(items), len(items)), dtype=np.bool_)
    for index in pools:
        numbers: dict[Requirements, int] = {Requirements(): 0}
        options = [item.options.get(index) for item in items]
        custom = np.array([0 if o is None else numbers.setdefault(o.fit.custom, len(numbers)) for o in options])
        if len(numbers) > 2:
            apart |= (custom[:, None] != custom[None, :]) & (custom > 0)[:, None] & (custom > 0)[None, :]
    return apart


class _Maker:
    """Turns packed nodes into patterns; what many nodes share is computed once."""

    def __init__(self, pools: dict[int, PoolTable], items: Sequence[Item], rooms: dict[int, IntArray]) -> None:
        self.pools = pools
        self.items = items
        self.rooms = rooms
        self.requests = np.array([item.requests for item in items], dtype=np.int64)
        self.sound = {index: holds_daemons(pool) for index, pool in pools.items()}
        self._joint: dict[tuple[int, frozenset[tuple[int, int]]], tuple[Requirements, BoolArray]] = {}

    def pattern(self, node: PackedNode, pivots: _Pivots) -> Pattern:
        """The node with everything that it may become: all types that hold what is on it."""
        index = int(pivots.pool_of[node.column])
        pool = self.pools[index]
        on = np.array([item for item, _ in node.counts], dtype=np.int64)
        counts = np.array([count for _, count in node.counts], dtype=np.int64)
        used: IntArray = counts @ self.requests[on]
        requirements, joins = self._together(index, node)
        fits = all_along(self.rooms[index] >= used[None, :], 1) & self.sound[index]
        options = [self.items[item].options[index] for item, _ in node.counts]
        if any(option.selective for option in options):
            fits &= np.logical_or.reduce([any_along(option.opens, 1) for option in options])
        kind, column = int(pivots.type_of[node.column]), int(pivots.column_of[node.column])
        allow = of_one_kind(pool, joins & fits[:, None], kind, column)
        taken: IntArray = pivots.taken[node.column, : len(pool.limited)]
        pool.remaining = pool.remaining - taken * node.times
        pool.stock.take(pool.reservations[column], node.times)
        loads = take_loads(self.items, node.counts, node.times)
        return Pattern(index, requirements, allow, used, taken, loads, pool.reservations[column])

    def _together(self, index: int, node: PackedNode) -> tuple[Requirements, BoolArray]:
        options = [self.items[item].options[index] for item, _ in node.counts]
        distinct = {(id(o.fit), id(o.joins)): o for o in options}
        key = (index, frozenset(distinct))
        if key not in self._joint:
            requirements, joins = self.pools[index].template, np.isfinite(self.pools[index].price)
            for option in distinct.values():
                requirements = requirements.intersection(option.fit.requirements)
                joins = joins & option.joins
            self._joint[key] = (requirements, joins)
        return self._joint[key]
