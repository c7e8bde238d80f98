"""Spread and anti-affinity: domains, skew, hosts, and rules of pods that run already."""

from collections import Counter
from dataclasses import replace
from functools import partial

from sawhorse_model.cluster import Namespace
from sawhorse_model.labels import ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, WELL_KNOWN, ZONE
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import PodAffinityTerm
from sawhorse_model.selectors import LabelSelector
from sawhorse_model.taints import Taint
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
    a_term,
    a_type,
    an_expression,
    bound,
    keep_apart,
    resources,
)
from sawhorse_testing.plans import checked_plan, codes

A, B, C = ZONES
TYPE = a_type("m6i.xlarge", "4", "16Gi", price=0.192, spot=0.08)
BIG = a_type("m6i.4xlarge", "16", "64Gi", price=0.768, spot=0.32)
OPTIONS = SolveOptions(well_known=WELL_KNOWN)


plan_of = partial(checked_plan, options=OPTIONS)


def per_zone(plan: Plan) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for node in plan.new_nodes:
        counts[node.zone] += len(node.pods)
    return dict(counts)


def test_zone_spread_deals_pods_out_evenly() -> None:
    plan = plan_of(pods=[a_group(count=10, spread=(a_spread(),))], pools=[a_pool([BIG])])

    assert sorted(per_zone(plan).values()) == [3, 3, 4]


def test_each_pods_zone_is_written_into_the_claim() -> None:
    plan = plan_of(pods=[a_group(count=3, spread=(a_spread(),))], pools=[a_pool([BIG])])

    assert sorted(next(iter(n.requirements[ZONE].values)) for n in plan.new_nodes) == [A, B, C]


def test_very_many_spread_pods_are_dealt_in_bulk_and_evenly() -> None:
    plan = plan_of(pods=[a_group(count=10_000, cpu="50m", memory="16Mi", spread=(a_spread(),))], pools=[a_pool([BIG])])

    assert sorted(per_zone(plan).values()) == [3333, 3333, 3334]


def test_zones_of_a_pool_that_the_pod_cannot_use_are_no_domains() -> None:
    web = a_pool([BIG], "web", requirements=[an_expression(ZONE, "In", A, B)], labels={"team": "web"})
    pods = a_group(count=3, node_selector={"team": "web"}, spread=(a_spread(),))

    plan = plan_of(pods=[pods], pools=[web, a_pool([BIG], "any")])

    assert sorted(per_zone(plan).values()) == [1, 2]
    assert plan.unschedulable == ()


def test_a_zone_without_any_offering_is_no_domain() -> None:
    two = a_type("c6i.xlarge", "4", "8Gi", unavailable=[(C, "on-demand")])

    plan = plan_of(pods=[a_group(count=4, spread=(a_spread(),))], pools=[a_pool([two])])

    assert per_zone(plan) == {A: 2, B: 2}


def test_a_soft_spread_over_zones_is_kept_where_it_can_be() -> None:
    broken = a_pool([BIG], "broken", requirements=[an_expression(ZONE, "In", "us-west-2f")])
    soft = a_spread(when_unsatisfiable="ScheduleAnyway")

    plan = plan_of(pods=[a_group(count=3, spread=(soft,))], pools=[a_pool([BIG], "good"), broken])

    assert per_zone(plan) == {A: 1, B: 1, C: 1}


def test_a_soft_spread_over_hosts_makes_no_extra_nodes() -> None:
    soft = a_spread(HOSTNAME, when_unsatisfiable="ScheduleAnyway")

    plan = plan_of(pods=[a_group(count=20, spread=(soft,))], pools=[a_pool([BIG])])

    assert len(plan.new_nodes) == 1


def test_soft_spread_is_not_looked_at_when_preferences_are_ignored() -> None:
    soft = a_spread(when_unsatisfiable="ScheduleAnyway")

    plan = plan_of(
        pods=[a_group(count=3, spread=(soft,))],
        pools=[a_pool([BIG])],
        options=replace(OPTIONS, ignore_preferences=True),
    )

    assert len(plan.new_nodes) == 1


