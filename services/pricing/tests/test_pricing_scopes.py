"""What is out of capacity for some only: a subnet, a placement group, a reservation, a quota."""

from typing import Any

import pytest

from sawhorse_catalog.account import PlacementGroup
from sawhorse_catalog.aws.quotas import quota_class
from sawhorse_cloud.scopes import Scope, ScopeKind, parse_scope
from sawhorse_model.instances import CapacityType, InstanceType
from sawhorse_pricing.scopes import Reach, ScopedMark, full_reservations, reach_of, withheld
from sawhorse_testing.catalog import an_ec2_node_class, an_instance_type

A, B = "us-west-2a", "us-west-2b"
LARGE = an_instance_type("m5.large", cpu="2", spot_price=0.04, zones=(A, B))
BIG = an_instance_type("c5.4xlarge", cpu="16", spot_price=0.2, zones=(A, B))
GPU = an_instance_type("g5.xlarge", cpu="4", spot_price=0.4, zones=(A,))
TYPES = (LARGE, BIG, GPU)


def out(*marks: ScopedMark, reach: Reach | None = None, types: tuple[InstanceType, ...] = TYPES) -> set[Any]:
    return set(withheld(marks, reach or Reach(), types))


def every(*types: InstanceType, zone: str = "", capacity_type: str = "") -> set[Any]:
    return {
        (o.capacity_type.value, t.name, o.zone)
        for t in types
        for o in t.offerings
        if zone in ("", o.zone) and capacity_type in ("", o.capacity_type.value)
    }


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("subnet/subnet-1", Scope(ScopeKind.SUBNET, "subnet-1")),
        ("group/pg-1", Scope(ScopeKind.GROUP, "pg-1")),
        ("group/pg-1/3", Scope(ScopeKind.GROUP, "pg-1", 3)),
        ("reservation/cr-1", Scope(ScopeKind.RESERVATION, "cr-1")),
        ("quota/standard/8", Scope(ScopeKind.QUOTA, "standard", 8)),
    ],
)
def test_a_scope_is_one_word_that_reads_back(text: str, scope: Scope) -> None:
    assert parse_scope(text) == scope
    assert str(scope) == text


@pytest.mark.parametrize("text", ["", "subnet", "subnet/", "host/h-1", "group/pg-1/x", "group/pg:1", "group/pg-1/1/2"])
def test_a_word_that_is_no_scope_is_none(text: str) -> None:
    assert parse_scope(text) is None


def test_a_zone_is_out_once_all_of_its_subnets_are() -> None:
    reach = Reach({A: frozenset({"subnet-1", "subnet-2"}), B: frozenset({"subnet-3"})})
    first, second = (("spot", "*", A, f"subnet/subnet-{n}") for n in (1, 2))

    assert out(first, reach=reach) == set()
    assert out(first, second, reach=reach) == every(*TYPES, zone=A)


def test_a_full_subnet_concerns_no_node_class_that_has_others() -> None:
    reach = Reach({A: frozenset({"subnet-7"})})

    assert out(("spot", "*", A, "subnet/subnet-1"), reach=reach) == set()


def test_a_group_lacks_what_it_lacks_and_others_have_it() -> None:
    mark = ("spot", "m5.large", A, "group/pg-1")

    assert out(mark, reach=Reach(group="pg-1")) == {("spot", "m5.large", A)}
    assert out(mark, reach=Reach(group="pg-2")) == set()
    assert out(mark) == set()


def test_a_spread_group_that_is_full_in_a_zone_has_no_type_there() -> None:
    mark = ("on-demand", "*", A, "group/pg-1")

    assert out(mark, reach=Reach(group="pg-1")) == every(*TYPES, zone=A, capacity_type="on-demand")


def test_an_offering_of_a_group_is_out_once_every_partition_is_full() -> None:
    reach = Reach(group="pg-1", partitions=2)
    first, second = (("spot", "m5.large", A, f"group/pg-1/{n}") for n in (1, 2))

    assert out(first, reach=reach) == set()
    assert out(first, second, reach=reach) == {("spot", "m5.large", A)}


def test_a_quota_is_out_for_types_of_its_class_that_are_large_enough() -> None:
    assert out(("spot", "*", "*", "quota/standard/8")) == every(BIG, capacity_type="spot")
    assert out(("spot", "*", "*", "quota/g/4")) == every(GPU, capacity_type="spot")
    assert out(("spot", "*", "*", "quota/all")) == every(*TYPES, capacity_type="spot")


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        ("m5.large", "standard"),
        ("is4gen.large", "standard"),
        ("t3a.nano", "standard"),
        ("g5.xlarge", "g"),
        ("vt1.3xlarge", "g"),
        ("p4d.24xlarge", "p"),
        ("inf2.xlarge", "inf"),
        ("trn1.2xlarge", "trn"),
        ("x2idn.16xlarge", "x"),
        ("u-6tb1.metal", "u"),
        ("u7i-12tb.224xlarge", "u"),
        ("hpc7g.4xlarge", "hpc"),
    ],
)
def test_types_share_a_quota_by_their_letters(name: str, shared: str) -> None:
    assert quota_class(name) == shared


def test_a_reservation_that_was_found_full_counts_as_used_up() -> None:
    marks = [("reserved", "m5.large", A, "reservation/cr-1"), ("spot", "*", A, "subnet/subnet-1")]

    assert full_reservations(marks) == {"cr-1"}
    assert out(*marks) == set()


def test_the_reach_of_a_node_class_is_its_subnets_and_its_group() -> None:
    node_class = an_ec2_node_class(zones={A: "usw2-az1", B: "usw2-az2"})
    group = PlacementGroup(id="pg-1", name="apart", strategy="partition", partitions=3)

    reach = reach_of(node_class, group)

    assert reach == Reach({A: frozenset({f"subnet-{A}"}), B: frozenset({f"subnet-{B}"})}, "pg-1", 3)
    assert reach_of(None, None) == Reach()


def test_reserved_machines_are_under_no_quota() -> None:
    offering = LARGE.offerings[0]
    reserved = InstanceType(
        LARGE.name,
        LARGE.requirements,
        (type(offering)(A, CapacityType.RESERVED, 0.0, reservation_id="cr-1", reservation_count=1),),
        LARGE.capacity,
        LARGE.allocatable,
    )

    assert out(("reserved", "*", "*", "quota/standard"), types=(reserved,)) == set()
