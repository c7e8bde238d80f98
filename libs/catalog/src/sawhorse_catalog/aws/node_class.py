"""What resolution reads from an EC2NodeClass, in one frozen view.

Fields that only resolution needs are read from the spec as typed (`networkInterfaces`, `connectionTracking`, the core
counts of `cpuOptions`); the schema has checked them, so a value of another shape is ignored rather than refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sawhorse_catalog.account import PlacementGroup, Reservation
from sawhorse_catalog.aws.families import Family, family
from sawhorse_model.aws import BlockDevice, EC2NodeClass, Kubelet

DEFAULT_FAMILY = "AL2023"


@dataclass(frozen=True, slots=True)
class InterfaceRequest:
    """One entry of `spec.networkInterfaces`."""

    card: int
    device: int
    efa_only: bool = False


@dataclass(frozen=True, slots=True)
class ClassView:
    """One NodeClass as resolution sees it. The default is a NodeClass that asks for nothing special.

    `subnet_zones` maps zone to zone id where subnets are resolved; None where they are not known, so that every zone
    counts. `placement_missing`: it selects a placement group that is not known. `reservations` are those of its status,
    whose free instances the status does not tell.
    """

    family: Family = field(default_factory=lambda: family(DEFAULT_FAMILY))
    kubelet: Kubelet = field(default_factory=Kubelet)
    block_devices: tuple[BlockDevice, ...] = ()
    raid0: bool = False
    interfaces: tuple[InterfaceRequest, ...] = ()
    prefix_count: int = 0
    nested_virtualization: bool = False
    core_count: int | None = None
    threads_per_core: int | None = None
    connection_tracking: bool = False
    placement_strategy: str = ""
    placement_group: PlacementGroup | None = None
    placement_missing: bool = False
    reservations: tuple[Reservation, ...] = ()
    subnet_zones: Mapping[str, str] | None = None

    @property
    def efa_only(self) -> int:
        """How many interfaces are for EFA alone."""
        return sum(i.efa_only for i in self.interfaces)

    @property
    def efa_only_on_first_card(self) -> int:
        """Those of them that take a slot of card 0."""
        return sum(i.efa_only and i.card == 0 for i in self.interfaces)


def class_view(
    node_class: EC2NodeClass | None,
    *,
    require_subnets: bool = False,
    placement_strategy: str = "",
    placement_group: PlacementGroup | None = None,
) -> ClassView:
    """Read a NodeClass.

    Args:
        node_class: None for the defaults.
        require_subnets: a NodeClass without resolved subnets then has no zone at all, instead of all; one whose
            placement group is not known has no type, instead of all.
        placement_strategy: of the placement group that the NodeClass selects, once it is looked up.
        placement_group: the whole of it; it says the strategy too.
    """
    if placement_group is not None:
        placement_strategy = placement_group.strategy
    if node_class is None:
        return ClassView(placement_strategy=placement_strategy, placement_group=placement_group)
    spec = node_class.node_class.spec
    cpu = _mapping(spec.get("cpuOptions"))
    zones = {s.zone: s.zone_id for s in node_class.subnets if s.zone}
    return ClassView(
        family=family(node_class.ami_family),
        kubelet=node_class.kubelet,
        block_devices=node_class.block_devices,
        raid0=node_class.instance_store_policy == "RAID0",
        interfaces=_interfaces(spec.get("networkInterfaces")),
        prefix_count=_whole(spec.get("ipPrefixCount")) or 0,
        nested_virtualization=node_class.nested_virtualization == "enabled",
        core_count=_whole(cpu.get("coreCount")),
        threads_per_core=_whole(cpu.get("threadsPerCore")),
        connection_tracking=bool(_mapping(spec.get("connectionTracking"))),
        placement_strategy=placement_strategy,
        placement_group=placement_group,
        placement_missing=require_subnets and bool(placement_selector(node_class)) and not placement_strategy,
        reservations=reservations_of(node_class),
        subnet_zones=zones if zones or require_subnets else None,
    )


def placement_selector(node_class: EC2NodeClass) -> Mapping[str, Any]:
    """`spec.placementGroupSelector`; empty without one."""
    return _mapping(node_class.node_class.spec.get("placementGroupSelector"))


def reservations_of(node_class: EC2NodeClass) -> tuple[Reservation, ...]:
    """The capacity reservations of a NodeClass's status. How many instances of each are free is not told there."""
    entries = node_class.node_class.status.get("capacityReservations")
    if not isinstance(entries, list | tuple):
        return ()
    return tuple(
        Reservation(
            id=str(entry.get("id", "")),
            instance_type=str(entry.get("instanceType", "")),
            zone=str(entry.get("availabilityZone", "")),
            kind=str(entry.get("reservationType") or "default"),
            match=str(entry.get("instanceMatchCriteria") or "targeted"),
            interruptible=entry.get("interruptible") is True,
            expiring=entry.get("state") == "expiring",
            owner=str(entry.get("ownerID", "")),
            end=str(entry.get("endTime") or ""),
        )
        for entry in entries
        if isinstance(entry, Mapping) and entry.get("id")
    )


def _interfaces(value: Any) -> tuple[InterfaceRequest, ...]:
    if not isinstance(value, list | tuple):
        return ()
    return tuple(
        InterfaceRequest(
            card=_whole(entry.get("networkCardIndex")) or 0,
            device=_whole(entry.get("deviceIndex")) or 0,
            efa_only=entry.get("interfaceType") == "efa-only",
        )
        for entry in value
        if isinstance(entry, Mapping)
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
