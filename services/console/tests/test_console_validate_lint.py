"""Each lint warns about its example and is silent about the one beside it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from sawhorse_console.validate.crds import custom_kinds
from sawhorse_console.validate.findings import Severity
from sawhorse_console.validate.judge import judge
from sawhorse_console.validate.lint import LINTS, Subject, Surroundings, lint

NOW = datetime(2026, 11, 1, tzinfo=UTC)
AWS = "karpenter.k8s.aws"
FAMILY, CPU = f"{AWS}/instance-family", f"{AWS}/instance-cpu"
ANY_TIME = {"nodes": "10%"}


def pool(name: str = "default", *, labels: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A NodePool; keys of the template's spec are taken out of `spec`."""
    inner = {key: spec.pop(key) for key in ("requirements", "taints", "startupTaints") if key in spec}
    reference = {"group": AWS, "kind": "EC2NodeClass", "name": spec.pop("node_class", "default")}
    template = {
        "metadata": {"labels": labels or {}},
        "spec": {"nodeClassRef": reference, "requirements": [], **inner},
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def node_class(**spec: Any) -> dict[str, Any]:
    """An EC2NodeClass called default."""
    terms = {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"id": "subnet-1"}],
        "securityGroupSelectorTerms": [{"id": "sg-1"}],
    }
    return {
        "apiVersion": f"{AWS}/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {"role": "node", **terms, **spec},
    }


def needs(key: str, operator: str, *values: str) -> dict[str, Any]:
    """A requirement."""
    return {"key": key, "operator": operator, "values": list(values)}


def budgets(*entries: dict[str, Any]) -> dict[str, Any]:
    """A NodePool with these budgets."""
    return pool(disruption={"budgets": list(entries)})


def told(*documents: dict[str, Any], now: datetime = NOW) -> list[tuple[str, str, str]]:
    """Code, field and text of what the lints say about objects that an API server takes."""
    subjects = []
    for document in documents:
        verdict = judge(custom_kinds()[document["kind"]], document)
        assert verdict.errors == ()
        subjects.append(Subject(document["kind"], document["metadata"]["name"], verdict.stored))
    surroundings = Surroundings(subjects, now)
    found = [finding for subject in subjects for finding in lint(subject, surroundings)]
    assert all(finding.severity is Severity.WARNING for finding in found)
    return [(finding.code, finding.field, finding.text) for finding in found]