def test_running_pods_count_where_they_are() -> None:
    running = [bound(a_pod(f"r{i}", labels={"app": "web"}), "n") for i in range(3)]
    node = a_node("n", zone=A, pods=running)

    plan = plan_of(pods=[a_group(count=4, spread=(a_spread(),))], nodes=[node], pools=[a_pool([BIG])])

    assert per_zone(plan) == {B: 2, C: 2}


def test_pods_of_another_namespace_or_with_other_labels_do_not_count() -> None:
    others = [bound(a_pod("r1", labels={"app": "db"})), bound(a_pod("r2", labels={"app": "web"}, namespace="x"))]
    nodes = [a_node(zone=A, pods=others)]

    plan = plan_of(pods=[a_group(count=3, cpu="3", spread=(a_spread(),))], nodes=nodes, pools=[a_pool([TYPE])])

    assert per_zone(plan) == {B: 1, C: 1}
    assert [len(n.pods) for n in plan.existing_nodes] == [1]


def test_a_full_zone_that_no_new_node_can_reach_holds_the_rest_back() -> None:
    node = a_node("n", cpu="100m", zone=C, labels={"rack": "x"})
    pool = a_pool([BIG], requirements=[an_expression(ZONE, "In", A, B)])

    plan = plan_of(pods=[a_group(count=6, spread=(a_spread(),))], nodes=[node], pools=[pool])

    assert (len(plan.existing_nodes[0].pods), per_zone(plan)) == (1, {A: 2, B: 2})
    assert codes(plan) == {"SpreadUnsatisfiable"}
    assert "maxSkew 1" in plan.unschedulable[0].message


def test_a_larger_skew_lets_existing_room_be_used_first() -> None:
    node = a_node("n", zone=A)

    plan = plan_of(pods=[a_group(count=3, spread=(a_spread(max_skew=3),))], nodes=[node], pools=[a_pool([BIG])])

    assert [len(n.pods) for n in plan.existing_nodes] == [3]


def test_fewer_domains_than_min_domains_hold_every_domain_to_the_skew() -> None:
    pool = a_pool([BIG], requirements=[an_expression(ZONE, "In", A, B)])

    plan = plan_of(pods=[a_group(count=6, spread=(a_spread(min_domains=3),))], pools=[pool])

    assert per_zone(plan) == {A: 1, B: 1}
    assert len(plan.unschedulable[0].pods) == 4


def test_tainted_nodes_count_unless_the_constraint_honours_taints() -> None:
    tainted = a_node("n", zone=C, taints=(Taint("k", "NoSchedule"),))
    pool = a_pool([BIG], requirements=[an_expression(ZONE, "In", A, B)])

    ignoring = plan_of(pods=[a_group(count=4, spread=(a_spread(),))], nodes=[tainted], pools=[pool])
    honouring = plan_of(
        pods=[a_group(count=4, spread=(a_spread(node_taints_policy="Honor"),))], nodes=[tainted], pools=[pool]
    )

    assert per_zone(ignoring) == {A: 1, B: 1}
    assert per_zone(honouring) == {A: 2, B: 2}


def test_nodes_that_the_pod_cannot_use_count_only_when_affinity_is_ignored() -> None:
    arm_node = a_node("n", zone=C, labels={ARCH: "arm64"})
    pool = a_pool([BIG], requirements=[an_expression(ZONE, "In", A, B)])
    pods = {
        policy: a_group(count=4, node_selector={ARCH: "amd64"}, spread=(a_spread(node_affinity_policy=policy),))
        for policy in ("Honor", "Ignore")
    }

    honouring = plan_of(pods=[pods["Honor"]], nodes=[arm_node], pools=[pool])
    ignoring = plan_of(pods=[pods["Ignore"]], nodes=[arm_node], pools=[pool])

    assert per_zone(honouring) == {A: 2, B: 2}
    assert per_zone(ignoring) == {A: 1, B: 1}


