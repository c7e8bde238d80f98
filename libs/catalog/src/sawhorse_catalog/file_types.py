"""From an entry of a catalogue file to an instance type: what the file does not say follows from name and figures.

Pure: the reading of the file is in `files`. An entry's own `labels`, `capacity` and `allocatable` always win.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import msgspec

from sawhorse_catalog.aws import labels as aws_labels
from sawhorse_catalog.aws.capacity import (
    DEFAULT_PODS,
    GPU_RESOURCES,
    MIB,
    capacity,
    capped_by_cores,
    gpus,
    vcpus,
)
from sawhorse_catalog.aws.compatibility import ARCHITECTURES, incompatibility
from sawhorse_catalog.aws.node_class import ClassView, class_view
from sawhorse_catalog.aws.offerings import is_usable
from sawhorse_catalog.aws.overhead import allocatable
from sawhorse_catalog.aws.resolve import Resolution, ResolveSettings
from sawhorse_catalog.builtin import builtin_facts
from sawhorse_catalog.facts import Gpu, InstanceFacts, Network
from sawhorse_model import aws, labels
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.instances import CapacityType, InstanceType, Offering, requirement_in
from sawhorse_model.requirements import Requirements
from sawhorse_model.resources import CPU, MEMORY, PODS

_ZONE = re.compile(r"([a-z]{2,}(?:-[a-z]+)+-[0-9]+)(?:-[a-z]+-[0-9]+)?[a-z]")
_UNKNOWN_NETWORK = Network(max_interfaces=0, ipv4_per_interface=0)
_EC2_ARCHITECTURES = {kubernetes: ec2 for ec2, kubernetes in ARCHITECTURES.items()}


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One entry as the file gives it; None and empty mean not given. Resources: cpu in millicores, else base units."""

    name: str
    architecture: str
    operating_systems: tuple[str, ...]
    offerings: tuple[Offering, ...]
    vcpus: int | None = None
    memory_mib: int | None = None
    capacity: Mapping[str, int] | None = None
    allocatable: Mapping[str, int] | None = None
    labels: Mapping[str, str] | None = None
    features: tuple[str, ...] = ()
    valid_cores: tuple[int, ...] = ()
    gpus: tuple[Gpu, ...] = ()


def resolve_entries(
    entries: Iterable[FileEntry], node_class: EC2NodeClass | None, settings: ResolveSettings | None = None
) -> Resolution:
    """The entries as instance types under a NodeClass (None: one with defaults)."""
    options = settings or ResolveSettings()
    view = class_view(node_class, require_subnets=options.require_subnets)
    types: list[InstanceType] = []
    excluded: dict[str, str] = {}
    for entry in entries:
        reason = incompatibility(_facts(entry), view)
        if reason:
            excluded[entry.name] = reason
        types.append(_instance_type(entry, view, options, compatible=not reason))
    return Resolution(tuple(types), excluded)


def _instance_type(entry: FileEntry, view: ClassView, options: ResolveSettings, *, compatible: bool) -> InstanceType:
    has, left = _resources(entry, view, options)
    subnets = view.subnet_zones
    # A NodeClass that says which reservations it has uses those; without a word of it, all of the file.
    held = {r.id for r in view.reservations if is_usable(r)} if view.reservations else None
    return InstanceType(
        name=entry.name,
        requirements=_requirements(entry, view, has),
        offerings=tuple(
            replace(
                o,
                available=o.available
                and compatible
                and (subnets is None or o.zone in subnets)
                and (held is None or not o.reservation_id or o.reservation_id in held),
            )
            for o in entry.offerings
        ),
        capacity=has,
        allocatable=left,
    )


def _resources(entry: FileEntry, view: ClassView, options: ResolveSettings) -> tuple[dict[str, int], dict[str, int]]:
    """Capacity and allocatable."""
    given = dict(entry.capacity or {})
    if entry.allocatable is not None:
        left = {**gpus(entry.gpus), **entry.allocatable}
        return {**left, **given}, left
    facts = _facts(entry)
    computed = capacity(
        facts,
        view,
        vm_memory_overhead_percent=options.vm_memory_overhead_percent,
        reserved_enis=options.reserved_enis,
    )
    has = {**computed.resources, **given}
    cpus = vcpus(facts, view)
    if cpus != facts.vcpus:  # cpuOptions take cores away, whatever the file says the whole machine has
        has[CPU] = computed.resources[CPU]
    estimate = has[MEMORY] if entry.memory_mib is None else computed.estimated_memory
    reserve_pods = computed.reserve_pods
    if facts.network is _UNKNOWN_NETWORK or PODS in given:
        limit = given.get(PODS, DEFAULT_PODS)
        most = view.kubelet.max_pods
        has[PODS] = capped_by_cores(limit if most is None else most, view, cpus)
        reserve_pods = limit if view.family.reserve_by_eni_limit else has[PODS]
    has = {name: amount for name, amount in has.items() if amount > 0}
    return has, allocatable(has, estimated_memory=estimate, reserve_pods=reserve_pods, kubelet=view.kubelet)


