"""The labels that a node of an instance type will carry, as requirements.

One value where it is certain, several where launch decides (zone, capacity type, tenancy), DoesNotExist for facts that
the type does not have.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from sawhorse_catalog.account import PlacementGroup, Reservation
from sawhorse_catalog.aws.compatibility import architecture
from sawhorse_catalog.aws.network import network_table
from sawhorse_catalog.aws.node_class import ClassView
from sawhorse_catalog.facts import Gpu, InstanceFacts
from sawhorse_model import aws, labels
from sawhorse_model.instances import CapacityType, requirement_in
from sawhorse_model.requirements import Requirement, Requirements

_NAME = re.compile(r"([a-z]+)(?:-[0-9]+tb)?([0-9]+).*\.")
CAPACITY_TYPES = {"on-demand": CapacityType.ON_DEMAND, "spot": CapacityType.SPOT}
TENANCIES = ("default", "dedicated")


@lru_cache(maxsize=65536)
def _allowed(key: str, *values: str) -> Requirement:
    # Equal ones are one object: a catalogue repeats most of them, and building them is half of the cold time.
    return requirement_in(key, values)


# The facts that every catalogue answers for: absent means that the type has no such thing.
ABSENT: Mapping[str, Requirement] = {
    key: requirement_in(key, ())
    for key in sorted((aws.OWN_LABELS | {labels.ARCH, labels.WINDOWS_BUILD}) - {aws.ZONE_ID})
}


def name_labels(name: str) -> dict[str, str]:
    """What a type's name says: category and generation, family and size, flex."""
    found: dict[str, str] = {}
    match = _NAME.match(name)
    if match:
        found[aws.CATEGORY], found[aws.GENERATION] = match.groups()
    family, dot, size = name.partition(".")
    if dot and "." not in size:
        found[aws.FAMILY], found[aws.SIZE] = family, size
    found[aws.INSTANCE_FLEX] = "true" if "-flex" in family else "false"
    return found


def gpu_labels(gpus: Iterable[Gpu]) -> dict[str, str]:
    """The GPU labels, which can describe one model only: none with several."""
    entries = tuple(gpus)
    if len(entries) != 1:
        return {}
    gpu = entries[0]
    return {
        aws.GPU_NAME: kebab(gpu.name),
        aws.GPU_MANUFACTURER: kebab(gpu.manufacturer),
        aws.GPU_COUNT: str(gpu.count),
        aws.GPU_MEMORY: str(gpu.memory_mib),
    }


def kebab(text: str) -> str:
    """Lower case, blanks as dashes."""
    return text.lower().replace(" ", "-")


def fact_labels(facts: InstanceFacts) -> dict[str, str]:
    """The labels with one value that follow from the facts alone."""
    found = {
        labels.INSTANCE_TYPE: facts.name,
        **name_labels(facts.name),
        aws.INSTANCE_CPU: str(facts.vcpus),
        aws.INSTANCE_MEMORY: str(facts.memory_mib),
        aws.INSTANCE_HYPERVISOR: facts.hypervisor or "",
        aws.INSTANCE_ENCRYPTION: _word(facts.network.encryption_in_transit),
        aws.NITRO_SANDBOX: _word(facts.nitro_enclaves == "supported"),
        **gpu_labels(facts.gpus),
        **_accelerator_labels(facts),
    }
    arch = architecture(facts)
    if arch:
        found[labels.ARCH] = arch
    if facts.cpu_manufacturer:
        found[aws.INSTANCE_CPU_MANUFACTURER] = kebab(facts.cpu_manufacturer)
    if facts.clock_ghz is not None:
        found[aws.INSTANCE_CPU_SPEED] = str(round(facts.clock_ghz * 1000))
    if facts.ebs.optimized == "default" and facts.ebs.max_mbps is not None:
        found[aws.INSTANCE_EBS_BANDWIDTH] = str(facts.ebs.max_mbps)
    network = network_table().get(facts.name)
    if network is not None and network.bandwidth_mbps is not None:
        found[aws.INSTANCE_NETWORK_BANDWIDTH] = str(network.bandwidth_mbps)
    storage = facts.instance_storage
    if storage is not None and storage.nvme in ("supported", "required"):
        found[aws.INSTANCE_LOCAL_NVME] = str(storage.total_gb)
    return found


