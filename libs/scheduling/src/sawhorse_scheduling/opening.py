"""New nodes for one tier of pools: greedy by price per work done, in batches of equal nodes.

A pivot is an offering of a pool (type × zone × capacity type). Each round takes the largest item left, fills a node
of some promising pivots on trial, keeps the one that does most work for its price, and repeats it as often as it can
be filled the same way. The work of a pod is the least that its dominant share costs anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sawhorse_model.requirements import Requirements
from sawhorse_scheduling.arrays import BoolArray, FloatArray, IntArray, all_along, any_along, share
from sawhorse_scheduling.filling import Columns, Filling, Item, MinValues
from sawhorse_scheduling.pools import PoolTable
from sawhorse_scheduling.problem import holds_daemons

PER_RULE = 6  # pivots tried per rule of choice and round
_LEAST = 1e-9  # stands in for a price or value of zero where one divides


@dataclass(slots=True, eq=False)
class Pattern:
    """A node and how often it is made.

    `allow` are the offerings (T, C) it may become: one of a reservation (`reservation` is its id), or some that are
    bought. `taken` is what each copy holds of the pool's limits, `used` the sum of its pods' requests, `loads` the pods
    per class index, one entry a copy.
    """

    pool: int
    requirements: Requirements
    allow: BoolArray
    used: IntArray
    taken: IntArray
    loads: list[dict[int, int]]
    reservation: str = ""


@dataclass(slots=True, eq=False)
class _Trial:
    pivot: int
    counts: dict[int, int]
    work: float


class Packer:
    """Packs the items of one tier; what finds no place stays in their demands."""

    def __init__(
        self,
        tier: Sequence[PoolTable],
        items: Sequence[Item],
        limits: IntArray,
        rooms: dict[int, IntArray],
        *,
        strict: bool,
    ) -> None:
        self.rooms = rooms
        self.pools = {pool.index: pool for pool in tier}
        self.items = items
        self.strict = strict
        rules = len(limits)
        count = len(items)
        self.keep = {
            pool.index: np.isfinite(pool.price) & pool.in_stock() & all_along(rooms[pool.index] >= 0, 1)[:, None]
            for pool in tier
        }
        spots = [(pool, np.argwhere(self.keep[pool.index])) for pool in tier]
        self.pool_of = np.concatenate([np.full(len(s), pool.index) for pool, s in spots])
        self.type_of = np.concatenate([s[:, 0] for _, s in spots])
        self.column_of = np.concatenate([s[:, 1] for _, s in spots])
        self.reserved = np.concatenate([pool.reserved[s[:, 1]] for pool, s in spots])
        self.price = np.concatenate([pool.search_price[self.keep[pool.index]] for pool, _ in spots])
        self.room = np.concatenate([rooms[pool.index][s[:, 0]] for pool, s in spots])
        self.masks, self.joins, self.opens = self._masks()
        self.columns = Columns(
            requests=np.array([i.requests for i in items], dtype=np.int64).reshape(count, self.room.shape[1]),
            remaining=np.array([i.remaining for i in items], dtype=np.int64),
            value=self._values(),
            owns=np.array([i.owns for i in items], dtype=np.bool_).reshape(count, rules),
            matches=np.array([i.matches for i in items], dtype=np.bool_).reshape(count, rules),
            has_ports=np.array([bool(i.ports) for i in items], dtype=np.bool_),
            limits=limits,
        )
        self.customs = self._customs()

    def _masks(self) -> tuple[BoolArray, IntArray, IntArray]:
        """Distinct masks over pivots (M, P), and per item its row for joining and for opening."""
        rows: dict[bytes, int] = {}
        masks: list[BoolArray] = []

        def row_of(parts: list[BoolArray]) -> int:
            mask: BoolArray = np.concatenate(parts)
            row = rows.setdefault(np.packbits(mask).tobytes(), len(rows))
            if row == len(masks):
                masks.append(mask)
            return row

        joins, opens = [], []
        for item in self.items:
            there = [(item.options.get(index), keep) for index, keep in self.keep.items()]
            none = {id(keep): np.zeros(int(keep.sum()), dtype=np.bool_) for _, keep in there}
            joins.append(row_of([none[id(keep)] if o is None else o.joins[keep] for o, keep in there]))
            opens.append(row_of([none[id(keep)] if o is None else o.opens[keep] for o, keep in there]))
        matrix = np.array(masks, dtype=np.bool_).reshape(len(masks), len(self.price))
        return matrix, np.array(joins, dtype=np.int64), np.array(opens, dtype=np.int64)

    def _values(self) -> FloatArray:
        """Per item, the least price of one pod's dominant share over the pivots that it may open."""
        values = np.zeros(len(self.items))
        known: dict[tuple[bytes, int], float] = {}
        for index, item in enumerate(self.items):
            row = int(self.opens[index])
            key = (item.requests.tobytes(), row)
            if key not in known:
                ok = self.masks[row]
                ok = ok & ~self.reserved if (ok & ~self.reserved).any() else ok
                costs = self.price[ok] * share(item.requests[None, :], self.room[ok])
                known[key] = float(costs.min(initial=np.inf))
            values[index] = known[key]
        found: FloatArray = np.where(np.isfinite(values), np.maximum(values, _LEAST), _LEAST)
        return found

    def _customs(self) -> dict[int, IntArray]:
        """Per pool, (I,) numbers of the items' custom requirements; 0 is none, which joins any."""
        result = {}
        for pool in self.pools:
            numbers: dict[Requirements, int] = {Requirements(): 0}
            options = [item.options.get(pool) for item in self.items]
            found = [0 if o is None else numbers.setdefault(o.fit.custom, len(numbers)) for o in options]
            result[pool] = np.array(found, dtype=np.int64)
        return result

    def pack(self) -> list[Pattern]:
        """Place as much as limits allow: what opens nodes that others may fill first, then what costs most."""
        special = [(any(len(o.fit.custom) for o in item.options.values()), item.exotic) for item in self.items]
        order = sorted(range(len(self.items)), key=lambda i: (special[i], self.columns.value[i], -i), reverse=True)
        patterns: list[Pattern] = []
        for seed in order:
            while self.columns.remaining[seed] > 0:
                pattern = self._round(seed)
                if pattern is None:
                    break
                patterns.append(pattern)
        return patterns

    def _round(self, seed: int) -> Pattern | None:
        trials = [trial for pivot in self._pivots(seed) if (trial := self._fill(seed, pivot)) is not None]
        if not trials:
            return None
        best = max(
            trials,
            key=lambda t: (round(t.work / max(float(self.price[t.pivot]), _LEAST), 6), t.work, -t.pivot),
        )
        return self._commit(best)

    def _pivots(self, seed: int) -> list[int]:
        """Promising pivots: those cheapest for the seed alone, and those cheapest for all that is left."""
        ok = self.masks[self.opens[seed]] & all_along(self.room >= self.columns.requests[seed][None, :], 1)
        for index, pool in self.pools.items():
            mine = self.pool_of == index
            ok[mine] &= pool.within_limits()[self.type_of[mine]] & pool.in_stock()[self.column_of[mine]]
        spots = np.flatnonzero(ok)
        price, room, asked = self.price[spots], self.room[spots], self.columns.requests[seed]
        alone = price * share(asked[None, :], room)
        everything = (self.columns.requests * self.columns.remaining[:, None]).sum(axis=0)
        total = np.where(asked > 0, everything, 0)
        whole = price * np.maximum(share(total[None, :], room), 1.0)
        chosen: dict[int, None] = {}
        for estimate in (alone, whole):
            chosen.update(dict.fromkeys(int(spots[s]) for s in np.lexsort((spots, estimate))[:PER_RULE]))
        return list(chosen)

    def _fill(self, seed: int, pivot: int) -> _Trial | None:
        """Fill one node on trial: the seed first, then whatever does most work for what it takes of the rest."""
        pool = int(self.pool_of[pivot])
        custom = self.customs[pool]
        mine = self.masks[self.joins, pivot] & (self.columns.remaining > 0)
        mine &= (custom == custom[seed]) | (custom == 0)
        filling = Filling(self.columns, self.items, np.flatnonzero(mine), self.room[pivot])
        check = None
        if self.pools[pool].min_values:
            check = MinValues(self.pools[pool], self.rooms[pool], self.columns, self.items, seed, strict=self.strict)
            if not check.accepts(filling.used(), seed, 1):
                return None
            check.add(seed)
        filling.place(int(np.searchsorted(filling.index, seed)), 1)
        while (choice := filling.next()) is not None:
            position, count = choice
            item = int(filling.index[position])
            if check is not None:
                while count and not check.accepts(filling.used(), item, count):
                    count //= 2
                if count:
                    check.add(item)
            if count:
                filling.place(position, count)
            else:
                filling.bar(position)
        return _Trial(pivot, filling.counts, float(sum(self.columns.value[i] * n for i, n in filling.counts.items())))

    def _commit(self, trial: _Trial) -> Pattern | None:
        """Turn a trial into nodes: right-size, repeat while it can be filled alike and limits allow."""
        pool = self.pools[int(self.pool_of[trial.pivot])]
        requirements, allow = pool.template, np.isfinite(pool.price)
        opens = np.zeros(len(pool.types), dtype=np.bool_)
        used = np.zeros(self.columns.requests.shape[1], dtype=np.int64)
        for i in sorted(trial.counts):
            option = self.items[i].options[pool.index]
            requirements = requirements.intersection(option.fit.requirements)
            allow = allow & option.joins
            opens |= any_along(option.opens, 1)
            used += self.columns.requests[i] * trial.counts[i]
        holds = all_along(self.rooms[pool.index] >= used[None, :], 1) & holds_daemons(pool) & opens
        pivot = int(self.type_of[trial.pivot]), int(self.column_of[trial.pivot])
        allow = of_one_kind(pool, allow & holds[:, None], *pivot)
        reservation = pool.reservations[pivot[1]]
        within = pool.within_limits()
        costs = np.where(allow & within[:, None], pool.search_price, np.inf)
        spot = int(np.argmin(costs))
        if not np.isfinite(costs.flat[spot]):
            return None
        # Any of its types may be launched. Where minValues asks for many, all of them must be within the limits;
        # else the cheapest is, and the list is cut to what the limits leave in the end.
        taken = pool.capacity[spot // costs.shape[1]]
        if pool.min_values:
            taken = pool.capacity[any_along(allow, 1) & within].max(axis=0, initial=0)
        copies = min(int(self.columns.remaining[i]) // n for i, n in trial.counts.items())
        for left, each in zip(pool.remaining, taken, strict=True):
            copies = min(copies, int(left) // int(each)) if each > 0 else copies
        copies = min(copies, pool.stock.left[reservation]) if reservation else copies
        pool.remaining = pool.remaining - taken * copies
        pool.stock.take(reservation, copies)
        loads = self._take(trial.counts, copies)
        return Pattern(pool.index, requirements, allow, used, taken, loads, reservation)

    def _take(self, counts: dict[int, int], copies: int) -> list[dict[int, int]]:
        for i, number in counts.items():
            self.columns.remaining[i] -= number * copies
        return take_loads(self.items, tuple(counts.items()), copies)


def of_one_kind(pool: PoolTable, allow: BoolArray, kind: int, column: int) -> BoolArray:
    """(T, C) of the offerings that a node may become: itself alone where it is of a reservation, else what is bought.

    A node that might become either would have to count for the reservation and be paid for as well.
    """
    if not pool.reserved[column]:
        return allow & ~pool.reserved[None, :]
    alone = np.zeros_like(allow)
    alone[kind, column] = allow[kind, column]
    return alone


def take_loads(items: Sequence[Item], counts: Sequence[tuple[int, int]], copies: int) -> list[dict[int, int]]:
    """Take the pods of equal nodes out of the items' demands: per node, class index → pods.

    Args:
        counts: (item, pods of it on each node).
    """
    shared: dict[int, int] = {}
    loads: list[dict[int, int]] = []
    mixed = []
    for item, number in counts:
        waiting = items[item].demands
        if waiting[0].count >= number * copies:  # all of one class: the same on every node
            shared[waiting[0].members] = shared.get(waiting[0].members, 0) + number
            waiting[0].count -= number * copies
            if not waiting[0].count:
                waiting.pop(0)
        else:
            mixed.append((waiting, number))
    for _ in range(copies):
        load = dict(shared)
        for waiting, number in mixed:
            left = number
            while left:
                demand = waiting[0]
                part = min(left, demand.count)
                load[demand.members] = load.get(demand.members, 0) + part
                demand.count -= part
                left -= part
                if not demand.count:
                    waiting.pop(0)
        loads.append(load)
    return loads
