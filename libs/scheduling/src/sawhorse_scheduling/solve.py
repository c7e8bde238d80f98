"""solve(snapshot) -> Plan: the one entry point.

Pure and deterministic: no clock, no randomness, no logging; the order of pods, pools and types in the snapshot does
not matter. Steps: lay out the problem, attempt (existing capacity, domains, new nodes), check spread on the result and
attempt again where limits or mutual rules broke it, price, explain.
"""

import numpy as np

from sawhorse_model.instances import CapacityType
from sawhorse_scheduling.arrays import IntArray
from sawhorse_scheduling.attempt import Attempt, Attempter
from sawhorse_scheduling.classes import PodClass
from sawhorse_scheduling.existing import is_in_flight
from sawhorse_scheduling.explain import explain, headline
from sawhorse_scheduling.opening import Pattern
from sawhorse_scheduling.plan import FilledNode, Plan, PlannedNode, Stats, Unschedulable
from sawhorse_scheduling.pricing import Listing, list_types
from sawhorse_scheduling.problem import Problem, build_problem
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_scheduling.verify import excesses, trim

ATTEMPTS = 5


def solve(snapshot: Snapshot) -> Plan:
    """Plan the snapshot's pods: each is placed once, or reported once with reasons."""
    problem = build_problem(snapshot)
    attempter = Attempter(problem)
    attempt, rounds = _attempt(problem, attempter)
    names = {c.index: _Names(snapshot, c) for c in problem.classes}
    existing = _existing(problem, attempt, names)
    nodes = _new_nodes(problem, attempt, names)
    left = [
        _unschedulable(problem, attempter, attempt, c, names[c.index])
        for c in problem.classes
        if attempt.placed.get(c.index, 0) < c.count
    ]
    return Plan(
        new_nodes=nodes,
        existing_nodes=existing,
        unschedulable=tuple(left),
        stats=Stats(
            pods=sum(group.count for group in snapshot.pods),
            classes=len(problem.classes),
            instance_types=len({t.name for pool in snapshot.pools for t in pool.instance_types}),
            rounds=rounds,
        ),
        warnings=_warnings(problem),
    )


def _attempt(problem: Problem, attempter: Attempter) -> tuple[Attempt, int]:
    """Attempt until spread holds, each time with no more pods of a spread class than found a place before.

    From the middle on, what breaks a constraint is taken back first, so that the next attempt asks for what is known
    to be possible; the last attempt stands as trimmed.
    """
    caps: dict[int, int] = {}
    for number in range(ATTEMPTS):
        attempt = attempter.run(caps, evenly=number > 0)
        if next(excesses(problem, attempter, attempt), None) is None:
            return attempt, number + 1
        if number >= ATTEMPTS // 2:
            trim(problem, attempter, attempt)
        for members in problem.classes:
            if any(use.hard for use in problem.topology.uses[members.index]):
                caps[members.index] = attempt.placed.get(members.index, 0)
    return attempt, ATTEMPTS


class _Names:
    """Hands out a class's pods in serving order, remembering which group they are of."""

    def __init__(self, snapshot: Snapshot, members: PodClass) -> None:
        self._groups = [(index, snapshot.pods[index].names) for index in members.groups]
        self._position = (0, 0)

    def take(self, count: int) -> list[tuple[int, tuple[str, ...]]]:
        """The next `count` names as (index in Snapshot.pods, names)."""
        result = []
        at, offset = self._position
        while count:
            index, names = self._groups[at]
            part = min(count, len(names) - offset)
            if part:
                result.append((index, tuple(names[offset : offset + part])))
            count, offset = count - part, offset + part
            if offset == len(names):
                at, offset = at + 1, 0
        self._position = (at, offset)
        return result


def _existing(problem: Problem, attempt: Attempt, names: dict[int, _Names]) -> tuple[FilledNode, ...]:
    rows: dict[int, list[str]] = {}
    for (index, row), number in sorted(attempt.filled.items(), key=lambda entry: (entry[0][1], entry[0][0])):
        for _, part in names[index].take(number):
            rows.setdefault(row, []).extend(part)
    nodes = [(problem.table.nodes[row], pods) for row, pods in rows.items()]
    return tuple(FilledNode(n.name, tuple(pods), n.claim if is_in_flight(n) else "") for n, pods in nodes)


