"""The planner's cases from public bug reports, by their numbers: what the user of each report wanted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sawhorse_model import aws
from sawhorse_model.cluster import Service
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import CAPACITY_TYPE, HOSTNAME, INITIALIZED, INSTANCE_TYPE, REGISTERED, WELL_KNOWN, ZONE
from sawhorse_model.manifests.pods import parse_pod
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import SCHEDULE_ANYWAY, HostPort
from sawhorse_model.requirements import RequirementSpec
from sawhorse_scheduling.defaults import parse_default_spread
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import ExistingNode, PodGroup, SolveOptions
from sawhorse_testing.builders import (
    ZONES,
    a_daemonset,
    a_group,
    a_node,
    a_pool,
    a_spread,
    a_term,
    a_wish,
    an_expression,
    keep_apart,
    resources,
)
from sawhorse_testing.catalog import common_fixture
from sawhorse_testing.plans import checked_plan, codes

A, B, C = ZONES
OPTIONS = SolveOptions(well_known=WELL_KNOWN | aws.WELL_KNOWN, exotic=frozenset({aws.NVIDIA_GPU}))
CPU, MEMORY = "karpenter.k8s.aws/instance-cpu", "karpenter.k8s.aws/instance-memory"
ON_DEMAND = an_expression(CAPACITY_TYPE, "In", "on-demand")
AMD64 = an_expression("kubernetes.io/arch", "In", "amd64")


def types(*names: str, gone: Mapping[str, Sequence[str]] | None = None) -> list[InstanceType]:
    """Types of the common fixture; `gone` lists zones (and "spot" or "on-demand") in which a type is sold out."""
    found = []
    for kind in common_fixture():
        if names and kind.name not in names:
            continue
        out = (gone or {}).get(kind.name, ())
        offerings = tuple(
            replace(o, available=o.available and o.zone not in out and o.capacity_type.value not in out)
            for o in kind.offerings
        )
        found.append(replace(kind, offerings=offerings))
    return found


plan_of = partial(checked_plan, options=OPTIONS)


def zones(plan: Plan) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for node in plan.new_nodes:
        counts[node.zone] += len(node.pods)
    return dict(counts)


def messages(plan: Plan) -> str:
    return "\n".join(reason.message for entry in plan.unschedulable for reason in entry.reasons)


def test_s01_zones_of_pools_that_a_pod_cannot_use_are_no_spread_domains() -> None:
    web = a_pool(types(), "web", requirements=[an_expression(ZONE, "In", A, B)], labels={"team": "web"})

    plan = plan_of(
        pods=[a_group(count=3, node_selector={"team": "web"}, spread=(a_spread(),))],
        pools=[web, a_pool(types(), "any")],
    )

    assert sorted(zones(plan)) == [A, B]
    assert sorted(zones(plan).values()) == [1, 2]
    assert plan.unschedulable == ()


def test_s02_a_pool_with_an_impossible_zone_does_not_bunch_up_the_pods_of_others() -> None:
    broken = a_pool(types(), "broken", requirements=[an_expression(ZONE, "In", "us-west-2f")])
    soft = a_spread(when_unsatisfiable=SCHEDULE_ANYWAY)

    plan = plan_of(pods=[a_group(count=3, spread=(soft,))], pools=[a_pool(types(), "good"), broken])

    assert zones(plan) == {A: 1, B: 1, C: 1}
    assert any("broken" in warning for warning in plan.warnings)


@pytest.mark.parametrize("ignore", [True, False])
def test_s04_a_soft_host_spread_does_not_make_a_node_per_pod(ignore: bool) -> None:
    soft = a_spread(HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY)

    plan = plan_of(
        pods=[a_group(count=20, spread=(soft,))],
        pools=[a_pool(types())],
        options=replace(OPTIONS, ignore_preferences=ignore),
    )

    assert len(plan.new_nodes) <= 2
    assert plan.unschedulable == ()


def test_s05_a_soft_anti_affinity_fills_the_nodes_that_are_there_and_keeps_the_limit() -> None:
    nodes = [a_node(name, "6") for name in ("n1", "n2")]
    pool = a_pool(types(), limits={"nodes": 4}, usage={"nodes": 2})

    plan = plan_of(
        pods=[a_group(count=10, cpu="500m", anti_affinity=(keep_apart(weight=100),))], nodes=nodes, pools=[pool]
    )

    assert plan.new_nodes == ()
    assert plan.unschedulable == ()


def test_s07_a_host_port_of_a_daemonset_is_told_and_opens_no_node() -> None:
    ports = (HostPort(8080),)

    plan = plan_of(
        pods=[a_group(host_ports=ports)],
        daemons=[a_daemonset("proxy", host_ports=ports)],
        pools=[a_pool(types(), "default")],
    )

    assert plan.new_nodes == ()
    assert codes(plan) == {"HostPortInUse"}
    assert "8080/TCP is used by DaemonSet kube-system/proxy in pool default" in messages(plan)


@pytest.mark.parametrize(("theirs", "nodes"), [(HostPort(9000, "TCP"), 4), (HostPort(9000, "UDP"), 3)])
def test_s08_each_replica_with_a_host_port_has_its_own_node_and_the_protocol_counts(
    theirs: HostPort, nodes: int
) -> None:
    web = a_group(count=3, host_ports=(HostPort(9000, "TCP"),))
    other = a_group("dns", 1, host_ports=(theirs,))

    plan = plan_of(pods=[web, other], pools=[a_pool(types())])

    assert len(plan.new_nodes) == nodes
    assert plan.unschedulable == ()


def test_s08_host_addresses_that_differ_do_not_clash() -> None:
    first = a_group("a", host_ports=(HostPort(9000, "TCP", "10.0.0.1"),))
    second = a_group("b", host_ports=(HostPort(9000, "TCP", "10.0.0.2"),))

    plan = plan_of(pods=[first, second], pools=[a_pool(types())])

    assert len(plan.new_nodes) == 1


@pytest.mark.parametrize(("first", "cpu"), [("proxy", 3100), ("setup", 2100)])
def test_s10_a_sidecar_counts_from_where_it_stands_among_the_init_containers(first: str, cpu: int) -> None:
    init = [
        {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "setup", "resources": {"requests": {"cpu": "2"}}},
    ]
    raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "initContainers": sorted(init, key=lambda c: c["name"] != first),
            "containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}],
            "overhead": {"cpu": "100m"},
        },
    }

    plan = plan_of(pods=[PodGroup(parse_pod(raw), ("default/p",))], pools=[a_pool(types())])

    assert plan.new_nodes[0].requests["cpu"] == cpu


@pytest.mark.parametrize("swapped", [False, True])
def test_s11_any_of_a_daemonsets_terms_brings_its_overhead(swapped: bool) -> None:
    terms = [
        a_term(an_expression("gpu-pool", "Exists")),
        a_term(an_expression("karpenter.k8s.aws/instance-gpu-manufacturer", "In", "nvidia")),
    ]
    daemon = a_daemonset(cpu="1", required_terms=tuple(reversed(terms) if swapped else terms))

    plan = plan_of(
        pods=[a_group(cpu="3500m", more={aws.NVIDIA_GPU: 1})],
        daemons=[daemon],
        pools=[a_pool(types("g5.xlarge"))],
    )

    assert plan.new_nodes == ()
    assert codes(plan) == {"InsufficientResources"}
    assert "after daemons take 1" in messages(plan)


def test_s13_daemons_for_small_and_for_large_nodes_each_count_where_they_run() -> None:
    small = a_daemonset("agent-s", cpu="200m", required_terms=(a_term(an_expression(CPU, "Lt", "8")),))
    large = a_daemonset("agent-l", cpu="2", required_terms=(a_term(an_expression(CPU, "Gt", "7")),))

    plan = plan_of(
        pods=[a_group(cpu="1500m")],
        daemons=[small, large],
        pools=[a_pool(types("m6i.large", "m6i.4xlarge"), requirements=[ON_DEMAND])],
    )

    assert [node.instance_type for node in plan.new_nodes] == ["m6i.large"]
    assert plan.new_nodes[0].daemon_requests["cpu"] == 200


@pytest.mark.parametrize("label", [REGISTERED, INITIALIZED])
def test_s14_labels_that_are_added_later_count_as_present_for_daemons(label: str) -> None:
    daemon = a_daemonset(cpu="2", node_selector={label: "true"})

    plan = plan_of(
        pods=[a_group(cpu="1")],
        daemons=[daemon],
        pools=[a_pool(types("m6i.large", "m6i.xlarge"), requirements=[ON_DEMAND])],
    )

    assert [node.instance_type for node in plan.new_nodes] == ["m6i.xlarge"]


def test_s16_the_clusters_default_spread_holds_for_pods_that_ask_for_none() -> None:
    default = parse_default_spread(
        '{"podTopologySpread": {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",'
        ' "whenUnsatisfiable": "DoNotSchedule"}]}}'
    )
    service = Service(ObjectMeta("web", "default"), {"app": "web"})
    own = a_group("own", 3, spread=(a_spread(HOSTNAME, app="own", max_skew=5),))

    plan = plan_of(
        pods=[a_group(count=6, cpu="300m"), own],
        pools=[a_pool(types())],
        services=[service],
        options=replace(OPTIONS, default_spread=default),
    )

    homes = Counter(n.zone for n in plan.new_nodes for pod in n.pods if pod.startswith("default/web-"))
    assert homes == {A: 2, B: 2, C: 2}
    assert len({n.name for n in plan.new_nodes for pod in n.pods if pod.startswith("default/own-")}) == 1


RANGE = (
    an_expression(CPU, "Gt", "2"),
    an_expression(CPU, "Lt", "16"),
    an_expression(MEMORY, "Lt", "16385"),
)


def test_n01_a_numeric_range_of_a_pool_is_compared_as_integers() -> None:
    plan = plan_of(
        pods=[a_group(more={aws.NVIDIA_GPU: 1}), a_group("plain")],
        pools=[a_pool(types(), requirements=RANGE)],
    )

    assert {t for node in plan.new_nodes for t in node.instance_types} <= {"m6i.xlarge", "c6i.xlarge", "g5.xlarge"}
    assert plan.unschedulable == ()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (an_expression(CPU, "Gt", "9"), {"m6i.4xlarge"}),
        (an_expression(CPU, "Gte", "16"), {"m6i.4xlarge"}),
        (an_expression(CPU, "Lte", "2"), {"m6i.large", "m8i.large"}),
        (an_expression(CPU, "Lt", "3"), {"m6i.large", "m8i.large"}),
    ],
)
def test_n01_every_comparison_of_a_pod_selects_the_types_that_it_says(
    expression: RequirementSpec, expected: set[str]
) -> None:
    pods = a_group(required_terms=(a_term(expression, AMD64),))

    plan = plan_of(pods=[pods], pools=[a_pool(types(), requirements=[ON_DEMAND])])

    assert {t for node in plan.new_nodes for t in node.instance_types} == expected


def test_n01_an_empty_range_leaves_nothing_and_says_so() -> None:
    empty = [an_expression(CPU, "Gt", "16"), an_expression(CPU, "Lt", "4")]

    plan = plan_of(pods=[a_group()], pools=[a_pool(types(), requirements=empty)])

    assert plan.new_nodes == ()
    assert codes(plan) <= {"NoInstanceTypes", "RequirementsConflict"}


def test_n02_a_misspelt_label_leaves_no_type_rather_than_every_type() -> None:
    wrong = an_expression("node.kubernetes.io/instance-family", "In", "m6i")
    pods = a_group(required_terms=(a_term(wrong),))

    plan = plan_of(pods=[pods], pools=[a_pool(types())])

    assert plan.new_nodes == ()
    assert codes(plan) == {"RequirementsConflict"}


def test_n04_a_wish_about_a_retired_label_poisons_nothing() -> None:
    wish = a_wish(1, an_expression("karpenter.sh/provisioner-name", "DoesNotExist"))

    plan = plan_of(pods=[a_group(cpu="200m", preferred_terms=(wish,)), a_group("other")], pools=[a_pool(types())])

    assert plan.unschedulable == ()
    assert not any("karpenter.sh/provisioner-name" in n.requirements.labels() for n in plan.new_nodes)


SPOT_FIRST = (
    a_pool(types(), "spot", weight=100, requirements=[an_expression(CAPACITY_TYPE, "In", "spot")]),
    a_pool(types(), "od", weight=10, requirements=[ON_DEMAND]),
)


def test_n05_room_on_an_existing_node_comes_before_the_heaviest_pool() -> None:
    plan = plan_of(pods=[a_group(cpu="500m")], nodes=[a_node(cpu="1", pool="od")], pools=SPOT_FIRST)

    assert [len(n.pods) for n in plan.existing_nodes] == [1]
    assert plan.new_nodes == ()


def test_n05_new_nodes_are_of_the_heaviest_pool() -> None:
    plan = plan_of(pods=[a_group(cpu="500m")], pools=SPOT_FIRST)

    assert [n.nodepool for n in plan.new_nodes] == ["spot"]


def test_n07_a_heavy_daemonset_makes_few_large_nodes_cheaper() -> None:
    plan = plan_of(
        pods=[a_group(count=40, cpu="700m")],
        daemons=[a_daemonset(cpu="1")],
        pools=[a_pool(types("m6i.large", "m6i.4xlarge"), requirements=[ON_DEMAND])],
    )

    assert [n.instance_type for n in plan.new_nodes] == ["m6i.4xlarge", "m6i.4xlarge"]
    assert plan.price_per_hour == pytest.approx(1.536)


SOLD_OUT = dict.fromkeys(("m6i.large", "m6i.4xlarge", "c6i.xlarge", "r6i.xlarge", "g5.xlarge", "m8i.large"), ZONES)
FIVE_TYPES = replace(an_expression(INSTANCE_TYPE, "Exists"), min_values=5)


def test_n08_strict_min_values_tell_what_is_left() -> None:
    pods = a_group(cpu="1", node_selector={"kubernetes.io/arch": "amd64"})

    plan = plan_of(pods=[pods], pools=[a_pool(types(gone=SOLD_OUT), requirements=[FIVE_TYPES])])

    assert plan.new_nodes == ()
    assert codes(plan) == {"MinValuesNotMet"}
    assert "needs 5 values of node.kubernetes.io/instance-type, 1 left (m6i.xlarge)" in messages(plan)


def test_n08_best_effort_min_values_launch_what_is_left() -> None:
    pods = a_group(cpu="1", node_selector={"kubernetes.io/arch": "amd64"})

    plan = plan_of(
        pods=[pods],
        pools=[a_pool(types(gone=SOLD_OUT), requirements=[FIVE_TYPES])],
        options=replace(OPTIONS, min_values_strict=False),
    )

    assert [n.instance_types for n in plan.new_nodes] == [("m6i.xlarge",)]


def in_flight(cpu: str, *, pool: str = "default") -> ExistingNode:
    return replace(a_node("claim-1", cpu, pool=pool, initialized=False), claim="claim-1", capacity=resources(cpu=cpu))


def test_n10_a_claim_that_never_registers_takes_the_next_pod_and_counts_against_limits() -> None:
    pool = a_pool(types(), limits=resources(cpu="8"), usage=resources(cpu="8") | {"nodes": 1})

    plan = plan_of(pods=[a_group(cpu="7")], nodes=[in_flight("8")], pools=[pool])
    beyond = plan_of(pods=[a_group(cpu="7"), a_group("more", cpu="7")], nodes=[in_flight("8")], pools=[pool])

    assert [(n.claim, len(n.pods)) for n in plan.existing_nodes] == [("claim-1", 1)]
    assert plan.new_nodes == beyond.new_nodes == ()
    assert codes(beyond) == {"LimitReached"}


def test_p04_a_type_without_an_offering_in_the_zones_of_the_subnets_is_told() -> None:
    moved = types("c6i.xlarge", gone={"c6i.xlarge": (A, B)})

    plan = plan_of(pods=[a_group()], pools=[a_pool(moved)])

    assert plan.new_nodes == ()
    assert codes(plan) == {"NoOffering"}


def test_g02_accelerators_are_not_used_by_pods_that_do_not_ask() -> None:
    kinds = types("g5.xlarge", "m6i.xlarge")
    kinds = [
        replace(k, offerings=tuple(replace(o, price=0.15 if k.name == "g5.xlarge" else 0.192) for o in k.offerings))
        for k in kinds
    ]

    plan = plan_of(pods=[a_group(cpu="2")], pools=[a_pool(kinds)])

    assert [n.instance_types for n in plan.new_nodes] == [("m6i.xlarge",)]


def test_g02_a_pool_that_names_an_accelerator_type_may_use_it() -> None:
    named = an_expression(INSTANCE_TYPE, "In", "g5.xlarge")

    plan = plan_of(pods=[a_group(cpu="2")], pools=[a_pool(types("g5.xlarge", "m6i.xlarge"), requirements=[named])])

    assert [n.instance_type for n in plan.new_nodes] == ["g5.xlarge"]


@pytest.mark.parametrize(
    ("gone", "expected"),
    [({}, "m7g.large"), ({"m7g.large": ZONES}, "m6i.large")],
)
def test_g04_a_wish_for_an_architecture_is_kept_while_it_can_be(gone: dict[str, Any], expected: str) -> None:
    wish = a_wish(100, an_expression("kubernetes.io/arch", "In", "arm64"))
    both = an_expression("kubernetes.io/arch", "In", "amd64", "arm64")

    plan = plan_of(
        pods=[a_group(preferred_terms=(wish,))],
        pools=[a_pool(types("m7g.large", "m6i.large", gone=gone), requirements=[both])],
    )

    assert [n.instance_type for n in plan.new_nodes] == [expected]


def test_t05_a_second_pass_sees_the_claims_of_the_first() -> None:
    pool = a_pool(types("m6i.xlarge"), requirements=[ON_DEMAND])
    at_once = plan_of(pods=[a_group(count=40, cpu="700m")], pools=[pool])

    first = plan_of(pods=[a_group(count=20, cpu="700m")], pools=[pool])
    coming = [
        replace(
            a_node(n.name, "4", initialized=False),
            claim=n.name,
            allocatable=n.allocatable,
            reserved=n.requests,
        )
        for n in first.new_nodes
    ]
    second = plan_of(pods=[a_group("more", 20, cpu="700m")], nodes=coming, pools=[pool])

    total = len(first.new_nodes) + len(second.new_nodes)
    assert abs(total - len(at_once.new_nodes)) <= 1
