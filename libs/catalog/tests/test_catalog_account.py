"""Reservations and placement groups in the catalogue: offerings, labels, and what rules a type out."""

from dataclasses import replace
from typing import Any

from sawhorse_catalog.account import PlacementGroup
from sawhorse_catalog.aws import ResolveSettings, Unavailable, count_free, resolve, withhold
from sawhorse_catalog.aws.offerings import RESERVED_SHARE
from sawhorse_catalog.aws.resolve import Resolution
from sawhorse_catalog.prices import PriceBook
from sawhorse_model import aws
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.labels import CAPACITY_TYPE
from sawhorse_testing.catalog import an_ec2_node_class, an_ec2_type

ZONES = {"us-east-1a": "use1-az1", "us-east-1b": "use1-az2"}
PRICES = PriceBook(on_demand={"m5.large": 0.1, "c5.large": 0.09}, spot_share=0.4)


def an_entry(reservation_id: str = "cr-1", **fields: Any) -> dict[str, Any]:
    """An entry of `status.capacityReservations`."""
    return {"id": reservation_id, "instanceType": "m5.large", "availabilityZone": "us-east-1a", **fields}


def seen(
    *entries: dict[str, Any],
    free: dict[str, int] | None = None,
    spec: dict[str, Any] | None = None,
    live: bool = False,
    **more: Any,
) -> Resolution:
    """Two types under a NodeClass with these reservations."""
    node_class = an_ec2_node_class(spec or {}, zones=ZONES)
    status = {**node_class.node_class.status, "capacityReservations": list(entries)}
    changed = aws.parse_ec2_node_class(replace(node_class.node_class, status=status))
    facts = [an_ec2_type(name, zones=tuple(ZONES)) for name in ("m5.large", "c5.large")]
    settings = ResolveSettings(require_subnets=live)
    return resolve(facts, changed, PRICES, region="us-east-1", zones=ZONES, free=free or {}, settings=settings, **more)


def the(resolution: Resolution, name: str = "m5.large") -> InstanceType:
    return next(t for t in resolution.instance_types if t.name == name)


def reserved(kind: InstanceType) -> list[Offering]:
    return [o for o in kind.offerings if o.capacity_type is CapacityType.RESERVED]


def values(kind: InstanceType, key: str) -> set[str]:
    found = kind.requirements.get(key)
    assert found is not None
    return set(found.values)


def test_a_reservation_is_an_offering_of_its_type_in_its_zone_at_next_to_no_price() -> None:
    found = seen(an_entry(), free={"cr-1": 2})

    (offering,) = reserved(the(found))
    assert (offering.zone, offering.zone_id, offering.reservation_id) == ("us-east-1a", "use1-az1", "cr-1")
    assert (offering.available, offering.reservation_count) == (True, 2)
    assert offering.price == 0.1 * RESERVED_SHARE
    assert reserved(the(found, "c5.large")) == []


def test_a_type_with_a_reservation_has_its_labels_and_others_have_none() -> None:
    found = seen(an_entry(), an_entry("cr-2", reservationType="capacity-block"), free={"cr-1": 2})

    kind = the(found)
    assert "reserved" in values(kind, CAPACITY_TYPE)
    assert values(kind, aws.RESERVATION_ID) == {"cr-1", "cr-2"}
    assert values(kind, aws.RESERVATION_TYPE) == {"default", "capacity-block"}
    assert values(kind, aws.RESERVATION_INTERRUPTIBLE) == {"false"}
    assert values(the(found, "c5.large"), aws.RESERVATION_ID) == set()
    assert "reserved" not in values(the(found, "c5.large"), CAPACITY_TYPE)


def test_a_reservation_that_is_full_unknown_or_about_to_end_is_not_available() -> None:
    found = seen(
        an_entry("cr-1"),
        an_entry("cr-2"),
        an_entry("cr-3", state="expiring"),
        free={"cr-1": 0, "cr-3": 4},
    )

    assert [o.available for o in reserved(the(found))] == [False, False, False]


def test_a_reservation_outside_of_the_classs_zones_is_not_available() -> None:
    found = seen(an_entry(availabilityZone="us-east-1c"), free={"cr-1": 4})

    assert [o.available for o in reserved(the(found))] == [False]


def test_a_reserved_offering_that_was_reported_out_is_not_available() -> None:
    out: Unavailable = frozenset({("reserved", "m5.large", "us-east-1a")})
    found = seen(an_entry(), free={"cr-1": 4})

    (kind,) = (t for t in withhold(found.instance_types, out) if t.name == "m5.large")

    assert [o.available for o in reserved(kind)] == [False]
    assert all(o.available for o in kind.offerings if o.capacity_type is CapacityType.ON_DEMAND)


def test_free_places_are_counted_in_later_and_types_without_any_stay_the_same_objects() -> None:
    found = seen(an_entry(), free={"cr-1": 1}).instance_types

    counted = count_free(found, {"cr-1": 5})
    gone = count_free(found, {})

    assert [(o.available, o.reservation_count) for t in counted for o in reserved(t)] == [(True, 5)]
    assert [(o.available, o.reservation_count) for t in gone for o in reserved(t)] == [(False, 0)]
    assert counted[1] is found[1]


def test_a_placement_group_is_a_label_and_its_partitions_are_values() -> None:
    group = PlacementGroup(id="pg-1", name="apart", strategy="partition", partitions=12)

    kind = the(seen(spec={"placementGroupSelector": {"name": "apart"}}, placement_group=group))

    assert values(kind, aws.PLACEMENT_GROUP_ID) == {"pg-1"}
    assert values(kind, aws.PLACEMENT_GROUP_PARTITION) == {str(n) for n in range(1, 13)}


def test_a_group_whose_strategy_a_type_does_not_support_rules_it_out() -> None:
    fact = an_ec2_type("m5.large", zones=tuple(ZONES), placement_strategies=("spread",))
    group = PlacementGroup(id="pg-1", name="near", strategy="cluster")

    found = resolve([fact], an_ec2_node_class({}), PRICES, region="us-east-1", zones=ZONES, placement_group=group)

    assert found.excluded == {"m5.large": "the placement group's strategy is cluster, it supports spread"}


def test_a_group_that_is_not_known_sells_nothing_live_and_everything_offline() -> None:
    spec = {"placementGroupSelector": {"name": "near"}}

    live, offline = seen(spec=spec, live=True), seen(spec=spec)

    assert set(live.excluded) == {"m5.large", "c5.large"}
    assert offline.excluded == {}
