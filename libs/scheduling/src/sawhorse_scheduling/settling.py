"""From a snapshot to an attempt that stands: rounds until every hard rule holds, and pods gathered that like company.

A preferred affinity by hostname makes no nodes and costs nobody a place: pods are bundled as if they had to share a
node, and where that leaves a pod over, or takes it off a node that exists or out of a heavier pool, the wish is let go.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sawhorse_scheduling.arrays import times
from sawhorse_scheduling.attempt import Attempt, Attempter
from sawhorse_scheduling.classes import PodClass
from sawhorse_scheduling.colocation import is_tied, stuck_followers
from sawhorse_scheduling.company import liked_most
from sawhorse_scheduling.engine import Watch
from sawhorse_scheduling.problem import Problem, build_problem
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_scheduling.unbundle import unbundle
from sawhorse_scheduling.verify import excesses, trim

ATTEMPTS = 5
PARTINGS = 4  # times that one class is parted from each bundle without a place; then all are
GATHERINGS = 3  # tries, each with the wishes that the one before could not keep let go
NO_DEARER = 1.1  # pods gather on types that cost a pod at most so many times the least


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """An attempt that keeps every hard rule, bundles taken apart, and the problem that it answers."""

    problem: Problem
    attempter: Attempter
    attempt: Attempt
    rounds: int


def settle(snapshot: Snapshot, deadline: Callable[[], bool] | None, on_first: Callable[[float], None]) -> Settled:
    """Plan a snapshot as far as who goes where. Arguments as in `engine.Watch`."""
    watch = Watch(deadline, on_first)
    parted: frozenset[int] = frozenset()
    settled = _settle(build_problem(snapshot), watch)
    partings = 0
    while stuck := stuck_followers(settled.problem.classes, settled.attempt.placed, every=partings >= PARTINGS):
        parted |= stuck
        partings += 1
        settled = _settle(build_problem(snapshot, parted), watch)
    unbundle(settled.problem, settled.attempt)
    wishes = _gatherable(settled)
    for _ in range(GATHERINGS):
        if not wishes or (deadline is not None and deadline()):
            break
        gathered = _settle(build_problem(snapshot, parted, wishes), watch)
        unbundle(gathered.problem, gathered.attempt)
        worse = _worse(settled, gathered)
        if not worse:
            _keep_bounds(settled, gathered)
            return gathered
        kept = {index: most for index, most in wishes.items() if index not in worse}
        wishes = kept if len(kept) < len(wishes) else {}
    return settled


def _settle(problem: Problem, watch: Watch) -> Settled:
    """Attempt until spread holds, each time with no more pods of a ruled class than found a place before.

    From the middle on, what breaks a constraint is taken back first, so that the next attempt asks for what is known
    to be possible; the last attempt stands as trimmed.
    """
    attempter = Attempter(problem, watch)
    caps: dict[int, int] = {}
    for number in range(ATTEMPTS):
        attempt = attempter.run(caps, evenly=number > 0)
        if next(excesses(problem, attempter, attempt), None) is None:
            return Settled(problem, attempter, attempt, number + 1)
        if number >= ATTEMPTS // 2:
            trim(problem, attempter, attempt)
        for members in problem.classes:
            if problem.topology.is_ruled(members):
                caps[members.index] = attempt.placed.get(members.index, 0)
    return Settled(problem, attempter, attempt, ATTEMPTS)


def _gatherable(settled: Settled) -> dict[int, int]:
    """Classes that would like to share a node, all of their pods on new ones, and how many of them may at most."""
    problem, found = settled.problem, dict[int, int]()
    if problem.snapshot.options.ignore_preferences:
        return found
    there = _on_existing(settled.attempt)
    for members in problem.classes:
        if members.index in there or not settled.attempt.placed.get(members.index):
            continue
        if members.refusal is None and not members.parts and not is_tied(members.pod):
            if liked_most(members.pod, problem.snapshot) is not None:
                found[members.index] = _most_together(problem, members)
    return found


def _most_together(problem: Problem, members: PodClass) -> int:
    """How many pods of a class fit on a new node of a type that is about as cheap for them as any."""
    asked = problem.requests[members.index]
    options = problem.options(members, problem.topology.forbidden[members.index])
    spots = [
        (cost, int(number))
        for stages in options.values()
        for option in (stages[0].values() if stages else ())
        for cost, number in zip(
            np.where(option.opens, problem.pools[option.pool].price, np.inf).min(axis=1, initial=np.inf).tolist(),
            times(problem.pools[option.pool].room, asked[None, :]).tolist(),
            strict=True,
        )
        if np.isfinite(cost) and number > 0
    ]
    least = min((cost / number for cost, number in spots), default=0.0)
    return max((number for cost, number in spots if cost / number <= least * NO_DEARER), default=1)


def _worse(before: Settled, after: Settled) -> set[int]:
    """Classes with fewer pods placed, or fewer on nodes that exist or of heavier pools, than before.

    And those that are gathered with a class of which pods are left over: it would be told that company is why.
    """
    there, then = _on_existing(before.attempt), _on_existing(after.attempt)
    heavy, heavier = _by_weight(before), _by_weight(after)
    found: set[int] = set()
    for c in before.problem.classes:
        placed = after.attempt.placed.get(c.index, 0)
        if c.parts:
            continue
        if placed < before.attempt.placed.get(c.index, 0) or then.get(c.index, 0) < there.get(c.index, 0):
            found.add(c.index)
        if any(
            heavier.get((c.index, weight), 0) < heavy.get((c.index, weight), 0) for weight in before.problem.tiers()
        ):
            found.add(c.index)
        if placed < c.count and not c.bundled:
            bundles = [after.problem.classes[b] for b in after.problem.classes[c.index].bundled]
            found.update(part.members for bundle in bundles for part in bundle.parts)
    return found


def _on_existing(attempt: Attempt) -> Mapping[int, int]:
    found: dict[int, int] = {}
    for (index, _), number in attempt.filled.items():
        found[index] = found.get(index, 0) + number
    return found


def _by_weight(settled: Settled) -> dict[tuple[int, int], int]:
    """(class, weight) → its pods on new nodes of pools of at least that weight."""
    found: dict[tuple[int, int], int] = {}
    for pattern in settled.attempt.patterns:
        weight = settled.problem.pools[pattern.pool].weight
        total: dict[int, int] = {}
        for load in pattern.loads:
            for index, number in load.items():
                total[index] = total.get(index, 0) + number
        for index, number in total.items():
            for lighter in settled.problem.tiers():
                if lighter <= weight:
                    found[index, lighter] = found.get((index, lighter), 0) + number
    return found


def _keep_bounds(before: Settled, after: Settled) -> None:
    """What was proven for pods that may go anywhere holds for them where they are gathered too; no more is known."""
    classes = [c for c in before.problem.classes if not c.parts]
    placed = all(after.attempt.placed.get(c.index, 0) == before.attempt.placed.get(c.index, 0) for c in classes)
    same = placed and _on_existing(before.attempt) == _on_existing(after.attempt)
    after.attempt.bounds = before.attempt.bounds if same else [None]
