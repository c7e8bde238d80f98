"""Why pods found no place: per pool the rule that stood in the way, what was asked, what was there, the nearest miss.

Computed only for classes with pods left over. Codes are stable; docs/reasons.md lists them.
"""

from collections.abc import Sequence

import numpy as np

from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_model.requirements import Requirements
from sawhorse_model.resources import format_resource
from sawhorse_model.taints import untolerated
from sawhorse_scheduling.affinity_reasons import affinity_reasons, bundle_reasons
from sawhorse_scheduling.arrays import BoolArray, any_along, times
from sawhorse_scheduling.attempt import Attempt, Attempter
from sawhorse_scheduling.classes import PodClass
from sawhorse_scheduling.daemons import clash
from sawhorse_scheduling.plan import Reason
from sawhorse_scheduling.pools import Fit, PoolTable
from sawhorse_scheduling.problem import Problem, holds_daemons, openable
from sawhorse_scheduling.topology import SpreadUse

LISTED = 5  # names in a message


def explain(problem: Problem, attempter: Attempter, attempt: Attempt, members: PodClass) -> tuple[Reason, ...]:
    """The reasons for a class of which some pods found no place; never empty."""
    if members.refusal is not None:
        return (members.refusal,)
    reasons = []
    if members.bundled:
        members = next(
            (b for b in map(problem.classes.__getitem__, members.bundled) if attempt.placed.get(b.index, 0) < b.count),
            problem.classes[members.bundled[0]],
        )
        reasons += bundle_reasons(members)
        if members.refusal is not None:
            return tuple(reasons)
    if attempt.placed.get(members.index, 0) < members.count:
        reasons += _spread_reasons(problem, attempter, attempt, members)
        reasons += affinity_reasons(problem.topology, members)
    if not problem.pools:
        reasons.append(Reason("", "NoPool", _no_pool(problem)))
    reasons += [_pool_reason(problem, members, pool, bool(reasons)) for pool in problem.pools]
    return tuple(reason for reason in reasons if reason.code)


def _no_pool(problem: Problem) -> str:
    given = len(problem.snapshot.pools)
    if not given:
        return "there is no NodePool, and existing nodes have no room for it"
    return f"none of the {given} NodePools makes nodes for pods: they are static (spec.replicas) or being deleted"


def _pool_reason(problem: Problem, members: PodClass, pool: PoolTable, spread_failed: bool) -> Reason:
    taint = untolerated(pool.taints, members.pod.spec.tolerations)
    if taint is not None:
        return Reason(pool.name, "TaintNotTolerated", f"the pool's nodes have the taint {taint}; add a toleration")
    if not pool.types:
        return Reason(pool.name, "NoInstanceTypes", "no instance type meets the pool's own requirements")
    forbidden = problem.topology.forbidden[members.index]
    first: Reason | None = None
    for wants in (choice.intersection(forbidden) for choice in members.required):
        reason = _requirement_reason(problem, members, pool, wants)
        if reason is None:
            return _dynamic_reason(problem, members, pool, wants, spread_failed)
        first = first or reason
    return first or Reason(pool.name, "RequirementsConflict", "its requirements exclude each other")


def _requirement_reason(problem: Problem, members: PodClass, pool: PoolTable, wants: Requirements) -> Reason | None:
    """Why the pool could never serve one pod of the class; None when it could."""
    misfit = pool.template.incompatibility(wants, pool.well_known)
    fit = pool.fit(wants)
    if misfit is not None or fit is None:
        return Reason(pool.name, "RequirementsConflict", f"{misfit or 'requirements conflict'}")
    serving = _types_serving(pool, fit)
    if not serving.any():
        return Reason(pool.name, "RequirementsConflict", _no_type(pool, wants, fit))
    if not fit.allow.any():
        return Reason(pool.name, "NoOffering", _no_offering(pool, fit, serving))
    asked = problem.requests[members.index]
    holds = (times(pool.room, asked[None, :]) > 0) & holds_daemons(pool) & any_along(fit.allow, 1)
    if not holds.any():
        return Reason(pool.name, "InsufficientResources", _nearest(problem, members, pool, fit))
    if not (holds & openable(members, pool, fit)).any():
        names = _names(pool, holds)
        return Reason(
            pool.name,
            "AcceleratorNotAsked",
            f"only types with accelerators{_bare(problem)} have room for it ({names}), and it asks for none; "
            "name them in a node selector if it may use them",
        )
    ports = members.pod.spec.host_ports
    if ports:
        free = holds & ~pool.port_clashes(ports, problem.snapshot)
        if not free.any():
            return Reason(pool.name, "HostPortInUse", _port_taken(problem, members, pool))
        holds = free
    if problem.single(members, pool, wants) is None:
        return _min_values_reason(pool, fit, holds & openable(members, pool, fit))
    return None


