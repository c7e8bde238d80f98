"""How near a pool came to serving a pod: what fits by size, and what of the rest stood in the way."""

from collections.abc import Sequence

import numpy as np

from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_model.requirements import Operator, Requirement, Requirements
from sawhorse_model.resources import PODS, format_resource
from sawhorse_scheduling.arrays import ATTACHABLE, BoolArray, any_along, times
from sawhorse_scheduling.classes import PodClass
from sawhorse_scheduling.pools import Fit, PoolTable
from sawhorse_scheduling.problem import Problem, holds_daemons

LISTED = 5  # names in a message


def names_of(pool: PoolTable, types: BoolArray) -> str:
    """The first few names of types, and how many more there are."""
    names = [kind.name for kind, there in zip(pool.types, types, strict=True) if there]
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def no_type(problem: Problem, members: PodClass, pool: PoolTable, wants: Requirements, fit: Fit) -> str:
    """What to say where no type has the labels that are asked."""
    number = len(pool.types)
    for key in sorted(wants):
        asked = fit.requirements[key]
        if not any(kind.requirements.intersects(Requirements((asked,))) for kind in pool.types):
            values = {v for t in pool.types if (r := t.requirements.get(key)) is not None for v in r.values}
            there = ", ".join(sorted(values)[:LISTED]) or "nothing"
            return f"{asked} is asked; the pool's {_count(number)} have {there}"
    every = "; ".join(str(wants[key]) for key in sorted(wants))
    return f"none of the pool's {_count(number)} meets all of: {every}{_aside(problem, members, pool, wants, fit)}"


def no_offering(
    problem: Problem, members: PodClass, pool: PoolTable, wants: Requirements, fit: Fit, serving: BoolArray
) -> str:
    """What to say where types have the labels, and none of them can be had where it is asked."""
    asked = [str(r) for key in (ZONE, CAPACITY_TYPE) if (r := fit.requirements.get(key)) is not None]
    bought = any_along(np.isfinite(pool.price[serving]), 0)
    there = sorted({f"{zone}/{kind}" for (zone, kind), any_of in zip(pool.columns, bought, strict=True) if any_of})
    sold = sorted({o.zone for kind, there in zip(pool.types, serving, strict=True) if there for o in kind.offerings})
    number = int(serving.sum())
    return (
        f"{names_of(pool, serving) if number <= LISTED else _count(number)} {'has' if number == 1 else 'have'} "
        "no available offering"
        + (f" with {' and '.join(asked)}" if asked else "")
        + (
            f"; available are {', '.join(there[:LISTED])}{', …' if len(there) > LISTED else ''}"
            if there
            else f"; sold in {', '.join(sold[:LISTED]) or 'no zone'}, but out of capacity or without a subnet there"
            + _subnets(pool, sold)
        )
        + _aside(problem, members, pool, wants, fit)
    )


def _subnets(pool: PoolTable, sold: Sequence[str]) -> str:
    """Where the pool's NodeClass has subnets, when that is somewhere else."""
    asked = [kind.requirements.get(ZONE) for kind in pool.pool.instance_types]
    zones = sorted({zone for r in asked if r is not None and not r.complement for zone in r.values})
    return f"; its NodeClass has subnets in {', '.join(zones[:LISTED])}" if zones and not {*zones} & {*sold} else ""


def nearest(problem: Problem, members: PodClass, pool: PoolTable, wants: Requirements, fit: Fit) -> str:
    """What to say where nothing that is allowed is large enough: what else would be, and the type that misses by least.

    The latter resource by resource.
    """
    asked, room = problem.requests[members.index], pool.room
    allowed = any_along(fit.allow, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(asked > 0, asked / np.maximum(room, 0), 0.0)
    worst = np.where(allowed, ratio.max(axis=1, initial=0.0), np.inf)
    # Among types that lack a resource altogether, the one that lacks fewest.
    lacking = np.where(allowed, (ratio > 1).sum(axis=1), 10**6)
    best = int(np.lexsort((np.arange(len(worst)), worst, lacking))[0])
    names = problem.axis.names
    parts = []
    for r, name in enumerate(names):
        if asked[r] > max(int(room[best, r]), 0) and asked[r] > 0:
            daemons = int(pool.daemons[best, r])
            note = f" after daemons take {format_resource(name, daemons)}" if daemons else ""
            have = format_resource(name, max(int(room[best, r]), 0))
            helps = problem.snapshot.options.hints.get(name, "")
            if helps and (held := pool.types[best].capacity.get(name, 0)):
                note += f" of {format_resource(name, held)}; {helps}"
            parts.append(f"{name} {format_resource(name, int(asked[r]))} is asked, {have} is there{note}")
    hint = ""
    if "cpu" in names and asked[names.index("cpu")] >= 10**9:
        hint = "; a request of a million cores looks like a mix-up of m and M"
    missing = "; ".join(parts) or "its daemons alone do not fit"
    aside = _barrier(problem, members, pool, wants, fit)
    begin = f"{aside}; nearest of those allowed is" if aside else "no instance type has room; nearest is"
    return f"{begin} {pool.types[best].name}: {missing}{hint}"


def _aside(problem: Problem, members: PodClass, pool: PoolTable, wants: Requirements, fit: Fit) -> str:
    found = _barrier(problem, members, pool, wants, fit)
    return f"; it {found}" if found else ""


def _barrier(problem: Problem, members: PodClass, pool: PoolTable, wants: Requirements, fit: Fit) -> str:
    """What the pod fits by size alone, and the one thing that keeps it from those; empty where it fits nothing."""
    holds = (times(pool.room, problem.requests[members.index][None, :]) > 0) & holds_daemons(pool)
    there = np.isfinite(pool.price) & holds[:, None]
    holds = any_along(there, 1)
    if not holds.any():
        return ""
    masks = {key: pool.mask(fit.requirements[key]) for key in sorted(wants)}
    whole = there.copy()
    for mask in masks.values():
        whole = whole & mask
    alone = ""
    for key in () if whole.any() else masks:
        others = there.copy()
        for other, mask in masks.items():
            others = others & mask if other != key else others
        if others.any():
            alone = _where(fit.requirements[key])
            break
    number = int(holds.sum())
    told = "fits " + _count(number) + f" by {_sizes(problem, members)}"
    return f"{told}, {'and that is not' if number == 1 else 'none of them'} {alone or 'with all that is asked'}"


def _where(requirement: Requirement) -> str:
    values = " or ".join(sorted(requirement.values))
    if requirement.operator is not Operator.IN:
        return f"with {requirement}"
    if requirement.key == ZONE:
        return f"in {values}"
    return f"as {values}" if requirement.key == CAPACITY_TYPE else f"with {requirement}"


def _sizes(problem: Problem, members: PodClass) -> str:
    asked = [
        name
        for name, amount in zip(problem.axis.names, problem.requests[members.index], strict=True)
        if amount > 0 and name != PODS and not name.startswith(ATTACHABLE)
    ]
    return " and ".join(filter(None, (", ".join(asked[:-1]), *asked[-1:]))) or "size"


def _count(number: int) -> str:
    return f"{number} instance type{'s' if number != 1 else ''}"