REQUIREMENT = "spec.template.spec.requirements[0]"
BUDGETS = "spec.disruption.budgets"
# Lint → (objects that it is silent about, objects that it warns about, code, field, part of the text).
# Letters with a number name the case of users' trouble that an example comes from.
EXAMPLES: dict[str, list[tuple[list[dict[str, Any]], list[dict[str, Any]], str, str, str]]] = {
    "unusable": [
        (
            [pool(requirements=[needs("team", "In", "a.b")])],
            [pool(requirements=[needs("team", "In", "a b")])],
            "LabelValue",
            REQUIREMENT,
            "'a b' is no label value",
        ),
        (
            [pool(requirements=[needs("example.com/team", "Exists")])],
            [pool(requirements=[needs("example.com/" + "x" * 64, "Exists")])],
            "LabelValue",
            REQUIREMENT,
            "is no label key",
        ),
        (
            [pool(labels={"example.com/ec2nodeclass": "a"})],
            [pool(labels={f"{AWS}/ec2nodeclass": "a"})],
            "ReservedLabel",
            f"spec.template.metadata.labels[{AWS}/ec2nodeclass]",
            "set by the autoscaler",
        ),
        (
            [pool(taints=[{"key": "a", "effect": "NoSchedule"}], startupTaints=[{"key": "a", "effect": "NoExecute"}])],
            [pool(taints=[{"key": "a", "effect": "NoSchedule"}], startupTaints=[{"key": "a", "effect": "NoSchedule"}])],
            "DuplicateTaint",
            "spec.template.spec.startupTaints[0]",
            "a:NoSchedule is there twice (also in spec.template.spec.taints[0])",
        ),
        ([pool(limits={"cpu": 0})], [pool(limits={"cpu": "-1"})], "NegativeLimit", "spec.limits.cpu", "zero or more"),
    ],
    "unknown_labels": [
        (
            [pool(requirements=[needs(FAMILY, "In", "m6i")], labels={"example.com/zone": "a", "team": "b"})],
            [pool(requirements=[needs("node.kubernetes.io/instance-family", "In", "m6i")])],  # N02
            "UnknownLabel",
            REQUIREMENT,
            "did you mean karpenter.k8s.aws/instance-family?",
        ),
        (
            [pool(requirements=[needs("failure-domain.beta.kubernetes.io/zone", "Exists")])],
            [pool(requirements=[needs("topology.kubernetes.io/zones", "Exists")])],
            "UnknownLabel",
            REQUIREMENT,
            "did you mean topology.kubernetes.io/zone?",
        ),
    ],
    "unknown_values": [
        (
            [
                pool(
                    requirements=[
                        needs(FAMILY, "In", "m6i", "c7g"),
                        needs("topology.kubernetes.io/zone", "In", "eu-1a"),
                    ]
                )
            ],
            [pool(requirements=[needs(FAMILY, "In", "m6i", "m6ii")])],
            "UnknownValue",
            REQUIREMENT,
            "'m6ii' (did you mean 'm6i'?)",
        ),
        (
            [pool(requirements=[needs("karpenter.sh/capacity-type", "NotIn", "spot")])],
            [pool(requirements=[needs("karpenter.sh/capacity-type", "NotIn", "Spot")])],
            "UnknownValue",
            REQUIREMENT,
            "did you mean 'spot'?",
        ),
    ],
    "contradictions": [
        (
            [pool(requirements=[needs(CPU, "Gt", "3"), needs(CPU, "Lt", "5")])],
            [pool(requirements=[needs(CPU, "Gt", "4"), needs(CPU, "Lt", "5")])],
            "Contradiction",
            "spec.template.spec.requirements[1]",
            f"no value of {CPU} meets this and {REQUIREMENT}",
        ),
        (
            [pool(labels={"team": "a"}, requirements=[needs("team", "NotIn", "b")])],
            [pool(labels={"team": "a"}, requirements=[needs("team", "NotIn", "a")])],
            "Contradiction",
            REQUIREMENT,
            "spec.template.metadata.labels[team]",
        ),
        (
            [pool(requirements=[needs("team", "NotIn", "a"), needs("team", "DoesNotExist")])],
            [pool(requirements=[needs("team", "Exists"), needs("team", "DoesNotExist")])],
            "Contradiction",
            "spec.template.spec.requirements[1]",
            "no node can be made",
        ),
    ],
    "fits_nothing": [
        (
            [pool(requirements=[needs(CPU, "Gt", "64"), needs("karpenter.sh/capacity-type", "In", "reserved")])],
            [pool(requirements=[needs(CPU, "Gt", "4000")])],
            "FitsNoType",
            "spec.template.spec.requirements",
            f"look at {CPU}",
        ),
        (
            [pool(requirements=[needs(FAMILY, "In", "t3"), needs("kubernetes.io/arch", "In", "amd64")])],
            [pool(requirements=[needs(FAMILY, "In", "t3"), needs("kubernetes.io/arch", "In", "arm64")])],
            "FitsNoType",
            "spec.template.spec.requirements",
            "each alone is met",
        ),
        (
            [node_class(), pool(requirements=[needs("kubernetes.io/os", "In", "linux")])],
            [node_class(), pool(requirements=[needs("kubernetes.io/os", "In", "windows")])],
            "FitsNoType",
            "spec.template.spec.requirements",
            "look at kubernetes.io/os",
        ),
    ],
    "overlapping_pools": [
        (
            [pool("a", weight=2), pool("b")],
            [pool("a"), pool("b")],
            "OverlappingPools",
            "spec.weight",
            "as well as to b",
        ),
        (
            [pool("a", taints=[{"key": "gpu", "effect": "NoSchedule"}]), pool("b")],
            [pool("a", taints=[{"key": "gpu", "effect": "PreferNoSchedule"}]), pool("b")],
            "OverlappingPools",
            "spec.weight",
            "give one a higher weight",
        ),
        (
            [pool("a", requirements=[needs(FAMILY, "In", "t3")]), pool("b", requirements=[needs(CPU, "Gt", "64")])],
            [pool("a", requirements=[needs(FAMILY, "In", "m7i")]), pool("b", requirements=[needs(CPU, "Gt", "64")])],
            "OverlappingPools",
            "spec.weight",
            "b",
        ),
    ],
    "budget_schedules": [
        (
            [budgets(ANY_TIME, {"nodes": "0", "schedule": "0 0 * * sat,sun", "duration": "24h"})],
            [budgets(ANY_TIME, {"nodes": "0", "schedule": "0 0 * * sat-sun", "duration": "24h"})],  # D04
            "BudgetSchedule",
            f"{BUDGETS}[1].schedule",
            "day of week range sat-sun begins after it ends; write sat,sun",
        ),
        (
            [budgets(ANY_TIME, {"nodes": "0", "schedule": "30 10 * * 0-6", "duration": "22h"})],
            [budgets(ANY_TIME, {"nodes": "0", "schedule": "30 10 * * 1-7", "duration": "22h"})],  # D04
            "BudgetSchedule",
            f"{BUDGETS}[1].schedule",
            "day of week 7 is beyond 6; Sunday is 0",
        ),
        (
            [budgets(ANY_TIME, {"nodes": "5", "schedule": "0 0 29 2 *", "duration": "8h"})],
            [budgets(ANY_TIME, {"nodes": "5", "schedule": "0 0 30 2 *", "duration": "8h"})],
            "BudgetSchedule",
            f"{BUDGETS}[1].schedule",
            "never comes",
        ),
        (
            [budgets(ANY_TIME, {"nodes": "5", "reasons": ["Empty"]})],
            [budgets(ANY_TIME, {"nodes": "5", "reasons": []})],
            "BudgetReasons",
            f"{BUDGETS}[1].reasons",
            "is about no reason",
        ),
    ],
    "budgets_that_block": [
        (
            [budgets({"nodes": "1%"})],
            [budgets({"nodes": "0"})],
            "BudgetBlocks",
            f"{BUDGETS}[0]",
            "never lets a node go",
        ),
        (
            [budgets(ANY_TIME, {"nodes": "0%", "schedule": "@daily", "duration": "23h"})],
            [budgets(ANY_TIME, {"nodes": "0%", "schedule": "@daily", "duration": "24h", "reasons": ["Drifted"]})],
            "BudgetBlocks",
            f"{BUDGETS}[1]",
            "for Drifted:",
        ),
        (
            [
                budgets(
                    {"nodes": "0", "schedule": "0 9 * * *", "duration": "12h"},
                    {"nodes": "1", "schedule": "0 21 * * *", "duration": "12h"},
                )
            ],
            [
                budgets(
                    {"nodes": "0", "schedule": "0 9 * * *", "duration": "12h"},
                    {"nodes": "0", "schedule": "0 21 * * *", "duration": "12h"},
                )
            ],
            "BudgetBlocks",
            f"{BUDGETS}[0], {BUDGETS}[1]",
            "Underutilized, Empty, Drifted",
        ),
    ],
    "budget_gaps": [  # the first pair is D05
        (
            [budgets({"nodes": "35%", "schedule": "0 1 * * mon", "duration": "4h"}, {"nodes": "35%"})],
            [
                budgets(
                    {"nodes": "35%", "schedule": "0 1 * * mon", "duration": "4h"},
                    {"nodes": "35%", "reasons": ["Empty"]},
                )
            ],
            "BudgetGap",
            BUDGETS,
            "Underutilized, Drifted: no budget outside Mon 01:00 - Mon 05:00 UTC",
        ),
        (
            [budgets({"nodes": "1", "schedule": "0 0 1 * *", "duration": "800h"})],
            [budgets({"nodes": "1", "schedule": "0 0 1 * *", "duration": "8h"})],
            "BudgetGap",
            BUDGETS,
            "outside '0 0 1 * *' for 8h",
        ),
        ([pool()], [budgets()], "BudgetGap", BUDGETS, "an empty list means no limit"),
        (
            [budgets({"nodes": "1", "reasons": ["Empty", "Drifted", "Underutilized"]})],
            [budgets({"nodes": "1", "reasons": ["Empty", "Drifted"]})],
            "BudgetGap",
            BUDGETS,
            "Underutilized: no budget at any time",
        ),
    ],
    "image_pins": [
        (
            [node_class(amiSelectorTerms=[{"alias": "al2023@v20251102"}])],
            [node_class(amiSelectorTerms=[{"alias": "al2023@v20251101"}])],
            "ImagePin",
            "spec.amiSelectorTerms[0].alias",
            "the image of 2025-11-01 is 365 days old",
        ),
        (
            [node_class(amiSelectorTerms=[{"alias": "al2@latest"}])],
            [node_class(amiSelectorTerms=[{"alias": "al2@20260101"}])],
            "ImagePin",
            "spec.amiSelectorTerms[0].alias",
            "'20260101' is no release",
        ),
        (
            [node_class(amiSelectorTerms=[{"alias": "bottlerocket@v1.44.0"}])],
            [node_class(amiSelectorTerms=[{"alias": "bottlerocket@1.44"}])],
            "ImagePin",
            "spec.amiSelectorTerms[0].alias",
            "'1.44' is no release",
        ),
    ],
    "selector_terms": [
        (
            [node_class(subnetSelectorTerms=[{"tags": {"a": "b"}}, {"id": "subnet-2"}])],
            [node_class(subnetSelectorTerms=[{"tags": {"a": "b"}, "id": "subnet-1"}, {"id": "subnet-2"}])],
            "MixedTerm",
            "spec.subnetSelectorTerms[0]",
            "only id counts here, tags would be ignored",
        ),
        (
            [node_class(securityGroupSelectorTerms=[{"name": "a"}, {"tags": {"a": "b"}}])],
            [node_class(securityGroupSelectorTerms=[{"name": "a", "tags": {"a": "b"}}, {"tags": {"a": "b"}}])],
            "MixedTerm",
            "spec.securityGroupSelectorTerms[0]",
            "only name counts here",
        ),
        (
            [node_class(capacityReservationSelectorTerms=[{"tags": {"a": "b"}, "ownerID": "012345678901"}])],
            [node_class(capacityReservationSelectorTerms=[{"id": "cr-1", "ownerID": "012345678901"}, {"id": "cr-2"}])],
            "MixedTerm",
            "spec.capacityReservationSelectorTerms[0]",
            "ownerID would be ignored",
        ),
    ],
    "kubelet_values": [
        (
            [node_class(kubelet={"maxPods": 0, "evictionHard": {"memory.available": "5%"}})],
            [node_class(kubelet={"evictionHard": {"memory.free": "5%"}})],
            "Kubelet",
            "spec.kubelet.evictionHard[memory.free]",
            "is none of",
        ),
        (
            [node_class(kubelet={"maxPods": 110})],
            [node_class(kubelet={"maxPods": "many"})],
            "Kubelet",
            "spec.kubelet.maxPods",
            "give a whole number",
        ),
    ],
}
ROWS = [pytest.param(*row, id=f"{name}-{number}") for name, rows in EXAMPLES.items() for number, row in enumerate(rows)]


