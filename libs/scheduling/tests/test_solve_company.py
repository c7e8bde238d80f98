"""Wishes by hostname: preferred affinity gathers pods, preferred anti-affinity deals them out, neither makes nodes."""

from functools import partial
from typing import Any

import pytest

from sawhorse_model.labels import HOSTNAME, WELL_KNOWN
from sawhorse_model.pod import HostPort
from sawhorse_model.taints import Taint, Toleration
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import SolveOptions
from sawhorse_testing.builders import (
    a_group,
    a_node,
    a_pod,
    a_pool,
    a_spread,
    a_type,
    bound,
    keep_apart,
    keep_near,
    resources,
)
from sawhorse_testing.plans import checked_plan

TYPES = (
    a_type("m6i.large", "2", "8Gi", price=0.1),
    a_type("m6i.xlarge", "4", "16Gi", price=0.2),
    a_type("m6i.4xlarge", "16", "64Gi", price=0.8),
    a_type("dear.metal", "64", "256Gi", price=6.0),
)
LIKES_ITSELF = (keep_near(HOSTNAME, weight=50),)
LIKES_CACHE = (keep_near(HOSTNAME, app="cache", weight=1),)


plan_of = partial(checked_plan, options=SolveOptions(well_known=WELL_KNOWN))


def placed(plan: Plan, app: str) -> list[int]:
    """How many pods of an app each node has that has any."""
    nodes = [node.pods for node in (*plan.new_nodes, *plan.existing_nodes)]
    found = (sum(pod.startswith(f"default/{app}-") for pod in pods) for pods in nodes)
    return sorted(number for number in found if number)


def test_pods_that_would_like_to_share_a_node_do() -> None:
    pods = [a_group(count=6, cpu="1", affinity=LIKES_ITSELF), a_group("job", 10, cpu="1500m")]

    plan = plan_of(pods=pods, pools=[a_pool(TYPES)])

    assert placed(plan, "web") == [6]
    assert plan.unschedulable == ()


def test_each_cache_takes_its_part_of_those_that_would_like_to_be_beside_one() -> None:
    pods = [a_group(count=6, cpu="1", affinity=LIKES_CACHE), a_group("cache", 2, cpu="9")]

    plan = plan_of(pods=pods, pools=[a_pool(TYPES[:3])])

    assert [sorted(pod.split("/")[1][:3] for pod in n.pods) for n in plan.new_nodes] == [
        ["cac", "web", "web", "web"]
    ] * 2


def test_more_pods_than_a_cheap_type_holds_gather_in_equal_parts() -> None:
    plan = plan_of(pods=[a_group(count=40, cpu="1", affinity=LIKES_ITSELF)], pools=[a_pool(TYPES)])

    assert placed(plan, "web") == [13, 13, 14]


def test_nodes_with_pods_that_one_likes_come_before_empty_ones() -> None:
    friend = bound(a_pod("r", labels={"app": "web"}), "n2")
    nodes = [a_node("n1"), a_node("n2", pods=[friend])]

    plan = plan_of(pods=[a_group(count=4, cpu="1", affinity=LIKES_ITSELF)], nodes=nodes, pools=[a_pool(TYPES)])

    assert [(n.name, len(n.pods)) for n in plan.existing_nodes] == [("n1", 1), ("n2", 3)]


def test_pods_follow_planned_ones_that_they_like_onto_existing_nodes() -> None:
    web = a_group(count=2, cpu="2", affinity=LIKES_CACHE)
    nodes = [a_node("n1", cpu="4"), a_node("n2", cpu="8")]

    plan = plan_of(pods=[web, a_group("cache", cpu="1", node_selector={HOSTNAME: "n2"})], nodes=nodes, pools=[])

    assert [(n.name, len(n.pods)) for n in plan.existing_nodes] == [("n2", 3)]


def test_a_wish_for_company_takes_no_pod_off_a_node_that_exists() -> None:
    nodes = [a_node("n1", cpu="3"), a_node("n2", cpu="3")]

    plan = plan_of(pods=[a_group(count=6, cpu="1", affinity=LIKES_ITSELF)], nodes=nodes, pools=[a_pool(TYPES)])

    assert plan.new_nodes == ()
    assert placed(plan, "web") == [3, 3]


@pytest.mark.parametrize(
    "fields",
    [
        {"host_ports": (HostPort(80),)},
        {"anti_affinity": (keep_apart(),)},
        {"spread": (a_spread(HOSTNAME),)},
        {"cpu": "12"},
    ],
)
def test_a_wish_for_company_that_cannot_be_met_is_let_go(fields: dict[str, Any]) -> None:
    pods = a_group(count=2, affinity=LIKES_ITSELF, **{"cpu": "1", **fields})

    plan = plan_of(pods=[pods], pools=[a_pool(TYPES[:3])])

    assert placed(plan, "web") == [1, 1]
    assert plan.unschedulable == ()


