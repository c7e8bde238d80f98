"""minValues: enough types stay open on every node, at hardly more than the price without, Strict and BestEffort."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from sawhorse_model.labels import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, WELL_KNOWN, ZONE
from sawhorse_model.requirements import RequirementSpec
from sawhorse_scheduling.filling import MinValues
from sawhorse_scheduling.opening import Packer
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import Snapshot, SolveOptions
from sawhorse_scheduling.solve import solve
from sawhorse_testing.builders import ZONES, a_group, a_pool, a_spread, a_type, a_wish, an_expression, resources
from sawhorse_testing.checker import check_plan
from sawhorse_testing.plans import checked_plan, codes

GPU = "nvidia.com/gpu"
STRICT = SolveOptions(well_known=WELL_KNOWN, exotic=frozenset({GPU}))
BEST_EFFORT = replace(STRICT, min_values_strict=False)
SMALL = a_type("m.large", "2", "8Gi", price=0.1)
MEDIUM = a_type("m.xlarge", "4", "16Gi", price=0.2)
LARGE = a_type("m.4xlarge", "16", "64Gi", price=0.8)
ARM = a_type("a.xlarge", "4", "16Gi", price=0.12, arch="arm64")
ACCELERATED = a_type("g.xlarge", "4", "16Gi", price=0.01, gpu=1)
SIZES = (("large", 2), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16), ("8xlarge", 32), ("16xlarge", 64))
# Three families that differ in memory per cpu, and a little in price: a catalogue in small.
CATALOG = [
    a_type(f"{family}{n}.{size}", str(cpus), f"{cpus * per}Gi", price=cpus * (0.01 * per + 0.03) * (1 + n / 50))
    for family, per in (("c", 2), ("m", 4), ("r", 8))
    for n in range(5, 9)
    for size, cpus in SIZES
]


def at_least(number: int, key: str = INSTANCE_TYPE) -> RequirementSpec:
    return replace(an_expression(key, "Exists"), min_values=number)


plan_of = partial(checked_plan, options=STRICT)


def shapes(plan: Plan) -> list[tuple[int, int]]:
    """(types listed, pods) of each node."""
    return sorted((len(node.instance_types), len(node.pods)) for node in plan.new_nodes)


def workload() -> list[Any]:
    sizes = (("300m", "700Mi"), ("1", "1Gi"), ("1", "4Gi"), ("2", "15Gi"), ("3", "5Gi"), ("7", "20Gi"))
    return [a_group(f"w{n}", 60, cpu=cpu, memory=memory) for n, (cpu, memory) in enumerate(sizes)]


@pytest.mark.parametrize("number", [5, 12])
def test_min_values_costs_little_and_keeps_the_proven_bound(number: int) -> None:
    free = plan_of(pods=workload(), pools=[a_pool(CATALOG)])
    held = plan_of(pods=workload(), pools=[a_pool(CATALOG, requirements=[at_least(number)])])

    assert held.price_per_hour <= free.price_per_hour * 1.1
    assert held.lower_bound_per_hour == pytest.approx(free.lower_bound_per_hour)
    assert min(len(node.instance_types) for node in held.new_nodes) >= number


def test_the_engine_packs_pools_with_min_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packer, "pack", lambda packer: [])

    plan = plan_of(pods=workload(), pools=[a_pool(CATALOG, requirements=[at_least(5)])])

    assert plan.unschedulable == ()


def test_pods_of_other_pools_stay_with_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packer, "pack", lambda packer: [])
    picky = a_pool([SMALL, MEDIUM, LARGE], "picky", requirements=[at_least(3)])

    plan = plan_of(pods=[a_group(count=3, cpu="12")], pools=[picky, a_pool([LARGE], "plain")])

    assert {node.nodepool for node in plan.new_nodes} == {"plain"}
    assert plan.lower_bound_per_hour is not None


def test_a_node_holds_no_more_than_enough_types_hold() -> None:
    pools = [a_pool([SMALL, MEDIUM, LARGE], requirements=[at_least(2)])]

    plan = plan_of(pods=[a_group(count=8, cpu="1")], pools=pools)

    assert plan.price_per_hour == pytest.approx(0.4)
    assert all(types >= 2 for types, _ in shapes(plan))


def test_limits_count_the_largest_of_the_types_that_stay_open() -> None:
    pools = [a_pool([SMALL, MEDIUM, LARGE], requirements=[at_least(2)], limits=resources(cpu="16"))]

    plan = plan_of(pods=[a_group(count=8, cpu="1")], pools=pools)

    assert shapes(plan) == [(2, 2)] * 4


def test_several_labels_are_kept_open_at_once() -> None:
    pools = [a_pool([SMALL, MEDIUM, LARGE, ARM], requirements=[at_least(2), at_least(2, ARCH)])]

    plan = plan_of(pods=[a_group(count=8, cpu="1")], pools=pools)

    archs = {"a.xlarge": "arm64"}
    assert all(len({archs.get(t, "amd64") for t in n.instance_types}) == 2 for n in plan.new_nodes)
    assert plan.unschedulable == ()


def test_zones_and_capacity_types_are_kept_open() -> None:
    spot = a_type("m.large", "2", "8Gi", price=0.1, spot=0.03)
    wants = [at_least(3, ZONE), at_least(2, CAPACITY_TYPE)]

    plan = plan_of(pods=[a_group(count=2, cpu="1")], pools=[a_pool([spot], requirements=wants)])

    requirements = plan.new_nodes[0].requirements
    assert set(requirements[CAPACITY_TYPE].values) == {"spot", "on-demand"}
    assert all(requirements[ZONE].has(zone) for zone in ZONES)


def test_pods_that_a_spread_ties_to_a_zone_cannot_keep_three_open() -> None:
    pods = [a_group(count=3, spread=(a_spread(),))]
    pool = a_pool([SMALL], requirements=[at_least(3, ZONE)])

    assert plan_of(pods=pods, pools=[pool]).new_nodes == ()
    assert len(plan_of(options=BEST_EFFORT, pods=pods, pools=[pool]).new_nodes) == len(ZONES)


def test_pods_of_one_architecture_count_types_of_that_one() -> None:
    pods = [
        a_group("arm", 4, cpu="1", node_selector={ARCH: "arm64"}),
        a_group("amd", 4, cpu="1", node_selector={ARCH: "amd64"}),
        a_group("any", 4, cpu="1"),
    ]
    pools = [a_pool([SMALL, MEDIUM, LARGE, ARM], requirements=[at_least(3)])]

    strict, lenient = plan_of(pods=pods, pools=pools), plan_of(options=BEST_EFFORT, pods=pods, pools=pools)

    assert codes(strict) == {"MinValuesNotMet"}
    assert [len(entry.pods) for entry in strict.unschedulable] == [4]
    assert lenient.unschedulable == ()
    assert sorted({n.instance_types for n in lenient.new_nodes if "default/arm-0" in n.pods}) == [("a.xlarge",)]


def test_best_effort_asks_for_what_one_pod_would_have_and_no_less() -> None:
    pools = [a_pool([SMALL, MEDIUM, LARGE], requirements=[at_least(9)])]

    plan = plan_of(options=BEST_EFFORT, pods=[a_group(count=8, cpu="1")], pools=pools)

    assert shapes(plan) == [(3, 2)] * 4
    assert {n.requirements[INSTANCE_TYPE].min_values for n in plan.new_nodes} == {3}


def test_an_accelerator_is_no_company_for_plain_types() -> None:
    pools = [a_pool([SMALL, MEDIUM, ACCELERATED], requirements=[at_least(2)])]

    plan = plan_of(pods=[a_group(count=4, cpu="1")], pools=pools)

    assert {n.instance_types for n in plan.new_nodes} == {("m.large", "m.xlarge")}


def test_the_greedy_way_keeps_min_values_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    accepts = MinValues.accepts

    def noted(check: MinValues, used: np.ndarray[Any, Any], item: int, count: int) -> bool:
        asked.append(True)
        return accepts(check, used, item, count)

    monkeypatch.setattr(MinValues, "accepts", noted)
    plan = plan_of(pods=[a_group(count=8, cpu="1")], pools=[a_pool([SMALL, MEDIUM], requirements=[at_least(2)])])

    assert asked
    assert shapes(plan) == [(2, 2)] * 4


@pytest.mark.parametrize("options", [STRICT, BEST_EFFORT])
def test_slack_counts_when_types_are_counted(options: SolveOptions) -> None:
    fat, large = a_type("fat", "4", "32Gi", price=0.3), a_type("large", "8", "16Gi", price=0.38)
    pods = [a_group("db", 3, cpu="700m"), a_group("web", 2, cpu="3")]

    plan = plan_of(
        options=replace(options, slack=0.1), pods=pods, pools=[a_pool([fat, large], requirements=[at_least(2)])]
    )

    assert {types for types, _ in shapes(plan)} == {2}
    assert plan.unschedulable == ()


def test_min_values_by_best_effort_are_lowered_before_a_wish_is() -> None:
    wish = a_wish(10, an_expression(ARCH, "In", "amd64"))
    pool = a_pool([MEDIUM, ARM], requirements=[at_least(2)])

    plan = plan_of(options=BEST_EFFORT, pods=[a_group(cpu="1", preferred_terms=(wish,))], pools=[pool])
    strict = plan_of(pods=[a_group(cpu="1", preferred_terms=(wish,))], pools=[pool])

    assert [node.instance_types for node in plan.new_nodes] == [("m.xlarge",)]
    assert [set(node.instance_types) for node in strict.new_nodes] == [{"m.xlarge", "a.xlarge"}]


def test_min_values_are_lowered_no_further_than_the_wish_asks() -> None:
    wish = a_wish(10, an_expression(ARCH, "In", "amd64"))
    pool = a_pool([SMALL, MEDIUM, ARM], requirements=[at_least(3)])
    snapshot = Snapshot(pods=(a_group(cpu="1", preferred_terms=(wish,)),), pools=(pool,), options=BEST_EFFORT)
    plan = solve(snapshot)

    narrowed = replace(plan.new_nodes[0], instance_types=("m.large",))

    assert check_plan(snapshot, plan) == []
    assert any("minValues is 3" in line for line in check_plan(snapshot, replace(plan, new_nodes=(narrowed,))))
