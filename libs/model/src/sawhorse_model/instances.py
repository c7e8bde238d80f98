"""Instance types and offerings: what can be bought. Pure data: it knows no cloud, cache or clock."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_model.requirements import Operator, Requirement, Requirements


class CapacityType(StrEnum):
    """How an instance is paid for, in the order of preference when more than one fits."""

    RESERVED = "reserved"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True)
class Offering:
    """An instance type in one zone under one capacity type.

    Source: DescribeInstanceTypeOfferings joined with the price snapshot, or a catalogue file.
    """

    zone: str  # as in topology.kubernetes.io/zone, e.g. "us-west-2a"
    capacity_type: CapacityType
    price: float  # per hour, in the catalogue's currency
    available: bool = True  # False while out of capacity, incompatible with the NodeClass or without a subnet
    zone_id: str = ""
    reservation_id: str = ""
    reservation_count: int = 0

    def __post_init__(self) -> None:
        # NaN compares false with everything, so one bad price would scramble a sort.
        if not (math.isfinite(self.price) and self.price >= 0):
            raise ValueError(f"price must be finite and >= 0, got {self.price!r}")

    def allowed_by(self, requirements: Requirements) -> bool:
        """Whether zone and capacity type satisfy the requirements; other keys are the type's business."""
        zone, kind = requirements.get(ZONE), requirements.get(CAPACITY_TYPE)
        return (zone is None or zone.has(self.zone)) and (kind is None or kind.has(self.capacity_type.value))


@dataclass(frozen=True, slots=True)
class InstanceType:
    """An instance type as one NodeClass sees it.

    `requirements` describe its labels: single values, several (zone, capacity type), or DoesNotExist for facts that
    the type does not have. Resource maps: cpu in millicores, the rest in base units.
    """

    name: str
    requirements: Requirements
    offerings: tuple[Offering, ...]
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)

    def cheapest(self, requirements: Requirements | None = None) -> Offering | None:
        """The cheapest available offering that the requirements allow."""
        wanted = Requirements() if requirements is None else requirements
        return cheapest(o for o in self.offerings if o.allowed_by(wanted))


@dataclass(frozen=True, slots=True)
class AttachEstimate:
    """How many volumes of a driver a node takes that does not exist yet.

    `count`, or that of the first of `instead` whose label has the value; less `minus_if` where a label has a value,
    less the number that a label of `minus_number` has; one at least.
    """

    driver: str
    count: int
    instead: tuple[tuple[str, str, int], ...] = ()  # label, value, count
    minus_if: tuple[tuple[str, int], ...] = ()  # label, how many
    minus_number: tuple[str, ...] = ()  # labels

    def limit(self, kind: InstanceType) -> int:
        """For one type."""
        for label, value, count in self.instead:
            found = kind.requirements.get(label)
            if found is not None and found.has(value):
                return count
        left = self.count
        for label, less in self.minus_if:
            found = kind.requirements.get(label)
            left -= less if found is not None and found.values else 0
        for label in self.minus_number:
            found = kind.requirements.get(label)
            left -= max((int(v) for v in found.values if v.isdigit()), default=0) if found is not None else 0
        return max(left, 1)


def cheapest(offerings: Iterable[Offering]) -> Offering | None:
    """Return the cheapest available offering, or None when none is available.

    Equal prices break by zone, then capacity type: equal inputs give equal plans.
    """
    available = (o for o in offerings if o.available)
    return min(available, key=lambda o: (o.price, o.zone, o.capacity_type), default=None)


def requirement_in(key: str, values: Iterable[str]) -> Requirement:
    """Shorthand for a list of allowed values; none means the label does not exist."""
    return Requirement.of(key, Operator.IN, values)
