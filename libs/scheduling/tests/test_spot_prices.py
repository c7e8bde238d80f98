"""Honest spot prices: which types a spot node lists, what it is expected to cost, and minimising that."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import WELL_KNOWN
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import PodGroup, Snapshot, SolveOptions
from sawhorse_scheduling.solve import solve
from sawhorse_scheduling.spot import LITTLE, SPOT_POOLS, expected_prices, worth_listing
from sawhorse_testing.builders import ZONES, a_group, a_pool, a_type
from sawhorse_testing.checker import check_plan

OPTIONS = SolveOptions(well_known=WELL_KNOWN)
EXPECTED = replace(OPTIONS, minimize_expected=True)


def planned(options: SolveOptions, types: Sequence[InstanceType], *pods: PodGroup) -> Plan:
    snapshot = Snapshot(pods=pods, pools=(a_pool(list(types)),), options=options)
    plan = solve(snapshot)
    assert check_plan(snapshot, plan) == []
    return plan


def family(count: int, cpu: str, first: float, step: float, name: str = "f") -> list[InstanceType]:
    return [a_type(f"{name}{n}.xlarge", cpu, "64Gi", price=9.0, spot=first + step * n) for n in range(count)]


def column(*prices: float) -> np.ndarray:
    return np.array(prices).reshape(-1, 1)


def test_a_spot_node_lists_what_is_near_in_price_and_dearer_ones_while_it_has_few_pools() -> None:
    many_near = column(*[1.0] * 20, 1.2, 1.3)
    few = column(1.0, 1.4, 9.0)

    assert worth_listing(many_near, lean=False) == 21
    assert worth_listing(few, lean=False) == 3


def test_a_lean_list_has_no_more_pools_than_needed_and_none_that_costs_much_more() -> None:
    assert worth_listing(column(*[1.0] * 40), lean=True) == SPOT_POOLS
    assert worth_listing(column(1.0, LITTLE, LITTLE + 0.1), lean=True) == 2


def test_the_expected_price_of_a_type_is_the_mean_over_what_holds_as_much() -> None:
    price = np.array([[1.0, 5.0], [1.2, 5.0], [1.4, 5.0]])
    room = np.array([[4], [8], [16]])

    found = expected_prices(price, np.array([True, False]), room)

    assert found[:, 0].tolist() == pytest.approx([1.2, 1.3, 1.4])
    assert found[:, 1].tolist() == [5.0, 5.0, 5.0]


def test_a_zone_that_is_dearer_stays_so_in_the_expected_price() -> None:
    found = expected_prices(np.array([[1.0, 2.0]]), np.array([True, True]), np.array([[4]]))

    assert found[0, 1] == pytest.approx(2 * found[0, 0])


def test_minimising_the_expected_price_prefers_many_fair_offers_to_one_cheap_one() -> None:
    lonely = a_type("lonely.2xlarge", "8", "64Gi", price=9.0, spot=0.175, zones=ZONES[:1])
    dear = a_type("dear.2xlarge", "8", "64Gi", price=9.0, spot=0.26)
    types = [lonely, dear, *family(8, "4", 0.1, 0.0)]
    pods = a_group(cpu="3900m", count=8)

    best, expected = planned(OPTIONS, types, pods), planned(EXPECTED, types, pods)

    assert best.price_per_hour <= expected.price_per_hour
    assert expected.expected_price_per_hour < best.expected_price_per_hour
    assert {node.instance_type for node in expected.new_nodes} == {"f0.xlarge"}


def test_minimising_the_expected_price_keeps_lists_short() -> None:
    types = family(30, "4", 0.1, 0.001)
    pods = a_group(cpu="3", count=4)

    best, expected = planned(OPTIONS, types, pods), planned(EXPECTED, types, pods)

    assert len(expected.new_nodes[0].instance_types) == SPOT_POOLS / len(ZONES)
    assert expected.expected_price_per_hour < best.expected_price_per_hour
    assert expected.price_per_hour == best.price_per_hour


def test_the_bound_is_on_the_best_price_whatever_is_minimised() -> None:
    types = [*family(3, "4", 0.1, 0.05), *family(3, "16", 0.35, 0.1, "g")]
    pods = (a_group("a", 90, cpu="700m"), a_group("b", 40, cpu="1500m", memory="3Gi"))

    best, expected = planned(OPTIONS, types, *pods), planned(EXPECTED, types, *pods)

    assert best.lower_bound_per_hour == pytest.approx(expected.lower_bound_per_hour, rel=1e-6)
    assert expected.gap is not None
    assert expected.gap >= 0


def test_a_plan_says_the_best_the_expected_and_the_worst_price() -> None:
    types = family(3, "4", 0.1, 0.01)

    (node,) = planned(OPTIONS, types, a_group(cpu="3")).new_nodes

    assert node.price_per_hour == pytest.approx(0.10)
    assert node.expected_price_per_hour == pytest.approx(0.11)
    assert node.worst_price_per_hour == pytest.approx(0.12)
