"""Which capacity blocks end soon, and when their machines must be empty."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sawhorse_cloud_aws import expiring_blocks
from sawhorse_testing.cloud_worlds import an_ec2_node_class


def with_reservations(*entries: dict[str, Any]) -> Any:
    """A NodeClass whose status has these."""
    node_class = an_ec2_node_class()
    return replace(node_class, status={**node_class.status, "capacityReservations": list(entries)})


def test_a_block_that_expires_must_be_empty_half_an_hour_before_its_end_and_active_ones_are_not_named() -> None:
    node_class = with_reservations(
        {"id": "cr-1", "state": "expiring", "endTime": "2026-11-29T12:00:00Z", "reservationType": "capacity-block"},
        {"id": "cr-2", "state": "active", "endTime": "2026-12-29T12:00:00Z"},
        {"id": "cr-3", "state": "expiring"},
    )

    found = expiring_blocks(node_class)

    assert found == {"cr-1": datetime(2026, 11, 29, 11, 30, tzinfo=UTC), "cr-3": None}


def test_a_class_that_cannot_be_read_has_no_expiring_block() -> None:
    node_class = replace(with_reservations({"id": "cr-1", "state": "expiring"}), spec={"kubelet": "no map"})

    assert expiring_blocks(node_class) == {}
