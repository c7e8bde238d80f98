"""Corners where rules meet: each of these was wrong once, or could be."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sawhorse_model import aws
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from sawhorse_model.pod import HostPort
from sawhorse_model.requirements import Requirement, Requirements, RequirementSpec
from sawhorse_scheduling.problem import build_problem
from sawhorse_scheduling.snapshot import ExistingNode, Snapshot, SolveOptions
from sawhorse_testing.builders import (
    ZONES,
    a_claim,
    a_daemonset,
    a_group,
    a_node,
    a_pod,
    a_pool,
    a_spread,
    a_storage_class,
    a_term,
    a_type,
    a_wish,
    an_expression,
    bound,
    keep_apart,
    keep_near,
    requirement_in,
    volumes_of,
)
from sawhorse_testing.plans import checked_plan, codes, zones_of

A, B, C = ZONES
BIG = a_type("m6i.4xlarge", "16", "64Gi", price=0.768)


plan_of = partial(checked_plan, options=SolveOptions(well_known=aws.WELL_KNOWN, attachments=aws.ATTACHMENTS))


def full(app: str, zone: str) -> Any:
    """A node without room, with a pod of an app."""
    pod = bound(a_pod(f"r-{app}", labels={"app": app}), f"node-{zone}")
    return a_node(f"node-{zone}", cpu="100m", zone=zone, pods=[pod])


UNBOUND = volumes_of(a_claim(), a_storage_class(zones=(A, B)))


@pytest.mark.parametrize("app", ["web", "db"])
def test_pods_that_share_a_claim_follow_those_that_they_must_be_near(app: str) -> None:
    pods = a_group(count=3, affinity=(keep_near(ZONE, app=app),), claims=("data",))

    plan = plan_of(pods=[pods], nodes=[full(app, B)], pools=[a_pool([BIG])], volumes=UNBOUND)

    assert zones_of(plan, "web") == {B: 3}


def test_pods_that_share_a_claim_follow_planned_ones() -> None:
    web = a_group(count=3, affinity=(keep_near(ZONE, app="db"),), claims=("data",))
    db = a_group("db", 2, node_selector={ZONE: B})

    plan = plan_of(pods=[web, db], pools=[a_pool([BIG])], volumes=UNBOUND)

    assert zones_of(plan, "web") == {B: 3}


def test_pods_that_share_a_claim_join_those_whose_node_they_must_share() -> None:
    web = a_group(count=3, affinity=(keep_near(HOSTNAME, app="db"),), claims=("data",))

    plan = plan_of(pods=[web, a_group("db", 1)], pools=[a_pool([BIG])], volumes=UNBOUND)

    assert [len(node.pods) for node in plan.new_nodes] == [4]


def test_where_no_zone_serves_all_that_share_a_claim_the_claim_is_named() -> None:
    web = a_group(count=2, claims=("data",), node_selector={ZONE: A})
    db = a_group("db", 1, claims=("data",), node_selector={ZONE: B})

    plan = plan_of(pods=[web, db], pools=[a_pool([BIG])], volumes=UNBOUND)

    assert "VolumesConflict" in codes(plan)
    assert any("default/data" in entry.message for entry in plan.unschedulable)


def test_a_pod_held_to_a_node_measures_its_spread_over_every_zone_that_it_might_use() -> None:
    pods = a_group(spread=(a_spread(),), affinity=(keep_near(HOSTNAME),))
    node = a_node("n1", zone=A, pods=[bound(a_pod("r", labels={"app": "web"}), "n1")])

    plan = plan_of(pods=[pods], nodes=[node], pools=[a_pool([BIG])])

    assert "SpreadUnsatisfiable" in codes(plan)


def test_pods_that_follow_others_measure_their_spread_over_every_zone_that_they_might_use() -> None:
    web = a_group(count=2, spread=(a_spread(),), affinity=(keep_near(HOSTNAME, app="cache"),))
    cache = a_group("cache", 1, node_selector={ZONE: A})

    plan = plan_of(pods=[web, cache], pools=[a_pool([BIG])])

    assert zones_of(plan, "web") == {}
    assert zones_of(plan, "cache") == {A: 1}


def test_a_daemon_that_uses_resource_claims_takes_nothing_as_such_pods_are_not_planned() -> None:
    daemon = a_daemonset(cpu="15", resource_claims=True)

    plan = plan_of(pods=[a_group(cpu="2")], daemons=[daemon], nodes=[a_node("n1", cpu="1")], pools=[a_pool([BIG])])

    assert len(plan.new_nodes) == 1


def test_pods_follow_those_whose_capacity_type_must_stay_open() -> None:
    spot = a_type("m6i.large", "2", "8Gi", price=0.1, spot=0.03)
    two = replace(an_expression(CAPACITY_TYPE, "Exists"), min_values=2)
    web = a_group(count=2, cpu="1", affinity=(keep_near(CAPACITY_TYPE, app="job", weight=10),))
    db = a_group("db", 3, affinity=(keep_near(ZONE),))

    plan = plan_of(pods=[web, db], nodes=[a_node("n1", cpu="300m", zone=B)], pools=[a_pool([spot], requirements=[two])])

    assert plan.unschedulable == ()


def test_a_spread_over_others_pods_is_dealt_once_those_are() -> None:
    web = a_group(count=6, cpu="2", spread=(a_spread(app="db"),))
    db = a_group("db", 2, cpu="100m", node_selector={ZONE: A})

    plan = plan_of(pods=[web, db], pools=[a_pool([BIG])])

    assert plan.unschedulable == ()
    assert A not in zones_of(plan, "web")


def test_of_three_wishes_as_much_weight_as_possible_is_kept() -> None:
    kind = a_type("m6i.large", "2", "8Gi", price=0.1, spot=0.03)
    wishes = (
        a_wish(30, an_expression(ZONE, "In", B)),
        a_wish(20, an_expression(ARCH, "In", "arm64")),
        a_wish(15, an_expression(CAPACITY_TYPE, "In", "on-demand")),
    )

    plan = plan_of(pods=[a_group(preferred_terms=wishes)], pools=[a_pool([kind])])

    assert [(n.zone, n.capacity_type.value) for n in plan.new_nodes] == [(B, "on-demand")]


def test_of_many_wishes_that_exclude_each_other_the_heaviest_is_kept() -> None:
    wishes = tuple(a_wish(weight, an_expression(ZONE, "In", ZONES[weight % 3])) for weight in range(10, 17))

    plan = plan_of(pods=[a_group(preferred_terms=wishes)], pools=[a_pool([BIG])])

    assert [n.zone for n in plan.new_nodes] == [ZONES[16 % 3]]


def test_of_pods_that_follow_each_other_only_those_that_fit_nowhere_are_left() -> None:
    cache = a_group("cache", 1, cpu="1")
    web = a_group("web", 1, cpu="100m", affinity=(keep_near(HOSTNAME, app="cache"),))
    giant = a_group("giant", 1, cpu="15", affinity=(keep_near(HOSTNAME, app="web"),))

    plan = plan_of(pods=[cache, web, giant], pools=[a_pool([BIG])])

    assert [sorted(n.pods) for n in plan.new_nodes] == [["default/cache-0", "default/web-0"]]
    assert codes(plan) == {"CoLocationUnsatisfiable"}


def test_chains_of_pods_that_follow_each_other_may_be_longer_than_pythons_stack() -> None:
    length = 1100
    pods = [a_group(f"w{n}", affinity=(keep_near(ZONE, app=f"w{n + 1}"),)) for n in range(length)]
    problem = build_problem(Snapshot(pods=(*pods, a_group(f"w{length}"))))

    order = [c.pod.meta.name for c in problem.topology.serving_order(problem.classes)]

    assert order == [f"w{n}" for n in range(length, -1, -1)]


def a_claim_in_flight(*kinds: InstanceType) -> ExistingNode:
    asked = Requirements((Requirement.of(INSTANCE_TYPE, "In", [kind.name for kind in kinds]),))
    least = {name: min(kind.allocatable[name] for kind in kinds) for name in kinds[0].allocatable}
    return ExistingNode(
        "c0", {}, least, claim="c0", initialized=False, requirements=asked, instance_types=kinds, nodepool="default"
    )


@pytest.mark.parametrize("node", [a_node("n1", initialized=False), a_claim_in_flight(BIG)])
def test_a_host_port_of_a_daemon_that_is_still_to_come_is_taken_on_existing_nodes_too(node: ExistingNode) -> None:
    daemon = a_daemonset(host_ports=(HostPort(8080),))

    plan = plan_of(pods=[a_group(host_ports=(HostPort(8080),))], nodes=[node], daemons=[daemon], pools=[a_pool([BIG])])

    assert plan.existing_nodes == ()
    assert codes(plan) == {"HostPortInUse"}


def test_a_claim_in_flight_keeps_room_for_the_daemons_of_whatever_type_it_becomes() -> None:
    arm = a_type("m7g.4xlarge", "16", "64Gi", price=0.7, arch="arm64")
    small = a_daemonset("amd-agent", cpu="1", required_terms=(a_term(an_expression(ARCH, "In", "amd64")),))
    large = a_daemonset("arm-agent", cpu="3", required_terms=(a_term(an_expression(ARCH, "In", "arm64")),))

    plan = plan_of(
        pods=[a_group(count=16, cpu="1")], nodes=[a_claim_in_flight(BIG, arm)], daemons=[small, large], pools=[]
    )

    assert [len(n.pods) for n in plan.existing_nodes] == [13]


@pytest.mark.parametrize(
    ("pool", "pod"),
    [
        (an_expression("gen", "In", "3", "4", "5"), an_expression("gen", "Exists")),
        (an_expression("gen", "In", "3", "4", "5"), an_expression("gen", "Gt", "3")),
        (an_expression("gen", "Exists"), an_expression("gen", "Gt", "3")),
        (an_expression("gen", "Exists"), an_expression("gen", "NotIn", "0", "1")),
    ],
)
def test_a_label_of_which_any_value_will_do_serves_whichever_the_claim_is_given(
    pool: RequirementSpec, pod: RequirementSpec
) -> None:
    pods = [a_group(count=2, required_terms=(a_term(pod),)), a_group("db", 1, node_selector={"gen": "4"})]

    plan = plan_of(pods=pods, pools=[a_pool([BIG], requirements=[pool])])

    assert plan.unschedulable == ()


def test_pods_are_taken_back_with_those_that_they_had_to_be_near_and_so_on() -> None:
    db = a_group("db", 3, cpu="12", spread=(a_spread(app="db", min_domains=3),))
    web = a_group(count=3, affinity=(keep_near(ZONE, app="db"),), node_selector={HOSTNAME: "n-b"})
    tail = a_group("tail", 2, affinity=(keep_near(ZONE, app="web"),), claims=("data",))
    pool = a_pool([BIG], limits={"nodes": 1}, requirements=[an_expression(ZONE, "In", A, C)])
    nodes = [a_node("n-b", cpu="1", zone=B), a_node("n-c", cpu="1", zone=C)]

    plan = plan_of(pods=[db, web, tail], nodes=nodes, pools=[pool], volumes=UNBOUND)

    assert sum(len(node.pods) for node in plan.new_nodes) == 1
    assert plan.existing_nodes == ()
    assert {entry.pods[0]: entry.reasons[0].code for entry in plan.unschedulable} == {
        "default/db-1": "SpreadUnsatisfiable",
        "default/web-0": "AffinityUnsatisfiable",
        "default/tail-0": "AffinityUnsatisfiable",
    }


@pytest.mark.parametrize("room", ["1", "8"])
def test_what_a_limit_keeps_from_a_zone_keeps_its_followers_from_it(room: str) -> None:
    db = a_group("db", 3, cpu="12", spread=(a_spread(app="db", min_domains=3),))
    web = a_group(count=6, cpu="200m", affinity=(keep_near(ZONE, app="db"),), spread=(a_spread(max_skew=1),))
    nodes = [a_node(f"n-{zone}", cpu=room, zone=zone) for zone in ZONES]

    plan = plan_of(pods=[db, web], nodes=nodes, pools=[a_pool([BIG], limits={"nodes": 1})])

    (zone,) = zones_of(plan, "db")
    used = {node.name for node in plan.existing_nodes}
    assert used <= {f"n-{zone}"}


@pytest.mark.parametrize(
    "more",
    [an_expression("team", "NotIn", "a"), an_expression("team", "NotIn", "a", "b"), an_expression("team", "Gt", "1")],
)
def test_a_label_that_must_be_there_must_be_there_whatever_else_is_said_of_it(more: RequirementSpec) -> None:
    hard = a_group(required_terms=(a_term(an_expression("team", "Exists"), an_expression("team", "NotIn", "5"), more),))
    soft = a_group(
        required_terms=(a_term(an_expression("team", "Exists")),),
        preferred_terms=(a_wish(1, an_expression("team", "NotIn", "a")),),
    )

    without = [plan_of(pods=[pods], nodes=[a_node()], pools=[a_pool([BIG])]) for pods in (hard, soft)]
    having = plan_of(pods=[hard], pools=[a_pool([BIG], requirements=[an_expression("team", "In", "a", "7")])])

    assert [codes(plan) for plan in without] == [{"RequirementsConflict"}] * 2
    assert having.new_nodes[0].requirements["team"].values == {"7"}


def test_pods_that_wait_for_each_other_are_not_planned_as_one() -> None:
    db = a_group("db", 2, cpu="1", affinity=(keep_near(CAPACITY_TYPE, app="job"),))
    job = a_group("job", 2, affinity=(keep_near(HOSTNAME, app="db"),))

    plan = plan_of(pods=[db, job], pools=[a_pool([BIG])])

    assert plan.new_nodes == ()
    assert codes(plan) >= {"AffinityUnsatisfiable"}


def test_pods_that_follow_within_one_node_may_also_want_their_zone() -> None:
    cache = a_group("cache", 1, cpu="1")
    web = a_group("web", 2, affinity=(keep_near(HOSTNAME, app="cache"), keep_near(ZONE, app="cache")))

    plan = plan_of(pods=[cache, web], pools=[a_pool([BIG])])

    assert [len(node.pods) for node in plan.new_nodes] == [3]


def test_a_domain_of_a_pool_that_wants_several_zones_is_none_for_pods_that_need_one_certain_zone() -> None:
    both = a_type("m6i.large", spot=0.03)
    several_zones = replace(an_expression(ZONE, "Exists"), min_values=2)
    pods = a_group(count=2, spread=(a_spread(CAPACITY_TYPE),), anti_affinity=(keep_apart(ZONE),))
    bought = an_expression(CAPACITY_TYPE, "In", "on-demand")

    plan = plan_of(
        pods=[pods],
        nodes=[a_node("node-a", zone=A), a_node("node-b", zone=B)],
        pools=[a_pool([both], "several", requirements=[several_zones]), a_pool([both], "one", requirements=[bought])],
    )

    assert not plan.unschedulable
    assert sorted(n.name for n in plan.existing_nodes) == ["node-a", "node-b"]


def test_a_claim_that_may_turn_out_to_count_for_a_spread_is_a_domain_to_measure_from() -> None:
    sold = a_type("m6i.4xlarge", "16", "64Gi", price=0.768, spot=0.3, unavailable=[(A, "spot")])
    small = a_type("m6i.large", "2", "8Gi", spot=0.03, zones=(A,))
    claim = replace(
        a_node("claim-1", cpu="2", memory="8Gi", zone=A),
        claim="claim-1",
        initialized=False,
        labels={},
        requirements=Requirements((requirement_in(INSTANCE_TYPE, ("m6i.large",)), requirement_in(ZONE, (A,)))),
        instance_types=(small,),
    )
    pods = a_group(count=3, cpu="10", spread=(a_spread(ZONE),), node_selector={CAPACITY_TYPE: "spot"})

    plan = plan_of(pods=[pods], nodes=[claim], pools=[a_pool([sold, small])])

    assert zones_of(plan, "web") == {B: 1, C: 1}
