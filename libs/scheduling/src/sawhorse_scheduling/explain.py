"""Why pods found no place: per pool the rule that stood in the way, what was asked, what was there, the nearest miss.

Computed only for classes with pods left over. Codes are stable; docs/reasons.md lists them.
"""

from collections.abc import Sequence

import numpy as np

from sawhorse_model.labels import CAPACITY_TYPE, ZONE, likely_meant
from sawhorse_model.requirements import Requirements
from sawhorse_model.resources import format_resource
from sawhorse_model.taints import untolerated
from sawhorse_scheduling.affinity_reasons import affinity_reasons, bundle_reasons
from sawhorse_scheduling.arrays import BoolArray, any_along, times
from sawhorse_scheduling.attempt import Attempt, Attempter
from sawhorse_scheduling.classes import PodClass
from sawhorse_scheduling.daemons import clash
from sawhorse_scheduling.near_miss import LISTED, names_of, nearest, no_offering, no_type
from sawhorse_scheduling.plan import Reason
from sawhorse_scheduling.pools import Fit, PoolTable
from sawhorse_scheduling.problem import Problem, holds_daemons, openable
from sawhorse_scheduling.topology import SpreadUse


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
    for name, fault in sorted(problem.faulty.items()):
        reasons.append(Reason(name, "InvalidRequirement", f"the pool's own requirements cannot be read: {fault}"))
    if not problem.pools and not problem.faulty:
        reasons.append(Reason("", "NoPool", _no_pool(problem)))
    elsewhere = any(not reason.nodepool for reason in reasons)
    reasons += [_pool_reason(problem, members, pool, elsewhere) for pool in problem.pools]
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
        meant = likely_meant(misfit.key, pool.well_known) if misfit is not None and misfit.have is None else ""
        hint = f"; did you mean {meant}?" if meant else ""
        return Reason(pool.name, "RequirementsConflict", f"{misfit or 'requirements conflict'}{hint}")
    serving = _types_serving(pool, fit)
    if not serving.any():
        return Reason(pool.name, "RequirementsConflict", no_type(problem, members, pool, wants, fit))
    if not fit.allow.any():
        return Reason(pool.name, "NoOffering", no_offering(problem, members, pool, wants, fit, serving))
    asked = problem.requests[members.index]
    holds = (times(pool.room, asked[None, :]) > 0) & holds_daemons(pool) & any_along(fit.allow, 1)
    if not holds.any():
        return Reason(pool.name, "InsufficientResources", nearest(problem, members, pool, wants, fit))
    if not (holds & openable(members, pool, fit)).any():
        names = names_of(pool, holds)
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
        f"needs {pool.min_values.get(key, 0)} values of {key}, {have} left ({names_of(pool, types)})",
    )


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
    within = opens & pool.within_limits()
    if option is not None and (gap := pool.min_values_gap(option.opens & within[:, None], within, pool.min_values)):
        short = (
            f"minValues asks for {pool.min_values[gap[0]]} values of {gap[0]}, and the limits leave types with {gap[1]}"
        )
        return Reason(pool.name, "LimitReached", short)
    if option is not None and not any_along(option.opens, 0)[~pool.reserved].any():
        return Reason(pool.name, "ReservationUsedUp", _used_up(pool, option.opens))
    if spread_failed:
        return Reason(pool.name, "", "")
    return Reason(pool.name, "PreferredElsewhere", "other pools come first for it, and their limits are reached")


def _used_up(pool: PoolTable, opens: BoolArray) -> str:
    had = [
        f"{pool.reservations[c]} had {pool.stock.initial[pool.reservations[c]]} of {names_of(pool, opens[:, c])}"
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
