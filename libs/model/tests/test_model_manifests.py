"""NodePools and NodeClaims from API JSON and back; field errors say where and what to do."""

from datetime import timedelta
from typing import Any

import pytest

from sawhorse_model.manifests import PARSERS, ManifestError, nodeclaim_to_raw, parse_nodeclaim, parse_nodepool
from sawhorse_model.manifests.fields import format_duration, parse_duration
from sawhorse_model.requirements import Operator, RequirementSpec

REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def a_pool(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"template": {"spec": {"nodeClassRef": REF}}, **spec}}


def test_a_bare_pool_has_the_apis_defaults() -> None:
    pool = parse_nodepool(a_pool())

    assert pool.template.expire_after == timedelta(hours=720)
    assert pool.disruption.consolidate_after == timedelta(0)
    assert [b.nodes for b in pool.disruption.budgets] == ["10%"]
    assert pool.replicas is None


def test_never_means_no_duration() -> None:
    raw = a_pool(disruption={"consolidateAfter": "Never"})
    raw["spec"]["template"]["spec"]["expireAfter"] = "Never"

    pool = parse_nodepool(raw)

    assert pool.disruption.consolidate_after is None
    assert pool.template.expire_after is None


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"weight": 101}, "spec.weight"),
        ({"limits": {"cpu": "-1"}}, "spec.limits.cpu"),
        ({"disruption": {"consolidateAfter": "soon"}}, "spec.disruption.consolidateAfter"),
        ({"template": {"spec": {"nodeClassRef": {}}}}, "spec.template.spec.nodeClassRef.name"),
        (
            {
                "template": {
                    "spec": {"nodeClassRef": REF, "requirements": [{"key": "k", "operator": "Gt", "values": []}]}
                }
            },
            "spec.template.spec.requirements[0].values",
        ),
    ],
)
def test_a_pool_that_cannot_be_read_names_its_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_nodepool(a_pool(**spec))

    assert caught.value.field == field


def test_a_claim_written_and_read_again_is_the_same() -> None:
    claim = parse_nodeclaim(
        {
            "metadata": {"name": "p-1", "labels": {"a": "b"}},
            "spec": {
                "nodeClassRef": REF,
                "requirements": [{"key": "k", "operator": "In", "values": ["v"], "minValues": 1}],
                "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}},
                "taints": [{"key": "t", "effect": "NoSchedule"}],
                "expireAfter": "1h30m",
                "terminationGracePeriod": "5m",
            },
        }
    )

    assert parse_nodeclaim(nodeclaim_to_raw(claim)) == claim
    assert claim.requirements == (RequirementSpec("k", Operator.IN, ("v",), 1),)


@pytest.mark.parametrize(("text", "seconds"), [("1h30m", 5400), ("90s", 90), ("500ms", 0.5), ("0s", 0)])
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert parse_duration(text, "f").total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "5", "1d", "h", "1h-5m", "1h 5m"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ManifestError, match="not a duration"):
        parse_duration(text, "f")


def test_a_duration_written_reads_back() -> None:
    assert format_duration(timedelta(hours=1, minutes=2, seconds=3)) == "1h2m3s"


@pytest.mark.parametrize("kind", sorted(PARSERS))
def test_every_kind_can_be_read_from_its_barest_form(kind: str) -> None:
    raw: dict[str, Any] = {"kind": kind, "metadata": {"name": "x"}}
    if kind in ("NodePool",):
        raw = a_pool()
    if kind == "NodeClaim":
        raw["spec"] = {"nodeClassRef": REF}

    assert PARSERS[kind](raw).meta.name == ("p" if kind == "NodePool" else "x")


@pytest.mark.parametrize("replicas", [-1, 2**31])
def test_replicas_beyond_the_apis_range_are_refused(replicas: int) -> None:
    with pytest.raises(ManifestError, match="outside"):
        PARSERS["ReplicaSet"]({"metadata": {"name": "x"}, "spec": {"replicas": replicas}})
