"""Capacity that is there: order of filling, what counts as used, claims in flight."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sawhorse_model.labels import ARCH, CAPACITY_TYPE, HOSTNAME, WELL_KNOWN, ZONE
from sawhorse_model.pod import HostPort
from sawhorse_model.requirements import Requirements
from sawhorse_model.taints import Taint, Toleration
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import ExistingNode, SolveOptions
from sawhorse_testing.builders import (
    ZONES,
    a_daemon_pod,
    a_daemonset,
    a_group,
    a_node,
    a_pod,
    a_pool,
    a_term,
    a_type,
    a_wish,
    an_expression,
    bound,
    resources,
)
from sawhorse_testing.plans import checked_plan

TYPE = a_type("m6i.xlarge", "4", "16Gi", price=0.192, spot=0.08)


plan_of = partial(checked_plan, options=SolveOptions(well_known=WELL_KNOWN))


def filled(plan: Plan) -> dict[str, int]:
    return {node.name: len(node.pods) for node in plan.existing_nodes}


def test_existing_nodes_are_filled_before_a_new_one_is_made() -> None:
    plan = plan_of(pods=[a_group(count=5, cpu="1")], nodes=[a_node()], pools=[a_pool([TYPE])])

    assert filled(plan) == {"node-1": 4}
    assert [len(n.pods) for n in plan.new_nodes] == [1]


def test_initialized_nodes_come_first_then_names() -> None:
    nodes = [a_node("a", initialized=False), a_node("c"), a_node("b")]

    plan = plan_of(pods=[a_group(count=5, cpu="1")], nodes=nodes)

    assert filled(plan) == {"b": 4, "c": 1}


def test_a_node_serves_whatever_the_weight_of_its_pool() -> None:
    heavy = a_pool([TYPE], "spot", weight=100)

    plan = plan_of(pods=[a_group()], nodes=[a_node(pool="od")], pools=[heavy, a_pool([TYPE], "od", weight=10)])

    assert filled(plan) == {"node-1": 1}


def test_bound_pods_promises_and_daemons_to_come_are_not_free() -> None:
    agent = a_daemonset(cpu="500m")
    node = a_node(pods=[bound(a_pod(cpu="1"))], reserved=resources(cpu="500m"))

    plan = plan_of(pods=[a_group(count=9, cpu="1")], nodes=[node], daemons=[agent])

    assert filled(plan) == {"node-1": 2}


def test_a_daemon_that_runs_already_is_not_counted_twice() -> None:
    agent = a_daemonset(cpu="1")

    plan = plan_of(pods=[a_group(count=9, cpu="1")], nodes=[a_node(pods=[a_daemon_pod(agent)])], daemons=[agent])

    assert filled(plan) == {"node-1": 3}


def test_a_daemon_with_a_second_term_that_matches_the_node_counts() -> None:
    terms = (a_term(an_expression("rack", "Exists")), a_term(an_expression(ARCH, "In", "amd64")))

    plan = plan_of(
        pods=[a_group(count=9, cpu="1")], nodes=[a_node()], daemons=[a_daemonset(cpu="2", required_terms=terms)]
    )

    assert filled(plan) == {"node-1": 2}


def test_an_over_committed_node_takes_nothing() -> None:
    node = a_node(pods=[bound(a_pod(cpu="100m", more={"example.test/x": 1}))])

    plan = plan_of(pods=[a_group()], nodes=[node], pools=[a_pool([TYPE])])

    assert filled(plan) == {}


def test_nothing_undefined_is_assumed_of_an_existing_node() -> None:
    plan = plan_of(pods=[a_group(node_selector={"node.kubernetes.io/windows-build": "1"})], nodes=[a_node()])

    assert filled(plan) == {}


def test_a_label_of_the_node_serves_a_selector() -> None:
    plan = plan_of(pods=[a_group(node_selector={"rack": "a"})], nodes=[a_node("x"), a_node("y", labels={"rack": "a"})])

    assert filled(plan) == {"y": 1}


def test_a_preference_chooses_among_existing_nodes_and_is_no_ground_for_a_new_one() -> None:
    wish = a_wish(10, an_expression("rack", "In", "a"))
    nodes = [a_node("x"), a_node("y", labels={"rack": "a"})]

    plan = plan_of(pods=[a_group(count=6, cpu="1", preferred_terms=(wish,))], nodes=nodes, pools=[a_pool([TYPE])])

    assert filled(plan) == {"y": 4, "x": 2}


@pytest.mark.parametrize(
    ("effect", "expected"), [("NoSchedule", {}), ("NoExecute", {}), ("PreferNoSchedule", {"n": 1})]
)
def test_taints_keep_pods_off_save_the_preferred_ones(effect: str, expected: dict[str, int]) -> None:
    plan = plan_of(pods=[a_group()], nodes=[a_node("n", taints=(Taint("k", effect),))])

    assert filled(plan) == expected


def test_a_tolerated_taint_does_not_matter() -> None:
    node = a_node("n", taints=(Taint("k", "NoSchedule"),))

    plan = plan_of(pods=[a_group(tolerations=(Toleration("k", "Exists"),))], nodes=[node])

    assert filled(plan) == {"n": 1}


def test_a_host_port_in_use_keeps_a_pod_off() -> None:
    busy = a_node("a", pods=[bound(a_pod(host_ports=(HostPort(80),)))])

    plan = plan_of(pods=[a_group(count=2, host_ports=(HostPort(80),))], nodes=[busy, a_node("b")])

    assert filled(plan) == {"b": 1}
    assert len(plan.unschedulable[0].pods) == 1


def a_claim(*types: Any, wants: Requirements | None = None, **fields: Any) -> ExistingNode:
    return ExistingNode(
        name="claim-1",
        claim="claim-1",
        labels={"karpenter.sh/nodepool": "default"},
        allocatable=resources(cpu="4", memory="16Gi", pods=110),
        initialized=False,
        instance_types=types,
        requirements=wants or Requirements(),
        **fields,
    )


def test_a_claim_in_flight_takes_pods_after_the_nodes() -> None:
    plan = plan_of(pods=[a_group(count=5, cpu="1")], nodes=[a_claim(TYPE), a_node("z")])

    assert filled(plan) == {"z": 4, "claim-1": 1}
    assert plan.existing_nodes[1].claim == "claim-1"


def test_a_claim_that_may_still_become_either_serves_only_pods_that_do_not_care() -> None:
    arm = a_type("m7g.xlarge", "4", "16Gi", arch="arm64")
    pods = [a_group("any"), a_group("arm", node_selector={ARCH: "arm64"})]

    plan = plan_of(pods=pods, nodes=[a_claim(TYPE, arm)])

    assert filled(plan) == {"claim-1": 1}
    assert plan.unschedulable[0].pods == ("default/arm-0",)


def test_what_all_of_a_claims_types_have_in_common_is_certain() -> None:
    spot = Requirements.from_specs([an_expression(CAPACITY_TYPE, "In", "spot"), an_expression(ZONE, "In", ZONES[1])])
    pods = [
        a_group("amd", node_selector={ARCH: "amd64", CAPACITY_TYPE: "spot", ZONE: ZONES[1]}),
        a_group("od", node_selector={CAPACITY_TYPE: "on-demand"}),
    ]

    plan = plan_of(pods=pods, nodes=[a_claim(TYPE, wants=spot)])

    assert filled(plan) == {"claim-1": 1}


def test_pods_that_name_a_host_go_there_or_nowhere() -> None:
    pods = [a_group("here", node_selector={HOSTNAME: "b"}), a_group("gone", node_selector={HOSTNAME: "c"})]

    plan = plan_of(pods=pods, nodes=[a_node("a"), a_node("b")], pools=[a_pool([TYPE])])

    assert filled(plan) == {"b": 1}
    assert plan.new_nodes == ()


def test_a_node_without_room_for_pods_takes_none() -> None:
    full = replace(a_node(), allocatable=resources(cpu="4", memory="16Gi", pods=1))

    plan = plan_of(pods=[a_group(count=2)], nodes=[full])

    assert filled(plan) == {"node-1": 1}