@pytest.mark.parametrize(("silent", "warned", "code", "field", "part"), ROWS)
def test_a_lint_warns_about_its_example_and_not_about_the_one_beside_it(
    silent: list[dict[str, Any]], warned: list[dict[str, Any]], code: str, field: str, part: str
) -> None:
    quiet = [entry for entry in told(*silent) if entry[0] == code]
    found = [text for its_code, its_field, text in told(*warned) if (its_code, its_field) == (code, field)]

    assert quiet == []
    assert len(found) == 1
    assert part in found[0]


def test_every_lint_has_its_examples() -> None:
    assert [check.__name__ for check in LINTS] == list(EXAMPLES)


def test_a_pool_that_says_nothing_special_is_not_talked_about() -> None:
    assert told(node_class(), pool(requirements=[needs(FAMILY, "In", "m6i", "m7i")])) == []


def test_claims_that_a_pool_made_are_nobodys_to_change() -> None:
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "default-x", "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {
            "nodeClassRef": {"group": AWS, "kind": "EC2NodeClass", "name": "default"},
            "requirements": [needs(FAMILY, "In", "z99")],
        },
    }
    own = {**claim, "metadata": {"name": "own"}}

    assert told(claim) == []
    assert [(code, field) for code, field, _ in told(own)] == [
        ("UnknownValue", "spec.requirements[0]"),
        ("FitsNoType", "spec.requirements"),
    ]


