"""An attempt's pods counted by domain, as matrices: what the checks on spread read."""

import numpy as np

from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_scheduling.arrays import BoolArray, IntArray, any_along
from sawhorse_scheduling.attempt import Attempt
from sawhorse_scheduling.classes import ClassSelection
from sawhorse_scheduling.opening import Pattern
from sawhorse_scheduling.places import KnownLabels
from sawhorse_scheduling.problem import Problem
from sawhorse_scheduling.topology import SpreadGroup


class Counting:
    """A finished attempt's pods per (kind of new node, class), and what is certain of each kind's labels."""

    def __init__(self, problem: Problem, attempt: Attempt) -> None:
        self.problem = problem
        self.attempt = attempt
        self.pods = np.zeros((len(attempt.patterns), len(problem.classes)), dtype=np.int64)
        for row, pattern in enumerate(attempt.patterns):
            for load in pattern.loads:
                for members, number in load.items():
                    self.pods[row, members] += number
        self._selection = ClassSelection(problem.classes)
        self.labels = [pattern_labels(problem, pattern) for pattern in attempt.patterns]

    def own(self, index: int, key: str) -> dict[str, int]:
        """Pods of a class per value of a label; those on nodes without it under the empty value."""
        counts: dict[str, int] = {}
        table = self.problem.table
        for (members, row), number in self.attempt.filled.items():
            if members == index:
                value = table.labels[row].certain.get(key, "")
                counts[value] = counts.get(value, 0) + number
        column = self.pods[:, index]
        for row in np.flatnonzero(column).tolist():
            value = self.labels[row].get(key, "")
            counts[value] = counts.get(value, 0) + int(column[row])
        return counts

    def of_group(self, group: int) -> tuple[dict[str, int], dict[str, int]]:
        """Matching pods per domain in the end: on nodes that take part for sure, and on all that may.

        The difference is new nodes that serve the owner's requirements only if they get some of the labels they may
        get.
        """
        problem, table = self.problem, self.problem.table
        rule = problem.topology.groups[group]
        sure = dict(problem.topology.existing_counts[group])
        matching = self._selection.of(rule.matcher)
        takes_part: dict[int, bool] = {}
        for (members, row), number in self.attempt.filled.items():
            if not matching[members]:
                continue
            if row not in takes_part:
                takes_part[row] = rule.counts_node(table.labels[row], table.nodes[row].taints)
            if takes_part[row]:
                value = table.labels[row].certain[rule.key]
                sure[value] = sure.get(value, 0) + number * int(matching[members])
        most = dict(sure)
        numbers: IntArray = self.pods @ matching
        for row, pattern in enumerate(self.attempt.patterns):
            if not pattern.loads or (not numbers[row] and self.labels[row].get(rule.key, "") in sure):
                continue
            domain, certain = self._domain(rule, pattern, self.labels[row])
            if domain is None:
                continue
            most[domain] = most.get(domain, 0) + int(numbers[row])
            # If it takes part it is a domain, whoever is there; and if not, its pods are none of the least.
            sure[domain] = sure.get(domain, 0) + (int(numbers[row]) if certain else 0)
        return sure, most

    def _domain(self, rule: SpreadGroup, pattern: Pattern, labels: dict[str, str]) -> tuple[str | None, bool]:
        """In which domain of a group a new node may take part (None: in none, or in several), and whether it will."""
        pool = self.problem.pools[pattern.pool]
        plain = SpreadGroup(rule.key, rule.matcher, rule.keys, None, rule.tolerations)
        if not plain.counts_node(KnownLabels(labels), pool.taints):
            return None, False
        if rule.terms is None or any(not term for term in rule.terms):
            return labels[rule.key], True
        served: BoolArray = np.zeros_like(pattern.allow)
        possible = False
        for term in rule.terms:
            fit = pool.fit(term)
            if fit is None or not pattern.requirements.intersects(term):
                continue
            possible = possible or bool((fit.allow & pattern.allow).any())
            if all(key in labels and wish.has(labels[key]) for key, wish in fit.custom.items()):
                served |= fit.allow
        return (labels[rule.key] if possible else None), not (pattern.allow & ~served).any()


def pattern_labels(problem: Problem, pattern: Pattern) -> dict[str, str]:
    """What is certain of a new node: single-valued requirements, and what all its offerings have in common."""
    labels = pattern.requirements.labels()
    there = any_along(pattern.allow, 0)
    columns = [column for column, offered in zip(problem.pools[pattern.pool].columns, there, strict=True) if offered]
    for key, values in ((ZONE, {zone for zone, _ in columns}), (CAPACITY_TYPE, {kind for _, kind in columns})):
        if len(values) == 1:
            labels[key] = values.pop()
    return labels
