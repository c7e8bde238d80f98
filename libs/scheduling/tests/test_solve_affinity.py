"""Pod affinity and anti-affinity: domains, both directions, the first pod, namespaces, wishes."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sawhorse_model.cluster import Namespace
from sawhorse_model.labels import HOSTNAME, WELL_KNOWN, ZONE
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import PodAffinityTerm
from sawhorse_model.selectors import LabelSelector
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import SolveOptions
from sawhorse_testing.builders import (
    ZONES,
    a_group,
    a_node,
    a_pod,
    a_pool,
    a_selector,
    a_spread,
    a_type,
    an_expression,
    bound,
    keep_apart,
    keep_near,
)
from sawhorse_testing.plans import checked_plan, codes, zones_of

A, B, C = ZONES
BIG = a_type("m6i.4xlarge", "16", "64Gi", price=0.768, spot=0.32)
SMALL = a_type("m6i.large", "2", "8Gi", price=0.096, spot=0.04)


plan_of = partial(checked_plan, options=SolveOptions(well_known=WELL_KNOWN))


def running(app: str, zone: str, **spec: Any) -> Any:
    pod = bound(a_pod(f"r-{app}", labels={"app": app}, **spec), f"node-{zone}")
    return a_node(f"node-{zone}", cpu="200m", zone=zone, pods=[pod])


def test_pods_that_want_to_be_near_each_other_are_in_one_zone() -> None:
    plan = plan_of(pods=[a_group(count=50, cpu="1500m", affinity=(keep_near(ZONE),))], pools=[a_pool([SMALL])])

    assert list(zones_of(plan, "web").values()) == [50]
    assert plan.unschedulable == ()


def test_pods_follow_those_that_run_already() -> None:
    plan = plan_of(
        pods=[a_group(count=3, affinity=(keep_near(ZONE),))], nodes=[running("web", B)], pools=[a_pool([BIG])]
    )

    assert zones_of(plan, "web") == {B: 2}
    assert [len(n.pods) for n in plan.existing_nodes] == [1]


def test_pods_follow_others_of_the_same_plan_whatever_comes_first() -> None:
    cache = a_group("cache", 2, cpu="100m", node_selector={ZONE: C})
    web = a_group("web", 5, cpu="1", affinity=(keep_near(ZONE, app="cache"),))

    plan = plan_of(pods=[web, cache], pools=[a_pool([BIG])])

    assert zones_of(plan, "web") == {C: 5}
    assert plan.unschedulable == ()


def test_a_pod_that_does_not_match_its_own_term_cannot_be_the_first() -> None:
    plan = plan_of(pods=[a_group(affinity=(keep_near(ZONE, app="db"),))], pools=[a_pool([BIG])])

    assert plan.new_nodes == ()
    assert "AffinityUnsatisfiable" in codes(plan)


def test_a_first_pod_opens_no_second_domain_while_one_exists_elsewhere() -> None:
    pods = a_group(node_selector={ZONE: A}, cpu="1", affinity=(keep_near(ZONE),))

    plan = plan_of(pods=[pods], nodes=[running("web", B)], pools=[a_pool([BIG])])

    assert plan.new_nodes == ()
    assert "AffinityUnsatisfiable" in codes(plan)


def test_the_domain_that_is_opened_can_hold_all_of_them() -> None:
    pool = a_pool([BIG], requirements=[an_expression(ZONE, "In", B)])
    nodes = [a_node("n1", cpu="1", zone=A)]

    plan = plan_of(pods=[a_group(count=20, cpu="500m", affinity=(keep_near(ZONE),))], nodes=nodes, pools=[pool])

    assert zones_of(plan, "web") == {B: 20}
    assert plan.unschedulable == ()


def test_several_terms_are_met_by_pods_that_match_all_of_them() -> None:
    both = (keep_near(ZONE), PodAffinityTerm(ZONE, a_selector(tier="front")))
    half = running("web", A)
    whole = bound(a_pod("r", labels={"app": "web", "tier": "front"}), "n2")
    nodes = [half, a_node("n2", cpu="200m", zone=C, pods=[whole])]

    plan = plan_of(pods=[a_group("job", cpu="1", affinity=both)], nodes=nodes, pools=[a_pool([BIG])])

    assert zones_of(plan, "job") == {C: 1}


def test_spread_and_affinity_of_one_pod_both_hold() -> None:
    pods = a_group(count=4, affinity=(keep_near("rack"),), spread=(a_spread(),))
    pool = a_pool([BIG], requirements=[an_expression("rack", "In", "r1", "r2")])

    plan = plan_of(pods=[pods], pools=[pool])

    assert sorted(zones_of(plan, "web").values()) == [1, 1, 2]
    assert len({next(iter(n.requirements["rack"].values)) for n in plan.new_nodes}) == 1


def test_zone_anti_affinity_puts_at_most_one_pod_in_each_zone() -> None:
    plan = plan_of(pods=[a_group(count=4, anti_affinity=(keep_apart(ZONE),))], pools=[a_pool([BIG])])

    assert zones_of(plan, "web") == {A: 1, B: 1, C: 1}
    assert sum(len(u.pods) for u in plan.unschedulable) == 1
    assert "AntiAffinityUnsatisfiable" in codes(plan)


@pytest.mark.parametrize("owner", ["web", "db"])
def test_zone_anti_affinity_works_in_both_directions_in_one_plan(owner: str) -> None:
    term = (keep_apart(ZONE, app="db" if owner == "web" else "web"),)
    web = a_group("web", 6, anti_affinity=term if owner == "web" else ())
    db = a_group("db", 2, anti_affinity=term if owner == "db" else ())

    plan = plan_of(pods=[web, db], pools=[a_pool([BIG])])

    assert not zones_of(plan, "web").keys() & zones_of(plan, "db").keys()
    assert plan.unschedulable == ()


@pytest.mark.parametrize("is_owner", [True, False])
def test_zone_anti_affinity_with_running_pods_works_in_both_directions(is_owner: bool) -> None:
    term = (keep_apart(ZONE, app="web" if is_owner else "job"),)
    nodes = [running("web", zone, anti_affinity=() if is_owner else term) for zone in (A, B)]

    plan = plan_of(
        pods=[a_group("job", 2, cpu="1", anti_affinity=term if is_owner else ())], nodes=nodes, pools=[a_pool([BIG])]
    )

    assert zones_of(plan, "job") == {C: 2}


def test_pods_of_other_namespaces_count_only_where_a_term_names_them() -> None:
    web = a_pod("r", labels={"app": "web"}, namespace="other")
    node = a_node(cpu="200m", zone=B, pods=[bound(web)])
    by_list = PodAffinityTerm(ZONE, a_selector(app="web"), namespaces=("other",))
    by_label = PodAffinityTerm(ZONE, a_selector(app="web"), namespace_selector=a_selector(team="x"))
    everywhere = PodAffinityTerm(ZONE, a_selector(app="web"), namespace_selector=LabelSelector())
    spaces = [Namespace(ObjectMeta("other", "", labels={"team": "x"})), Namespace(ObjectMeta("default", ""))]

    def place(term: PodAffinityTerm) -> Plan:
        pods = [a_group("job", cpu="1", affinity=(term,))]
        return plan_of(pods=pods, nodes=[node], pools=[a_pool([BIG])], namespaces=spaces)

    assert [zones_of(place(t), "job") for t in (by_list, by_label, everywhere)] == [{B: 1}] * 3
    assert "AffinityUnsatisfiable" in codes(place(keep_near(ZONE)))


def test_a_term_without_a_selector_means_no_pod() -> None:
    plan = plan_of(pods=[a_group(anti_affinity=(PodAffinityTerm(ZONE, None),), count=5)], pools=[a_pool([BIG])])

    assert plan.unschedulable == ()


def test_a_wish_to_be_near_draws_pods_and_is_given_up_where_it_cannot_be() -> None:
    near = plan_of(
        pods=[a_group("job", 2, cpu="1", affinity=(keep_near(ZONE, weight=10),))],
        nodes=[running("web", C)],
        pools=[a_pool([BIG])],
    )
    elsewhere = plan_of(
        pods=[a_group("job", 2, cpu="1", affinity=(keep_near(ZONE, weight=10),))],
        nodes=[running("web", C)],
        pools=[a_pool([BIG], requirements=[an_expression(ZONE, "In", A)])],
    )

    assert zones_of(near, "job") == {C: 2}
    assert zones_of(elsewhere, "job") == {A: 2}


def test_a_wish_to_be_apart_spreads_pods_and_leaves_none_over() -> None:
    plan = plan_of(pods=[a_group(count=3, anti_affinity=(keep_apart(ZONE, weight=1),))], pools=[a_pool([BIG])])

    assert zones_of(plan, "web") == {A: 1, B: 1, C: 1}
    assert plan.unschedulable == ()


def test_wishes_about_other_pods_are_not_looked_at_when_preferences_are_ignored() -> None:
    plan = plan_of(
        pods=[a_group(count=3, anti_affinity=(keep_apart(ZONE, weight=1),))],
        pools=[a_pool([BIG])],
        options=SolveOptions(well_known=WELL_KNOWN, ignore_preferences=True),
    )

    assert len(plan.new_nodes) == 1


def test_a_label_that_a_claim_in_flight_may_get_either_way_is_no_place_to_be_first_or_near() -> None:
    waiting = bound(a_pod("r", labels={"app": "web"}), "claim")
    claim = a_node("claim", cpu="8", pods=[waiting], initialized=False)
    labels = {k: v for k, v in claim.labels.items() if k not in (ZONE, HOSTNAME)}
    claim = replace(claim, claim="claim", labels=labels, instance_types=(BIG,))

    plan = plan_of(pods=[a_group(affinity=(keep_near(ZONE),))], nodes=[claim], pools=[a_pool([BIG])])

    assert plan.new_nodes == ()
    assert plan.existing_nodes == ()
    assert "AffinityUnsatisfiable" in codes(plan)


def on_hosts(plan: Plan) -> list[Counter[str]]:
    pods = [n.pods for n in plan.new_nodes] + [n.pods for n in plan.existing_nodes]
    return [Counter(pod.split("/")[1].rsplit("-", 1)[0] for pod in names) for names in pods]


def test_pods_that_must_share_a_node_are_all_on_one() -> None:
    plan = plan_of(pods=[a_group(count=6, cpu="1", affinity=(keep_near(HOSTNAME),))], pools=[a_pool([SMALL, BIG])])

    assert on_hosts(plan) == [Counter(web=6)]
    assert plan.new_nodes[0].requests["cpu"] == 6000


def test_pods_that_must_share_a_node_take_room_that_is_there() -> None:
    nodes = [a_node("n1", cpu="2"), a_node("n2", cpu="8")]

    plan = plan_of(
        pods=[a_group(count=6, cpu="1", affinity=(keep_near(HOSTNAME),))], nodes=nodes, pools=[a_pool([BIG])]
    )

    assert [(n.name, len(n.pods)) for n in plan.existing_nodes] == [("n2", 6)]


def test_pods_that_must_share_a_node_which_no_node_holds_are_reported_together() -> None:
    plan = plan_of(pods=[a_group(count=6, cpu="1", affinity=(keep_near(HOSTNAME),))], pools=[a_pool([SMALL])])

    assert plan.new_nodes == ()
    assert {"CoLocationUnsatisfiable", "InsufficientResources"} <= codes(plan)
    assert "6 pods must share a node" in plan.unschedulable[0].message


def test_each_cache_takes_its_part_of_the_servers_that_must_be_beside_one() -> None:
    cache = a_group("cache", 3, cpu="1", anti_affinity=(keep_apart(app="cache"),))
    web = a_group("web", 10, cpu="500m", affinity=(keep_near(HOSTNAME, app="cache"),))

    plan = plan_of(pods=[web, cache], pools=[a_pool([BIG])])

    assert sorted(c["web"] for c in on_hosts(plan)) == [3, 3, 4]
    assert all(c["cache"] == 1 for c in on_hosts(plan))
    assert plan.unschedulable == ()


def test_pods_that_would_start_a_node_join_those_that_wait_for_nobody() -> None:
    tied = a_group("tied", 2, cpu="1", labels={"app": "web"}, affinity=(keep_near(HOSTNAME),))
    free = a_group("free", 1, cpu="500m", labels={"app": "web"}, node_selector={ZONE: C})

    plan = plan_of(pods=[tied, free], pools=[a_pool([BIG])])

    assert on_hosts(plan) == [Counter(tied=2, free=1)]
    assert plan.new_nodes[0].zone == C


def test_classes_that_must_all_be_near_each_other_share_one_node() -> None:
    first = a_group("first", 2, cpu="1", labels={"app": "web"}, affinity=(keep_near(HOSTNAME),))
    second = a_group("second", 3, cpu="500m", labels={"app": "web"}, affinity=(keep_near(HOSTNAME),))

    plan = plan_of(pods=[first, second], pools=[a_pool([BIG])])

    assert on_hosts(plan) == [Counter(first=2, second=3)]


def test_a_pod_that_waits_for_nobody_is_placed_though_what_must_be_beside_it_is_not() -> None:
    cache = a_group("cache", 2, cpu="10")
    web = a_group("web", 1, cpu="10", affinity=(keep_near(HOSTNAME, app="cache"),))

    plan = plan_of(pods=[cache, web], pools=[a_pool([BIG])])

    assert on_hosts(plan) == [Counter(cache=1), Counter(cache=1)]
    assert codes(plan) == {"CoLocationUnsatisfiable"}


def test_of_several_that_it_may_be_beside_a_pod_takes_one_that_bears_it() -> None:
    shy = a_group("shy", 1, labels={"app": "web"}, anti_affinity=(keep_apart(),))
    open_to_all = a_group("calm", 1, labels={"app": "web", "calm": "yes"})
    follower = a_group("job", 1, labels={"app": "web"}, affinity=(keep_near(HOSTNAME),))

    plan = plan_of(pods=[shy, open_to_all, follower], pools=[a_pool([BIG])])

    assert sorted(map(len, on_hosts(plan))) == [1, 2]
    assert plan.unschedulable == ()


def test_other_pods_fill_up_the_node_of_those_that_must_share_one() -> None:
    pods = [a_group(count=6, cpu="1", affinity=(keep_near(HOSTNAME),)), a_group("job", 5, cpu="1")]

    plan = plan_of(pods=pods, pools=[a_pool([BIG])])

    assert on_hosts(plan) == [Counter(web=6, job=5)]


def test_pods_join_the_nodes_of_pods_that_run_already_and_no_other() -> None:
    cache = bound(a_pod("c", labels={"app": "cache"}), "n2")
    nodes = [a_node("n1", cpu="8"), a_node("n2", cpu="1", pods=[cache])]

    plan = plan_of(
        pods=[a_group(count=4, cpu="400m", affinity=(keep_near(HOSTNAME, app="cache"),))],
        nodes=nodes,
        pools=[a_pool([BIG])],
    )

    assert [(n.name, len(n.pods)) for n in plan.existing_nodes] == [("n2", 2)]
    assert "AffinityUnsatisfiable" in codes(plan)


def test_a_node_mate_that_is_nowhere_is_told() -> None:
    plan = plan_of(pods=[a_group(affinity=(keep_near(HOSTNAME, app="db"),))], pools=[a_pool([BIG])])

    assert codes(plan) == {"AffinityUnsatisfiable"}
    assert "app In db" in plan.unschedulable[0].message


def test_rules_that_both_join_and_part_the_same_pods_are_told() -> None:
    pods = a_group(count=2, affinity=(keep_near(HOSTNAME),), anti_affinity=(keep_apart(),))

    plan = plan_of(pods=[pods], pools=[a_pool([BIG])])

    assert codes(plan) == {"CoLocationUnsatisfiable"}
