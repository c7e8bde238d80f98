"""Every benchmark file is read, every pod placed or explained, and the independent checker finds nothing."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from sawhorse_catalog.files import parse_catalog_file
from sawhorse_console.manifests_input import read_manifests
from sawhorse_console.plan_command import run_plan
from sawhorse_console.plan_snapshot import build_snapshot
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_scheduling.solve import solve
from sawhorse_testing.checker import check_plan

DATA = Path(__file__).parents[1] / "bench" / "data"
CATALOGS = {"plain": "cmr", "constrained": "cmr", "openb": "gpu", "diverse": "diverse"}
# Not more than Karpenter's own scheduler pays for the same input, from the benchmark's README; None: it does not say.
FILES: dict[str, tuple[int, float | None]] = {
    "plain-ondemand": (10_809, 428.77),
    "plain-spot": (10_809, 138.61),
    "constrained-ondemand": (9_995, 434.02),
    "constrained-spot": (9_995, 286.92),
    "openb-ondemand": (8_152, 13_366.44),
    "openb-spot": (8_152, 3_845.26),
    "diverse-5000": (5_000, None),
    "diverse-20000": (20_000, None),
}


def snapshot_of(name: str) -> Snapshot:
    catalog = parse_catalog_file((DATA / f"catalog-{CATALOGS[name.split('-')[0]]}.json").read_bytes())
    snapshot, _ = build_snapshot(read_manifests([DATA / f"{name}.json"]), catalog)
    return snapshot


@pytest.mark.integration
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", FILES)
def test_a_benchmark_file_is_planned_and_the_plan_is_right(name: str) -> None:
    pods, most = FILES[name]
    snapshot = snapshot_of(name)

    plan = solve(snapshot)

    placed = sum(len(n.pods) for n in plan.new_nodes)
    reported = sum(len(u.pods) for u in plan.unschedulable)
    assert placed + reported == pods
    assert plan.unschedulable == ()
    assert most is None or plan.price_per_hour < most
    assert check_plan(snapshot, plan, types_per_node=2) == []


def test_the_command_prints_the_contracts_format_for_a_benchmark_file() -> None:
    stdout = io.StringIO()

    code = run_plan(
        [DATA / "plain-ondemand.json"],
        catalog=DATA / "catalog-cmr.json",
        output="json",
        strict=False,
        stdout=stdout,
        stderr=io.StringIO(),
    )

    plan: dict[str, Any] = json.loads(stdout.getvalue())
    names = [pod for node in plan["newNodes"] for pod in node["pods"]]
    assert code == 0
    assert len(names) == len(set(names)) == 10_809
    assert plan["cost"]["pricePerHour"] == pytest.approx(sum(n["pricePerHour"] for n in plan["newNodes"]))
