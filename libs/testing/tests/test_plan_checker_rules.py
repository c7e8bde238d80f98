"""The plan checker catches broken affinity and volumes: hand-made plans that a right planner would not make."""

from dataclasses import replace
from typing import Any

import pytest

from sawhorse_model.cluster import Service
from sawhorse_model.labels import HOSTNAME, WELL_KNOWN, ZONE
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import TopologySpread
from sawhorse_scheduling.plan import FilledNode, Plan, Stats
from sawhorse_scheduling.snapshot import Snapshot, SolveOptions, Volumes
from sawhorse_testing.builders import (
    ZONES,
    a_claim,
    a_group,
    a_node,
    a_pod,
    a_storage_class,
    a_volume,
    bound,
    keep_apart,
    keep_near,
    volumes_of,
)
from sawhorse_testing.checker import check_plan

A, B, _ = ZONES
EBS = "ebs.csi.aws.com"


def found(pods: list[Any], places: dict[str, tuple[str, ...]], volumes: Volumes | None = None, **running: Any) -> str:
    """What the checker says of pods placed on node a (zone a) and node b (zone b)."""
    nodes = tuple(a_node(name, zone=zone, pods=running.get(name, ())) for name, zone in (("a", A), ("b", B)))
    snapshot = Snapshot(
        pods=tuple(pods), nodes=nodes, options=SolveOptions(well_known=WELL_KNOWN), volumes=volumes or Volumes()
    )
    filled = tuple(FilledNode(name, names) for name, names in places.items())
    return "\n".join(check_plan(snapshot, Plan((), filled, (), Stats(len(pods), 1, 0))))


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
def test_pods_that_started_two_domains_are_caught(key: str) -> None:
    pods = [a_group(count=2, affinity=(keep_near(key),))]

    apart = found(pods, {"a": ("default/web-0",), "b": ("default/web-1",)})
    together = found(pods, {"a": ("default/web-0", "default/web-1")})

    assert "nothing that it must be near is there" in apart
    assert together == ""


def test_a_pod_away_from_what_it_must_be_near_is_caught() -> None:
    there = [bound(a_pod("r", labels={"app": "db"}), "b")]
    pods = [a_group(affinity=(keep_near(ZONE, app="db"),))]

    assert "nothing that it must be near" in found(pods, {"a": ("default/web-0",)}, b=there)
    assert found(pods, {"b": ("default/web-0",)}, b=there) == ""


@pytest.mark.parametrize("owner", ["new", "running"])
def test_a_pod_in_a_domain_that_anti_affinity_forbids_is_caught(owner: str) -> None:
    term = (keep_apart(ZONE, app="db" if owner == "new" else "web"),)
    there = [bound(a_pod("r", labels={"app": "db"}, anti_affinity=term if owner == "running" else ()), "a")]
    pods = [a_group(anti_affinity=term if owner == "new" else ())]

    assert f"within its {ZONE}" in found(pods, {"a": ("default/web-0",)}, a=there)
    assert found(pods, {"b": ("default/web-0",)}, a=there) == ""


def test_a_pod_away_from_its_volume_is_caught() -> None:
    volumes = volumes_of(a_claim(volume="pv"), a_volume(zone=B))
    pods = [a_group(claims=("data",))]

    assert "cannot be there" in found(pods, {"a": ("default/web-0",)}, volumes)
    assert found(pods, {"b": ("default/web-0",)}, volumes) == ""


@pytest.mark.parametrize(
    "volumes",
    [
        Volumes(),
        volumes_of(a_claim(volume="pv")),
        volumes_of(a_claim(volume="pv", phase="Lost"), a_volume()),
        volumes_of(replace(a_claim(volume="pv"), meta=replace(a_claim().meta, annotations={})), a_volume()),
        volumes_of(a_claim(), a_storage_class(binding_mode="Immediate")),
    ],
)
def test_a_pod_with_a_claim_that_cannot_be_used_is_caught(volumes: Volumes) -> None:
    assert "cannot be used" in found([a_group(claims=("data",))], {"a": ("default/web-0",)}, volumes)


def test_too_many_volumes_on_a_node_are_caught() -> None:
    pods = [a_group(f"db{n}", claims=(f"c{n}",)) for n in range(2)]
    volumes = volumes_of(a_claim("c0"), a_claim("c1"), a_storage_class(), limits={"a": {EBS: 1}})

    said = found(pods, {"a": ("default/db0-0", "default/db1-0")}, volumes)

    assert f"2 volumes of {EBS}, it takes 1" in said


def test_pods_of_one_unbound_claim_in_two_zones_are_caught() -> None:
    volumes = volumes_of(a_claim(), a_storage_class())

    said = found([a_group(count=2, claims=("data",))], {"a": ("default/web-0",), "b": ("default/web-1",)}, volumes)

    assert "share the unbound claim default/data" in said


def test_a_plan_that_forgets_the_clusters_default_spread_is_caught() -> None:
    options = SolveOptions(well_known=WELL_KNOWN, default_spread=(TopologySpread(1, ZONE),))
    nodes = (a_node("a", zone=A), a_node("b", zone=B))
    services = (Service(ObjectMeta("web", "default"), {"app": "web"}),)
    snapshot = Snapshot(pods=(a_group(count=2),), nodes=nodes, options=options, services=services)

    def said(*filled: FilledNode) -> list[str]:
        return check_plan(snapshot, Plan((), filled, (), Stats(2, 1, 0)))

    assert said(FilledNode("a", ("default/web-0", "default/web-1"))) != []
    assert said(FilledNode("a", ("default/web-0",)), FilledNode("b", ("default/web-1",))) == []
