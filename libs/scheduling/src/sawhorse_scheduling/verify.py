"""Spread over domains, checked on a finished attempt and trimmed where it does not hold.

Dealing assumes that every dealt pod finds its node. Limits can break that, and rules that read each other's pods can
too. So the final state is checked, and pods that are too many in a domain are taken back.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sawhorse_scheduling.affinity import Spot, unmet_apart, unmet_near
from sawhorse_scheduling.arrays import any_along
from sawhorse_scheduling.attempt import Attempt, Attempter
from sawhorse_scheduling.classes import PodClass
from sawhorse_scheduling.counting import Counting, pattern_labels
from sawhorse_scheduling.opening import Pattern
from sawhorse_scheduling.problem import Problem
from sawhorse_scheduling.topology import SpreadUse, least_count


@dataclass(frozen=True, slots=True)
class Excess:
    """Pods of a class in a domain beyond what the skew allows."""

    members: int
    key: str
    value: str
    count: int


def excesses(problem: Problem, attempter: Attempter, attempt: Attempt) -> Iterator[Excess]:
    """Hard constraints that the attempt breaks."""
    topology = problem.topology
    yield from _affinity_excesses(problem, attempt)
    used = sorted({u.group for uses in topology.uses for u in uses if u.hard})
    if not used:
        return
    counting = Counting(problem, attempt)
    counted = {g: counting.of_group(g) for g in used}
    for members in problem.classes:
        uses = [u for u in topology.uses[members.index] if u.hard]
        if not uses or not attempt.placed.get(members.index):
            continue
        combos, _ = attempter.combos(members, problem.keys(members), attempt.table)
        for use in uses:
            sure, most = counted[use.group]
            domains = sure.keys() | {
                v for c in combos if (c.new or c.is_domain) and (v := c.values[use.key]) is not None
            }
            least = least_count(sure, sorted(domains), use.min_domains)
            yield from _of_use(counting, members, use, most, least)


def _affinity_excesses(problem: Problem, attempt: Attempt) -> Iterator[Excess]:
    topology = problem.topology
    if not any(topology.near) and not topology.apart.rules:
        return
    spots = [Spot(problem.table.labels[row].certain, {c: n}) for (c, row), n in attempt.filled.items()]
    for pattern in attempt.patterns:
        labels = pattern_labels(problem, pattern)
        total: dict[int, int] = {}
        for load in pattern.loads:
            for members, number in load.items():
                total[members] = total.get(members, 0) + number
        spots.append(Spot(labels, total))
    for breach in (
        *unmet_near(topology.near, topology.counted_by, topology.existing_counts, spots),
        *unmet_apart(topology.apart, spots),
    ):
        yield Excess(breach.members, breach.key, breach.value, breach.count)


def _of_use(
    counting: Counting, members: PodClass, use: SpreadUse, counts: dict[str, int], least: int
) -> Iterator[Excess]:
    counts_self = use.group in counting.problem.topology.counted_by[members.index]
    for value, own in sorted(counting.own(members.index, use.key).items()):
        over = counts.get(value, 0) - least - use.max_skew
        if over > 0 and own:
            yield Excess(members.index, use.key, value, min(own, over) if counts_self else own)


def trim(problem: Problem, attempter: Attempter, attempt: Attempt) -> None:
    """Take pods back until every hard constraint holds; it ends because an empty plan breaks none."""
    while True:
        found = next(excesses(problem, attempter, attempt), None)
        if found is not None:
            _take_back(problem, attempt, found)
        elif not _close_unasked(problem, attempt):
            return


def _close_unasked(problem: Problem, attempt: Attempt) -> bool:
    """Give up accelerator nodes whose pods that asked for the accelerator were taken back; return whether any was."""
    closed = False
    for pattern in attempt.patterns:
        pool = problem.pools[pattern.pool]
        if not pool.exotic[any_along(pattern.allow, 1)].any() or not _has_plain(problem, pattern):
            continue
        for load in pattern.loads:
            if not any(problem.classes[index].exotic for index in load):
                for index, number in load.items():
                    attempt.placed[index] -= number
                load.clear()
                closed = True
        pattern.loads = [load for load in pattern.loads if load]
    return closed


def _has_plain(problem: Problem, pattern: Pattern) -> bool:
    """Whether the requirements alone would also allow a type without accelerator."""
    pool = problem.pools[pattern.pool]
    fit = pool.fit(pattern.requirements)
    return fit is not None and bool((any_along(fit.allow, 1) & ~pool.exotic).any())


def _take_back(problem: Problem, attempt: Attempt, excess: Excess) -> None:
    left = excess.count
    attempt.bounds.append(None)  # what was proven counted the pods that are taken back
    for pattern in reversed(attempt.patterns):
        if pattern_labels(problem, pattern).get(excess.key, "") != excess.value:
            continue
        for load in reversed(pattern.loads):
            part = min(left, load.get(excess.members, 0))
            if part:
                load[excess.members] -= part
                left -= part
                if not load[excess.members]:
                    del load[excess.members]
        pattern.loads = [load for load in pattern.loads if load]
    for key in sorted(attempt.filled, reverse=True):
        members, row = key
        if members == excess.members and problem.table.labels[row].certain.get(excess.key, "") == excess.value:
            part = min(left, attempt.filled[key])
            attempt.filled[key] -= part
            left -= part
            if not attempt.filled[key]:
                del attempt.filled[key]
    attempt.placed[excess.members] -= excess.count - left
