"""The pure rules: which pods count, what a claim asks for, what a node must carry."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sawhorse_kube.kinds import NODE, nodeclass_kind
from sawhorse_model.cluster import PodDisruptionBudget
from sawhorse_model.instances import CapacityType
from sawhorse_model.labels import HOSTNAME, INSTANCE_TYPE, NODEPOOL, REGISTERED, ZONE
from sawhorse_model.meta import ObjectMeta, OwnerReference
from sawhorse_model.nodepool import NodeClassRef, NodePool, NodeTemplate
from sawhorse_model.pod import NodeSelectorTerm
from sawhorse_model.requirements import Operator, Requirement, Requirements, RequirementSpec
from sawhorse_model.selectors import LabelSelector
from sawhorse_model.taints import Taint, Toleration
from sawhorse_provisioner.catalog_client import node_class_json
from sawhorse_provisioner.claims import claim_from_plan, claim_name, concrete_value
from sawhorse_provisioner.pods import (
    class_name,
    group_pods,
    is_evictable,
    is_fully_blocked,
    is_reschedulable,
    opts_out,
)
from sawhorse_provisioner.registration import missing_for_initialization, registration_patch
from sawhorse_provisioner.snapshots import filled, possible_types
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_scheduling.plan import PlannedNode
from sawhorse_testing.builders import a_pod
from sawhorse_testing.catalog import an_instance_type
from sawhorse_testing.cloud_worlds import a_claim, an_ec2_node_class

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
CLASS = nodeclass_kind("fake.example", "v1", "FakeNodeClass", "fakenodeclasses")
WORDS = NodeClassWords(CLASS, "f", "fake.example/nodeclass", "h", "v", "t", frozenset({"fake.example/cpu"}))


def owned_pod(name: str = "p", kind: str = "ReplicaSet", **meta: Any) -> Any:
    """A pod of a workload."""
    pod = a_pod(name)
    owner = OwnerReference("apps/v1", kind, "owner", "uid-owner", controller=True)
    return replace(pod, meta=replace(pod.meta, owners=(owner,), **meta))


def a_budget(**fields: Any) -> PodDisruptionBudget:
    """A budget for every pod of the namespace."""
    return PodDisruptionBudget(ObjectMeta("pdb", "default"), LabelSelector(), **fields)


def planned(*requirements: Requirement, types: tuple[str, ...] = ("m5.large", "m5.xlarge")) -> PlannedNode:
    """A planned node of the pool `default`."""
    return PlannedNode(
        name="default-1",
        nodepool="default",
        instance_types=types,
        requirements=Requirements(requirements),
        zone="a",
        capacity_type=CapacityType.SPOT,
        price_per_hour=1.0,
        expected_price_per_hour=1.0,
        worst_price_per_hour=1.0,
        pods=("default/p",),
        requests={"cpu": 1000, "pods": 1},
        daemon_requests={"cpu": 100, "pods": 1},
        allocatable={"cpu": 2000},
    )


def a_pool(**template: Any) -> NodePool:
    """The pool `default`."""
    return NodePool(
        ObjectMeta("default", uid="uid-pool"),
        NodeTemplate(NodeClassRef("fake.example", "FakeNodeClass", "main"), **template),
    )


def test_equal_pods_are_one_group_oldest_first() -> None:
    old = replace(a_pod("b"), meta=ObjectMeta("b", "default", created=NOW - timedelta(hours=1)))
    young = replace(a_pod("a"), meta=ObjectMeta("a", "default", created=NOW))
    other = replace(a_pod("c", cpu="2"), meta=ObjectMeta("c", "default", created=NOW))

    groups = group_pods([young, other, old])

    assert [g.names for g in groups] == [("default/b", "default/a"), ("default/c",)]


def test_the_name_of_a_class_is_that_of_its_pods_whatever_they_are_called() -> None:
    assert class_name(a_pod("a")) == class_name(a_pod("b"))
    assert class_name(a_pod("a")) != class_name(a_pod("a", labels={"x": "y"}))


@pytest.mark.parametrize(
    ("operator", "out"), [(Operator.DOES_NOT_EXIST, True), (Operator.EXISTS, False), (Operator.IN, False)]
)
def test_a_pod_opts_out_by_forbidding_the_pool_label(operator: Operator, out: bool) -> None:
    values = ("default",) if operator is Operator.IN else ()
    pod = a_pod(required_terms=(NodeSelectorTerm((RequirementSpec(NODEPOOL, operator, values),)),))

    assert opts_out(pod) is out


def test_daemons_static_and_ended_pods_are_not_moved() -> None:
    daemon = owned_pod(kind="DaemonSet")
    static = replace(a_pod(), meta=ObjectMeta("s", owners=(OwnerReference("v1", "Node", "n", "u"),)))
    ended = replace(owned_pod(), phase="Succeeded")

    assert [is_evictable(p) for p in (daemon, static, ended, owned_pod())] == [False, False, False, True]


def test_a_pod_that_is_ending_counts_only_where_its_name_comes_back() -> None:
    going = {"deletion_timestamp": NOW}

    assert is_evictable(owned_pod(kind="StatefulSet", **going))
    assert not is_evictable(owned_pod(**going))


@pytest.mark.parametrize(
    ("budget", "blocked"),
    [
        ({"max_unavailable": "0"}, True),
        ({"max_unavailable": "0%"}, True),
        ({"min_available": "100%"}, True),
        ({"min_available": "3"}, False),
        ({"max_unavailable": "1"}, False),
    ],
)
def test_budgets_that_never_allow_an_eviction_are_known(budget: dict[str, str], blocked: bool) -> None:
    assert is_fully_blocked(replace(owned_pod(), ready=True), [a_budget(**budget)]) is blocked


def test_two_budgets_on_one_pod_block_it_and_consent_to_the_taint_frees_it() -> None:
    both = [a_budget(max_unavailable="1"), a_budget(max_unavailable="1")]
    tolerant = replace(owned_pod(), spec=replace(owned_pod().spec, tolerations=(Toleration(operator="Exists"),)))

    assert is_fully_blocked(owned_pod(), both)
    assert not is_fully_blocked(tolerant, both)


def test_a_protected_pod_wants_no_other_place() -> None:
    pod = owned_pod(annotations={"karpenter.sh/do-not-disrupt": "true"})

    assert not is_reschedulable(pod, (), NOW)
    assert is_reschedulable(owned_pod(), (), NOW)


def test_a_claim_asks_for_the_plans_types_cheapest_first_and_for_pods_and_daemons() -> None:
    zone = Requirement.of(ZONE, "In", ["a", "b"])
    claim = claim_from_plan(planned(zone), a_pool(), {"class": "x"}, WORDS, name="default-x")

    assert claim.requirements[-1] == RequirementSpec(INSTANCE_TYPE, Operator.IN, ("m5.large", "m5.xlarge"))
    assert [r.key for r in claim.requirements] == [ZONE, INSTANCE_TYPE]
    assert claim.requests == {"cpu": 1100, "pods": 2}
    assert claim.meta.labels == {"class": "x", NODEPOOL: "default", "fake.example/nodeclass": "main"}


def test_keys_that_the_api_reserves_travel_as_labels_and_not_as_requirements() -> None:
    reserved = [Requirement.of(key, "In", ["x"]) for key in (HOSTNAME, NODEPOOL, REGISTERED, "fake.example/nodeclass")]
    claim = claim_from_plan(planned(*reserved), a_pool(), {}, WORDS, name="default-x")

    assert [r.key for r in claim.requirements] == [INSTANCE_TYPE]
    assert HOSTNAME not in claim.meta.labels


def test_open_labels_of_the_users_own_get_one_value_and_known_ones_none() -> None:
    own = Requirement.of("team", "In", ["b", "a"])
    known = Requirement.of("fake.example/cpu", "In", ["4", "8"])
    forbidden = Requirement.of("old", "DoesNotExist")
    claim = claim_from_plan(planned(own, known, forbidden), a_pool(), {}, WORDS, name="default-x")

    assert claim.meta.labels["team"] == "a"
    assert "fake.example/cpu" not in claim.meta.labels
    assert "old" not in claim.meta.labels


def test_the_pools_own_labels_win_over_chosen_ones() -> None:
    own = Requirement.of("team", "In", ["b"])
    claim = claim_from_plan(planned(own), a_pool(labels={"team": "b", "x": "y"}), {}, WORDS, name="n")

    assert (claim.meta.labels["team"], claim.meta.labels["x"]) == ("b", "y")


@pytest.mark.parametrize(
    ("requirement", "value"),
    [
        (Requirement.of("k", "Gt", ["4"]), "5"),
        (Requirement.of("k", "Lt", ["4"]), "0"),
        (Requirement.of("k", "Lt", ["-4"]), "-5"),
        (Requirement.of("k", "Exists"), "0"),
        (Requirement.of("k", "NotIn", ["0", "1"]), "2"),
        (Requirement.of("k", "Gte", ["3"]).intersection(Requirement.of("k", "NotIn", ["3"])), "4"),
        (Requirement.of("k", "DoesNotExist"), None),
    ],
)
def test_a_value_that_a_requirement_allows_is_found(requirement: Requirement, value: str | None) -> None:
    assert concrete_value(requirement) == value
    assert value is None or requirement.has(value)


def test_names_of_claims_stay_label_values_however_long_the_pool_is_called() -> None:
    name = claim_name("x" * 56 + ".-" + "y" * 100)

    assert len(name) <= 63
    assert claim_name("default").startswith("default-")
    assert claim_name("default") != claim_name("default")


def node_raw(**changes: Any) -> dict[str, Any]:
    """A Node that has just joined."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "resourceVersion": "7", "labels": {"mine": "1"}, **changes.pop("metadata", {})},
        "spec": {
            "providerID": "fake:///z/i-1",
            "taints": [
                {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
                {"key": "other", "effect": "NoExecute", "timeAdded": "2026-11-29T10:00:00Z"},
            ],
            **changes,
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "2"}},
    }