def _accelerator_labels(facts: InstanceFacts) -> dict[str, str]:
    if facts.neuron:
        if len(facts.neuron) != 1:
            return {}
        name, maker, count = facts.neuron[0].name, "aws", facts.neuron[0].count
    elif len(facts.inference_accelerators) == 1:
        entry = facts.inference_accelerators[0]
        name, maker, count = entry.name, entry.manufacturer, entry.count
    else:
        return {}
    return {
        aws.ACCELERATOR_NAME: kebab(name),
        aws.ACCELERATOR_MANUFACTURER: kebab(maker),
        aws.ACCELERATOR_COUNT: str(count),
    }


def _word(value: bool) -> str:
    return "true" if value else "false"


def capacity_types(facts: InstanceFacts) -> tuple[CapacityType, ...]:
    """How the type can be bought: on-demand, spot or both."""
    return tuple(kind for word, kind in CAPACITY_TYPES.items() if word in facts.usage_classes)


def operating_systems(facts: InstanceFacts, view: ClassView) -> tuple[str, ...]:
    """What a node of it runs: Windows images exist for amd64 only."""
    if not view.family.is_windows:
        return ("linux",)
    return ("windows",) if architecture(facts) == "amd64" else ()


def account_labels(reservations: Sequence[Reservation], group: PlacementGroup | None) -> dict[str, tuple[str, ...]]:
    """Labels of the reservations that a type can be launched into, and of the placement group of its NodeClass."""
    found: dict[str, tuple[str, ...]] = {}
    if reservations:
        found[aws.RESERVATION_ID] = tuple(r.id for r in reservations)
        found[aws.RESERVATION_TYPE] = tuple(sorted({r.kind for r in reservations}))
        found[aws.RESERVATION_INTERRUPTIBLE] = tuple(sorted({_word(r.interruptible) for r in reservations}))
    if group is not None:
        found[aws.PLACEMENT_GROUP_ID] = (group.id,)
        if group.partitions:
            found[aws.PLACEMENT_GROUP_PARTITION] = tuple(str(n) for n in range(1, group.partitions + 1))
    return found


def requirements(
    single: Mapping[str, str],
    *,
    zones: Iterable[str],
    zone_ids: Iterable[str],
    capacity_types: Iterable[CapacityType],
    operating_systems: Iterable[str],
    region: str = "",
    windows_build: str = "",
    tenancies: Iterable[str] = TENANCIES,
    account: Mapping[str, Iterable[str]] | None = None,
) -> Requirements:
    """Put a type's requirements together: `single` are labels with one value, the rest may have several.

    Args:
        account: labels that come of the account's own reservations and placement groups.
    """
    found = dict(ABSENT)
    for key, value in single.items():
        found[key] = _allowed(key, value)
    many = {
        labels.ZONE: zones,
        labels.CAPACITY_TYPE: (kind.value for kind in capacity_types),
        labels.OS: operating_systems,
        aws.TENANCY: tenancies,
        **(account or {}),
    }
    for key, values in many.items():
        found[key] = _allowed(key, *values)
    ids = tuple(zone_id for zone_id in zone_ids if zone_id)
    if ids:
        found[aws.ZONE_ID] = _allowed(aws.ZONE_ID, *ids)
    if region:
        found[labels.REGION] = _allowed(labels.REGION, region)
    if windows_build:
        found[labels.WINDOWS_BUILD] = _allowed(labels.WINDOWS_BUILD, windows_build)
    return Requirements(found.values())
