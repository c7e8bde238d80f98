"""Which capacity pools a fleet takes: ordered by allocation strategy, without those that are out of capacity. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sawhorse_sandbox.aws.state import OutOfCapacity


@dataclass(frozen=True, slots=True)
class Pool:
    """One override of a fleet: an instance type in a zone under one capacity type."""

    position: int  # in the request; breaks ties and finds the override again
    instance_type: str
    zone: str
    capacity_type: str  # spot or on-demand
    priority: float | None = None  # lower comes first; None comes last


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pool gave fewer instances than it was asked for, in EC2's words."""

    pool: Pool
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Allotment:
    """What a fleet gets: pools with their number of instances, what was refused, and the limits that were drawn on."""

    taken: tuple[tuple[Pool, int], ...]
    refused: tuple[Refusal, ...]
    drawn: tuple[tuple[OutOfCapacity, int], ...]


def by_strategy(pools: Iterable[Pool], strategy: str, price: Callable[[Pool], float | None]) -> list[Pool]:
    """Order pools as an allocation strategy would.

    `prioritized` and `capacity-optimized-prioritized` go by priority. All others go by price: EC2 also weighs how
    much capacity a spot pool has, which nobody outside can know, so the cheapest pool stands in for it.
    """

    def key(pool: Pool) -> tuple[float, int]:
        value = pool.priority if strategy.endswith("prioritized") else price(pool)
        return (math.inf if value is None else value, pool.position)

    return sorted(pools, key=key)


def allot(pools: Sequence[Pool], wanted: int, rules: Sequence[OutOfCapacity]) -> Allotment:
    """Take `wanted` instances from the pools in their order; all pools that are out of capacity are reported.

    A pool without a rule gives any number. One with rules gives what the tightest of them has left.
    """
    left = {position: rule.remaining for position, rule in enumerate(rules)}
    drawn = dict.fromkeys(left, 0)
    taken: list[tuple[Pool, int]] = []
    refused: list[Refusal] = []
    for pool in pools:
        mine = [
            position
            for position, rule in enumerate(rules)
            if rule.matches(pool.instance_type, pool.zone, pool.capacity_type)
        ]
        room = min((left[position] for position in mine), default=wanted)
        if mine and room < max(wanted, 1):
            tightest = min(mine, key=lambda position: left[position])
            refused.append(_refusal(pool, rules[tightest]))
        count = min(room, wanted)
        if count > 0:
            taken.append((pool, count))
            wanted -= count
            for position in mine:
                left[position] -= count
                drawn[position] += count
    return Allotment(
        taken=tuple(taken),
        refused=tuple(refused),
        drawn=tuple((rules[position], count) for position, count in drawn.items() if count),
    )


def _refusal(pool: Pool, rule: OutOfCapacity) -> Refusal:
    message = rule.message or (
        f"We currently do not have sufficient {pool.instance_type} capacity in the Availability Zone "
        f"you requested ({pool.zone})."
    )
    return Refusal(pool=pool, code=rule.code, message=message)
