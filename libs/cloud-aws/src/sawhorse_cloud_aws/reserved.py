"""Which capacity reservations a launch uses, and in which partition of its placement group it lies. Pure."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sawhorse_catalog.account import BLOCK, PlacementGroup, Reservation
from sawhorse_cloud.errors import InsufficientCapacityError
from sawhorse_model.aws import (
    PLACEMENT_GROUP_PARTITION,
    RESERVATION_ID,
    RESERVATION_INTERRUPTIBLE,
    RESERVATION_TYPE,
)
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.requirements import Requirements

RESERVATION_LABELS = (RESERVATION_ID, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE)


def reservation_labels(reservation: Reservation | None) -> dict[str, str]:
    """The labels of a machine that runs in a reservation; empty for any other."""
    if reservation is None:
        return {}
    return {
        RESERVATION_ID: reservation.id,
        RESERVATION_TYPE: reservation.kind,
        RESERVATION_INTERRUPTIBLE: "true" if reservation.interruptible else "false",
    }


def is_launchable(offering: Offering, reservations: Mapping[str, Reservation]) -> bool:
    """Whether a launch can aim at the offering. Interruptible reservations need fields that our SDK does not know."""
    if offering.capacity_type is not CapacityType.RESERVED:
        return True
    known = reservations.get(offering.reservation_id)
    return known is not None and not known.interruptible


def only_reserved(types: Sequence[InstanceType], reservations: Mapping[str, Reservation]) -> list[InstanceType]:
    """Where anything reserved is offered: that alone, in the one kind of reservation that is cheapest.

    Of several reservations of a type in a zone the one with most free instances stays. Of capacity blocks one single
    offering stays, since a request can aim at one block only. Without reserved offerings the types stay as they are.
    """
    offered = [
        (o.price, reservations[o.reservation_id].kind == BLOCK, t.name, o.zone, -o.reservation_count, o.reservation_id)
        for t in types
        for o in t.offerings
        if o.capacity_type is CapacityType.RESERVED
    ]
    if not offered:
        return list(types)
    _, block, *_, cheapest = min(offered)
    kept: dict[tuple[str, str], str] = {}
    for _, is_block, name, zone, _, reservation_id in sorted(offered, key=lambda o: (o[4], o[5])):
        if is_block == block and (not block or reservation_id == cheapest):
            kept.setdefault((name, zone), reservation_id)
    found = (
        replace(t, offerings=tuple(o for o in t.offerings if kept.get((t.name, o.zone)) == o.reservation_id != ""))
        for t in types
    )
    return [t for t in found if t.offerings]


def partition_for(requirements: Requirements, group: PlacementGroup | None, token: str) -> int:
    """The partition that a fleet starts in; 0 without partitions.

    Of those that the claim allows, the token picks one: a repeat finds the same, and fleets spread over all.

    Raises:
        InsufficientCapacityError: the group has none of the partitions that the claim allows.
    """
    if group is None or not group.partitions:
        return 0
    asked = requirements.get(PLACEMENT_GROUP_PARTITION)
    allowed = [n for n in range(1, group.partitions + 1) if asked is None or asked.has(str(n))]
    if not allowed:
        raise InsufficientCapacityError(
            f"the claim allows none of the {group.partitions} partitions of placement group {group.name or group.id}",
            action=f"Allow partitions 1 to {group.partitions} in the NodePool.",
        )
    return allowed[int.from_bytes(hashlib.sha256(token.encode()).digest()[:8], "big") % len(allowed)]


def by_id(reservations: Iterable[Reservation]) -> dict[str, Reservation]:
    """Reservations by id."""
    return {r.id: r for r in reservations}