def test_registration_keeps_what_others_wrote_on_the_node() -> None:
    claim = a_claim(labels={"team": "a"}, taints=[Taint("dedicated", "NoSchedule", "a")])
    patch = registration_patch(node_raw(), claim, lift=True)

    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["metadata"]["finalizers"] == ["karpenter.sh/termination"]
    assert patch["metadata"]["labels"]["team"] == "a"
    assert patch["spec"]["taints"] == [
        {"key": "other", "effect": "NoExecute", "timeAdded": "2026-11-29T10:00:00Z"},
        {"key": "dedicated", "effect": "NoSchedule", "value": "a"},
    ]


def test_without_leave_to_open_the_node_stays_closed_but_is_synced() -> None:
    patch = registration_patch(node_raw(), a_claim(labels={"team": "a"}), lift=False)

    assert REGISTERED not in patch["metadata"]["labels"]
    assert "spec" not in patch


def test_user_data_that_sets_taints_itself_is_left_alone() -> None:
    raw = node_raw(metadata={"labels": {"karpenter.sh/do-not-sync-taints": "true"}})
    patch = registration_patch(raw, a_claim(taints=[Taint("dedicated", "NoSchedule")]), lift=True)

    assert [t["key"] for t in patch["spec"]["taints"]] == ["other"]


