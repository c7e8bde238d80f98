"""The packing engine behind `solve`: price and bound, slack, caps, first answers, and where the greedy opener stays."""

from dataclasses import replace
from functools import partial

import pytest

from sawhorse_model.labels import CAPACITY_TYPE, WELL_KNOWN, ZONE
from sawhorse_model.resources import CPU
from sawhorse_scheduling.engine import Watch
from sawhorse_scheduling.snapshot import SolveOptions
from sawhorse_testing.builders import (
    ZONES,
    a_daemonset,
    a_group,
    a_pool,
    a_spread,
    a_type,
    an_expression,
    keep_apart,
    resources,
)
from sawhorse_testing.plans import checked_plan

OPTIONS = SolveOptions(well_known=WELL_KNOWN)
SMALL = a_type("m6i.large", "2", "8Gi", price=0.10)
MEDIUM = a_type("m6i.xlarge", "4", "16Gi", price=0.19)
BIG = a_type("m6i.4xlarge", "16", "64Gi", price=0.70)
HOST = "kubernetes.io/hostname"


plan_of = partial(checked_plan, options=OPTIONS)


def test_a_plan_tells_a_bound_below_its_price_and_the_gap_between() -> None:
    plan = plan_of(pods=[a_group(count=400, cpu="900m", memory="2Gi")], pools=[a_pool([SMALL, MEDIUM, BIG])])

    assert plan.lower_bound_per_hour is not None
    assert plan.lower_bound_per_hour <= plan.price_per_hour
    assert plan.gap == pytest.approx(plan.price_per_hour / plan.lower_bound_per_hour - 1)
    assert plan.gap < 0.12


def test_the_price_of_the_first_whole_answer_is_told_once_and_the_plan_is_no_dearer() -> None:
    told: list[float] = []

    plan = plan_of(
        watch=Watch(on_first=told.append), pods=[a_group(count=50, cpu="3")], pools=[a_pool([SMALL, MEDIUM, BIG])]
    )

    assert told == [plan.stats.first_price_per_hour]
    assert plan.price_per_hour <= told[0] + 1e-9


def test_a_first_answer_is_told_too_where_pods_need_pools_of_two_weights() -> None:
    told: list[float] = []
    pools = [a_pool([SMALL], "heavy", weight=10), a_pool([BIG], "light")]

    plan = plan_of(watch=Watch(on_first=told.append), pods=[a_group("a"), a_group("b", cpu="8")], pools=pools)

    assert told == [pytest.approx(plan.price_per_hour)]


def test_bounds_of_pools_of_different_weights_add_up() -> None:
    pools = [a_pool([SMALL], "heavy", weight=10), a_pool([BIG], "light")]

    plan = plan_of(pods=[a_group("a", count=20), a_group("b", count=4, cpu="8")], pools=pools)

    assert plan.lower_bound_per_hour is not None
    assert 1.40 <= plan.lower_bound_per_hour <= plan.price_per_hour


def test_nothing_is_proven_where_a_limit_sends_pods_to_a_pool_of_lower_weight() -> None:
    pools = [a_pool([SMALL], "heavy", weight=10, limits=resources(cpu="2")), a_pool([BIG], "light")]

    plan = plan_of(pods=[a_group(count=8, cpu="1")], pools=pools)

    assert {node.nodepool for node in plan.new_nodes} == {"heavy", "light"}
    assert plan.lower_bound_per_hour is None


def test_a_pool_with_min_values_is_packed_near_a_proven_bound() -> None:
    want = replace(an_expression("node.kubernetes.io/instance-type", "Exists"), min_values=2)

    plan = plan_of(pods=[a_group(count=30, cpu="1")], pools=[a_pool([SMALL, MEDIUM, BIG], requirements=[want])])

    assert all(len(node.instance_types) >= 2 for node in plan.new_nodes)
    assert plan.gap is not None
    assert plan.gap < 0.1


def test_slack_is_left_free_on_every_new_node_that_has_room_for_it() -> None:
    options = replace(OPTIONS, slack=0.1)

    plan = plan_of(pods=[a_group(count=32, cpu="1", memory="1Gi")], pools=[a_pool([BIG])], options=options)

    assert sorted(len(node.pods) for node in plan.new_nodes) == [4, 14, 14]


def test_a_pod_that_fits_only_without_slack_still_gets_its_node() -> None:
    options = replace(OPTIONS, slack=0.1)

    plan = plan_of(pods=[a_group(cpu="16", memory="1Gi")], pools=[a_pool([BIG])], options=options)

    assert len(plan.new_nodes) == 1