def _new_nodes(problem: Problem, attempt: Attempt, names: dict[int, _Names]) -> tuple[PlannedNode, ...]:
    waiting = {pool.index: 0 for pool in problem.pools}
    for pattern in attempt.patterns:
        waiting[pattern.pool] += len(pattern.loads)
    numbers = dict.fromkeys(waiting, 0)
    nodes: list[PlannedNode] = []
    for pattern in attempt.patterns:
        copies = len(pattern.loads)
        if not copies:
            continue
        listing = _listing(problem, pattern, waiting[pattern.pool])
        waiting[pattern.pool] -= copies
        for load in pattern.loads:
            numbers[pattern.pool] += 1
            nodes.append(_node(problem, pattern, listing, load, names, numbers[pattern.pool]))
    return tuple(nodes)


def _listing(problem: Problem, pattern: Pattern, waiting: int) -> Listing:
    """List a pattern's types with a fair part of what the limits leave, and hold what the largest of them takes."""
    pool = problem.pools[pattern.pool]
    spare = np.maximum(pool.remaining, 0) // max(waiting, 1)
    listing = list_types(problem, pattern, spare)
    most: IntArray = pool.capacity[list(listing.types)].max(axis=0, initial=0)
    pool.remaining = pool.remaining - np.maximum(most - pattern.taken, 0) * len(pattern.loads)
    return listing


def _node(
    problem: Problem,
    pattern: Pattern,
    listing: Listing,
    load: dict[int, int],
    names: dict[int, _Names],
    number: int,
) -> PlannedNode:
    pool = problem.pools[pattern.pool]
    used = np.zeros(len(problem.axis.names), dtype=np.int64)
    pods: list[str] = []
    groups: dict[int, int] = {}
    for index, count in sorted(load.items()):
        used += problem.requests[index] * count
        for group, part in names[index].take(count):
            pods.extend(part)
            groups[group] = groups.get(group, 0) + len(part)
    first = listing.types[0]
    return PlannedNode(
        name=f"{pool.name}-{number}",
        nodepool=pool.name,
        instance_types=tuple(pool.types[t].name for t in listing.types),
        requirements=listing.requirements,
        zone=listing.zone,
        capacity_type=listing.capacity_type,
        price_per_hour=listing.price,
        expected_price_per_hour=listing.expected,
        worst_price_per_hour=listing.worst,
        pods=tuple(pods),
        requests=problem.axis.mapping(used),
        daemon_requests=problem.axis.mapping(pool.daemons[first]),
        allocatable=dict(pool.types[first].allocatable),
        classes=groups,
    )


def _unschedulable(
    problem: Problem, attempter: Attempter, attempt: Attempt, members: PodClass, names: _Names
) -> Unschedulable:
    left = members.count - attempt.placed.get(members.index, 0)
    reasons = explain(problem, attempter, attempt, members)
    pods = tuple(name for _, part in names.take(left) for name in part)
    return Unschedulable(pods, headline(members, left, reasons), reasons)


def _warnings(problem: Problem) -> tuple[str, ...]:
    """What was left out of the plan without leaving a pod out."""
    found: list[str] = []
    soft = [c for c in problem.classes if any(t.weight for t in (*c.pod.spec.affinity, *c.pod.spec.anti_affinity))]
    if soft and not problem.snapshot.options.ignore_preferences:
        found.append(
            f"preferred pod affinity and anti-affinity of {sum(c.count for c in soft)} pods is not planned for; "
            "kube-scheduler still honours it where it can"
        )
    reserved = sorted(
        {
            o.reservation_id or t.name
            for p in problem.pools
            for t in p.types
            for o in t.offerings
            if o.capacity_type is CapacityType.RESERVED and o.available
        }
    )
    if reserved:
        found.append(f"reserved capacity is not planned yet; {len(reserved)} reservations are left out")
    found += [
        f"NodePool {pool.name}: no instance type meets its requirements with an available offering"
        for pool in problem.pools
        if not np.isfinite(pool.price).any()
    ]
    return tuple(found)
