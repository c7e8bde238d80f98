"""`make bench`: one JSON line per workload, planned through `sawhorse plan`'s own path.

`python tests/bench/run.py [WORD] [--repeat N] [--cpu]`: only workloads whose name holds the word. Each is measured in
a process of its own, so that `peakMiB` is its own; times are the best of N runs, from snapshot to plan. `--cpu` takes
this process's CPU time for the clock (planning has one thread), for machines that have other work. `day2` sums the
seconds of all its rounds, counts the pods that were planned in them, and tells nodes and price of the cluster at the
end; there is no bound on what history left behind. The word `catalogue` picks the catalogue's own row instead.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workloads import FILES, MADE, Day2
from workloads import workload as snapshot_for

from sawhorse_console.plan_command import solve_timed
from sawhorse_console.plan_output import Timing
from sawhorse_scheduling.plan import Plan

WORKLOADS = (*FILES, *MADE)
ROWS = {"catalogue": "catalogue.py"}  # scripts that are no planning: run only when the word asks for them
ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def measure(workload: str, repeat: int, clock: Callable[[], float]) -> dict[str, Any]:
    """The line of one workload."""
    if workload == "day2":
        return _day2(clock)
    snapshot = snapshot_for(workload)
    first, whole = [], []
    for _ in range(repeat):
        plan, timing = solve_timed(snapshot, clock)
        first.append(timing.first_seconds)
        whole.append(timing.solve_seconds)
    return _line(workload, plan, Timing(min(first), timing.first_price, min(whole)))


def _line(workload: str, plan: Plan, timing: Timing) -> dict[str, Any]:
    bound, gap = plan.lower_bound_per_hour, plan.gap
    return {
        "workload": workload,
        "pods": plan.stats.pods,
        "firstSeconds": round(timing.first_seconds, 3),
        "firstPricePerHour": round(timing.first_price, 2),
        "solveSeconds": round(timing.solve_seconds, 3),
        "podsPerSecond": round(plan.stats.pods / timing.solve_seconds),
        "nodes": len(plan.new_nodes),
        "pricePerHour": round(plan.price_per_hour, 2),
        "lowerBoundPerHour": None if bound is None else round(bound, 2),
        "gap": None if gap is None else round(gap, 4),
        "peakMiB": _peak(),
    }


def _day2(clock: Callable[[], float]) -> dict[str, Any]:
    cluster = Day2()
    pods, seconds, first_seconds, first_price = 0, 0.0, 0.0, 0.0
    for number, snapshot in enumerate(cluster.rounds()):
        plan, timing = solve_timed(snapshot, clock)
        cluster.apply(plan)
        pods += plan.stats.pods
        seconds += timing.solve_seconds
        if not number:
            first_seconds, first_price = timing.first_seconds, timing.first_price
    return {
        "workload": "day2",
        "pods": pods,
        "firstSeconds": round(first_seconds, 3),
        "firstPricePerHour": round(first_price, 2),
        "solveSeconds": round(seconds, 3),
        "podsPerSecond": round(pods / seconds),
        "nodes": cluster.node_count,
        "pricePerHour": round(cluster.price_per_hour, 2),
        "lowerBoundPerHour": None,
        "gap": None,
        "peakMiB": _peak(),
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # Linux counts in KiB


def main() -> int:
    """Measure the workloads whose name holds the word, each in its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen = [workload for workload in WORKLOADS if arguments.word in workload]
    scripts = [script for name, script in ROWS.items() if arguments.word and arguments.word in name]
    if not chosen and not scripts:
        print(
            f"no workload's name holds {arguments.word!r}; there are {', '.join([*WORKLOADS, *ROWS])}", file=sys.stderr
        )
        return 2
    if arguments.here:
        clock = time.process_time if arguments.cpu else time.perf_counter
        print(json.dumps(measure(chosen[0], arguments.repeat, clock)), flush=True)
        return 0
    failed = 0
    for workload in chosen:
        command = [sys.executable, __file__, workload, "--here", "--repeat", str(arguments.repeat)]
        command += ["--cpu"] if arguments.cpu else []
        failed |= subprocess.run(command, env=os.environ | ONE_CORE, check=False).returncode
    for script in scripts:
        failed |= subprocess.run([sys.executable, Path(__file__).with_name(script)], check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
