"""New nodes for one tier of pools at a time: by the packing engine, by the greedy opener, or the cheaper of both."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sawhorse_scheduling.arrays import IntArray, all_along
from sawhorse_scheduling.engine import Watch, pack_tier
from sawhorse_scheduling.filling import Demand, Item
from sawhorse_scheduling.opening import Packer, Pattern
from sawhorse_scheduling.pools import PoolTable
from sawhorse_scheduling.problem import Problem

# Both ways are tried where that costs little: so many pods, of so many kinds, at most.
_FEW_PODS = 300
_FEW_ITEMS = 40


class Opener:
    """Opens nodes for items, tier by tier, and collects what was proven about their price."""

    def __init__(self, problem: Problem, watch: Watch) -> None:
        self.problem = problem
        self.watch = watch
        self.bounds: list[float | None] = []  # one for each packing of items; None where nothing was proven

    def open(self, tier: Sequence[PoolTable], items: Sequence[Item], *, everything: bool) -> list[Pattern]:
        """Nodes for as many pods as limits allow; the others stay in the items' demands.

        Slack is kept where pods fit so; those that do not are placed without.

        Args:
            everything: these are all pods that need new nodes, so the first whole answer is worth telling.
        """
        slack = self.problem.snapshot.options.slack
        watch = self.watch if everything else replace(self.watch, on_first=None)
        patterns: list[Pattern] = []
        for part in dict.fromkeys((slack, 0.0)):
            live = [item for item in items if item.remaining]
            if live:
                rooms = {pool.index: pool.room_with(part) for pool in tier}
                patterns += self._once(tier, live, rooms, watch)
        return patterns

    def _once(
        self, tier: Sequence[PoolTable], items: Sequence[Item], rooms: dict[int, IntArray], watch: Watch
    ) -> list[Pattern]:
        start = _State(tier, items)
        patterns, bound = self._packed(tier, items, rooms, watch)
        self.bounds.append(bound)
        if not _are_few(items, start.pods):
            return patterns
        packed = _State(tier, items)
        start.restore()
        others = self._greedy(tier, items, rooms)
        if (_State(tier, items).pods, self._cost(others)) < (packed.pods, self._cost(patterns) - 1e-9):
            return others
        packed.restore()
        return patterns

    def _packed(
        self, tier: Sequence[PoolTable], items: Sequence[Item], rooms: dict[int, IntArray], watch: Watch
    ) -> tuple[list[Pattern], float | None]:
        problem = self.problem
        fixed_cost = problem.snapshot.options.fixed_cost
        strict = problem.snapshot.options.min_values_strict
        patterns, bound = pack_tier(tier, items, problem.rules.limits, rooms, fixed_cost, watch, strict=strict)
        rest = [item for item in items if item.remaining]
        # Where limits bite, one node at a time may find a place for the last pods that a whole plan did not; and for
        # minValues the engine is told a little less than is true.
        choosy = any(pool.min_values for pool in tier)
        if rest and (choosy or _are_few(rest, sum(item.remaining for item in rest))):
            patterns += self._greedy(tier, rest, rooms)
        return patterns, bound

    def _greedy(self, tier: Sequence[PoolTable], items: Sequence[Item], rooms: dict[int, IntArray]) -> list[Pattern]:
        strict = self.problem.snapshot.options.min_values_strict
        return Packer(tier, items, self.problem.rules.limits, rooms, strict=strict).pack()

    def _cost(self, patterns: Sequence[Pattern]) -> float:
        """What is minimised, with the fixed cost, of all nodes, each at the cheapest that the limits leave it."""
        total = 0.0
        for pattern in patterns:
            pool = self.problem.pools[pattern.pool]
            within = all_along(pool.capacity <= pattern.taken[None, :], 1)
            price = float(np.where(pattern.allow & within[:, None], pool.search_price, np.inf).min())
            total += (price + self.problem.snapshot.options.fixed_cost) * len(pattern.loads)
        return total


def _are_few(items: Sequence[Item], pods: int) -> bool:
    return pods <= _FEW_PODS and len(items) <= _FEW_ITEMS


class _State:
    """What opening nodes changes: the items' demands, what the limits leave, and reservations."""

    def __init__(self, tier: Sequence[PoolTable], items: Sequence[Item]) -> None:
        self._pools = [(pool, pool.remaining) for pool in tier]
        self._stock = [(pool.stock, dict(pool.stock.left)) for pool in tier[:1]]  # all pools share one
        self._items: list[tuple[Item, list[tuple[Demand, int]]]] = [
            (item, [(demand, demand.count) for demand in item.demands]) for item in items
        ]
        self.pods = sum(item.remaining for item in items)

    def restore(self) -> None:
        """Go back to it. Demands that were used up are noted as such."""
        for pool, remaining in self._pools:
            pool.remaining = remaining
        for stock, left in self._stock:
            stock.restore(left)
        for item, demands in self._items:
            for demand in item.demands:
                demand.count = 0
            item.demands[:] = [demand for demand, _ in demands]
            for demand, count in demands:
                demand.count = count
