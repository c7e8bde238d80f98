"""Spread over domains, checked on a finished attempt and trimmed where it does not hold.

Dealing assumes that every dealt pod finds its node. Limits can break that, and rules that read each other's pods can
too. So the final state is checked, and pods that are too many in a domain are taken back.
"""

from collections.abc import Iterator
from dataclasses import dataclass

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
            counts, present = counted[use.group]
            domains = set(topology.existing_counts[use.group]) | present
            domains |= {v for c in combos if c.new and (v := c.values[use.key]) is not None}
            yield from _of_use(problem, attempt, members, use, counts, sorted(domains))


def _of_use(
    problem: Problem,
    attempt: Attempt,
    members: PodClass,
    use: SpreadUse,
    counts: dict[str, int],
    domains: list[str],
) -> Iterator[Excess]:
    least = least_count(counts, domains, use.min_domains)
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
            value = pattern.requirements.labels().get(key, "")
            counts[value] = counts.get(value, 0) + number
    return counts


def _final_counts(problem: Problem, attempt: Attempt, group: int) -> tuple[dict[str, int], set[str]]:
    """Matching pods per domain in the end, and the domains that new nodes add."""
    rule = problem.topology.groups[group]
    counts = dict(problem.topology.existing_counts[group])
    present: set[str] = set()
    matching = {c.index for c in problem.classes if rule.matcher.selects(c.pod)}
    takes_part = {
        row for row, node in enumerate(problem.table.nodes) if rule.counts_node(problem.table.labels[row], node.taints)
    }
    for (members, row), number in attempt.filled.items():
        if members in matching and row in takes_part:
            value = problem.table.labels[row].certain[rule.key]
            counts[value] = counts.get(value, 0) + number
    for pattern in attempt.patterns:
        domain = _pattern_domain(problem, rule, pattern.pool, pattern.requirements.labels())
        if domain is None or not pattern.loads:
            continue
        present.add(domain)
        number = sum(n for load in pattern.loads for members, n in load.items() if members in matching)
        counts[domain] = counts.get(domain, 0) + number
    return counts, present


def _pattern_domain(problem: Problem, rule: SpreadGroup, pool: int, labels: dict[str, str]) -> str | None:
    """In which domain of a group a new node will be; None when it takes no part or could be in several."""
    known = KnownLabels(labels)
    plain = SpreadGroup(rule.key, rule.matcher, rule.keys, None, rule.tolerations)
    if not plain.counts_node(known, problem.pools[pool].taints):
        return None
    if rule.terms is not None:
        table = problem.pools[pool]
        own = table.template.without(*labels)
        node = own.intersection(own.from_labels(labels))
        if not any(node.is_compatible(term, table.well_known) for term in rule.terms):
            return None
    return labels[rule.key]


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
        if pattern.requirements.labels().get(excess.key, "") != excess.value:
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