def _bare(problem: Problem) -> str:
    return "".join(f" or {word} machines" for _, word in problem.snapshot.options.exotic_labels)


def _types_serving(pool: PoolTable, fit: Fit) -> BoolArray:
    """(T,) types whose labels serve the requirements, offerings aside."""
    rest = fit.requirements.without(ZONE, CAPACITY_TYPE, *pool.reservation_labels)
    return np.array([kind.requirements.intersects(rest) for kind in pool.types], dtype=np.bool_)


def _no_type(pool: PoolTable, wants: Requirements, fit: Fit) -> str:
    for key in sorted(wants):
        alone = Requirements((fit.requirements[key],))
        if not any(kind.requirements.intersects(alone) for kind in pool.types):
            values = {v for t in pool.types if (r := t.requirements.get(key)) is not None for v in r.values}
            there = ", ".join(sorted(values)[:LISTED]) or "nothing"
            return f"{fit.requirements[key]} is asked; the pool's {len(pool.types)} instance types have {there}"
    return f"no one of the pool's {len(pool.types)} instance types meets all of: " + "; ".join(
        str(wants[key]) for key in sorted(wants)
    )


def _no_offering(pool: PoolTable, fit: Fit, serving: BoolArray) -> str:
    asked = [str(r) for key in (ZONE, CAPACITY_TYPE) if (r := fit.requirements.get(key)) is not None]
    there = sorted(
        {
            f"{zone}/{kind}"
            for (zone, kind), any_of in zip(pool.columns, any_along(np.isfinite(pool.price[serving]), 0), strict=True)
            if any_of
        }
    )
    sold = sorted({o.zone for kind, there in zip(pool.types, serving, strict=True) if there for o in kind.offerings})
    return (
        f"{_names(pool, serving)} {'has' if serving.sum() == 1 else 'have'} no available offering"
        + (f" with {' and '.join(asked)}" if asked else "")
        + (
            f"; available are {', '.join(there[:LISTED])}"
            if there
            else f"; sold in {', '.join(sold[:LISTED]) or 'no zone'}, but out of capacity or without a subnet there"
        )
    )


def _nearest(problem: Problem, members: PodClass, pool: PoolTable, fit: Fit) -> str:
    """The type that misses by least, resource by resource."""
    asked, room = problem.requests[members.index], pool.room
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(asked > 0, asked / np.maximum(room, 0), 0.0)
    worst = np.where(any_along(fit.allow, 1), ratio.max(axis=1, initial=0.0), np.inf)
    # Among types that lack a resource altogether, the one that lacks fewest.
    lacking = np.where(any_along(fit.allow, 1), (ratio > 1).sum(axis=1), 10**6)
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
    if problem.requests[members.index][names.index("cpu")] >= 10**9 if "cpu" in names else False:
        hint = "; a request of a million cores looks like a mix-up of m and M"
    missing = "; ".join(parts) or "its daemons alone do not fit"
    return f"no instance type has room; nearest is {pool.types[best].name}: {missing}{hint}"


def _port_taken(problem: Problem, members: PodClass, pool: PoolTable) -> str:
    for index, daemon in enumerate(problem.snapshot.daemons):
        found = clash(members.pod.spec.host_ports, daemon.template.spec.host_ports)
        if found is not None and pool.runs[index].any():
            return (
                f"host port {found[0].port}/{found[0].protocol} is used by DaemonSet {daemon.meta.key} "
                f"in pool {pool.name}"
            )
    return "its host ports are used by daemons"


