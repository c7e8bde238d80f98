"""Instance types and requirements as messages of `sawhorse.catalog.v1`, and back. Messages only: it knows no server."""

from collections.abc import Iterable
from functools import lru_cache

from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.requirements import Operator, Requirement, Requirements
from sawhorse_proto.catalog.v1 import catalog_pb2


def requirements_to_messages(requirements: Requirements) -> list[catalog_pb2.Requirement]:
    """One message per entry; a key may have several (bounds beside exclusions). `minValues` is not carried."""
    return [
        catalog_pb2.Requirement(key=spec.key, operator=spec.operator.value, values=spec.values)
        for spec in requirements.to_specs()
    ]


def requirements_from_messages(messages: Iterable[catalog_pb2.Requirement]) -> Requirements:
    """Read them; entries of one key are intersected.

    Raises:
        ValueError: an unknown operator, or a numeric one without exactly one integer. It names the key.
    """
    return Requirements(_requirement(m.key, m.operator, tuple(m.values)) for m in messages)


@lru_cache(maxsize=65536)
def _requirement(key: str, word: str, values: tuple[str, ...]) -> Requirement:
    # Cached: a catalogue's 30,000 entries repeat a few thousand.
    if not key:
        raise ValueError("a requirement has no key; name the label")
    try:
        operator = Operator(word)
    except ValueError as error:
        words = ", ".join(Operator)
        raise ValueError(f"{key}: {word!r} is not an operator; use one of {words}") from error
    return Requirement.of(key, operator, values)


def instance_type_to_message(instance_type: InstanceType) -> catalog_pb2.InstanceType:
    """Write an instance type."""
    return catalog_pb2.InstanceType(
        name=instance_type.name,
        requirements=requirements_to_messages(instance_type.requirements),
        capacity=instance_type.capacity,
        allocatable=instance_type.allocatable,
        offerings=[_offering_to_message(o) for o in instance_type.offerings],
    )


def instance_type_from_message(message: catalog_pb2.InstanceType) -> InstanceType:
    """Read an instance type.

    Raises:
        ValueError: a requirement, capacity type or price makes no sense.
    """
    return InstanceType(
        name=message.name,
        requirements=requirements_from_messages(message.requirements),
        offerings=tuple(_offering_from_message(o) for o in message.offerings),
        capacity=dict(message.capacity),
        allocatable=dict(message.allocatable),
    )


def _offering_to_message(offering: Offering) -> catalog_pb2.Offering:
    return catalog_pb2.Offering(
        zone=offering.zone,
        zone_id=offering.zone_id,
        capacity_type=offering.capacity_type.value,
        price=offering.price,
        available=offering.available,
        reservation_id=offering.reservation_id,
        reservation_count=offering.reservation_count,
    )


def _offering_from_message(message: catalog_pb2.Offering) -> Offering:
    return Offering(
        zone=message.zone,
        capacity_type=CapacityType(message.capacity_type),
        price=message.price,
        available=message.available,
        zone_id=message.zone_id,
        reservation_id=message.reservation_id,
        reservation_count=message.reservation_count,
    )
