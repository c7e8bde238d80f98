"""`sawhorse plan`: manifests and a catalogue in, a plan out. Offline; reads files and nothing else."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TextIO

from sawhorse_catalog.builtin import builtin_catalog
from sawhorse_catalog.files import CatalogError, parse_catalog_file
from sawhorse_console.manifests_files import Problem, UnreadableError
from sawhorse_console.manifests_input import read_manifests
from sawhorse_console.plan_output import Timing, write_json
from sawhorse_console.plan_snapshot import Catalog, Tuning, build_snapshot
from sawhorse_console.plan_table import write_table
from sawhorse_scheduling.engine import Watch
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_scheduling.solve import solve

DONE, SOMETHING_UNSCHEDULABLE, WRONG_INPUT = 0, 1, 2


def run_plan(
    files: Sequence[Path],
    *,
    catalog: Path | None,
    output: str,
    tuning: Tuning | None = None,
    strict: bool,
    stdout: TextIO,
    stderr: TextIO,
) -> int:
    """Plan the pods of manifest files and print the plan.

    Args:
        catalog: a catalogue file; None for the built-in table.
        output: `table` or `json`.
        tuning: how to plan; None for the defaults.
        strict: refuse kinds that are skipped and fields that are not known.
    Returns:
        0: every pod has a place, 1: some pod has none, 2: the input cannot be used (one line per problem on stderr).
    """
    try:
        manifests = read_manifests(files, strict=strict)
        prices, currency, notes = _read_catalog(catalog)
        snapshot, warnings = build_snapshot(manifests, prices, tuning)
        plan, timing = solve_timed(snapshot)
    except OverflowError:
        text = (
            "amounts of the input add up to more than 64 bits hold; look for a limit, usage or node that is too large"
        )
        _report([Problem("", "", "", text)], stderr)
        return WRONG_INPUT
    except UnreadableError as error:
        _report(error.problems, stderr)
        return WRONG_INPUT
    told = [*map(str, (*manifests.notable, *manifests.doubtful)), *warnings, *notes]
    if output == "json":
        write_json(plan, timing, told, stdout)
    else:
        write_table(plan, timing, told, currency, stdout)
    return SOMETHING_UNSCHEDULABLE if plan.unschedulable else DONE


def solve_timed(snapshot: Snapshot, clock: Callable[[], float] = time.perf_counter) -> tuple[Plan, Timing]:
    """Plan and measure. The snapshot's time limit ends improving early."""
    begun = clock()
    limit = snapshot.options.time_limit_seconds
    first: list[float] = []
    plan = solve(
        snapshot,
        Watch(
            deadline=None if limit is None else lambda: clock() - begun > limit,
            on_first=lambda _: first.append(clock() - begun),
        ),
    )
    seconds = clock() - begun
    return plan, Timing(first[0] if first else seconds, plan.stats.first_price_per_hour, seconds)


def _read_catalog(path: Path | None) -> tuple[Catalog, str, tuple[str, ...]]:
    """The catalogue, its currency, and what to say about it."""
    if path is None:
        built_in = builtin_catalog()
        return built_in, built_in.currency, (f"built-in catalogue of {built_in.region}: {built_in.note}",)
    try:
        given = parse_catalog_file(path.read_bytes())
    except OSError as error:
        text = f"cannot be read: {error.strerror or error}"
        raise UnreadableError([Problem(str(path), "", "", text)]) from error
    except CatalogError as error:
        raise UnreadableError([Problem(str(path), "Catalog", error.path, error.problem)]) from error
    return given, given.currency, given.warnings


def _report(problems: Iterable[Problem], stderr: TextIO) -> None:
    for problem in problems:
        # Values in messages may hold line breaks; a problem is one line.
        stderr.write(" ".join(str(problem).split()) + "\n")