def test_a_registered_node_needs_nothing_more() -> None:
    claim = a_claim()
    raw = node_raw()
    patch = registration_patch(raw, claim, lift=True)
    raw["metadata"] |= {k: v for k, v in patch["metadata"].items() if k != "labels"}
    raw["metadata"]["labels"] |= patch["metadata"]["labels"]
    raw["spec"] |= patch["spec"]

    assert registration_patch(raw, claim, lift=True) == {}


@pytest.mark.parametrize(
    ("changes", "requests", "reason"),
    [
        ({"ready": False}, {}, "NodeNotReady"),
        ({"taint": "agent"}, {}, "StartupTaintsExist"),
        ({"taint": "readiness.k8s.io/net"}, {}, "KnownEphemeralTaintsExist"),
        ({}, {"example.com/gpu": 1}, "ResourceNotRegistered"),
    ],
)
def test_what_a_node_lacks_has_a_word(changes: dict[str, Any], requests: dict[str, int], reason: str) -> None:
    raw = node_raw()
    raw["spec"]["taints"] = [{"key": changes["taint"], "effect": "NoSchedule"}] if "taint" in changes else []
    raw["status"]["conditions"][0]["status"] = str(changes.get("ready", True))
    claim = replace(a_claim(startup_taints=[Taint("agent", "NoSchedule")]), requests=requests)

    missing = missing_for_initialization(NODE.parse(raw), claim)

    assert missing is not None
    assert missing[0] == reason


def test_a_complete_node_lacks_nothing() -> None:
    raw = node_raw()
    raw["spec"]["taints"] = []

    assert missing_for_initialization(NODE.parse(raw), replace(a_claim(), requests={"cpu": 1, "zero": 0})) is None


def test_zero_and_missing_amounts_of_a_young_node_are_filled_from_the_estimate() -> None:
    assert filled({"cpu": 4000, "memory": 0}, {"cpu": 1, "memory": 2, "pods": 3}) == {
        "cpu": 4000,
        "memory": 2,
        "pods": 3,
    }


def test_an_unlaunched_claim_may_become_the_types_that_it_names_and_that_meet_its_wishes() -> None:
    types = {t.name: t for t in (an_instance_type("m5.large"), an_instance_type("m6g.large", architecture="arm64"))}
    named = RequirementSpec(INSTANCE_TYPE, Operator.IN, ("m6g.large", "gone.large", "m5.large"))
    amd = RequirementSpec("kubernetes.io/arch", Operator.IN, ("amd64",))

    assert [t.name for t in possible_types(a_claim(requirements=[named]), types)] == ["m6g.large", "m5.large"]
    assert [t.name for t in possible_types(a_claim(requirements=[named, amd]), types)] == ["m5.large"]


def test_the_question_to_the_catalogue_changes_with_the_class_and_not_with_times() -> None:
    one = an_ec2_node_class()
    later = replace(one, conditions=tuple(replace(c, last_transition=NOW) for c in one.conditions))
    other = replace(one, status={**one.status, "subnets": []})

    assert node_class_json(one, CLASS) == node_class_json(later, CLASS)
    assert node_class_json(one, CLASS) != node_class_json(other, CLASS)
    assert CLASS.parse(json.loads(node_class_json(one, CLASS))).is_ready
