"""Reserved capacity: nearly free, never more nodes than there are instances, claims that name their reservation."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import CAPACITY_TYPE, INSTANCE_TYPE, WELL_KNOWN, ZONE
from sawhorse_model.pod import HostPort
from sawhorse_model.requirements import RequirementSpec
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import Snapshot, SolveOptions
from sawhorse_scheduling.solve import solve
from sawhorse_testing.builders import RESERVATION_ID as ID
from sawhorse_testing.builders import RESERVATION_KIND as KIND
from sawhorse_testing.builders import (
    ZONES,
    a_group,
    a_pool,
    a_spread,
    a_term,
    a_type,
    an_expression,
    keep_apart,
    keep_near,
    with_reservations,
)
from sawhorse_testing.checker import check_plan
from sawhorse_testing.plans import checked_plan

OPTIONS = SolveOptions(well_known=WELL_KNOWN | {ID, KIND}, reservation_labels=(ID, KIND))

SMALL = a_type("m6i.large", "2", "8Gi", price=0.096, spot=0.040)
MEDIUM = a_type("m6i.xlarge", "4", "16Gi", price=0.192, spot=0.080)
BIG = a_type("m6i.4xlarge", "16", "64Gi", price=0.768, spot=0.320)


def reserved(kind: InstanceType, zone: str = ZONES[0], **counts: int) -> InstanceType:
    """The type with reservations, `cr_1=2` for two free instances of cr-1."""
    return with_reservations(kind, {key.replace("_", "-"): n for key, n in counts.items()}, zone=zone)


plan_of = partial(checked_plan, options=OPTIONS)


def kinds(plan: Plan) -> dict[str, int]:
    return dict(Counter(node.capacity_type.value for node in plan.new_nodes))


def test_a_reservation_is_used_first_and_what_is_over_is_bought() -> None:
    plan = plan_of(pods=[a_group(cpu="3", count=5)], pools=[a_pool([SMALL, reserved(MEDIUM, cr_1=3), BIG])])

    assert kinds(plan) == {"reserved": 3, "spot": 2}
    assert plan.price_per_hour == pytest.approx(0.16, abs=1e-6)


def test_a_reserved_node_names_its_reservation_type_and_zone() -> None:
    plan = plan_of(pods=[a_group(cpu="3")], pools=[a_pool([SMALL, reserved(MEDIUM, cr_1=1), BIG])])

    (node,) = plan.new_nodes
    assert node.reservation_id == "cr-1"
    assert node.instance_types == ("m6i.xlarge",)
    assert {key: set(node.requirements[key].values) for key in (CAPACITY_TYPE, ID, ZONE)} == {
        CAPACITY_TYPE: {"reserved"},
        ID: {"cr-1"},
        ZONE: {ZONES[0]},
    }


def test_the_count_holds_over_all_pools_and_weights_of_a_pass() -> None:
    types = [SMALL, reserved(MEDIUM, cr_1=4), BIG]
    only_b = RequirementSpec("team", "In", ("b",))  # type: ignore[arg-type]
    pools = [a_pool(types, "heavy", weight=5), a_pool(types, "light", requirements=(only_b,))]
    pods = [a_group("a", 3, cpu="3"), a_group("b", 3, cpu="3", node_selector={"team": "b"})]

    plan = plan_of(pods=pods, pools=pools)

    assert kinds(plan)["reserved"] == 4
    assert {node.nodepool for node in plan.new_nodes} == {"heavy", "light"}


def test_the_least_that_any_pool_is_told_counts() -> None:
    pools = [a_pool([reserved(MEDIUM, cr_1=5)], "a"), a_pool([reserved(MEDIUM, cr_1=2)], "b")]

    plan = plan_of(pods=[a_group(cpu="3", count=6)], pools=pools)

    assert kinds(plan) == {"reserved": 2, "spot": 4}


def test_what_claims_have_taken_since_the_count_is_taken_off() -> None:
    plan = plan_of(
        pods=[a_group(cpu="3", count=4)],
        pools=[a_pool([reserved(MEDIUM, cr_1=3)])],
        reservations_taken={"cr-1": 2, "cr-9": 1},
    )

    assert kinds(plan) == {"reserved": 1, "spot": 3}


def test_several_reservations_of_a_type_are_counted_apart() -> None:
    plan = plan_of(pods=[a_group(cpu="3", count=5)], pools=[a_pool([reserved(MEDIUM, cr_1=1, cr_2=2, cr_3=0)])])

    assert Counter(node.reservation_id for node in plan.new_nodes) == {"cr-1": 1, "cr-2": 2, "": 2}


def test_a_bought_node_may_not_be_launched_into_a_reservation_that_it_does_not_count_for() -> None:
    plan = plan_of(pods=[a_group(cpu="3", count=2)], pools=[a_pool([reserved(MEDIUM, cr_1=1)])])

    bought = next(node for node in plan.new_nodes if not node.reservation_id)
    assert set(bought.requirements[CAPACITY_TYPE].values) == {"on-demand", "spot"}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (an_expression(ID, "In", "cr-1"), {"reserved": 2}),
        (an_expression(ID, "Exists"), {"reserved": 2}),
        (an_expression(KIND, "In", "default"), {"reserved": 2}),
        (an_expression(KIND, "In", "capacity-block"), {}),
        (an_expression(CAPACITY_TYPE, "In", "reserved"), {"reserved": 2}),
        (an_expression(ID, "DoesNotExist"), {"spot": 3}),
        (an_expression(ID, "NotIn", "cr-1"), {"spot": 3}),
        (an_expression(CAPACITY_TYPE, "NotIn", "reserved"), {"spot": 3}),
    ],
)
def test_pods_and_pools_may_ask_for_reservations_or_against_them(expression: RequirementSpec, expected: Any) -> None:
    kind = reserved(MEDIUM, cr_1=2)
    by_pod = plan_of(pods=[a_group(cpu="3", count=3, required_terms=(a_term(expression),))], pools=[a_pool([kind])])
    by_pool = plan_of(pods=[a_group(cpu="3", count=3)], pools=[a_pool([kind], requirements=(expression,))])

    assert kinds(by_pod) == kinds(by_pool) == expected


def test_where_only_the_reservation_would_do_and_it_is_used_up_that_is_the_reason() -> None:
    pod = a_group(cpu="3", count=5, node_selector={CAPACITY_TYPE: "reserved"})

    plan = plan_of(pods=[pod], pools=[a_pool([reserved(MEDIUM, cr_1=3)])])

    (entry,) = plan.unschedulable
    assert len(entry.pods) == 2
    assert [(r.code, r.message) for r in entry.reasons] == [
        ("ReservationUsedUp", "only reserved capacity would do, and what was free is taken: cr-1 had 3 of m6i.xlarge")
    ]


def test_the_room_of_reserved_nodes_is_filled_with_what_saves_most() -> None:
    pods = [a_group("a", 400, cpu="500m"), a_group("b", 300, cpu="1", memory="3Gi")]

    plan = plan_of(pods=pods, pools=[a_pool([SMALL, reserved(MEDIUM, cr_1=10), BIG])])

    assert kinds(plan)["reserved"] == 10
    assert plan.gap is not None
    assert plan.gap < 0.01


def test_spread_over_zones_is_not_bent_by_a_reservation_in_one_of_them() -> None:
    pods = [a_group(cpu="3", count=9, spread=(a_spread(),))]

    plan = plan_of(pods=pods, pools=[a_pool([SMALL, reserved(MEDIUM, cr_1=9), BIG])])

    assert Counter(node.zone for node in plan.new_nodes for _ in node.pods) == dict.fromkeys(ZONES, 3)
    assert kinds(plan)["reserved"] == 3


def test_min_values_leave_a_choice_that_one_reservation_does_not() -> None:
    several = RequirementSpec(INSTANCE_TYPE, "Exists", (), 2)  # type: ignore[arg-type]

    plan = plan_of(pods=[a_group(cpu="1")], pools=[a_pool([SMALL, reserved(MEDIUM, cr_1=5)], requirements=(several,))])

    assert kinds(plan) == {"spot": 1}
    assert plan.warnings == (
        "NodePool default: its minValues asks for a choice, which one reservation does not leave; "
        "reserved capacity is not used for it",
    )


def test_limits_count_reserved_nodes_too() -> None:
    plan = plan_of(pods=[a_group(cpu="3", count=5)], pools=[a_pool([reserved(MEDIUM, cr_1=5)], limits={"nodes": 2})])

    assert kinds(plan) == {"reserved": 2}


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    taken=st.integers(0, 3),
    pods=st.lists(st.tuples(st.integers(1, 30), st.sampled_from(["300m", "1", "3", "7"])), min_size=1, max_size=4),
    slack=st.sampled_from([0.0, 0.02]),
)
def test_no_plan_counts_on_more_than_is_free(
    counts: list[int], taken: int, pods: list[tuple[int, str]], slack: float
) -> None:
    first, second, third = counts
    types = [SMALL, reserved(MEDIUM, cr_1=first, cr_2=second), reserved(BIG, ZONES[1], cr_3=third)]
    groups = [a_group(f"g{n}", count, cpu=cpu) for n, (count, cpu) in enumerate(pods)]

    plan = plan_of(
        pods=groups,
        pools=[a_pool(types, "a"), a_pool(types, "b", weight=1)],
        reservations_taken={"cr-1": taken},
        options=replace(OPTIONS, slack=slack),
    )

    assert not plan.unschedulable


def test_the_checker_sees_a_reservation_that_is_overdrawn_or_not_named() -> None:
    pools = (a_pool([reserved(MEDIUM, cr_1=3)]),)
    snapshot = Snapshot(options=OPTIONS, pods=(a_group(cpu="3", count=3),), pools=pools)
    plan = solve(snapshot)
    first, *others = plan.new_nodes
    unnamed = replace(first, requirements=first.requirements.without(ID))
    bought = replace(first, reservation_id="")

    overdrawn = check_plan(replace(snapshot, reservations_taken={"cr-1": 1}), plan)
    nameless = check_plan(snapshot, replace(plan, new_nodes=(unnamed, *others)))
    confused = check_plan(snapshot, replace(plan, new_nodes=(bought, *others)))

    assert "reservation cr-1: 3 nodes, 2 instances are free" in overdrawn
    assert f"{first.name}: its claim does not name reservation cr-1" in nameless
    assert f"{first.name}: may be launched into a reservation that it does not count for" in confused


def test_pods_whose_domain_others_read_are_bought_where_reservations_end() -> None:
    """They are pinned to zone and capacity type: more to a reservation than it has instances."""
    watcher = a_group(
        "watcher",
        more={"nvidia.com/gpu": 1},
        labels={"app": "other"},
        affinity=(keep_near(CAPACITY_TYPE),),
        anti_affinity=(keep_apart(ZONE),),
    )
    port = (HostPort(8080),)

    plan = plan_of(
        pods=[a_group("web", 5, labels={"app": "web"}, host_ports=port), watcher],
        pools=[a_pool([SMALL, reserved(MEDIUM, cr_1=2)])],
    )

    assert kinds(plan) == {"reserved": 2, "spot": 3}
    assert [entry.pods for entry in plan.unschedulable] == [("default/watcher-0",)]
