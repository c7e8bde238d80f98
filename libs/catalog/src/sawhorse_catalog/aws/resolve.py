"""Raw facts, a NodeClass, prices and what is out of capacity in; the instance types of that NodeClass out. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sawhorse_catalog.account import PlacementGroup
from sawhorse_catalog.aws import labels
from sawhorse_catalog.aws.capacity import capacity
from sawhorse_catalog.aws.compatibility import incompatibility
from sawhorse_catalog.aws.node_class import ClassView, class_view
from sawhorse_catalog.aws.offerings import Unavailable, offerings, reservations_for, with_free
from sawhorse_catalog.aws.overhead import allocatable
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_catalog.prices import PriceBook
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.instances import CapacityType, InstanceType


@dataclass(frozen=True, slots=True)
class ResolveSettings:
    """What a cluster's operator sets for all NodeClasses.

    `prefix_delegation`: the network plugin gives out prefixes, so that pods are not limited by single addresses.
    `require_subnets`: a NodeClass without resolved subnets has no zone (live) instead of all (offline).
    """

    vm_memory_overhead_percent: float = 0.075
    reserved_enis: int = 0
    require_subnets: bool = False
    prefix_delegation: bool = False


@dataclass(frozen=True, slots=True)
class Resolution:
    """The instance types of a NodeClass, in the order of the facts.

    `excluded` says why a type cannot be used: one that the NodeClass rules out stays in `instance_types` with all its
    offerings unavailable; one whose facts make no sense is only here.
    """

    instance_types: tuple[InstanceType, ...]
    excluded: Mapping[str, str] = field(default_factory=dict)


def resolve(
    facts: Sequence[InstanceFacts],
    node_class: EC2NodeClass | None,
    prices: PriceBook,
    *,
    region: str,
    zones: Mapping[str, str],
    unavailable: Unavailable = frozenset(),
    settings: ResolveSettings | None = None,
    measured_memory: Mapping[str, int] | None = None,
    placement_strategy: str = "",
    placement_group: PlacementGroup | None = None,
    free: Mapping[str, int] | None = None,
) -> Resolution:
    """Resolve all types for one NodeClass. One type that makes no sense never fails the others.

    Args:
        node_class: None for a NodeClass with defaults (AL2023, every zone).
        region: the value of `topology.kubernetes.io/region`.
        zones: zone name → zone id of the region; ids may be empty.
        unavailable: (capacity type, instance type, zone) that are out of capacity now.
        measured_memory: type → bytes that real nodes of this NodeClass's images reported.
        placement_strategy: of the placement group that the NodeClass selects, once it is looked up.
        placement_group: that group, with its partitions.
        free: reservation id → instances that are free; of one that is not named none is.
    """
    options = settings or ResolveSettings()
    view = class_view(
        node_class,
        require_subnets=options.require_subnets,
        placement_strategy=placement_strategy,
        placement_group=placement_group,
    )
    if view.reservations:
        view = replace(view, reservations=with_free(view.reservations, free or {}))
    types: list[InstanceType] = []
    excluded: dict[str, str] = {}
    for fact in facts:
        try:
            reason = incompatibility(fact, view)
            types.append(
                _resolve_one(
                    fact,
                    view,
                    prices,
                    region=region,
                    zones=zones,
                    unavailable=unavailable,
                    options=options,
                    measured=(measured_memory or {}).get(fact.name),
                    compatible=not reason,
                )
            )
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            reason = f"its facts make no sense: {error}"
        if reason:
            excluded[fact.name] = reason
    return Resolution(tuple(types), excluded)


def _resolve_one(
    facts: InstanceFacts,
    view: ClassView,
    prices: PriceBook,
    *,
    region: str,
    zones: Mapping[str, str],
    unavailable: Unavailable,
    options: ResolveSettings,
    measured: int | None,
    compatible: bool,
) -> InstanceType:
    has = capacity(
        facts,
        view,
        vm_memory_overhead_percent=options.vm_memory_overhead_percent,
        reserved_enis=options.reserved_enis,
        measured_memory=measured,
        prefix_delegation=options.prefix_delegation,
    )
    subnets = view.subnet_zones
    reachable = [zone for zone in facts.zones if subnets is None or zone in subnets]
    mine = reservations_for(facts, view) if view.reservations else ()
    bought = labels.capacity_types(facts)
    ids = [(subnets.get(zone, "") if subnets is not None else "") or zones.get(zone, "") for zone in reachable]
    return InstanceType(
        name=facts.name,
        requirements=labels.requirements(
            labels.fact_labels(facts),
            zones=reachable,
            zone_ids=ids,
            capacity_types=(*bought, CapacityType.RESERVED) if mine else bought,
            operating_systems=labels.operating_systems(facts, view),
            region=region,
            windows_build=view.family.windows_build if labels.operating_systems(facts, view) else "",
            account=labels.account_labels(mine, view.placement_group),
        ),
        offerings=offerings(facts, view, prices, zones=zones, unavailable=unavailable, compatible=compatible),
        capacity=has.resources,
        allocatable=allocatable(
            has.resources,
            estimated_memory=has.estimated_memory,
            reserve_pods=has.reserve_pods,
            kubelet=view.kubelet,
        ),
    )