def test_a_selector_that_does_not_select_the_pod_itself_counts_the_others() -> None:
    running = [bound(a_pod(f"r{i}", labels={"app": "db"}), "n") for i in range(2)]
    spread = a_spread(app="db")

    plan = plan_of(
        pods=[a_group(count=5, cpu="3", spread=(spread,))],
        nodes=[a_node("n", zone=A, pods=running)],
        pools=[a_pool([TYPE])],
    )

    assert A not in per_zone(plan)


def test_match_label_keys_tell_revisions_apart() -> None:
    spread = replace(a_spread(), match_label_keys=("rev",))
    old = [bound(a_pod(f"r{i}", labels={"app": "web", "rev": "1"}), "n") for i in range(4)]
    group = a_group(count=3, cpu="3", labels={"app": "web", "rev": "2"}, spread=(spread,))

    plan = plan_of(pods=[group], nodes=[a_node("n", cpu="1", zone=A, pods=old)], pools=[a_pool([TYPE])])

    assert per_zone(plan) == {A: 1, B: 1, C: 1}


def test_spread_over_capacity_types() -> None:
    plan = plan_of(pods=[a_group(count=4, spread=(a_spread(CAPACITY_TYPE),))], pools=[a_pool([BIG])])

    assert Counter({n.capacity_type.value: len(n.pods) for n in plan.new_nodes}) == {"spot": 2, "on-demand": 2}


def test_spread_over_a_label_that_pools_define() -> None:
    pool = a_pool([BIG], requirements=[an_expression("rack", "In", "r1", "r2")])

    plan = plan_of(pods=[a_group(count=4, spread=(a_spread("rack"),))], pools=[pool])

    assert sorted((next(iter(n.requirements["rack"].values)), len(n.pods)) for n in plan.new_nodes) == [
        ("r1", 2),
        ("r2", 2),
    ]


def test_spread_over_a_label_that_nobody_has_is_explained() -> None:
    plan = plan_of(pods=[a_group(spread=(a_spread("rack"),))], pools=[a_pool([BIG])])

    assert codes(plan) == {"SpreadUnsatisfiable"}
    assert "no node and no pool that it may use has the label rack" in plan.unschedulable[0].message


def test_two_deployments_that_share_a_selector_are_counted_together() -> None:
    pinned = a_group("pinned", 5, labels={"app": "web"}, node_selector={ZONE: A})
    spread = a_group("even", 10, labels={"app": "web"}, spread=(a_spread(),))

    plan = plan_of(pods=[spread, pinned], pools=[a_pool([BIG])])

    assert per_zone(plan) == {A: 5, B: 5, C: 5}


def test_spread_over_hosts_caps_each_node() -> None:
    plan = plan_of(pods=[a_group(count=5, spread=(a_spread(HOSTNAME, max_skew=2),))], pools=[a_pool([BIG])])

    assert sorted(len(n.pods) for n in plan.new_nodes) == [1, 2, 2]


def test_limits_that_stop_a_spread_class_leave_it_even() -> None:
    pool = a_pool([TYPE], limits=resources(cpu="24"))

    plan = plan_of(pods=[a_group(count=30, cpu="3", spread=(a_spread(),))], pools=[pool])

    assert per_zone(plan) == {A: 2, B: 2, C: 2}
    assert codes(plan) >= {"LimitReached"}


def test_pods_that_keep_apart_get_a_node_each() -> None:
    plan = plan_of(pods=[a_group(count=3, anti_affinity=(keep_apart(),)), a_group("other", 3)], pools=[a_pool([BIG])])

    assert len(plan.new_nodes) == 3