def test_pools_of_another_cloud_are_left_alone() -> None:
    other = pool(requirements=[needs(FAMILY, "In", "z99")], disruption={"budgets": [{"nodes": "0"}]})
    other["spec"]["template"]["spec"]["nodeClassRef"] = {"group": "example.com", "kind": "Other", "name": "x"}

    assert told(other, pool("b")) == []


def test_a_contradiction_is_told_once_and_not_again_as_fitting_no_type() -> None:
    codes = [code for code, _, _ in told(pool(requirements=[needs(CPU, "Gt", "4"), needs(CPU, "Lt", "4")]))]

    assert codes == ["Contradiction"]


def test_a_class_that_rules_out_every_type_is_named() -> None:
    found = told(node_class(cpuOptions={"coreCount": 1023}), pool())

    assert [(code, text.partition(";")[0]) for code, _, text in found] == [
        ("FitsNoType", "EC2NodeClass default rules out every instance type")
    ]


def test_many_overlaps_are_one_line_a_pool() -> None:
    found = [text for code, _, text in told(*(pool(f"p{n}") for n in range(9))) if code == "OverlappingPools"]

    assert len(found) == 8
    assert "p1, p2, p3, p4, p5 and 3 more" in found[0]


def test_a_class_without_a_spec_is_taken_and_not_talked_about() -> None:
    bare = {"apiVersion": f"{AWS}/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}}

    assert told(bare, pool()) == []
