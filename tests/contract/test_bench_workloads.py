"""The workloads that `make bench` makes up are planned rightly, and its lines have the fields that readers rely on."""

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from sawhorse_scheduling.solve import solve
from sawhorse_testing.checker import check_plan

BENCH = Path(__file__).parents[1] / "bench"
FIELDS = {
    "workload",
    "pods",
    "firstSeconds",
    "firstPricePerHour",
    "solveSeconds",
    "podsPerSecond",
    "nodes",
    "pricePerHour",
    "lowerBoundPerHour",
    "gap",
    "peakMiB",
}


@pytest.fixture(scope="module")
def workloads() -> Any:
    spec = spec_from_file_location("bench_workloads", BENCH / "workloads.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_the_mixed_workload_is_planned_within_its_limits(workloads: Any) -> None:
    snapshot = workloads.mixed()

    plan = solve(snapshot)

    assert plan.unschedulable == ()
    assert sum(len(node.pods) for node in plan.existing_nodes) > 500
    assert {node.nodepool for node in plan.new_nodes} <= {"reserved-budget", "spot", "fallback"}
    assert check_plan(snapshot, plan, types_per_node=2) == []


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_the_days_after_the_first_are_planned_onto_what_is_there(workloads: Any) -> None:
    cluster = workloads.Day2()

    for number, snapshot in enumerate(islice(cluster.rounds(), 4)):
        plan = solve(snapshot)

        assert plan.unschedulable == ()
        assert number == 0 or sum(len(node.pods) for node in plan.existing_nodes) > 0
        assert check_plan(snapshot, plan, types_per_node=2) == []
        cluster.apply(plan)


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_a_line_of_the_benchmark_has_its_fields() -> None:
    command = [sys.executable, str(BENCH / "run.py"), "plain-spot", "--repeat", "1"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)

    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert line.keys() == FIELDS
    assert (line["workload"], line["pods"]) == ("plain-spot", 10_809)


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_the_word_catalogue_picks_the_catalogues_row_and_no_plan() -> None:
    command = [sys.executable, str(BENCH / "run.py"), "catalogue"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)

    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert (line["row"], line["types"]) == ("catalogue", 800)
    assert {"resolveMs", "wholeMs", "notModifiedMs", "smallCallsPerSecond"} <= line.keys()


def test_a_word_that_no_workload_holds_is_answered_in_one_line() -> None:
    command = [sys.executable, str(BENCH / "run.py"), "nothing-like-it"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("no workload's name holds 'nothing-like-it'; there are plain-ondemand")
