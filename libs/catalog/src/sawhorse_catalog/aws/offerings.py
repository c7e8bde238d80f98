"""Offerings: each zone that has the type, under each capacity type, with its price and whether it can be had now."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from sawhorse_catalog.account import Reservation
from sawhorse_catalog.aws.labels import capacity_types
from sawhorse_catalog.aws.node_class import ClassView
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_catalog.prices import PriceBook
from sawhorse_model.instances import CapacityType, InstanceType, Offering

Unavailable = frozenset[tuple[str, str, str]]
"""Offerings without capacity: (capacity type, instance type, zone)."""
# A reservation is paid for whether it is used or not, so using it costs next to nothing; the order of types by price
# stays.
RESERVED_SHARE = 1e-7


def offerings(
    facts: InstanceFacts,
    view: ClassView,
    prices: PriceBook,
    *,
    zones: Mapping[str, str],
    unavailable: Unavailable = frozenset(),
    compatible: bool = True,
) -> tuple[Offering, ...]:
    """The offerings of a type under a NodeClass, sorted by zone and capacity type; those of reservations come last.

    One whose price is not known cannot be bought and is left out: a price of 0 would make it the cheapest.

    Args:
        zones: zone → zone id of the region; ids of the NodeClass's subnets go before.
        compatible: False makes all of them unavailable.
    """
    subnets = view.subnet_zones
    found: list[Offering] = []
    kinds = [(kind, kind.value, kind is CapacityType.SPOT) for kind in capacity_types(facts)]
    for zone in sorted(facts.zones):
        usable = compatible and (subnets is None or zone in subnets)
        zone_id = (subnets.get(zone, "") if subnets is not None else "") or zones.get(zone, "")
        for kind, word, spot in kinds:
            price = prices.price(facts.name, zone, spot=spot)
            if price is not None:
                free = usable and (word, facts.name, zone) not in unavailable
                found.append(Offering(zone, kind, price, free, zone_id))
    return (*found, *_reserved(facts, view, prices, zones=zones, unavailable=unavailable, compatible=compatible))


def reservations_for(facts: InstanceFacts, view: ClassView) -> tuple[Reservation, ...]:
    """The NodeClass's reservations of a type, sorted by id."""
    return tuple(sorted((r for r in view.reservations if r.instance_type == facts.name), key=lambda r: r.id))


def _reserved(
    facts: InstanceFacts,
    view: ClassView,
    prices: PriceBook,
    *,
    zones: Mapping[str, str],
    unavailable: Unavailable,
    compatible: bool,
) -> Iterator[Offering]:
    """One offering for each reservation. How many instances are free is put in by `with_free`."""
    subnets = view.subnet_zones
    for each in reservations_for(facts, view):
        whole = prices.price(facts.name, each.zone, spot=False)
        usable = compatible and (subnets is None or each.zone in subnets) and is_usable(each)
        yield Offering(
            each.zone,
            CapacityType.RESERVED,
            0.0 if whole is None else whole * RESERVED_SHARE,
            usable and each.free > 0 and (CapacityType.RESERVED.value, facts.name, each.zone) not in unavailable,
            (subnets.get(each.zone, "") if subnets is not None else "") or zones.get(each.zone, ""),
            each.id,
            each.free,
        )


def is_usable(reservation: Reservation) -> bool:
    """Whether something may be launched into it. Interruptible ones need fields of a launch that we do not send."""
    return not reservation.expiring and not reservation.interruptible


def with_free(reservations: Iterable[Reservation], free: Mapping[str, int]) -> tuple[Reservation, ...]:
    """Reservations with their free instances; of one that `free` does not know none is."""
    return tuple(msgspec.structs.replace(r, free=free.get(r.id, 0)) for r in reservations)


def count_free(types: Sequence[InstanceType], free: Mapping[str, int]) -> tuple[InstanceType, ...]:
    """Resolved types with the free instances of their reservations; without one the offering is unavailable.

    Types that are not concerned stay the same objects.
    """

    def counted(offering: Offering) -> Offering:
        if not offering.reservation_id:
            return offering
        count = free.get(offering.reservation_id, 0)
        return replace(offering, available=offering.available and count > 0, reservation_count=count)

    return tuple(
        replace(kind, offerings=tuple(counted(o) for o in kind.offerings))
        if any(o.reservation_id for o in kind.offerings)
        else kind
        for kind in types
    )


def withhold(types: Sequence[InstanceType], unavailable: Unavailable) -> tuple[InstanceType, ...]:
    """Resolved types with these offerings unavailable too. Types that are not concerned stay the same objects."""
    names = {name for _, name, _ in unavailable}
    return tuple(
        replace(
            kind,
            offerings=tuple(
                replace(o, available=False) if (o.capacity_type.value, kind.name, o.zone) in unavailable else o
                for o in kind.offerings
            ),
        )
        if kind.name in names
        else kind
        for kind in types
    )
