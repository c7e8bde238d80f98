"""Bundles back to the pods that they are made of, once an attempt stands."""

from sawhorse_scheduling.attempt import Attempt
from sawhorse_scheduling.classes import Part
from sawhorse_scheduling.problem import Problem


def unbundle(problem: Problem, attempt: Attempt) -> None:
    """Replace bundles in what was filled and loaded by their classes; what is placed of those is counted as well."""
    parts = {c.index: c.parts for c in problem.classes if c.parts}
    if not parts:
        return
    for index, held in parts.items():
        for part in held:
            number = attempt.placed.get(index, 0) * part.count
            attempt.placed[part.members] = attempt.placed.get(part.members, 0) + number
    filled: dict[tuple[int, int], int] = {}
    for (index, row), number in attempt.filled.items():
        for members, each in _of(parts, index):
            filled[members, row] = filled.get((members, row), 0) + number * each
    attempt.filled = filled
    for pattern in attempt.patterns:
        if any(index in parts for load in pattern.loads for index in load):
            pattern.loads = [_expanded(parts, load) for load in pattern.loads]


def _of(parts: dict[int, tuple[Part, ...]], index: int) -> list[tuple[int, int]]:
    return [(part.members, part.count) for part in parts[index]] if index in parts else [(index, 1)]


def _expanded(parts: dict[int, tuple[Part, ...]], load: dict[int, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for index, number in load.items():
        for members, each in _of(parts, index):
            found[members] = found.get(members, 0) + number * each
    return found
