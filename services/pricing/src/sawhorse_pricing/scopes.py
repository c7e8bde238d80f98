"""Marks that hold only for some: which of them apply to a NodeClass, and what they take from its types. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sawhorse_catalog.account import PlacementGroup
from sawhorse_catalog.aws import Unavailable
from sawhorse_catalog.aws.quotas import EVERY_CLASS, quota_class
from sawhorse_cloud.scopes import ANY, Scope, ScopeKind, parse_scope
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.resources import CPU

ScopedMark = tuple[str, str, str, str]
"""Capacity type, instance type, zone, scope. Type and zone may be `*`."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What of a NodeClass a scope can name: its subnets by zone, its placement group with the partitions."""

    subnets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    group: str = ""
    partitions: int = 0


def reach_of(node_class: EC2NodeClass | None, group: PlacementGroup | None) -> Reach:
    """The reach of a NodeClass; None, before any NodeClass, is reached by quotas only."""
    if node_class is None:
        return Reach()
    subnets: dict[str, set[str]] = defaultdict(set)
    for subnet in node_class.subnets:
        subnets[subnet.zone].add(subnet.id)
    return Reach(
        {zone: frozenset(ids) for zone, ids in subnets.items()},
        group.id if group is not None else "",
        group.partitions if group is not None else 0,
    )


def full_reservations(marks: Iterable[ScopedMark]) -> frozenset[str]:
    """Ids of the reservations that are used up, whatever their count says."""
    scopes = (parse_scope(mark[3]) for mark in marks)
    return frozenset(s.id for s in scopes if s is not None and s.kind is ScopeKind.RESERVATION)


def withheld(marks: Iterable[ScopedMark], reach: Reach, types: Sequence[InstanceType]) -> Unavailable:
    """The offerings that a NodeClass cannot have because of marks that apply to it.

    A zone is out once all of its subnets are, an offering of a placement group once all partitions are.

    Args:
        types: as the NodeClass sees them.
    """
    rules = _Rules.of(marks, reach)
    if rules.is_empty:
        return frozenset()
    return frozenset(
        (offering.capacity_type.value, kind.name, offering.zone)
        for kind in types
        for offering in kind.offerings
        if rules.take(kind, offering)
    )


@dataclass(frozen=True, slots=True)
class _Rules:
    zones: frozenset[str]
    offerings: frozenset[tuple[str, str, str]]  # with `*` for any type or zone
    quotas: Mapping[tuple[str, str], int]  # (capacity type, class) → vCPUs from which on there are none

    @classmethod
    def of(cls, marks: Iterable[ScopedMark], reach: Reach) -> "_Rules":
        full: set[str] = set()
        whole: set[tuple[str, str, str]] = set()
        partitions: dict[tuple[str, str, str], set[int]] = defaultdict(set)
        quotas: dict[tuple[str, str], int] = {}
        for capacity_type, name, zone, text in marks:
            match parse_scope(text):
                case Scope(ScopeKind.SUBNET, subnet):
                    full.add(subnet)
                case Scope(ScopeKind.GROUP, group, number) if group == reach.group and number:
                    partitions[capacity_type, name, zone].add(number)
                case Scope(ScopeKind.GROUP, group) if group == reach.group:
                    whole.add((capacity_type, name, zone))
                case Scope(ScopeKind.QUOTA, shared, number):
                    key = (capacity_type, shared)
                    quotas[key] = min(number, quotas.get(key, number))
                case _:
                    continue
        whole |= {key for key, numbers in partitions.items() if len(numbers) >= reach.partitions}
        zones = frozenset(zone for zone, ids in reach.subnets.items() if ids <= full)
        return cls(zones, frozenset(whole), quotas)

    @property
    def is_empty(self) -> bool:
        return not (self.zones or self.offerings or self.quotas)

    def take(self, kind: InstanceType, offering: Offering) -> bool:
        """Whether the offering is out."""
        word = offering.capacity_type.value
        if offering.zone in self.zones:
            return True
        if self.offerings and any(
            (word, name, zone) in self.offerings for name in (kind.name, ANY) for zone in (offering.zone, ANY)
        ):
            return True
        if not self.quotas or offering.capacity_type is CapacityType.RESERVED:
            return False
        if (word, EVERY_CLASS) in self.quotas:
            return True
        least = self.quotas.get((word, quota_class(kind.name)))
        return least is not None and kind.capacity.get(CPU, 0) >= least * 1000
