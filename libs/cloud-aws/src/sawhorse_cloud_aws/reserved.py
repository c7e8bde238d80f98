"""Which capacity reservations a launch uses. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sawhorse_catalog.account import BLOCK, Reservation
from sawhorse_model.aws import (
    RESERVATION_ID,
    RESERVATION_INTERRUPTIBLE,
    RESERVATION_TYPE,
)
from sawhorse_model.instances import CapacityType, InstanceType, Offering

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


def by_id(reservations: Iterable[Reservation]) -> dict[str, Reservation]:
    """Reservations by id."""
    return {r.id: r for r in reservations}