def _facts(entry: FileEntry) -> InstanceFacts:
    """The entry as facts, as far as it has them; a name that EC2 knows brings what the file cannot say."""
    given = entry.capacity or entry.allocatable or {}
    cpus = entry.vcpus if entry.vcpus is not None else -(-given.get(CPU, 0) // 1000)
    memory = entry.memory_mib if entry.memory_mib is not None else given.get(MEMORY, 0) // MIB
    threads = max(cpus // max(entry.valid_cores), 1) if entry.valid_cores else 1
    facts = InstanceFacts(
        name=entry.name,
        architectures=(_EC2_ARCHITECTURES.get(entry.architecture, entry.architecture),),
        vcpus=cpus,
        memory_mib=memory,
        network=_UNKNOWN_NETWORK,
        processor_features=entry.features,
        threads_per_core=threads,
        valid_cores=entry.valid_cores,
        valid_threads_per_core=tuple(range(1, threads + 1)) if entry.valid_cores else (),
        gpus=entry.gpus,
    )
    known = _known_types().get(entry.name)
    if known is None:
        return facts
    return msgspec.structs.replace(
        facts,
        network=known.network,
        hypervisor=known.hypervisor,
        processor_features=entry.features or known.processor_features,
        threads_per_core=threads if entry.valid_cores else known.threads_per_core,
        valid_cores=entry.valid_cores or known.valid_cores,
        valid_threads_per_core=known.valid_threads_per_core,
        placement_strategies=known.placement_strategies,
    )


@cache
def _known_types() -> Mapping[str, InstanceFacts]:
    return {facts.name: facts for facts in builtin_facts()}


def _requirements(entry: FileEntry, view: ClassView, has: Mapping[str, int]) -> Requirements:
    zones = tuple(dict.fromkeys(o.zone for o in entry.offerings))
    subnets = view.subnet_zones
    reachable = [z for z in zones if subnets is None or z in subnets]
    zone_ids = {o.zone: o.zone_id for o in entry.offerings if o.zone_id}
    ids = [(subnets or {}).get(z, "") or zone_ids.get(z, "") for z in reachable]
    kinds = [kind for kind in CapacityType if any(o.capacity_type is kind for o in entry.offerings)]
    given = {labels.normalize(key): value for key, value in (entry.labels or {}).items()}
    described = aws_labels.requirements(
        {**_derived(entry, has), **given},
        zones=reachable,
        zone_ids=ids,
        capacity_types=kinds,
        operating_systems=entry.operating_systems,
        region=_region(zones),
        windows_build=view.family.windows_build if "windows" in entry.operating_systems else "",
    )
    # A label that the file gives stands, even one that is derived from offerings.
    fixed = [requirement_in(key, (value,)) for key, value in given.items()]
    reservations = sorted({o.reservation_id for o in entry.offerings if o.reservation_id})
    if reservations and aws.RESERVATION_ID not in given:
        fixed.append(requirement_in(aws.RESERVATION_ID, reservations))
    return Requirements((*described.without(*(r.key for r in fixed)).values(), *fixed))


def _derived(entry: FileEntry, has: Mapping[str, int]) -> dict[str, str]:
    memory = entry.memory_mib if entry.memory_mib is not None else has.get(MEMORY, 0) // MIB
    cpus = entry.vcpus if entry.vcpus is not None else -(-has.get(CPU, 0) // 1000)
    return {
        labels.INSTANCE_TYPE: entry.name,
        labels.ARCH: entry.architecture,
        **aws_labels.name_labels(entry.name),
        aws.INSTANCE_CPU: str(cpus),
        aws.INSTANCE_MEMORY: str(memory),
        **(aws_labels.gpu_labels(entry.gpus) if entry.gpus else _counted_gpus(has)),
    }


def _counted_gpus(has: Mapping[str, int]) -> dict[str, str]:
    """What the resources say about GPUs whose model the file does not name."""
    found = {maker: has[resource] for maker, resource in GPU_RESOURCES.items() if has.get(resource, 0) > 0}
    if len(found) != 1:
        return {}
    maker, count = next(iter(found.items()))
    return {aws.GPU_MANUFACTURER: maker, aws.GPU_COUNT: str(count)}


def _region(zones: Iterable[str]) -> str:
    """The region that all zones belong to, where their names say so."""
    matches = [_ZONE.fullmatch(zone) for zone in zones]
    names = {match[1] if match else "" for match in matches}
    return names.pop() if len(names) == 1 else ""
