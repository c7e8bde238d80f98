"""From a pattern to a planned node: its list of instance types, what it will cost, what its claim asks for."""

from dataclasses import dataclass

import numpy as np

from sawhorse_model.instances import CapacityType
from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_model.requirements import Operator, Requirement, Requirements
from sawhorse_scheduling.arrays import BoolArray, FloatArray, IntArray, all_along, any_along
from sawhorse_scheduling.opening import Pattern
from sawhorse_scheduling.pools import PoolTable
from sawhorse_scheduling.problem import Problem
from sawhorse_scheduling.spot import worth_listing

_NEGATIVE = frozenset({Operator.NOT_IN, Operator.DOES_NOT_EXIST})


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """What a node may become: type indexes cheapest first, and prices."""

    types: tuple[int, ...]
    requirements: Requirements
    zone: str
    capacity_type: CapacityType
    price: float
    expected: float
    worst: float
    relaxed: tuple[str, ...] = ()  # keys whose minValues was lowered


class Lister:
    """Lists the instance types of patterns. Patterns that may become the same share a listing."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._known: dict[tuple[int, Requirements, bytes], Listing] = {}
        self._claims: dict[tuple[int, Requirements, bytes, tuple[tuple[str, int], ...]], Requirements] = {}

    def list_types(self, pattern: Pattern, waiting: int) -> Listing:
        """List a pattern's types, the cheapest first, and price them.

        Where the pool has limits, a node gets a fair part of what they leave, and what the largest of its types takes
        is held back: any of them may be launched.

        Args:
            waiting: nodes of the pool that are not listed yet, these included.
        """
        pool = self.problem.pools[pattern.pool]
        if not pool.limited:
            key = (pattern.pool, pattern.requirements, np.packbits(pattern.allow).tobytes())
            if key not in self._known:
                self._known[key] = self._list(pattern, pattern.allow)
            return self._known[key]
        spare = np.maximum(pool.remaining, 0) // max(waiting, 1)
        within = all_along(pool.capacity <= (pattern.taken + spare)[None, :], 1)
        listing = self._list(pattern, pattern.allow & within[:, None])
        most: IntArray = pool.capacity[list(listing.types)].max(axis=0, initial=0)
        pool.remaining = pool.remaining - np.maximum(most - pattern.taken, 0) * len(pattern.loads)
        return listing

    def _list(self, pattern: Pattern, allow: BoolArray) -> Listing:
        problem = self.problem
        pool = problem.pools[pattern.pool]
        costs = np.where(allow, pool.price, np.inf).min(axis=1, initial=np.inf)
        order = np.argsort(costs, kind="stable")
        order = order[np.isfinite(costs[order])]
        options = problem.snapshot.options
        minima = dict(pool.min_values)
        if not options.min_values_strict:
            everything = any_along(allow, 1)
            minima = {key: min(n, pool.distinct(key, allow, everything)) for key, n in minima.items()}
        most = _worth_listing(pool, allow, order, options.max_instance_types, lean=options.minimize_expected)
        kept = _cut(pool, allow, order, minima, most)
        chosen = np.zeros(len(pool.types), dtype=np.bool_)
        chosen[list(kept)] = True
        allow = allow & chosen[:, None]
        kind, column = _cheapest(pool, np.where(allow, pool.price, np.inf))
        zone, capacity_type = pool.columns[column]
        expected, worst = _spread_of_prices(pool, allow)
        return Listing(
            types=kept,
            requirements=self._claim(pool, pattern.requirements, allow, minima),
            zone=zone,
            capacity_type=CapacityType(capacity_type),
            price=float(pool.price[kind, column]),
            expected=expected,
            worst=worst,
            relaxed=tuple(key for key, n in minima.items() if n < pool.min_values[key]),
        )

    def _claim(self, pool: PoolTable, wants: Requirements, allow: BoolArray, minima: dict[str, int]) -> Requirements:
        there = any_along(allow, 0)
        key = (pool.index, wants, there.tobytes(), tuple(minima.items()))
        if key not in self._claims:
            self._claims[key] = _claim_requirements(self.problem, pool, wants, allow, minima)
        return self._claims[key]


def least_price(pool: PoolTable, pattern: Pattern) -> float:
    """Of the types that take no more of the pool's limits than the pattern counts for, the cheapest offering."""
    within = all_along(pool.capacity <= pattern.taken[None, :], 1)
    return float(np.where(pattern.allow & within[:, None], pool.price, np.inf).min())


