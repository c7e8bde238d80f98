"""New nodes: types, prices, requirements, taints, daemons, limits, minValues, accelerators."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sawhorse_model.instances import CapacityType
from sawhorse_model.labels import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, WELL_KNOWN, ZONE
from sawhorse_model.pod import HostPort, NodeSelectorTerm
from sawhorse_model.requirements import Operator, Requirement
from sawhorse_model.taints import Taint, Toleration
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import Snapshot, SolveOptions
from sawhorse_scheduling.solve import solve
from sawhorse_testing.builders import (
    ZONES,
    a_daemonset,
    a_group,
    a_pool,
    a_term,
    a_type,
    a_wish,
    an_expression,
    resources,
)
from sawhorse_testing.plans import checked_plan

GPU = "nvidia.com/gpu"
CPU_LABEL = "karpenter.k8s.aws/instance-cpu"
OPTIONS = SolveOptions(well_known=WELL_KNOWN | {CPU_LABEL, "gpu-maker"}, exotic=frozenset({GPU}))

SMALL = a_type("m6i.large", "2", "8Gi", price=0.096, spot=0.040)
MEDIUM = a_type("m6i.xlarge", "4", "16Gi", price=0.192, spot=0.080)
NEAR = a_type("m5.xlarge", "4", "16Gi", price=0.2, spot=0.100)
BIG = a_type("m6i.4xlarge", "16", "64Gi", price=0.768, spot=0.320)
ARM = a_type("m7g.large", "2", "8Gi", price=0.082, spot=0.035, arch="arm64")
ACCELERATED = a_type("g5.xlarge", "4", "16Gi", price=1.006, spot=0.010, zones=ZONES[:1], gpu=1)


plan_of = partial(checked_plan, options=OPTIONS)


def codes(plan: Plan) -> set[tuple[str, str]]:
    return {(reason.nodepool, reason.code) for entry in plan.unschedulable for reason in entry.reasons}


def test_a_pod_gets_the_cheapest_type_that_holds_it() -> None:
    plan = plan_of(pods=[a_group(cpu="3")], pools=[a_pool([SMALL, MEDIUM, NEAR, BIG])])

    (node,) = plan.new_nodes
    assert node.instance_types == ("m6i.xlarge", "m5.xlarge", "m6i.4xlarge")
    assert (node.price_per_hour, node.capacity_type) == (0.080, CapacityType.SPOT)


def test_pods_share_a_node_where_that_is_cheaper() -> None:
    plan = plan_of(pods=[a_group(count=16, cpu="1", memory="2Gi")], pools=[a_pool([BIG, SMALL])])

    assert sum(len(n.pods) for n in plan.new_nodes) == 16
    assert plan.price_per_hour == pytest.approx(0.320)


def test_a_node_made_for_spot_tells_expected_and_worst_price() -> None:
    plan = plan_of(pods=[a_group(cpu="3")], pools=[a_pool([MEDIUM, NEAR])])

    (node,) = plan.new_nodes
    assert node.expected_price_per_hour == pytest.approx((0.080 + 0.100) / 2)
    assert node.worst_price_per_hour == 0.100


def test_a_spot_node_with_pools_enough_lists_no_type_at_a_multiple_of_its_best_price() -> None:
    near = [a_type(f"x{n}.xlarge", "4", "16Gi", price=0.2, spot=0.08 + n / 1000) for n in range(7)]

    plan = plan_of(pods=[a_group(cpu="3")], pools=[a_pool([MEDIUM, *near, BIG])])

    (node,) = plan.new_nodes
    assert len(node.instance_types) == 8
    assert "m6i.4xlarge" not in node.instance_types


def test_a_spot_node_lists_dearer_types_only_until_it_has_fifteen_pools() -> None:
    dearer = [a_type(f"x{n}.xlarge", "4", "16Gi", price=0.2, spot=0.11 + n / 1000) for n in range(9)]

    plan = plan_of(pods=[a_group(cpu="3")], pools=[a_pool([MEDIUM, *dearer])])

    (node,) = plan.new_nodes
    assert len(node.instance_types) * len(ZONES) == 15


def test_an_on_demand_node_lists_every_type_that_holds_its_pods() -> None:
    wants = {CAPACITY_TYPE: "on-demand"}

    plan = plan_of(pods=[a_group(cpu="3", node_selector=wants)], pools=[a_pool([MEDIUM, BIG])])

    (node,) = plan.new_nodes
    assert node.instance_types == ("m6i.xlarge", "m6i.4xlarge")


def test_an_offering_without_capacity_is_never_planned() -> None:
    gone = replace(MEDIUM, offerings=tuple(replace(o, available=o.zone == ZONES[1]) for o in MEDIUM.offerings))

    plan = plan_of(pods=[a_group(cpu="3")], pools=[a_pool([gone])])

    assert plan.new_nodes[0].zone == ZONES[1]


def test_no_available_offering_is_said_with_what_there_is() -> None:
    plan = plan_of(
        pods=[a_group(node_selector={ZONE: ZONES[2]})],
        pools=[a_pool([a_type("c6i.xlarge", zones=ZONES[:2])])],
    )

    assert codes(plan) <= {("default", "NoOffering"), ("default", "RequirementsConflict")}
    assert ZONES[2] in plan.unschedulable[0].message


def test_a_pod_that_fits_no_type_is_told_the_nearest_miss() -> None:
    plan = plan_of(pods=[a_group(cpu="20")], pools=[a_pool([SMALL, BIG])])

    assert codes(plan) == {("default", "InsufficientResources")}
    assert "nearest is m6i.4xlarge: cpu 20 is asked, 16 is there" in plan.unschedulable[0].message


def test_without_any_pool_the_pods_are_reported_not_lost() -> None:
    plan = plan_of(pods=[a_group(count=3)])

    assert codes(plan) == {("", "NoPool")}
    assert plan.unschedulable[0].pods == ("default/web-0", "default/web-1", "default/web-2")


def test_a_static_pool_makes_no_nodes_for_pods() -> None:
    plan = plan_of(pods=[a_group()], pools=[a_pool([SMALL], replicas=3)])

    assert codes(plan) == {("", "NoPool")}


def test_a_numeric_range_compares_numbers() -> None:
    types = [a_type(f"t{n}", str(n), labels={CPU_LABEL: str(n)}, price=0.01 * n) for n in (2, 4, 9, 10, 16)]
    pool = a_pool(types, requirements=[an_expression(CPU_LABEL, "Gt", "9"), an_expression(CPU_LABEL, "Lt", "16")])

    plan = plan_of(pods=[a_group()], pools=[pool])

    assert plan.new_nodes[0].instance_types == ("t10",)


def test_any_one_of_the_required_terms_is_enough() -> None:
    terms = (a_term(an_expression("team", "In", "nobody")), a_term(an_expression(ARCH, "In", "arm64")))

    plan = plan_of(pods=[a_group(required_terms=terms)], pools=[a_pool([SMALL, ARM])])

    assert plan.new_nodes[0].instance_types == ("m7g.large",)


def test_the_cheaper_of_two_required_terms_is_taken() -> None:
    terms = (a_term(an_expression(ARCH, "In", "amd64")), a_term(an_expression(ARCH, "In", "arm64")))

    plan = plan_of(pods=[a_group(required_terms=terms)], pools=[a_pool([SMALL, ARM])])

    assert plan.new_nodes[0].instance_types == ("m7g.large",)


def test_a_preference_is_kept_where_it_can_be() -> None:
    wish = a_wish(100, an_expression(ARCH, "In", "amd64"))

    plan = plan_of(pods=[a_group(preferred_terms=(wish,))], pools=[a_pool([SMALL, ARM])])

    assert plan.new_nodes[0].instance_types == ("m6i.large",)


def test_a_preference_that_cannot_be_met_is_let_go() -> None:
    wish = a_wish(100, an_expression(ARCH, "In", "s390x"))

    plan = plan_of(pods=[a_group(preferred_terms=(wish,))], pools=[a_pool([SMALL])])

    assert len(plan.new_nodes) == 1


def test_of_two_preferences_the_heavier_wins() -> None:
    wishes = (a_wish(1, an_expression(ARCH, "In", "arm64")), a_wish(50, an_expression(ARCH, "In", "amd64")))

    plan = plan_of(pods=[a_group(preferred_terms=wishes)], pools=[a_pool([SMALL, ARM])])

    assert plan.new_nodes[0].instance_types == ("m6i.large",)


def test_preferences_can_be_ignored() -> None:
    wish = a_wish(100, an_expression(ARCH, "In", "amd64"))

    plan = plan_of(
        pods=[a_group(preferred_terms=(wish,))],
        pools=[a_pool([SMALL, ARM])],
        options=replace(OPTIONS, ignore_preferences=True),
    )

    assert plan.new_nodes[0].instance_types[0] == "m7g.large"


def test_a_wish_on_a_label_nobody_has_does_not_reach_the_claim() -> None:
    wish = a_wish(1, an_expression("karpenter.sh/provisioner-name", "DoesNotExist"))

    plan = plan_of(pods=[a_group(preferred_terms=(wish,))], pools=[a_pool([SMALL])])

    assert "karpenter.sh/provisioner-name" not in plan.new_nodes[0].requirements


def test_requirements_that_exclude_each_other_match_nothing_not_even_a_node_without_the_label() -> None:
    term = NodeSelectorTerm((an_expression("rack", "In", "b"),))

    plan = plan_of(pods=[a_group(node_selector={"rack": "a"}, required_terms=(term,))], pools=[a_pool([SMALL])])

    assert codes(plan) == {("", "RequirementsConflict")}


def test_a_label_that_no_pool_defines_is_named() -> None:
    plan = plan_of(pods=[a_group(node_selector={"rack": "a"})], pools=[a_pool([SMALL])])

    assert codes(plan) == {("default", "RequirementsConflict")}
    assert "rack" in plan.unschedulable[0].message


def test_pods_that_choose_different_values_of_a_pools_label_get_different_nodes() -> None:
    pool = a_pool([BIG], requirements=[an_expression("team", "In", "a", "b")])
    pods = [a_group(name, node_selector={"team": name}) for name in ("a", "b")]

    plan = plan_of(pods=[*pods, a_group("any")], pools=[pool])

    assert [sorted(n.requirements["team"].values) for n in plan.new_nodes] in ([["a"], ["b"]], [["b"], ["a"]])


def test_the_claim_carries_pool_and_pod_requirements_and_the_offered_capacity_types() -> None:
    pool = a_pool([SMALL], requirements=[an_expression(ZONE, "In", *ZONES[:2])], labels={"team": "x"})

    plan = plan_of(pods=[a_group(node_selector={CAPACITY_TYPE: "spot"})], pools=[pool])

    wants = plan.new_nodes[0].requirements
    assert wants[ZONE].values == set(ZONES[:2])
    assert wants["team"] == Requirement.of("team", Operator.IN, ("x",))
    assert wants[CAPACITY_TYPE].values == {"spot"}


def test_an_untolerated_taint_keeps_pods_off_a_pool() -> None:
    pool = a_pool([SMALL], taints=[Taint("team", "NoSchedule", "ml")])

    plan = plan_of(pods=[a_group("plain"), a_group("ml", tolerations=(Toleration("team", "Exists"),))], pools=[pool])

    assert codes(plan) == {("default", "TaintNotTolerated")}
    assert [n.pods for n in plan.new_nodes] == [("default/ml-0",)]


def test_prefer_no_schedule_is_avoided_while_there_is_another_pool() -> None:
    soft = a_pool([replace(SMALL, name="cheap")], "soft", taints=[Taint("slow", "PreferNoSchedule")])
    dear = a_pool([BIG], "dear")

    plan = plan_of(pods=[a_group()], pools=[soft, dear])

    assert [n.nodepool for n in plan.new_nodes] == ["dear"]


def test_prefer_no_schedule_is_accepted_where_nothing_else_is_left() -> None:
    soft = a_pool([SMALL], "soft", taints=[Taint("slow", "PreferNoSchedule")])
    full = a_pool([SMALL], "full", limits=resources(cpu="2"))

    plan = plan_of(pods=[a_group(count=2, cpu="1500m")], pools=[soft, full])

    assert sorted(n.nodepool for n in plan.new_nodes) == ["full", "soft"]


def test_a_heavier_pool_comes_first_whatever_it_costs() -> None:
    plan = plan_of(pods=[a_group()], pools=[a_pool([SMALL], "cheap"), a_pool([BIG], "heavy", weight=10)])

    assert [n.nodepool for n in plan.new_nodes] == ["heavy"]


def test_pools_of_equal_weight_compete_by_price() -> None:
    plan = plan_of(pods=[a_group()], pools=[a_pool([SMALL], "b"), a_pool([BIG], "a")])

    assert [n.nodepool for n in plan.new_nodes] == ["b"]


def test_a_lighter_pool_takes_over_when_limits_are_reached() -> None:
    heavy = a_pool([SMALL], "heavy", weight=10, limits=resources(cpu="4"))

    plan = plan_of(pods=[a_group(count=4, cpu="1500m")], pools=[heavy, a_pool([SMALL], "light")])

    assert sorted(n.nodepool for n in plan.new_nodes) == ["heavy", "heavy", "light", "light"]


def test_limits_hold_within_one_plan_and_count_what_is_used() -> None:
    pool = a_pool([SMALL], limits=resources(cpu="8"), usage=resources(cpu="4"))

    plan = plan_of(pods=[a_group(count=5, cpu="1500m")], pools=[pool])

    assert len(plan.new_nodes) == 2
    assert codes(plan) == {("default", "LimitReached")}
    assert "the limit is 8" in plan.unschedulable[0].message
    assert plan.unschedulable[0].message.startswith("no place for 3 of 5")


def test_the_nodes_limit_counts_nodes_of_this_plan() -> None:
    plan = plan_of(pods=[a_group(count=5, cpu="1500m")], pools=[a_pool([SMALL], limits={"nodes": 3})])

    assert len(plan.new_nodes) == 3


def test_under_a_limit_a_node_lists_only_types_that_keep_it() -> None:
    plan = plan_of(pods=[a_group(cpu="1")], pools=[a_pool([SMALL, MEDIUM, BIG], limits=resources(cpu="5"))])

    assert plan.new_nodes[0].instance_types == ("m6i.large", "m6i.xlarge")


def test_min_values_asks_for_that_many_types() -> None:
    pool = a_pool([SMALL, BIG], requirements=[replace(an_expression(INSTANCE_TYPE, "Exists"), min_values=3)])

    plan = plan_of(pods=[a_group()], pools=[pool])

    assert codes(plan) == {("default", "MinValuesNotMet")}
    assert "needs 3 values of node.kubernetes.io/instance-type, 2 left" in plan.unschedulable[0].message


def test_min_values_keeps_nodes_small_enough_for_that_many_types() -> None:
    pool = a_pool([SMALL, MEDIUM, BIG], requirements=[replace(an_expression(INSTANCE_TYPE, "Exists"), min_values=3)])

    plan = plan_of(pods=[a_group(count=8, cpu="1")], pools=[pool])

    assert {len(n.instance_types) for n in plan.new_nodes} == {3}
    assert len(plan.new_nodes) == 4


def test_best_effort_lowers_min_values_to_what_there_is() -> None:
    pool = a_pool([MEDIUM], requirements=[replace(an_expression(INSTANCE_TYPE, "Exists"), min_values=5)])

    plan = plan_of(pods=[a_group()], pools=[pool], options=replace(OPTIONS, min_values_strict=False))

    assert plan.new_nodes[0].requirements[INSTANCE_TYPE].min_values == 1


def test_the_type_list_is_cut_without_breaking_min_values() -> None:
    types = [a_type(f"t{n}", price=0.01 * (n + 1), labels={"gpu-maker": str(n // 6)}) for n in range(12)]
    pool = a_pool(types, requirements=[replace(an_expression("gpu-maker", "Exists"), min_values=2)])

    plan = plan_of(pods=[a_group()], pools=[pool], options=replace(OPTIONS, max_instance_types=3))

    assert plan.new_nodes[0].instance_types == ("t0", "t1", "t6")


def test_a_plain_pod_never_opens_an_accelerator_node_even_when_it_is_cheapest() -> None:
    plan = plan_of(pods=[a_group()], pools=[a_pool([ACCELERATED, SMALL])])

    assert plan.new_nodes[0].instance_types == ("m6i.large",)


def test_a_plain_pod_may_fill_an_accelerator_node_that_another_opened() -> None:
    pods = [a_group("train", cpu="1", more={GPU: 1}), a_group("plain", cpu="1")]

    plan = plan_of(pods=pods, pools=[a_pool([ACCELERATED, replace(SMALL, offerings=MEDIUM.offerings)])])

    assert [sorted(n.pods) for n in plan.new_nodes] == [["default/plain-0", "default/train-0"]]


def test_a_pool_of_accelerators_alone_serves_plain_pods_too() -> None:
    plan = plan_of(pods=[a_group()], pools=[a_pool([ACCELERATED])])

    assert plan.new_nodes[0].instance_types == ("g5.xlarge",)


def test_where_only_accelerator_types_have_room_the_reason_says_so() -> None:
    plan = plan_of(pods=[a_group(cpu="3")], pools=[a_pool([ACCELERATED, SMALL])])

    assert codes(plan) == {("default", "AcceleratorNotAsked")}


def test_daemons_take_their_part_of_every_node() -> None:
    plan = plan_of(
        pods=[a_group(cpu="1500m")], pools=[a_pool([SMALL, MEDIUM])], daemons=[a_daemonset(cpu="1", memory="1Gi")]
    )

    (node,) = plan.new_nodes
    assert node.instance_types == ("m6i.xlarge",)
    assert node.daemon_requests["cpu"] == 1000


def test_a_daemon_for_small_types_does_not_charge_large_ones() -> None:
    types = [replace_label(SMALL, "2"), replace_label(MEDIUM, "4"), replace_label(BIG, "16")]
    small = a_daemonset("s", cpu="200m", required_terms=(a_term(an_expression(CPU_LABEL, "Lt", "8")),))
    large = a_daemonset("l", cpu="2", required_terms=(a_term(an_expression(CPU_LABEL, "Gt", "7")),))

    plan = plan_of(pods=[a_group(cpu="1500m")], pools=[a_pool(types)], daemons=[small, large])

    assert plan.new_nodes[0].instance_type == "m6i.large"


def replace_label(kind: Any, cpu: str) -> Any:
    extra = Requirement.of(CPU_LABEL, Operator.IN, (cpu,))
    return replace(kind, requirements=type(kind.requirements)((*kind.requirements.values(), extra)))


@pytest.mark.parametrize("turned", [False, True])
def test_a_daemon_runs_where_any_of_its_terms_matches(turned: bool) -> None:
    terms = [a_term(an_expression("gpu-pool", "Exists")), a_term(an_expression("gpu-maker", "In", "nvidia"))]
    agent = a_daemonset(cpu="1", required_terms=tuple(reversed(terms) if turned else terms))
    kind = a_type("g5.xlarge", "4", labels={"gpu-maker": "nvidia"})

    plan = plan_of(pods=[a_group(cpu="3500m")], pools=[a_pool([kind])], daemons=[agent])

    assert codes(plan) == {("default", "InsufficientResources")}
    assert "after daemons take 1" in plan.unschedulable[0].message


def test_a_daemon_that_waits_for_the_registered_label_counts() -> None:
    agent = a_daemonset(cpu="2", node_selector={"karpenter.sh/registered": "true"})

    plan = plan_of(pods=[a_group(cpu="1")], pools=[a_pool([SMALL, MEDIUM])], daemons=[agent])

    assert plan.new_nodes[0].instance_type == "m6i.xlarge"


def test_a_heavy_daemon_makes_larger_nodes_cheaper() -> None:
    od = [replace(t, offerings=tuple(o for o in t.offerings if o.capacity_type == "on-demand")) for t in (SMALL, BIG)]

    plan = plan_of(
        pods=[a_group(count=40, cpu="700m", memory="64Mi")],
        pools=[a_pool(od)],
        daemons=[a_daemonset(cpu="1", memory="64Mi")],
    )

    assert plan.price_per_hour == pytest.approx(1.536)


def test_a_daemons_host_port_explains_why_no_node_is_made() -> None:
    plan = plan_of(
        pods=[a_group(host_ports=(HostPort(8080),))],
        pools=[a_pool([SMALL])],
        daemons=[a_daemonset("proxy", host_ports=(HostPort(8080),))],
    )

    assert plan.new_nodes == ()
    assert codes(plan) == {("default", "HostPortInUse")}
    assert "host port 8080/TCP is used by DaemonSet kube-system/proxy in pool default" in plan.unschedulable[0].message


def test_pods_with_the_same_host_port_get_a_node_each() -> None:
    plan = plan_of(pods=[a_group(count=3, host_ports=(HostPort(9000),))], pools=[a_pool([BIG])])

    assert len(plan.new_nodes) == 3


def test_another_protocol_or_address_is_another_port() -> None:
    ports = [HostPort(9000), HostPort(9000, "UDP"), HostPort(9001, ip="10.0.0.1"), HostPort(9001, ip="10.0.0.2")]
    pods = [a_group(f"p{i}", host_ports=(port,)) for i, port in enumerate(ports)]

    plan = plan_of(pods=pods, pools=[a_pool([BIG])])

    assert len(plan.new_nodes) == 1


def test_very_many_equal_pods_are_one_class() -> None:
    many = replace(a_group(), names=[f"default/web-{n}" for n in range(100_000)])

    plan = solve(Snapshot(pods=(many,), pools=(a_pool([BIG]),), options=OPTIONS))

    assert plan.stats.classes == 1
    assert sum(len(n.pods) for n in plan.new_nodes) == 100_000


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"resource_claims": True}, "ResourceClaimsNotSupported"),
        (
            {"required_terms": (NodeSelectorTerm(match_fields=(an_expression("metadata.name", "In", "n"),)),)},
            "MatchFieldsNotSupported",
        ),
    ],
)
def test_a_rule_that_is_not_supported_is_reported_never_dropped(fields: dict[str, Any], code: str) -> None:
    plan = plan_of(pods=[a_group(**fields)], pools=[a_pool([BIG])])

    assert plan.new_nodes == ()
    assert codes(plan) == {("", code)}


CPUS = "karpenter.k8s.aws/instance-cpu"


@pytest.mark.parametrize("values", [("abc",), (), ("1", "2"), ("1.5",)])
def test_a_comparison_that_cannot_be_read_leaves_its_own_pod_out_and_no_other(values: tuple[str, ...]) -> None:
    wrong = a_term(an_expression(CPUS, "Gt", *values))

    plan = plan_of(pods=[a_group(required_terms=(wrong,)), a_group("other")], pools=[a_pool([BIG])])

    assert codes(plan) == {("", "InvalidRequirement")}
    assert [p for n in plan.new_nodes for p in n.pods] == ["default/other-0"]


def test_a_wish_or_a_daemons_term_that_cannot_be_read_is_passed_over() -> None:
    wrong = an_expression(CPUS, "Lt", "many")
    daemon = a_daemonset(required_terms=(a_term(wrong),), cpu="1")

    plan = plan_of(pods=[a_group(preferred_terms=(a_wish(1, wrong),))], daemons=[daemon], pools=[a_pool([BIG])])

    assert len(plan.new_nodes) == 1
    assert plan.new_nodes[0].daemon_requests.get("cpu", 0) == 0


def test_reserved_offerings_are_left_out_where_no_label_could_name_the_reservation() -> None:
    reserved = replace(SMALL.offerings[0], capacity_type=CapacityType.RESERVED, price=0.0, reservation_id="cr-1")
    reserved = replace(reserved, reservation_count=5)
    kind = replace(SMALL, offerings=(*SMALL.offerings, reserved))

    plan = plan_of(pods=[a_group()], pools=[a_pool([kind])])

    assert plan.new_nodes[0].capacity_type is CapacityType.SPOT


def test_min_values_hold_under_slack_among_the_types_that_keep_it() -> None:
    wide = a_type("large", "8", "16Gi", price=0.38, spot=0.17)
    fat = a_type("fat", "4", "32Gi", price=0.30)
    several = replace(an_expression(INSTANCE_TYPE, "Exists"), min_values=2)
    pods = [a_group("a", cpu="3"), a_group("b", cpu="700m", memory="12Gi")]

    plan = plan_of(
        options=replace(OPTIONS, slack=0.1),
        pods=pods,
        pools=[a_pool([a_type("small", "2", "4Gi"), wide, fat], requirements=[several])],
    )

    assert plan.unschedulable == ()
    assert all(len(node.instance_types) >= 2 for node in plan.new_nodes)
