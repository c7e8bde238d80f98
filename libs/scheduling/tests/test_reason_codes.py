"""Every reason code once, with the exact sentence that a person reads; docs/reasons.md lists the same codes."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sawhorse_model.instances import CapacityType, Offering, requirement_in
from sawhorse_model.labels import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, WELL_KNOWN, ZONE
from sawhorse_model.pod import HostPort, NodeSelectorTerm
from sawhorse_model.requirements import Requirements, RequirementSpec
from sawhorse_model.taints import Taint
from sawhorse_scheduling import plan as plans
from sawhorse_scheduling.attempt import Attempter
from sawhorse_scheduling.explain import explain
from sawhorse_scheduling.problem import build_problem
from sawhorse_scheduling.snapshot import Snapshot, SolveOptions
from sawhorse_scheduling.solve import solve
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
    a_volume,
    an_expression,
    bound,
    keep_apart,
    keep_near,
    volumes_of,
)
from sawhorse_testing.checker import check_plan

GPU = "nvidia.com/gpu"
FAMILY = "karpenter.k8s.aws/instance-family"
RESERVATION = "karpenter.k8s.aws/capacity-reservation-id"
OPTIONS = SolveOptions(
    well_known=WELL_KNOWN | {FAMILY, RESERVATION}, exotic=frozenset({GPU}), reservation_labels=(RESERVATION,)
)
SMALL = a_type("m6i.large", "2", "8Gi", price=0.096, labels={FAMILY: "m6i"})
LARGE = a_type("m6i.4xlarge", "16", "64Gi", price=0.768, zones=ZONES[:1], labels={FAMILY: "m6i"})
OTHER = a_type("c6i.4xlarge", "16", "32Gi", price=0.7, zones=ZONES[1:2], labels={FAMILY: "c6i"})
ACCELERATED = a_type("g5.xlarge", "4", "16Gi", price=1.0, zones=ZONES[:1], gpu=1, labels={FAMILY: "g5"})
RESERVED = replace(
    SMALL,
    requirements=Requirements(
        (*SMALL.requirements.without(CAPACITY_TYPE).values(), requirement_in(RESERVATION, ["cr-1"]))
    ),
    offerings=(Offering(ZONES[0], CapacityType.RESERVED, 1e-8, True, "", "cr-1", 1),),
)
EVERYTHING = (SMALL, LARGE, OTHER)
NOWHERE = a_type(
    "c6i.large", zones=("us-west-2z",), labels={FAMILY: "c6i"}, unavailable=[("us-west-2z", "on-demand")]
)  # as a NodeClass sees it that has no subnet there
ELSEWHERE = replace(
    NOWHERE, requirements=Requirements((*NOWHERE.requirements.without(ZONE).values(), requirement_in(ZONE, ())))
)

FALLBACK = "PreferredElsewhere"  # where no rule says more; no plan is known that ends there


def pods(count: int = 1, **spec: Any) -> dict[str, Any]:
    return {"pods": (a_group(count=count, **spec),), "pools": (a_pool(EVERYTHING),)}


def with_pool(
    types: Any = EVERYTHING, *, spec: Mapping[str, Any] | None = None, count: int = 1, **pool: Any
) -> dict[str, Any]:
    return {"pods": (a_group(count=count, **(spec or {})),), "pools": (a_pool(types, **pool),)}


def with_claim(*things: Any, **spec: Any) -> dict[str, Any]:
    return {**pods(claims=("data",), **spec), "volumes": volumes_of(*things)}


def several_values(key: str, count: int) -> RequirementSpec:
    return replace(an_expression(key, "Exists"), min_values=count)


# code: (what happens, [(pool, sentence), …] of that code)
CASES: dict[str, list[tuple[Callable[[], dict[str, Any]], str, str]]] = {
    "NoPool": [
        (lambda: {"pods": (a_group(),)}, "", "there is no NodePool, and existing nodes have no room for it"),
        (
            lambda: with_pool(replicas=2),
            "",
            "none of the 1 NodePools makes nodes for pods: they are static (spec.replicas) or being deleted",
        ),
    ],
    "NoInstanceTypes": [
        (
            lambda: with_pool(requirements=(an_expression(ARCH, "In", "arm64"),)),
            "default",
            "no instance type meets the pool's own requirements",
        ),
    ],
    "TaintNotTolerated": [
        (
            lambda: with_pool(taints=(Taint("team", "NoSchedule", "a"),)),
            "default",
            "the pool's nodes have the taint team=a:NoSchedule; add a toleration",
        ),
    ],
    "RequirementsConflict": [
        (
            lambda: pods(node_selector={FAMILY: "m7i"}),
            "default",
            f"{FAMILY} In [m7i] is asked; the pool's 3 instance types have c6i, m6i",
        ),
        (
            lambda: pods(node_selector={FAMILY: "c6i", INSTANCE_TYPE: "m6i.large"}),
            "default",
            f"none of the pool's 3 instance types meets all of: {FAMILY} In [c6i]; {INSTANCE_TYPE} In [m6i.large]; "
            f"it fits 3 instance types by cpu and memory, none of them with {FAMILY} In [c6i]",
        ),
    ],
    "NoOffering": [
        (
            lambda: pods(node_selector={FAMILY: "c6i", ZONE: ZONES[0]}),
            "default",
            f"c6i.4xlarge has no available offering with {ZONE} In [{ZONES[0]}]; available are {ZONES[1]}/on-demand; "
            f"it fits 3 instance types by cpu and memory, none of them with {FAMILY} In [c6i]",
        ),
        (
            lambda: with_pool((ELSEWHERE, SMALL), spec={"node_selector": {FAMILY: "c6i"}}),
            "default",
            "c6i.large has no available offering; sold in us-west-2z, but out of capacity or without a subnet there; "
            f"its NodeClass has subnets in {ZONES[0]}, {ZONES[1]}, {ZONES[2]}; it fits 1 instance type by cpu and "
            f"memory, and that is not with {FAMILY} In [c6i]",
        ),
    ],
    "InsufficientResources": [
        (
            lambda: pods(cpu="20"),
            "default",
            "no instance type has room; nearest is c6i.4xlarge: cpu 20 is asked, 16 is there",
        ),
        (
            lambda: pods(cpu="9", node_selector={ZONE: ZONES[2]}),
            "default",
            f"fits 2 instance types by cpu and memory, none of them in {ZONES[2]}; nearest of those allowed is "
            "m6i.large: cpu 9 is asked, 2 is there",
        ),
        (
            lambda: pods(cpu="9", memory="40Gi", node_selector={FAMILY: "c6i"}),
            "default",
            f"fits 1 instance type by cpu and memory, and that is not with {FAMILY} In [c6i]; nearest of those allowed "
            "is c6i.4xlarge: memory 40Gi is asked, 32Gi is there",
        ),
    ],
    "AcceleratorNotAsked": [
        (
            lambda: with_pool((SMALL, ACCELERATED), spec={"cpu": "3"}),
            "default",
            "only types with accelerators have room for it (g5.xlarge), and it asks for none; name them in a node "
            "selector if it may use them",
        ),
    ],
    "HostPortInUse": [
        (
            lambda: {**pods(host_ports=(HostPort(80),)), "daemons": (a_daemonset(host_ports=(HostPort(80),)),)},
            "default",
            "host port 80/TCP is used by DaemonSet kube-system/agent in pool default",
        ),
    ],
    "MinValuesNotMet": [
        (
            lambda: with_pool(requirements=(several_values(FAMILY, 3),)),
            "default",
            f"needs 3 values of {FAMILY}, 2 left (c6i.4xlarge, m6i.4xlarge, m6i.large)",
        ),
    ],
    "LimitReached": [
        (
            lambda: with_pool(limits={"cpu": 1000}),
            "default",
            "cpu: the limit is 1, 1 is left, the smallest fitting node needs 2",
        ),
        (
            lambda: with_pool(requirements=(several_values(INSTANCE_TYPE, 2),), limits={"cpu": 4000}),
            "default",
            f"minValues asks for 2 values of {INSTANCE_TYPE}, and the limits leave types with 1",
        ),
    ],
    "ReservationUsedUp": [
        (
            lambda: with_pool((RESERVED,), spec={"cpu": "1500m"}, count=2),
            "default",
            "only reserved capacity would do, and what was free is taken: cr-1 had 1 of m6i.large",
        ),
    ],
    "SpreadUnsatisfiable": [
        (
            lambda: with_pool(
                (LARGE,),
                spec={"spread": (a_spread(min_domains=2),)},
                count=3,
            ),
            "",
            f"spread over {ZONE} with maxSkew 1 leaves no domain for it (matching pods there: none yet; new nodes are "
            "possible in 1 domains)",
        ),
    ],
    "AffinityUnsatisfiable": [
        (
            lambda: pods(affinity=(keep_near(app="db"),)),
            "",
            f"it must be near pods by {ZONE}, and no domain has them and room (running there: none; it does not match "
            "its own terms, so it cannot be the first)",
        ),
    ],
    "AntiAffinityUnsatisfiable": [
        (
            lambda: {
                **with_pool((LARGE,), spec={"anti_affinity": (keep_apart(ZONE, app="db"),)}),
                "nodes": (a_node(pods=(bound(a_pod("db", labels={"app": "db"})),)),),
            },
            "",
            f"anti-affinity over {ZONE} leaves no domain for it (pods that run keep it from {ZONES[0]})",
        ),
    ],
    "CoLocationUnsatisfiable": [
        (
            lambda: {
                "pods": (a_group(cpu="6", count=6, affinity=(keep_near("kubernetes.io/hostname"),)),),
                "pools": (a_pool(EVERYTHING),),
            },
            "",
            "6 pods must share a node by their affinity over kubernetes.io/hostname, and none holds them all",
        ),
    ],
    "VolumeClaimMissing": [(with_claim, "", "volume claim default/data does not exist")],
    "VolumeClaimUnusable": [
        (lambda: with_claim(a_claim(phase="Lost")), "", "volume claim default/data has lost its volume"),
    ],
    "VolumeClaimUnbound": [
        (
            lambda: with_claim(a_claim(), a_storage_class(binding_mode="Immediate")),
            "",
            "volume claim default/data is not bound yet, and its storage class gp3 binds at once",
        ),
    ],
    "VolumesConflict": [
        (
            lambda: with_claim(a_claim(volume="pv"), a_volume(zone=ZONES[0]), node_selector={ZONE: ZONES[1]}),
            "",
            "its volumes and its own node selector and affinity have no place in common",
        ),
    ],
    "VolumesDiffer": [
        (
            lambda: {
                **pods(2, ephemeral_claims=("data",)),
                "volumes": volumes_of(
                    a_claim("web-0-data", volume="a"),
                    a_claim("web-1-data", volume="b"),
                    a_volume("a", zone=ZONES[0]),
                    a_volume("b", zone=ZONES[1]),
                ),
            },
            "",
            "pods that are alike have volumes in different places",
        ),
    ],
    "InvalidRequirement": [
        (
            lambda: pods(required_terms=(a_term(an_expression(ZONE, "Gt", "x")),)),
            "",
            f"its node affinity cannot be read: {ZONE}: operator Gt takes exactly one integer, got ['x']",
        ),
        (
            lambda: with_pool(requirements=(an_expression(FAMILY, "Lt", "a"),)),
            "default",
            f"the pool's own requirements cannot be read: {FAMILY}: operator Lt takes exactly one integer, got ['a']",
        ),
    ],
    "ResourceClaimsNotSupported": [
        (lambda: pods(resource_claims=True), "", "it uses resource claims (DRA), which are not planned yet"),
    ],
    "MatchFieldsNotSupported": [
        (
            lambda: pods(required_terms=(NodeSelectorTerm((), match_fields=True),)),
            "",
            "its node affinity uses matchFields, which are not planned",
        ),
    ],
}


@pytest.mark.parametrize(
    ("code", "number"), [(code, number) for code, cases in CASES.items() for number in range(len(cases))]
)
def test_a_reason_has_a_stable_code_and_a_sentence_that_says_what_came_nearest(code: str, number: int) -> None:
    build, pool, sentence = CASES[code][number]
    snapshot = Snapshot(options=OPTIONS, **build())

    plan = solve(snapshot)

    assert check_plan(snapshot, plan) == []
    told = {(r.nodepool, r.code, r.message) for entry in plan.unschedulable for r in entry.reasons}
    assert (pool, code, sentence) in told
    assert all(sentence in entry.message for entry in plan.unschedulable)


def test_a_pool_that_could_have_served_a_pod_says_that_others_came_first() -> None:
    problem = build_problem(Snapshot(options=OPTIONS, **pods()))
    attempter = Attempter(problem)
    attempt = attempter.run({}, evenly=False)
    attempt.placed.clear()

    (reason,) = explain(problem, attempter, attempt, problem.classes[0])

    assert (reason.nodepool, reason.code, reason.message) == (
        "default",
        FALLBACK,
        "other pools come first for it, and their limits are reached",
    )


def test_every_code_of_the_planner_is_tried_here_and_listed_in_the_docs() -> None:
    sources = Path(plans.__file__).parent.glob("*.py")
    written = r'(?:Reason\(\s*(?:""|pool\.name),\s*|refused\(|\bCODE = |\bcode = )"([A-Z]\w+)"'
    used = {code for source in sources for code in re.findall(written, source.read_text())}
    text = (Path(plans.__file__).parents[4] / "docs" / "reasons.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", text.split("## Scheduling")[1].split("## ")[0], re.MULTILINE)

    assert used == {*CASES, FALLBACK}
    assert sorted(listed) == sorted(used)