def _worth_listing(pool: PoolTable, allow: BoolArray, order: IntArray, most: int, *, lean: bool) -> int:
    """How many of the types, the cheapest first, are worth having on the list; at most `most`.

    EC2 does not choose the cheapest spot pool (type and zone) but weighs price against capacity. So a node that may be
    spot lists no type whose cheapest offering costs much more than the best, unless it had too few pools without: one
    pool that runs dry would then stop it. On-demand goes by price alone: a long list there costs nothing.
    """
    spot = np.array([kind == CapacityType.SPOT for _, kind in pool.columns], dtype=np.bool_)
    offered = np.where(allow & spot[None, :], pool.price, np.inf)[order]
    if not np.isfinite(offered).any():
        return min(most, len(order))
    return min(most, worth_listing(offered, lean=lean))


def _cheapest(pool: PoolTable, costs: FloatArray) -> tuple[int, int]:
    spots = np.argwhere(costs == costs.min())
    # As in the model's `cheapest`: equal prices break by zone, then capacity type; then by the type's name.
    best = min(map(tuple, spots), key=lambda s: (s[0], pool.columns[s[1]]))
    return int(best[0]), int(best[1])


def _cut(pool: PoolTable, allow: BoolArray, costly: IntArray, minima: dict[str, int], most: int) -> tuple[int, ...]:
    """Keep the cheapest `most` types, and as many dearer ones instead as minValues need."""
    order: list[int] = costly.tolist()
    if len(order) <= most or not minima:
        return tuple(order[:most])
    kept: list[int] = []
    chosen = np.zeros(len(pool.types), dtype=np.bool_)
    missing = dict(minima)
    for t in order:
        trial = chosen.copy()
        trial[t] = True
        if any(pool.distinct(k, allow, trial) > pool.distinct(k, allow, chosen) for k in missing):
            kept.append(t)
            chosen = trial
            missing = {k: n for k, n in missing.items() if pool.distinct(k, allow, chosen) < n}
        if not missing:
            break
    for t in order:
        if len(kept) >= most:
            break
        if not chosen[t]:
            kept.append(t)
            chosen[t] = True
    return tuple(sorted(kept, key=order.index))


def _spread_of_prices(pool: PoolTable, allow: BoolArray) -> tuple[float, float]:
    """Expected and worst price: EC2 takes spot where the node may be spot, and then any of the offered ones."""
    spot = np.array([kind == CapacityType.SPOT for _, kind in pool.columns], dtype=np.bool_)
    prices = pool.price[allow & spot[None, :]]
    if len(prices):
        return float(prices.mean()), float(prices.max())
    prices = pool.price[allow]
    return float(prices.min()), float(prices.max())


def _claim_requirements(
    problem: Problem, pool: PoolTable, wants: Requirements, allow: BoolArray, minima: dict[str, int]
) -> Requirements:
    """What the NodeClaim carries.

    The capacity types that are really on offer are listed. An exclusion of a label that neither the pool nor the
    catalogue knows holds by itself and is left out: some such labels a NodeClaim may not even name.
    """
    known = problem.snapshot.options.well_known
    kept = [
        Requirement(r.key, r.values, r.complement, r.low, r.high, minima.get(key, r.min_values), r.present)
        for key, r in wants.items()
        if key in pool.template or key in known or r.operator not in _NEGATIVE
    ]
    columns = np.flatnonzero(any_along(allow, 0)).tolist()
    offered = {pool.columns[c][1] for c in columns}
    # Of a reservation there is one column: it is named, and with it its zone.
    held = [c for c in columns if pool.reserved[c]]
    named = [Requirement.of(pool.reservation_labels[0], Operator.IN, (pool.reservations[c],)) for c in held]
    named += [Requirement.of(ZONE, Operator.IN, (pool.columns[c][0],)) for c in held]
    return Requirements((*kept, Requirement.of(CAPACITY_TYPE, Operator.IN, offered), *named))
