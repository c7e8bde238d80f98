"""The plan checker catches planted bugs: each test breaks one thing in a plan that was right."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sawhorse_model.instances import CapacityType
from sawhorse_model.labels import HOSTNAME, WELL_KNOWN, ZONE
from sawhorse_model.pod import HostPort
from sawhorse_model.requirements import Operator, Requirement, Requirements
from sawhorse_model.taints import Taint
from sawhorse_scheduling.plan import FilledNode, Plan, PlannedNode, Reason, Unschedulable
from sawhorse_scheduling.snapshot import Snapshot, SolveOptions
from sawhorse_scheduling.solve import solve
from sawhorse_testing.builders import (
    ZONES,
    a_daemonset,
    a_group,
    a_node,
    a_pod,
    a_pool,
    a_spread,
    a_type,
    an_expression,
    bound,
    keep_apart,
    resources,
)
from sawhorse_testing.checker import check_plan

SMALL = a_type("small", "2", "8Gi", price=0.1)
LARGE = a_type("large", "8", "32Gi", price=0.4)
GPU = a_type("gpu", "8", "32Gi", price=0.01, gpu=1)
OPTIONS = SolveOptions(well_known=WELL_KNOWN, exotic=frozenset({"nvidia.com/gpu"}))


def a_snapshot() -> Snapshot:
    return Snapshot(
        pods=(a_group("web", 6, cpu="1500m"), a_group("zonal", 1, cpu="1500m", node_selector={ZONE: ZONES[1]})),
        nodes=(a_node("n", cpu="2", pods=[bound(a_pod("r", cpu="1"), "n")]),),
        pools=(a_pool([SMALL, LARGE, GPU]),),
        options=OPTIONS,
    )


def with_node(plan: Plan, index: int, **changes: object) -> Plan:
    nodes = list(plan.new_nodes)
    nodes[index] = replace(nodes[index], **changes)  # type: ignore[arg-type]
    return replace(plan, new_nodes=tuple(nodes))


def of_zonal(plan: Plan) -> int:
    return next(i for i, n in enumerate(plan.new_nodes) if "default/zonal-0" in n.pods)


def moved(plan: Plan) -> Plan:
    """All pods on the first node, requests told truly."""
    names = tuple(name for node in plan.new_nodes for name in node.pods)
    total: dict[str, int] = {}
    for node in plan.new_nodes:
        for key, value in node.requests.items():
            total[key] = total.get(key, 0) + value
    return replace(plan, new_nodes=(replace(plan.new_nodes[0], pods=names, requests=total),))


def in_another_zone(plan: Plan) -> Plan:
    index = of_zonal(plan)
    wants = plan.new_nodes[index].requirements.without(ZONE)
    elsewhere = Requirements((*wants.values(), Requirement.of(ZONE, Operator.IN, (ZONES[0],))))
    return with_node(plan, index, requirements=elsewhere, zone=ZONES[0])


BUGS: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "a pod placed twice": (
        lambda p: replace(p, existing_nodes=(FilledNode("n", (p.new_nodes[0].pods[0],)),)),
        "placed or reported 2 times",
    ),
    "a pod lost": (lambda p: with_node(p, 0, pods=p.new_nodes[0].pods[1:]), "neither placed nor reported"),
    "a pod made up": (lambda p: with_node(p, 0, pods=(*p.new_nodes[0].pods, "default/ghost")), "not in the snapshot"),
    "more than a node holds": (moved, "has too little cpu"),
    "the wrong zone": (in_another_zone, "do not hold everywhere"),
    "a node that is not there": (
        lambda p: replace(p, existing_nodes=(FilledNode("ghost", ()),)),
        "no such node",
    ),
    "a wrong price": (lambda p: with_node(p, 0, price_per_hour=0.001), "its price is not"),
    "a wrong expected price": (lambda p: with_node(p, 0, expected_price_per_hour=9.0), "expected or worst"),
    "a capacity type nobody sells": (
        lambda p: with_node(p, 0, capacity_type=CapacityType.SPOT),
        "its price is not",
    ),
    "a type the pool does not have": (lambda p: with_node(p, 0, instance_types=("mainframe",)), "does not have"),
    "dearer types first": (
        lambda p: with_node(p, 0, instance_types=("large", "small")),
        "not listed cheapest first",
    ),
    "an accelerator nobody asked for": (
        lambda p: with_node(p, 0, instance_types=("gpu", *p.new_nodes[0].instance_types), price_per_hour=0.01),
        "has an accelerator",
    ),
    "requests that do not add up": (lambda p: with_node(p, 0, requests={"cpu": 1}), "are not the sum"),
    "a pod reported without need": (
        lambda p: replace(
            p,
            new_nodes=p.new_nodes[:-1],
            unschedulable=(Unschedulable(p.new_nodes[-1].pods, "no", (Reason("default", "NoPool", "no"),)),),
        ),
        "could serve it",
    ),
    "a pod reported without a reason": (
        lambda p: replace(p, new_nodes=p.new_nodes[:-1], unschedulable=(Unschedulable(p.new_nodes[-1].pods, "", ()),)),
        "without a reason",
    ),
}


def test_the_plan_that_the_bugs_are_planted_in_is_right() -> None:
    assert check_plan(a_snapshot(), solve(a_snapshot())) == []


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str) -> None:
    plant, expected = BUGS[bug]

    found = check_plan(a_snapshot(), plant(solve(a_snapshot())))

    assert any(expected in line for line in found), found


def on_existing(snapshot: Snapshot, count: int = 1) -> Plan:
    """A careless plan: the first pods of the first group on the first node."""
    names = tuple(snapshot.pods[0].names[:count])
    return replace(solve(Snapshot()), existing_nodes=(FilledNode(snapshot.nodes[0].name, names),))


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (Snapshot(pods=(a_group(cpu="3"),), nodes=(a_node(cpu="2"),)), "over-committed"),
        (Snapshot(pods=(a_group(),), nodes=(a_node(taints=(Taint("k", "NoSchedule"),)),)), "taint k:NoSchedule"),
        (Snapshot(pods=(a_group(node_selector={"rack": "a"}),), nodes=(a_node(),)), "requirements do not hold"),
        (
            Snapshot(pods=(a_group(cpu="1"),), nodes=(a_node(cpu="2"),), daemons=(a_daemonset(cpu="1500m"),)),
            "over-committed",
        ),
        (
            Snapshot(
                pods=(a_group(host_ports=(HostPort(80),)),),
                nodes=(a_node(pods=[bound(a_pod("r", host_ports=(HostPort(80),)))]),),
            ),
            "host port taken",
        ),
        (
            Snapshot(
                pods=(a_group(),), nodes=(a_node(pods=[bound(a_pod("r", anti_affinity=(keep_apart(app="web"),)))]),)
            ),
            "is within its kubernetes.io/hostname",
        ),
        (
            Snapshot(
                pods=(a_group(anti_affinity=(keep_apart(app="db"),)),),
                nodes=(a_node(pods=[bound(a_pod("r", labels={"app": "db"}))]),),
            ),
            "is within its kubernetes.io/hostname",
        ),
    ],
)
def test_a_careless_placement_on_a_node_is_caught(snapshot: Snapshot, expected: str) -> None:
    found = check_plan(snapshot, on_existing(snapshot))

    assert any(expected in line for line in found), found


@pytest.mark.parametrize(("key", "expected"), [(HOSTNAME, "maxSkew 1"), (ZONE, "maxSkew 1")])
def test_pods_that_are_not_spread_are_caught(key: str, expected: str) -> None:
    snapshot = Snapshot(
        pods=(a_group(count=2, spread=(a_spread(key),)),), nodes=(a_node("a"), a_node("b", zone=ZONES[1]))
    )

    found = check_plan(snapshot, on_existing(snapshot, 2))

    assert any(expected in line for line in found), found


def test_a_broken_limit_is_caught() -> None:
    pods = (a_group(count=3, cpu="1500m"),)
    free = Snapshot(pods=pods, pools=(a_pool([SMALL]),), options=OPTIONS)
    limited = replace(free, pools=(a_pool([SMALL], limits=resources(cpu="4")),))

    found = check_plan(limited, solve(free))

    assert found == ["pool default: cpu may reach 6000, the limit is 4000"]


def test_too_few_types_for_min_values_are_caught() -> None:
    wanted = replace(an_expression("node.kubernetes.io/instance-type", "Exists"), min_values=2)
    free = Snapshot(pods=(a_group(cpu="1500m"),), pools=(a_pool([SMALL]),), options=OPTIONS)
    wide = replace(free, pools=(a_pool([SMALL, LARGE], requirements=[wanted]),))

    found = check_plan(wide, solve(free))

    assert any("minValues is 2" in line for line in found)


def test_a_planned_node_without_a_pool_is_caught() -> None:
    plan = solve(a_snapshot())
    stray: PlannedNode = replace(plan.new_nodes[0], nodepool="nobody")

    found = check_plan(a_snapshot(), replace(plan, new_nodes=(stray, *plan.new_nodes[1:])))

    assert f"{stray.name}: no pool nobody" in found