def test_no_new_node_holds_more_pods_than_the_cap() -> None:
    options = replace(OPTIONS, max_pods_per_node=5)
    daemon = a_daemonset(cpu="10m", memory="10Mi")

    plan = plan_of(pods=[a_group(count=20)], pools=[a_pool([BIG])], daemons=[daemon], options=options)

    assert [len(node.pods) for node in plan.new_nodes] == [5, 5, 5, 5]


def test_a_larger_fixed_cost_makes_fewer_nodes() -> None:
    pods, pools = [a_group(count=320, cpu="1", memory="2Gi")], [a_pool([SMALL, BIG])]
    cheap = a_type("m6i.large", "2", "8Gi", price=0.0870)

    many = plan_of(pods=pods, pools=[a_pool([cheap, BIG])], options=replace(OPTIONS, fixed_cost=0.0))
    few = plan_of(pods=pods, pools=pools, options=replace(OPTIONS, fixed_cost=0.05))

    assert len(few.new_nodes) < len(many.new_nodes)
    assert many.price_per_hour == pytest.approx(160 * 0.0870)


def test_pods_that_a_host_rule_counts_fill_nodes_where_no_owner_of_it_is() -> None:
    owner = a_group("owner", count=4, anti_affinity=(keep_apart(app="web"),))

    plan = plan_of(pods=[a_group("web", count=320), owner], pools=[a_pool([SMALL, BIG])])

    for node in plan.new_nodes:
        assert len({name.split("/")[1].split("-")[0] for name in node.pods}) == 1


def test_host_spread_counts_pods_that_do_not_carry_it_only_beside_those_that_do() -> None:
    owner = a_group("owner", count=3, labels={"app": "other"}, spread=(a_spread(HOST, app="web", max_skew=2),))

    plan = plan_of(pods=[a_group("web", count=330, cpu="200m"), owner], pools=[a_pool([SMALL, BIG])])

    for node in plan.new_nodes:
        if any("owner" in name for name in node.pods):
            assert sum("web" in name for name in node.pods) <= 2


def test_limits_bound_many_pods_of_one_pool_exactly() -> None:
    pool = a_pool([SMALL, BIG], limits=resources(cpu="100"))

    plan = plan_of(pods=[a_group(count=400, cpu="1", memory="1Gi")], pools=[pool])

    assert sum(len(node.pods) for node in plan.new_nodes) == 100
    assert sum(BIG.capacity[CPU] if n.instance_type == BIG.name else 2000 for n in plan.new_nodes) <= 100_000


def test_daemons_are_paid_for_on_every_node_that_the_engine_makes() -> None:
    daemon = a_daemonset(cpu="1", memory="1Gi")

    plan = plan_of(pods=[a_group(count=400, cpu="1", memory="1Gi")], pools=[a_pool([BIG])], daemons=[daemon])

    assert max(len(node.pods) for node in plan.new_nodes) == 15


def test_pods_of_one_zone_and_of_any_share_what_is_cheapest_there() -> None:
    dear = a_type("m6i.4xlarge", "16", "64Gi", price=0.70, zones=ZONES[:1])
    pinned = a_group("pinned", count=8, cpu="1", node_selector={ZONE: ZONES[0]})
    free = a_group("free", count=8, cpu="1")

    plan = plan_of(pods=[pinned, free], pools=[a_pool([dear])])

    (node,) = plan.new_nodes
    assert (len(node.pods), node.zone) == (16, ZONES[0])


def test_equal_pods_of_many_workloads_are_named_each_once() -> None:
    groups = [a_group(f"app{n}", count=70, cpu="500m", memory="1Gi") for n in range(9)]

    plan = plan_of(pods=groups, pools=[a_pool([SMALL, MEDIUM, BIG])])

    for node in plan.new_nodes:
        counted = {index: sum(f"/app{index}-" in name for name in node.pods) for index in node.classes}
        assert counted == dict(node.classes)


def test_few_pods_are_no_dearer_than_the_cheapest_single_node_for_them() -> None:
    wants = {CAPACITY_TYPE: "on-demand"}

    plan = plan_of(
        pods=[a_group("a", count=3, cpu="1", node_selector=wants), a_group("b", cpu="1")],
        pools=[a_pool([SMALL, MEDIUM, BIG])],
    )

    assert plan.price_per_hour <= 0.19 + 1e-9
