"""Spread over domains, checked on a finished attempt and trimmed where it does not hold.

Dealing assumes that every dealt pod finds its node. Limits can break that, and rules that read each other's pods can
too. So the final state is checked, and pods that are too many in a domain are taken back.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_scheduling.arrays import any_along
from sawhorse_scheduling.attempt import Attempt, Attempter
from sawhorse_scheduling.classes import PodClass
from sawhorse_scheduling.existing import KnownLabels
from sawhorse_scheduling.opening import Pattern
from sawhorse_scheduling.problem import Problem
from sawhorse_scheduling.topology import SpreadGroup, SpreadUse, least_count


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
    used = sorted({u.group for uses in topology.uses for u in uses if u.hard})
    if not used:
        return
    counted = {g: _final_counts(problem, attempt, g) for g in used}
    for members in problem.classes:
        uses = [u for u in topology.uses[members.index] if u.hard]
        if not uses or not attempt.placed.get(members.index):
            continue
        combos, _ = attempter.combos(members, topology.keys(members), attempt.table)
        for use in uses:
            sure, most = counted[use.group]
            domains = sure.keys() | {v for c in combos if c.new and (v := c.values[use.key]) is not None}
            least = least_count(sure, sorted(domains), use.min_domains)
            yield from _of_use(problem, attempt, members, use, most, least)


def _of_use(
    problem: Problem,
    attempt: Attempt,
    members: PodClass,
    use: SpreadUse,
    counts: dict[str, int],
    least: int,
) -> Iterator[Excess]:
    counts_self = use.group in problem.topology.counted_by[members.index]
    for value, own in sorted(_own_counts(problem, attempt, members.index, use.key).items()):
        over = counts.get(value, 0) - least - use.max_skew
        if over > 0 and own:
            yield Excess(members.index, use.key, value, min(own, over) if counts_self else own)


def _own_counts(problem: Problem, attempt: Attempt, index: int, key: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for (members, row), number in attempt.filled.items():
        if members == index:
            value = problem.table.labels[row].certain.get(key, "")
            counts[value] = counts.get(value, 0) + number
    for pattern in attempt.patterns:
        number = sum(load.get(index, 0) for load in pattern.loads)
        if number:
            value = _labels(problem, pattern).get(key, "")
            counts[value] = counts.get(value, 0) + number
    return counts


def _final_counts(problem: Problem, attempt: Attempt, group: int) -> tuple[dict[str, int], dict[str, int]]:
    """Matching pods per domain in the end: on nodes that take part for sure, and on all that may.

    The difference is new nodes that serve the owner's requirements only if they get some of the labels they may get.
    """
    rule = problem.topology.groups[group]
    sure = dict(problem.topology.existing_counts[group])
    matching = {c.index for c in problem.classes if rule.matcher.selects(c.pod)}
    takes_part = {
        row for row, node in enumerate(problem.table.nodes) if rule.counts_node(problem.table.labels[row], node.taints)
    }
    for (members, row), number in attempt.filled.items():
        if members in matching and row in takes_part:
            value = problem.table.labels[row].certain[rule.key]
            sure[value] = sure.get(value, 0) + number
    most = dict(sure)
    for pattern in attempt.patterns:
        domain, certain = _pattern_domain(problem, rule, pattern)
        if domain is None or not pattern.loads:
            continue
        number = sum(n for load in pattern.loads for members, n in load.items() if members in matching)
        most[domain] = most.get(domain, 0) + number
        if certain:
            sure[domain] = sure.get(domain, 0) + number
    return sure, most


def _labels(problem: Problem, pattern: Pattern) -> dict[str, str]:
    """What is certain of a new node: single-valued requirements, and what all its offerings have in common."""
    labels = pattern.requirements.labels()
    there = any_along(pattern.allow, 0)
    columns = [column for column, offered in zip(problem.pools[pattern.pool].columns, there, strict=True) if offered]
    for key, values in ((ZONE, {zone for zone, _ in columns}), (CAPACITY_TYPE, {kind for _, kind in columns})):
        if len(values) == 1:
            labels[key] = values.pop()
    return labels


def _pattern_domain(problem: Problem, rule: SpreadGroup, pattern: Pattern) -> tuple[str | None, bool]:
    """In which domain of a group a new node may take part (None: in none, or in several), and whether it will."""
    pool, labels = problem.pools[pattern.pool], _labels(problem, pattern)
    plain = SpreadGroup(rule.key, rule.matcher, rule.keys, None, rule.tolerations)
    if not plain.counts_node(KnownLabels(labels), pool.taints):
        return None, False
    if rule.terms is None:
        return labels[rule.key], True
    served, possible = np.zeros_like(pattern.allow), False
    for term in rule.terms:
        fit = pool.fit(term)
        if fit is None or not pattern.requirements.intersects(term):
            continue
        possible = possible or bool((fit.allow & pattern.allow).any())
        if all(key in labels and wish.has(labels[key]) for key, wish in fit.custom.items()):
            served |= fit.allow
    return (labels[rule.key] if possible else None), not (pattern.allow & ~served).any()


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
    for pattern in reversed(attempt.patterns):
        if _labels(problem, pattern).get(excess.key, "") != excess.value:
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