def _min_values_reason(pool: PoolTable, fit: Fit, types: BoolArray) -> Reason:
    gap = pool.min_values_gap(fit.allow & types[:, None], types, pool.min_values)
    key, have = gap if gap is not None else (next(iter(pool.min_values), ""), 0)
    return Reason(
        pool.name,
        "MinValuesNotMet",
        f"needs {pool.min_values.get(key, 0)} values of {key}, {have} left ({_names(pool, types)})",
    )


def _names(pool: PoolTable, types: BoolArray) -> str:
    names = [kind.name for kind, there in zip(pool.types, types, strict=True) if there]
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def _dynamic_reason(
    problem: Problem, members: PodClass, pool: PoolTable, wants: Requirements, spread_failed: bool
) -> Reason:
    """Why a pool that could serve the class did not: limits, or spread (told elsewhere)."""
    option = problem.single(members, pool, wants)
    opens = any_along(option.opens, 1) if option is not None else np.zeros(len(pool.types), dtype=np.bool_)
    if not (opens & pool.within_limits()).any() and pool.limited:
        over = []
        for index, name in enumerate(pool.limited):
            least = int(pool.capacity[opens, index].min(initial=2**62)) if opens.any() else 0
            left = int(pool.remaining[index])
            if least > left:
                total = format_resource(name, pool.pool.nodepool.limits[name])
                over.append(
                    f"{name}: the limit is {total}, {format_resource(name, max(left, 0))} is left, "
                    f"the smallest fitting node needs {format_resource(name, least)}"
                )
        detail = "; ".join(over) or "no instance type fits what all limits together leave"
        return Reason(pool.name, "LimitReached", detail)
    if option is not None and not any_along(option.opens, 0)[~pool.reserved].any():
        return Reason(pool.name, "ReservationUsedUp", _used_up(pool, option.opens))
    if spread_failed:
        return Reason(pool.name, "", "")
    return Reason(pool.name, "PreferredElsewhere", "other pools come first for it, and their limits are reached")


def _used_up(pool: PoolTable, opens: BoolArray) -> str:
    had = [
        f"{pool.reservations[c]} had {pool.stock.initial[pool.reservations[c]]} of {_names(pool, opens[:, c])}"
        for c in np.flatnonzero(any_along(opens, 0)).tolist()
    ]
    return "only reserved capacity would do, and what was free is taken: " + ", ".join(had[:LISTED])


def _spread_reasons(problem: Problem, attempter: Attempter, attempt: Attempt, members: PodClass) -> list[Reason]:
    topology = problem.topology
    uses = [u for u in topology.uses[members.index] if u.hard]
    if not uses:
        return []
    combos, _ = attempter.combos(members, topology.keys(members), attempt.table)
    return [_spread_reason(problem, members, use, [c for c in combos if c.new]) for use in uses]


def _spread_reason(problem: Problem, members: PodClass, use: SpreadUse, possible: Sequence[object]) -> Reason:
    counts = problem.topology.existing_counts[use.group]
    if not counts and not possible:
        return Reason("", "SpreadUnsatisfiable", f"no node and no pool that it may use has the label {use.key}")
    there = ", ".join(f"{value}: {n}" for value, n in sorted(counts.items())) or "none yet"
    return Reason(
        "",
        "SpreadUnsatisfiable",
        f"spread over {use.key} with maxSkew {use.max_skew} leaves no domain for it (matching pods there: {there}; "
        f"new nodes are possible in {len(possible)} domains)",
    )


def headline(members: PodClass, left: int, reasons: Sequence[Reason]) -> str:
    """One line for a person: how many of how many, and the reasons with equal ones told once."""
    told: dict[str, list[str]] = {}
    for reason in reasons:
        told.setdefault(f"{reason.code}: {reason.message}", []).append(reason.nodepool)
    parts = []
    for text, pools in told.items():
        names = [name for name in pools if name]
        parts.append(f"pool {', '.join(names)}: {text}" if names else text)
    amount = "no place" if left == members.count else f"no place for {left} of {members.count}"
    return f"{amount}: " + "; ".join(parts)
