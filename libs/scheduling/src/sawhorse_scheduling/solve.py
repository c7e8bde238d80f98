"""solve(snapshot) -> Plan: the one entry point.

Pure and deterministic: no clock but what the caller's callbacks know, no randomness, no logging; the order of pods,
pools and types in the snapshot does not matter. Steps: lay out the problem, attempt (existing capacity, domains, new
nodes), check spread on the result and attempt again where limits or mutual rules broke it, price, explain.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, groupby

import numpy as np

from sawhorse_scheduling.arrays import ATTACHABLE, IntArray
from sawhorse_scheduling.attempt import Attempt, Attempter
from sawhorse_scheduling.classes import PodClass
from sawhorse_scheduling.engine import NO_WATCH, Watch
from sawhorse_scheduling.existing import is_in_flight
from sawhorse_scheduling.explain import explain, headline
from sawhorse_scheduling.matching import is_hostname
from sawhorse_scheduling.opening import Pattern
from sawhorse_scheduling.plan import FilledNode, Plan, PlannedNode, Stats, Unschedulable
from sawhorse_scheduling.pools import asks_for_choice, contradictions
from sawhorse_scheduling.pricing import Lister, Listing, least_price
from sawhorse_scheduling.problem import Problem
from sawhorse_scheduling.reservations import is_reserved
from sawhorse_scheduling.settling import settle
from sawhorse_scheduling.snapshot import Snapshot


def solve(snapshot: Snapshot, watch: Watch = NO_WATCH) -> Plan:
    """Plan the snapshot's pods: each is placed once, or reported once with reasons.

    Args:
        watch: callbacks of a caller who has a clock. A deadline ends improving early; it is a guard, effort is
            counted in units of work. `on_first` is told the price of the first whole answer, once.
    """
    first = _First(watch.on_first)
    settled = settle(snapshot, watch.deadline, first.tell)
    problem, attempter, attempt = settled.problem, settled.attempter, settled.attempt
    names = {c.index: _Names(snapshot, c) for c in problem.classes}
    first.tell(sum(least_price(problem.pools[p.pool], p) * len(p.loads) for p in attempt.patterns))
    existing = _existing(problem, attempt, names)
    nodes = _new_nodes(problem, attempt, names)
    left = [
        _unschedulable(problem, attempter, attempt, c, names[c.index])
        for c in problem.classes
        if not c.parts and attempt.placed.get(c.index, 0) < c.count
    ]
    return Plan(
        new_nodes=nodes,
        existing_nodes=existing,
        unschedulable=tuple(left),
        stats=Stats(
            pods=sum(group.count for group in snapshot.pods),
            classes=len(problem.classes),
            instance_types=len({t.name for pool in snapshot.pools for t in pool.instance_types}),
            rounds=settled.rounds,
            first_price_per_hour=first.price or 0.0,
        ),
        lower_bound_per_hour=attempt.lower_bound,
        warnings=_warnings(problem),
    )


class _First:
    """Passes on the first price it is told."""

    def __init__(self, on_first: Callable[[float], None] | None) -> None:
        self._on_first = on_first
        self.price: float | None = None

    def tell(self, price: float) -> None:
        """The price of a whole answer."""
        if self.price is None:
            self.price = price
            if self._on_first is not None:
                self._on_first(price)


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

    def deal(self, each: int, copies: int) -> Iterator[tuple[tuple[str, ...], dict[int, int]]]:
        """Names for equal nodes, one entry each: the names, and how many there are of each group."""
        parts = self.take(each * copies)
        if len(parts) == 1:
            ((index, names),) = parts
            of = {index: each}
            return ((names[start : start + each], of) for start in range(0, len(names), each))
        every = [(name, index) for index, names in parts for name in names]
        pieces = (every[start : start + each] for start in range(0, len(every), each))
        return ((tuple(name for name, _ in piece), Counter(index for _, index in piece)) for piece in pieces)


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
    lister = Lister(problem)
    nodes: list[PlannedNode] = []
    for pattern in attempt.patterns:
        if not pattern.loads:
            continue
        listing = lister.list_types(pattern, waiting[pattern.pool])
        waiting[pattern.pool] -= len(pattern.loads)
        for load, equal in groupby(pattern.loads):
            copies = sum(1 for _ in equal)
            nodes += _equal_nodes(problem, pattern, listing, load, copies, names, numbers[pattern.pool])
            numbers[pattern.pool] += copies
    return tuple(nodes)


def _equal_nodes(
    problem: Problem,
    pattern: Pattern,
    listing: Listing,
    load: dict[int, int],
    copies: int,
    names: dict[int, _Names],
    made: int,
) -> list[PlannedNode]:
    """Nodes that hold equally many pods of each class; a thousand of them cost little more than one."""
    pool = problem.pools[pattern.pool]
    held = sorted(load.items())
    used: IntArray = np.array([n for _, n in held]) @ problem.requests[[c for c, _ in held]]
    dealt = zip(*(names[index].deal(count, copies) for index, count in held), strict=True)
    first = listing.types[0]
    types = tuple(pool.types[t].name for t in listing.types)
    requests, daemons = problem.axis.mapping(used), problem.axis.mapping(pool.daemons[first])
    # Any listed type may be launched: what a claim asks for must not rule out those on which fewer daemons run.
    least = problem.axis.mapping(pool.daemons[list(listing.types)].min(axis=0))
    allocatable = _real(pool.types[first].allocatable)
    return [
        PlannedNode(
            name=f"{pool.name}-{made + number}",
            nodepool=pool.name,
            instance_types=types,
            requirements=listing.requirements,
            zone=listing.zone,
            capacity_type=listing.capacity_type,
            price_per_hour=listing.price,
            expected_price_per_hour=listing.expected,
            worst_price_per_hour=listing.worst,
            pods=tuple(chain.from_iterable(pods for pods, _ in shares)),
            requests=requests,
            daemon_requests=daemons,
            least_daemon_requests=least,
            allocatable=allocatable,
            classes={group: n for _, of in shares for group, n in of.items()},
            relaxed=listing.relaxed,
            reservation_id=pattern.reservation,
        )
        for number, shares in enumerate(dealt, start=1)
    ]


def _real(amounts: Mapping[str, int]) -> Mapping[str, int]:
    """Without the planner's own resources."""
    if not any(name.startswith(ATTACHABLE) for name in amounts):
        return amounts
    return {name: amount for name, amount in amounts.items() if not name.startswith(ATTACHABLE)}


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
    soft = [
        c
        for c in problem.classes
        if not c.parts and any(t.weight and is_hostname(t.topology_key) for t in c.pod.spec.anti_affinity)
    ]
    if soft and not problem.snapshot.options.ignore_preferences:
        found.append(
            f"preferred anti-affinity by hostname of {sum(c.count for c in soft)} pods makes no nodes of its own; "
            "it chooses among nodes that exist, and kube-scheduler honours it on new ones where it can"
        )
    if problem.stock.initial and problem.snapshot.options.min_values_strict:
        found += [
            f"NodePool {pool.name}: its minValues asks for a choice, which one reservation does not leave; "
            "reserved capacity is not used for it"
            for pool in problem.pools
            if asks_for_choice(pool.template) and any(map(is_reserved, (o for t in pool.types for o in t.offerings)))
        ]
    found += [
        f"NodePool {name}: its requirements cannot be read, so it is not used: {fault}"
        for name, fault in sorted(problem.faulty.items())
    ]
    for pool in problem.pools:
        for key in contradictions(pool.pool.nodepool.template.requirements):
            found.append(f"NodePool {pool.name}: its requirements on {key} exclude each other")
    found += [
        f"NodePool {pool.name}: no instance type meets its requirements with an available offering"
        for pool in problem.pools
        if not np.isfinite(pool.price).any()
    ]
    return tuple(found)