def test_under_a_limit_company_is_given_up_before_a_pod_is() -> None:
    pods = a_group(count=6, cpu="1", affinity=LIKES_ITSELF)

    plan = plan_of(pods=[pods], pools=[a_pool(TYPES, limits=resources(cpu="8"))])

    assert sum(placed(plan, "web")) == 6


def test_one_wish_that_cannot_be_met_leaves_the_others() -> None:
    alone = a_group("db", 2, cpu="1", affinity=(keep_near(HOSTNAME, app="db", weight=1),), host_ports=(HostPort(80),))
    pods = [a_group(count=6, cpu="1", affinity=LIKES_ITSELF), alone]

    plan = plan_of(pods=pods, pools=[a_pool(TYPES)])

    assert placed(plan, "web") == [6]
    assert placed(plan, "db") == [1, 1]


def test_pods_that_like_each_other_in_a_ring_share_a_node() -> None:
    web = a_group(count=2, cpu="1", affinity=(keep_near(HOSTNAME, app="db", weight=5),))
    db = a_group("db", 2, cpu="500m", affinity=(keep_near(HOSTNAME, app="web", weight=5),))

    plan = plan_of(pods=[web, db], pools=[a_pool(TYPES)])

    assert [len(n.pods) for n in plan.new_nodes] == [4]


def test_the_bound_stays_that_of_pods_that_may_be_anywhere() -> None:
    pods = [a_group(count=6, cpu="1", affinity=LIKES_ITSELF), a_group("job", 10, cpu="1500m")]
    free = [a_group(count=6, cpu="1"), a_group("job", 10, cpu="1500m")]

    together, anywhere = plan_of(pods=pods, pools=[a_pool(TYPES)]), plan_of(pods=free, pools=[a_pool(TYPES)])

    assert together.lower_bound_per_hour == anywhere.lower_bound_per_hour


def test_company_is_not_looked_at_when_preferences_are_ignored() -> None:
    options = SolveOptions(well_known=WELL_KNOWN, ignore_preferences=True)
    friend = bound(a_pod("r", labels={"app": "web"}), "n2")
    nodes = [a_node("n1"), a_node("n2", pods=[friend])]

    plan = plan_of(pods=[a_group(affinity=LIKES_ITSELF)], nodes=nodes, pools=[a_pool(TYPES)], options=options)

    assert [n.name for n in plan.existing_nodes] == ["n1"]


@pytest.mark.parametrize(
    "fields",
    [
        {"anti_affinity": (keep_apart(weight=1),)},
        {"spread": (a_spread(HOSTNAME, when_unsatisfiable="ScheduleAnyway"),)},
    ],
)
def test_pods_that_would_rather_be_apart_are_dealt_out_over_existing_nodes(fields: dict[str, Any]) -> None:
    nodes = [a_node("n1"), a_node("n2"), a_node("n3", pods=[bound(a_pod("r", labels={"app": "web"}), "n3")])]

    plan = plan_of(pods=[a_group(count=5, cpu="500m", **fields)], nodes=nodes, pools=[a_pool(TYPES)])

    assert [(n.name, len(n.pods)) for n in plan.existing_nodes] == [("n1", 2), ("n2", 2), ("n3", 1)]


def test_pods_that_a_limit_leaves_over_are_told_the_limit_and_not_their_company() -> None:
    pods = a_group(count=6, cpu="1", affinity=LIKES_ITSELF)

    plan = plan_of(pods=[pods], pools=[a_pool(TYPES, limits=resources(cpu="4"))])

    assert {reason.code for entry in plan.unschedulable for reason in entry.reasons} == {"LimitReached"}
    assert sum(placed(plan, "web")) == 4


def test_a_pools_weight_comes_before_company() -> None:
    heavy = a_pool(TYPES[:2], "heavy", weight=5, limits={"nodes": 1})
    tainted = a_pool(TYPES, "tainted", weight=5, taints=[Taint("team", "NoSchedule")])
    follower = a_group(count=4, cpu="1", affinity=LIKES_CACHE, tolerations=(Toleration("team", "Exists"),))

    split = plan_of(pods=[a_group(count=6, cpu="1", affinity=LIKES_ITSELF)], pools=[heavy, a_pool(TYPES, "light")])
    apart = plan_of(pods=[follower, a_group("cache", 2)], pools=[tainted, a_pool(TYPES, "light")])

    assert {n.nodepool: len(n.pods) for n in split.new_nodes} == {"heavy": 4, "light": 2}
    assert {n.nodepool: len(n.pods) for n in apart.new_nodes} == {"tainted": 4, "light": 2}
