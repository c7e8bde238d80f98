"""From a pattern to a planned node: its list of instance types, what it will cost, what its claim asks for."""

from dataclasses import dataclass

import numpy as np

from sawhorse_model.instances import CapacityType
from sawhorse_model.labels import CAPACITY_TYPE
from sawhorse_model.requirements import Operator, Requirement, Requirements
from sawhorse_scheduling.arrays import BoolArray, FloatArray, IntArray, all_along, any_along
from sawhorse_scheduling.opening import Pattern
from sawhorse_scheduling.pools import PoolTable
from sawhorse_scheduling.problem import Problem

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


def list_types(problem: Problem, pattern: Pattern, spare: IntArray) -> Listing:
    """List a pattern's instance types and price them.

    Args:
        spare: (L,) what each copy may hold of the pool's limits beyond `pattern.taken`; types that hold more are cut.
    """
    pool = problem.pools[pattern.pool]
    within = all_along(pool.capacity <= (pattern.taken + spare)[None, :], 1)
    allow = pattern.allow & within[:, None]
    costs = np.where(allow, pool.price, np.inf)
    order = [int(t) for t in np.argsort(costs.min(axis=1, initial=np.inf), kind="stable") if allow[t].any()]
    options = problem.snapshot.options
    minima = dict(pool.min_values)
    if not options.min_values_strict:
        everything = any_along(allow, 1)
        minima = {key: min(n, pool.distinct(key, allow, everything)) for key, n in minima.items()}
    kept = _cut(pool, allow, order, minima, options.max_instance_types)
    chosen = np.zeros(len(pool.types), dtype=np.bool_)
    chosen[list(kept)] = True
    allow = allow & chosen[:, None]
    costs = np.where(allow, pool.price, np.inf)
    kind, column = _cheapest(pool, costs)
    pool_zone, capacity_type = pool.columns[column]
    expected, worst = _spread_of_prices(pool, allow)
    return Listing(
        types=kept,
        requirements=_claim_requirements(problem, pool, pattern.requirements, allow, minima),
        zone=pool_zone,
        capacity_type=CapacityType(capacity_type),
        price=float(pool.price[kind, column]),
        expected=expected,
        worst=worst,
        relaxed=tuple(key for key, n in minima.items() if n < pool.min_values[key]),
    )


def _cheapest(pool: PoolTable, costs: FloatArray) -> tuple[int, int]:
    spots = np.argwhere(costs == costs.min())
    # As in the model's `cheapest`: equal prices break by zone, then capacity type; then by the type's name.
    best = min(map(tuple, spots), key=lambda s: (s[0], pool.columns[s[1]]))
    return int(best[0]), int(best[1])


def _cut(pool: PoolTable, allow: BoolArray, order: list[int], minima: dict[str, int], most: int) -> tuple[int, ...]:
    """Keep the cheapest `most` types, and as many dearer ones instead as minValues need."""
    if len(order) <= most:
        return tuple(order)
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
        Requirement(r.key, r.values, r.complement, r.low, r.high, minima.get(key, r.min_values))
        for key, r in wants.items()
        if key in pool.template or key in known or r.operator not in _NEGATIVE
    ]
    offered = {kind for (_, kind), there in zip(pool.columns, any_along(allow, 0), strict=True) if there}
    return Requirements((*kept, Requirement.of(CAPACITY_TYPE, Operator.IN, offered)))
