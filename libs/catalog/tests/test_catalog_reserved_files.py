"""Which reservations count: those a NodeClass has, of a file all when it does not say, and none that cannot be used."""

import json
from dataclasses import replace
from typing import Any

import pytest

from sawhorse_catalog.aws import resolve
from sawhorse_catalog.file_types import FileEntry, resolve_entries
from sawhorse_catalog.files import parse_catalog_file
from sawhorse_catalog.prices import PriceBook
from sawhorse_model import aws
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.instances import InstanceType
from sawhorse_testing.catalog import an_ec2_node_class, an_ec2_type, an_offering

HELD = {"id": "cr-1", "instanceType": "m5.large", "availabilityZone": "us-west-2a"}
ENTRY = FileEntry(
    "m5.large",
    "amd64",
    ("linux",),
    tuple(
        an_offering("us-west-2a", "reserved", 0.0, reservation_id=key, reservation_count=3) for key in ("cr-1", "cr-2")
    ),
    allocatable={"cpu": 2000},
)


def a_class(*held: dict[str, Any]) -> EC2NodeClass:
    plain = an_ec2_node_class({}).node_class
    return aws.parse_ec2_node_class(replace(plain, status={**plain.status, "capacityReservations": list(held)}))


def free(kind: InstanceType) -> set[str]:
    return {o.reservation_id for o in kind.offerings if o.reservation_id and o.available}


@pytest.mark.parametrize(
    ("node_class", "expected"),
    [
        (None, {"cr-1", "cr-2"}),
        (a_class(), {"cr-1", "cr-2"}),
        (a_class(HELD), {"cr-1"}),
        (a_class({**HELD, "state": "expiring"}), set()),
        (a_class({**HELD, "interruptible": True}), set()),
    ],
)
def test_of_a_catalogue_file_the_reservations_of_the_node_class_count(
    node_class: EC2NodeClass | None, expected: set[str]
) -> None:
    (kind,) = resolve_entries([ENTRY], node_class).instance_types

    assert free(kind) == expected


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"reservationId": "cr-1", "reservationCount": 1}, False),
        ({"reservationId": "cr-1"}, True),
        ({"reservationCount": 1}, True),
        ({"reservationId": "cr-1", "available": False}, False),
    ],
)
def test_a_reserved_offering_that_cannot_be_counted_is_warned_about(fields: dict[str, Any], warned: bool) -> None:
    offering = {"zone": "us-west-2a", "capacityType": "reserved", "price": 0, **fields}
    kind = {"name": "m5.large", "vcpus": 2, "memoryMiB": 8192, "offerings": [offering]}

    found = parse_catalog_file(
        json.dumps({"apiVersion": "sawhorse.dev/v1", "kind": "Catalog", "instanceTypes": [kind]}).encode()
    )

    assert bool(found.warnings) == warned


def test_an_interruptible_reservation_is_not_planned_with_as_nothing_could_be_launched_into_it() -> None:
    facts = [an_ec2_type("m5.large", zones=("us-west-2a",))]
    prices = PriceBook(on_demand={"m5.large": 0.1})

    def found(held: dict[str, Any]) -> set[str]:
        (kind,) = resolve(
            facts, a_class(held), prices, region="us-west-2", zones={"us-west-2a": ""}, free={"cr-1": 2}
        ).instance_types
        return free(kind)

    assert found(HELD) == {"cr-1"}
    assert found({**HELD, "interruptible": True}) == set()
