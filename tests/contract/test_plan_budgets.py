"""What plans of the benchmark's files may cost: exact, so gated. Times are measured by `make bench` and never here."""

from pathlib import Path

import pytest

from sawhorse_catalog.files import parse_catalog_file
from sawhorse_console.manifests_input import read_manifests
from sawhorse_console.plan_snapshot import build_snapshot
from sawhorse_scheduling.engine import Watch
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_scheduling.solve import solve
from sawhorse_testing.checker import check_plan

DATA = Path(__file__).parents[1] / "bench" / "data"
CATALOGS = {"plain": "cmr", "constrained": "cmr", "openb": "gpu"}
# Karpenter's price for the same input, at most what part of it, the largest gap to the bound, the most nodes.
BUDGETS = {
    "plain-ondemand": (428.77, 0.62, 0.01, 170),
    "plain-spot": (138.61, 0.50, 0.04, 270),
    "constrained-ondemand": (434.02, 0.74, 0.01, 220),
    "constrained-spot": (286.92, 0.335, 0.05, 340),
    "openb-ondemand": (13_366.44, 0.54, 0.04, 3_800),
    "openb-spot": (3_845.26, 0.59, 0.04, 3_700),
}


def snapshot_of(name: str) -> Snapshot:
    catalog = parse_catalog_file((DATA / f"catalog-{CATALOGS[name.split('-')[0]]}.json").read_bytes())
    snapshot, _ = build_snapshot(read_manifests([DATA / f"{name}.json"]), catalog)
    return snapshot


@pytest.mark.integration
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", BUDGETS)
def test_a_plan_stays_within_its_price_gap_and_nodes(name: str) -> None:
    karpenter, part, gap, nodes = BUDGETS[name]
    snapshot = snapshot_of(name)
    first: list[float] = []

    plan = solve(snapshot, Watch(on_first=first.append))

    assert plan.unschedulable == ()
    assert plan.price_per_hour <= part * karpenter
    assert plan.gap is not None
    assert 0 <= plan.gap <= gap
    assert len(plan.new_nodes) <= nodes
    assert len(first) == 1
    assert plan.price_per_hour <= first[0] + 1e-6 <= 0.85 * karpenter
    assert check_plan(snapshot, plan, types_per_node=2) == []
