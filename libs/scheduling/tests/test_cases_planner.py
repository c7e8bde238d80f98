"""What the planner's cases ask beyond the placement itself: figures to the letter, and the sentence that explains."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sawhorse_catalog.aws import resolve
from sawhorse_model import aws
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import CAPACITY_TYPE, WELL_KNOWN
from sawhorse_model.pod import HostPort
from sawhorse_model.requirements import RequirementSpec
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import SolveOptions
from sawhorse_testing.builders import (
    ZONES,
    a_group,
    a_node,
    a_pod,
    a_pool,
    a_spread,
    an_expression,
    bound,
    keep_apart,
)
from sawhorse_testing.catalog import ZONES as ZONE_IDS
from sawhorse_testing.catalog import an_ec2_node_class, common_facts, common_fixture, common_prices
from sawhorse_testing.plans import checked_plan

OPTIONS = SolveOptions(
    well_known=WELL_KNOWN | aws.WELL_KNOWN,
    exotic=frozenset({aws.NVIDIA_GPU}),
    exotic_labels=aws.EXOTIC_LABELS,
    hints=aws.HINTS,
)
CPU, MEMORY = "karpenter.k8s.aws/instance-cpu", "karpenter.k8s.aws/instance-memory"
ON_DEMAND = an_expression(CAPACITY_TYPE, "In", "on-demand")


def types(*names: str) -> list[InstanceType]:
    """Types of the common fixture; without names all of them."""
    return [kind for kind in common_fixture() if not names or kind.name in names]


plan_of = partial(checked_plan, options=OPTIONS)


def told(plan: Plan) -> str:
    """All reasons, one a line: pool, code, message."""
    return "\n".join(f"{r.nodepool} {r.code}: {r.message}" for entry in plan.unschedulable for r in entry.reasons)


def test_s01_existing_pods_of_the_unreachable_zone_do_not_hold_a_spread_up() -> None:
    web = a_pool(types(), "web", requirements=[an_expression("topology.kubernetes.io/zone", "In", *ZONES[:2])])
    web = replace(web, nodepool=replace(web.nodepool, template=replace(web.nodepool.template, labels={"team": "web"})))
    elsewhere = a_node("elsewhere", "1", zone=ZONES[2], pool="any")

    plan = plan_of(
        pods=[a_group(count=3, node_selector={"team": "web"}, spread=(a_spread(),))],
        pools=[web, a_pool(types(), "any")],
        nodes=[elsewhere],
    )

    assert sorted(len(n.pods) for n in plan.new_nodes) in ([1, 2], [1, 1, 1])
    assert {n.zone for n in plan.new_nodes} == set(ZONES[:2])
    assert {n.nodepool for n in plan.new_nodes} == {"web"}
    assert plan.unschedulable == ()


def test_s05_a_soft_anti_affinity_beyond_the_room_that_is_there_stops_at_the_limit() -> None:
    nodes = [a_node(name, "6") for name in ("n1", "n2")]
    pool = a_pool(types("m6i.xlarge"), limits={"nodes": 4}, usage={"nodes": 2})

    plan = plan_of(
        pods=[a_group(count=60, cpu="500m", anti_affinity=(keep_apart(weight=100),))], nodes=nodes, pools=[pool]
    )

    assert len(plan.new_nodes) == 2
    assert sum(len(n.pods) for n in plan.existing_nodes) == 24
    assert "LimitReached: nodes: the limit is 4, 0 is left, the smallest fitting node needs 1" in told(plan)


def test_s08_a_replica_goes_to_an_existing_node_where_its_host_port_is_free() -> None:
    holder = bound(a_pod("old", host_ports=(HostPort(9000, "TCP"),)), "taken")
    other = bound(a_pod("dns", host_ports=(HostPort(9000, "UDP"),)), "free")
    nodes = [a_node("taken", pods=[holder]), a_node("free", pods=[other])]

    plan = plan_of(
        pods=[a_group(count=3, cpu="100m", host_ports=(HostPort(9000, "TCP"),))], nodes=nodes, pools=[a_pool(types())]
    )

    assert [(n.name, len(n.pods)) for n in plan.existing_nodes] == [("free", 1)]
    assert [len(n.pods) for n in plan.new_nodes] == [1, 1]


RANGE = (an_expression(CPU, "Gt", "2"), an_expression(CPU, "Lt", "16"), an_expression(MEMORY, "Lt", "16385"))
CLOSED_RANGE = (an_expression(CPU, "Gte", "3"), an_expression(CPU, "Lte", "15"), an_expression(MEMORY, "Lte", "16384"))


@pytest.mark.parametrize("within", [RANGE, CLOSED_RANGE])
def test_n01_a_range_alone_leaves_exactly_the_types_inside_it(within: Sequence[RequirementSpec]) -> None:
    pool = a_pool(types(), requirements=[*within, ON_DEMAND])

    plain = plan_of(pods=[a_group()], pools=[pool])
    accelerated = plan_of(pods=[a_group(more={aws.NVIDIA_GPU: 1})], pools=[pool])

    assert {t for node in plain.new_nodes for t in node.instance_types} == {"m6i.xlarge", "c6i.xlarge"}
    assert {t for node in accelerated.new_nodes for t in node.instance_types} == {"g5.xlarge"}


def test_n02_a_pool_with_a_misspelt_label_says_nothing_about_types_and_carries_it_as_its_own() -> None:
    wrong = an_expression("node.kubernetes.io/instance-family", "In", "m6i")

    plan = plan_of(pods=[a_group()], pools=[a_pool(types(), requirements=[wrong, ON_DEMAND])])

    assert {t.split(".")[0] for node in plan.new_nodes for t in node.instance_types} > {"m6i"}
    assert [n.requirements.labels()["node.kubernetes.io/instance-family"] for n in plan.new_nodes] == ["m6i"]


def test_p04_a_node_whose_subnets_moved_has_no_replacement_and_the_type_and_zone_are_named() -> None:
    moved = an_ec2_node_class(zones={"us-west-2c": "usw2-az3"})
    kinds = resolve(common_facts(), moved, common_prices(), region="us-west-2", zones=ZONE_IDS).instance_types
    named = an_expression("node.kubernetes.io/instance-type", "In", "c6i.xlarge")

    plan = plan_of(pods=[a_group()], pools=[a_pool(kinds, requirements=[named])])

    assert plan.new_nodes == ()
    assert "default NoOffering: c6i.xlarge has no available offering; sold in us-west-2a, us-west-2b" in told(plan)
    assert "its NodeClass has subnets in us-west-2c" in told(plan)


def metal(price: float) -> InstanceType:
    """m5.metal, at a price."""
    kind = next(k for k in common_fixture() if k.name == "m6i.4xlarge")
    facts = replace(kind, name="m6i.metal", offerings=tuple(replace(o, price=price) for o in kind.offerings))
    changed = {"node.kubernetes.io/instance-type": "m6i.metal", "karpenter.k8s.aws/instance-size": "metal"}
    return replace(facts, requirements=with_labels(facts.requirements, changed))


def with_labels(requirements: Any, labels: Mapping[str, str]) -> Any:
    """The same requirements with other values of these labels."""
    rest = requirements.without(*labels)
    return rest.intersection(type(requirements).from_labels(labels))


def test_g02_a_bare_machine_is_not_used_by_pods_that_do_not_ask() -> None:
    plan = plan_of(pods=[a_group(cpu="2")], pools=[a_pool([*types("m6i.xlarge"), metal(0.01)])])

    assert [n.instance_types for n in plan.new_nodes] == [("m6i.xlarge",)]


def test_g02_a_pool_that_names_a_bare_machine_may_use_it() -> None:
    named = an_expression("karpenter.k8s.aws/instance-size", "In", "metal")

    plan = plan_of(pods=[a_group(cpu="2")], pools=[a_pool([*types("m6i.xlarge"), metal(0.01)], requirements=[named])])

    assert [n.instance_type for n in plan.new_nodes] == ["m6i.metal"]


def test_g02_where_only_an_accelerator_has_room_the_pod_waits_and_is_told_why() -> None:
    plan = plan_of(pods=[a_group(cpu="3")], pools=[a_pool(types("m6i.large", "g5.xlarge"))])

    assert plan.new_nodes == ()
    assert "only types with accelerators or metal machines have room for it (g5.xlarge)" in told(plan)


@pytest.mark.parametrize(("low", "high", "excluded"), [("16", "4", True), ("5", "7", False)])
def test_n01_an_empty_range_of_a_pool_is_the_reason_and_a_warning_says_where_it_contradicts_itself(
    low: str, high: str, excluded: bool
) -> None:
    pool = a_pool(types(), requirements=[an_expression(CPU, "Gt", low), an_expression(CPU, "Lt", high)])

    plan = plan_of(pods=[a_group()], pools=[pool])

    assert plan.new_nodes == ()
    assert told(plan) == "default NoInstanceTypes: no instance type meets the pool's own requirements"
    assert (f"NodePool default: its requirements on {CPU} exclude each other" in plan.warnings) is excluded
