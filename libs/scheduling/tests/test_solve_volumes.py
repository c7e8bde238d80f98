"""Volumes: claims that cannot be used, where volumes let pods be, and how many a node takes."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from sawhorse_model import aws
from sawhorse_model.cluster import PersistentVolumeClaim
from sawhorse_model.labels import HOSTNAME, ZONE
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import SolveOptions
from sawhorse_scheduling.volumes import estimated_limits
from sawhorse_testing.builders import (
    ZONES,
    a_claim,
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
    volumes_of,
)
from sawhorse_testing.catalog import common_fixture
from sawhorse_testing.plans import checked_plan, codes

A, B, C = ZONES
BIG = a_type("m6i.4xlarge", "16", "64Gi", price=0.768)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


plan_of = partial(checked_plan, options=SolveOptions(well_known=aws.WELL_KNOWN, attachments=aws.ATTACHMENTS))


def zones_of(plan: Plan) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in plan.new_nodes:
        found[node.zone] += len(node.pods)
    return found


def deleting(thing: Any) -> Any:
    return replace(thing, meta=replace(thing.meta, deletion_timestamp=NOW))


def unfinished(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    return replace(claim, meta=replace(claim.meta, annotations={}))


@pytest.mark.parametrize(
    ("things", "code"),
    [
        ((), "VolumeClaimMissing"),
        ((deleting(a_claim()), a_storage_class()), "VolumeClaimUnusable"),
        ((a_claim(volume="pv", phase="Lost"), a_volume()), "VolumeClaimUnusable"),
        ((a_claim(volume="pv"),), "VolumeClaimUnusable"),
        ((a_claim(volume="pv"), deleting(a_volume())), "VolumeClaimUnusable"),
        ((unfinished(a_claim(volume="pv")), a_volume()), "VolumeClaimUnusable"),
        ((a_claim(storage_class=None),), "VolumeClaimUnbound"),
        ((a_claim(storage_class="other"), a_storage_class()), "VolumeClaimUnbound"),
        ((a_claim(), a_storage_class(binding_mode="Immediate")), "VolumeClaimUnbound"),
    ],
)
def test_a_claim_that_cannot_be_used_keeps_its_pod_out_and_is_named(things: tuple[Any, ...], code: str) -> None:
    plan = plan_of(pods=[a_group(claims=("data",))], pools=[a_pool([BIG])], volumes=volumes_of(*things))

    assert plan.new_nodes == ()
    assert codes(plan) == {code}
    assert "default/data" in plan.unschedulable[0].message


def test_a_pod_goes_where_its_bound_volume_is() -> None:
    volumes = volumes_of(a_claim(volume="pv"), a_volume(zone=B))

    plan = plan_of(pods=[a_group(claims=("data",))], pools=[a_pool([BIG])], volumes=volumes)

    assert zones_of(plan) == {B: 1}


def test_an_unbound_claim_goes_where_its_class_allows() -> None:
    volumes = volumes_of(a_claim(), a_storage_class(zones=[C]))

    plan = plan_of(pods=[a_group(claims=("data",))], pools=[a_pool([BIG])], volumes=volumes)

    assert zones_of(plan) == {C: 1}


def test_a_volume_with_alternatives_takes_the_one_that_fits() -> None:
    terms = (a_term(an_expression(ZONE, "In", A)), a_term(an_expression(ZONE, "In", C)))
    volumes = volumes_of(a_claim(volume="pv"), a_volume(terms=terms))
    only_c = a_pool([BIG], requirements=[an_expression(ZONE, "In", B, C)])

    plan = plan_of(pods=[a_group(claims=("data",))], pools=[only_c], volumes=volumes)

    assert zones_of(plan) == {C: 1}


def test_several_volumes_are_taken_where_they_meet_or_nowhere() -> None:
    wide = (a_term(an_expression(ZONE, "In", A, B)),)
    first, second = a_claim("one", volume="v1"), a_claim("two", volume="v2")
    pods = [a_group(claims=("one", "two"))]

    meet = volumes_of(first, second, a_volume("v1", terms=wide), a_volume("v2", zone=B))
    apart = volumes_of(first, second, a_volume("v1", zone=A), a_volume("v2", zone=B))

    assert zones_of(plan_of(pods=pods, pools=[a_pool([BIG])], volumes=meet)) == {B: 1}
    assert codes(plan_of(pods=pods, pools=[a_pool([BIG])], volumes=apart)) == {"VolumesConflict"}


def test_a_local_volume_does_not_tie_a_pod_to_a_node_that_is_gone() -> None:
    terms = (a_term(an_expression(HOSTNAME, "In", "gone")),)
    volumes = volumes_of(a_claim(volume="pv"), a_volume(local=True, terms=terms))

    plan = plan_of(pods=[a_group(claims=("data",))], pools=[a_pool([BIG])], volumes=volumes)

    assert len(plan.new_nodes) == 1


def test_a_volumes_zone_does_not_narrow_the_domains_of_a_spread() -> None:
    running = [
        a_node(f"n-{z}", cpu="200m", zone=z, pods=[bound(a_pod(f"r-{z}", labels={"app": "web"}))]) for z in (A, B)
    ]
    empty = a_node("n-c", cpu="200m", zone=C)
    volumes = volumes_of(a_claim(volume="pv"), a_volume(zone=A))

    plan = plan_of(
        pods=[a_group(cpu="1", claims=("data",), spread=(a_spread(),))],
        nodes=[*running, empty],
        pools=[a_pool([BIG])],
        volumes=volumes,
    )

    assert codes(plan) >= {"SpreadUnsatisfiable"}


def test_pods_that_share_a_claim_without_a_volume_are_in_one_zone() -> None:
    volumes = volumes_of(a_claim(), a_storage_class())
    pods = a_group(count=40, cpu="1", claims=("data",))

    plan = plan_of(
        pods=[pods], nodes=[a_node("n", zone=A), a_node("m", zone=B)], pools=[a_pool([BIG])], volumes=volumes
    )

    homes = {n.zone for n in plan.new_nodes} | {A if n.name == "n" else B for n in plan.existing_nodes}
    assert len(homes) == 1
    assert plan.unschedulable == ()


def test_an_ephemeral_volume_is_found_under_the_name_of_its_pod() -> None:
    claims = [a_claim(f"web-{n}-scratch", volume=f"v{n}") for n in range(2)]
    volumes = volumes_of(*claims, *(a_volume(f"v{n}", zone=C) for n in range(2)))
    pods = a_group(count=2, ephemeral_claims=("scratch",))

    plan = plan_of(pods=[pods], pools=[a_pool([BIG])], volumes=volumes)
    missing = plan_of(pods=[pods], pools=[a_pool([BIG])], volumes=volumes_of(claims[0], a_volume("v0")))

    assert zones_of(plan) == {C: 2}
    assert codes(missing) == {"VolumeClaimMissing"}


def stateful(count: int) -> tuple[list[Any], list[PersistentVolumeClaim]]:
    groups = [a_group(f"db{n}", claims=(f"data-{n}",), labels={"app": "db"}) for n in range(count)]
    return groups, [a_claim(f"data-{n}") for n in range(count)]


def test_an_existing_node_takes_no_more_volumes_than_it_says() -> None:
    groups, claims = stateful(5)
    there = bound(a_pod("r", claims=("old",)), "n")
    old = [a_claim("old", volume="pv"), a_volume("pv")]
    volumes = volumes_of(*claims, *old, a_storage_class(), limits={"n": {aws.EBS_DRIVER: 3}})

    plan = plan_of(pods=groups, nodes=[a_node("n", pods=[there])], pools=[], volumes=volumes)

    assert [len(n.pods) for n in plan.existing_nodes] == [2]


def test_a_node_that_says_nothing_of_a_driver_has_no_limit() -> None:
    groups, claims = stateful(30)
    volumes = volumes_of(*claims, a_storage_class())

    plan = plan_of(pods=groups, nodes=[a_node("n", cpu="16", memory="64Gi")], pools=[], volumes=volumes)

    assert [len(n.pods) for n in plan.existing_nodes] == [30]


def test_a_node_above_its_limit_takes_no_pod_at_all() -> None:
    pods = [bound(a_pod(f"r{n}", claims=(f"old-{n}",)), "n") for n in range(2)]
    old = [a_claim(f"old-{n}", volume=f"v{n}") for n in range(2)]
    volumes = volumes_of(*old, a_volume("v0"), a_volume("v1"), limits={"n": {aws.EBS_DRIVER: 1}})

    plan = plan_of(pods=[a_group()], nodes=[a_node("n", pods=pods)], pools=[], volumes=volumes)

    assert plan.existing_nodes == ()


def test_new_nodes_take_as_many_volumes_as_their_types_are_known_to() -> None:
    groups, claims = stateful(60)

    plan = plan_of(pods=groups, pools=[a_pool([BIG])], volumes=volumes_of(*claims, a_storage_class()))

    assert max(len(n.pods) for n in plan.new_nodes) <= 25
    assert len(plan.new_nodes) == 3
    assert not any("attachable" in name for n in plan.new_nodes for name in (*n.requests, *n.allocatable))


def test_the_estimate_takes_local_disks_and_accelerators_off() -> None:
    kinds = {kind.name: estimated_limits(kind, aws.ATTACHMENTS)[aws.EBS_DRIVER] for kind in common_fixture()}

    assert kinds["m6i.large"] == 25
    assert kinds["g5.xlarge"] == 22


def test_a_pod_with_more_volumes_than_any_type_takes_is_told_so() -> None:
    names = tuple(f"data-{n}" for n in range(30))
    volumes = volumes_of(*(a_claim(name) for name in names), a_storage_class())

    plan = plan_of(pods=[a_group(claims=names)], pools=[a_pool([BIG])], volumes=volumes)

    assert codes(plan) == {"InsufficientResources"}
    assert "attachable-volumes/ebs.csi.aws.com 30 is asked, 25 is there" in plan.unschedulable[0].message


def test_ephemeral_volumes_that_are_not_there_yet_belong_to_one_pod_each_and_tie_nobody_together() -> None:
    claims = [a_claim(f"web-{n}-scratch") for n in range(5)]
    pods = a_group(count=5, cpu="3", ephemeral_claims=("scratch",), spread=(a_spread(),))

    plan = plan_of(pods=[pods], pools=[a_pool([BIG])], volumes=volumes_of(*claims, a_storage_class()))

    assert sorted(zones_of(plan).values()) == [1, 2, 2]