def test_anti_affinity_against_others_works_in_both_directions() -> None:
    shy = a_group("shy", anti_affinity=(keep_apart(app="loud"),))

    plan = plan_of(pods=[shy, a_group("loud")], pools=[a_pool([BIG])])

    assert sorted(n.pods for n in plan.new_nodes) == [("default/loud-0",), ("default/shy-0",)]


def test_a_running_pods_anti_affinity_keeps_new_pods_off_its_host() -> None:
    shy = bound(a_pod("r", anti_affinity=(keep_apart(app="web"),)), "n")

    plan = plan_of(pods=[a_group()], nodes=[a_node("n", pods=[shy])], pools=[a_pool([BIG])])

    assert plan.existing_nodes == ()
    assert len(plan.new_nodes) == 1


def test_a_running_pods_zonal_anti_affinity_closes_its_zone() -> None:
    shy = bound(a_pod("r", anti_affinity=(keep_apart(ZONE, app="web"),)), "n")
    nodes = [a_node("n", zone=A, pods=[shy]), a_node("m", zone=A)]
    pool = a_pool([BIG], requirements=[an_expression(ZONE, "In", A, B)])

    plan = plan_of(pods=[a_group(count=2)], nodes=nodes, pools=[pool])

    assert plan.existing_nodes == ()
    assert per_zone(plan) == {B: 2}


def test_a_namespace_selector_reaches_other_namespaces() -> None:
    term = PodAffinityTerm(
        HOSTNAME, selector=a_selector(app="web"), namespace_selector=LabelSelector(a_selector(team="a").expressions)
    )
    spaces = [Namespace(ObjectMeta("x", labels={"team": "a"})), Namespace(ObjectMeta("y"))]
    pods = [
        a_group("shy", anti_affinity=(term,)),
        a_group("web", namespace="x"),
        a_group("other", labels={"app": "web"}, namespace="y"),
    ]

    plan = plan_of(pods=pods, pools=[a_pool([BIG])], namespaces=spaces)

    assert sorted(sorted(n.pods) for n in plan.new_nodes) in (
        [["default/shy-0"], ["x/web-0", "y/other-0"]],
        [["default/shy-0", "y/other-0"], ["x/web-0"]],
    )


def test_preferred_anti_affinity_by_hostname_makes_no_nodes_and_that_is_said() -> None:
    plan = plan_of(pods=[a_group(count=2, anti_affinity=(keep_apart(weight=10),))], pools=[a_pool([BIG])])

    assert len(plan.new_nodes) == 1
    assert any("preferred anti-affinity" in warning for warning in plan.warnings)


def test_a_new_node_that_may_turn_out_as_a_domain_is_measured_from() -> None:
    """The plain pod's node comes as a small type, or as one that the picky pod accepts: then spot is a domain, with one
    pod, and on-demand would be two ahead. No pool makes a spot node for the picky pod itself."""
    kinds = [
        a_type("small", "2", "4Gi", price=0.1, spot=0.04),
        a_type("large", "8", "16Gi", price=0.38, spot=0.17),
        a_type("fat", "4", "32Gi", price=0.3),
    ]
    two_types = replace(an_expression(INSTANCE_TYPE, "Exists"), min_values=2)
    alone = {"labels": {"app": "web"}, "anti_affinity": (keep_apart(),)}
    nodes = [a_node(f"n{n}", "2", pods=[bound(a_pod(f"b{n}", **alone), f"n{n}")]) for n in range(2)]
    picky = a_group(
        "picky",
        required_terms=(a_term(an_expression(INSTANCE_TYPE, "NotIn", "small")),),
        spread=(a_spread(CAPACITY_TYPE),),
        **alone,
    )

    pools = [a_pool(kinds, requirements=[two_types])]

    plan = plan_of(pods=[a_group("plain", **alone), picky], nodes=nodes, pools=pools)

    assert [node.pods for node in plan.new_nodes] == [("default/plain-0",)]
    assert [entry.pods for entry in plan.unschedulable] == [("default/picky-0",)]
