"""What a node of an instance type has, before anything is kept back: cpu in millicores, the rest in base units."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from sawhorse_catalog.aws.compatibility import architecture
from sawhorse_catalog.aws.families import CUSTOM, GIB
from sawhorse_catalog.aws.network import HOST_NETWORK_PODS, eni_limit, network_table
from sawhorse_catalog.aws.node_class import ClassView
from sawhorse_catalog.facts import Gpu, InstanceFacts
from sawhorse_model.aws import AMD_GPU, EFA, GAUDI, NEURON, NEURON_CORE, NVIDIA_GPU, POD_ENI
from sawhorse_model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

MIB = 2**20
DEFAULT_PODS = 110
# With prefixes addresses are plenty, and what the kubelet copes with is the limit: AWS recommends these two.
LARGE_PODS = 250
LARGE_VCPUS = 30
ADDRESSES_PER_PREFIX = 16
DEFAULT_EPHEMERAL = 20 * GIB
# EC2 reports more than a Graviton machine hands to its system.
_ARM64_FIRMWARE_MIB = 64
PRIVATE_IPV4 = "vpc.amazonaws.com/PrivateIPv4Address"
GPU_RESOURCES = {"nvidia": NVIDIA_GPU, "amd": AMD_GPU, "habana": GAUDI}


@dataclass(frozen=True, slots=True)
class Capacity:
    """`resources` without zero entries.

    `estimated_memory` is what memory would be had it not been measured: percentages of the kubelet refer to it.
    `reserve_pods` is the number of pods that the kubelet's own memory is counted for.
    """

    resources: dict[str, int]
    estimated_memory: int
    reserve_pods: int


def capacity(
    facts: InstanceFacts,
    view: ClassView,
    *,
    vm_memory_overhead_percent: float = 0.075,
    reserved_enis: int = 0,
    measured_memory: int | None = None,
    prefix_delegation: bool = False,
) -> Capacity:
    """The capacity of a type under a NodeClass.

    Args:
        vm_memory_overhead_percent: share of memory that the hypervisor and the kernel keep, as a fraction.
        reserved_enis: interfaces that pods never get.
        prefix_delegation: the network plugin gives pods addresses of whole prefixes.
        measured_memory: bytes that a real node of this type and image reported; it replaces the estimate.
    """
    cpu = vcpus(facts, view)
    estimate = memory_estimate(facts, vm_memory_overhead_percent)
    pods = pod_limit(facts, view, cpu, reserved_enis, prefix_delegation=prefix_delegation)
    found = {
        CPU: cpu * 1000,
        MEMORY: estimate if measured_memory is None else measured_memory,
        PODS: pods,
        EPHEMERAL_STORAGE: ephemeral_storage(facts, view),
        **gpus(facts.gpus),
        **_neuron(facts),
        POD_ENI: _branch_interfaces(facts),
        EFA: view.efa_only if view.interfaces else facts.network.efa_max_interfaces,
    }
    if view.family.is_windows and architecture(facts) == "amd64":
        found[PRIVATE_IPV4] = facts.network.ipv4_per_interface - 1
    reserve_pods = eni_limit(facts, view, 0) if view.family.reserve_by_eni_limit else pods
    return Capacity({name: amount for name, amount in found.items() if amount > 0}, estimate, reserve_pods)


def vcpus(facts: InstanceFacts, view: ClassView) -> int:
    """Virtual CPUs, lowered where the NodeClass asks for fewer cores or threads that the type can do."""
    if view.core_count is None and view.threads_per_core is None:
        return facts.vcpus
    threads = facts.threads_per_core or 1
    cores = facts.cores or max(facts.vcpus // threads, 1)
    if view.core_count in facts.valid_cores:
        cores = view.core_count or cores
    if view.threads_per_core in facts.valid_threads_per_core:
        threads = view.threads_per_core or threads
    return cores * threads


def memory_estimate(facts: InstanceFacts, overhead_percent: float) -> int:
    """Bytes of memory that the operating system is likely to see."""
    firmware = _ARM64_FIRMWARE_MIB if architecture(facts) == "arm64" else 0
    return guest_memory_mib(facts.memory_mib - firmware, overhead_percent) * MIB


def guest_memory_mib(mib: int, overhead_percent: float) -> int:
    """Memory less the machine's overhead, in MiB, the overhead rounded up."""
    share = _exact(overhead_percent)
    return mib - -(-mib * share.numerator // share.denominator)


@cache
def _exact(share: float) -> Fraction:
    # By its decimal text: as a binary float, 7.5 % of 8,000 MiB may come out a little over 600 and round to 601.
    return Fraction(str(share))


def pod_limit(
    facts: InstanceFacts, view: ClassView, cpus: int, reserved_enis: int, *, prefix_delegation: bool = False
) -> int:
    """How many pods the kubelet will take."""
    kubelet = view.kubelet
    if kubelet.max_pods is not None:
        pods = kubelet.max_pods
    elif view.family.eni_limited_pods:
        pods = eni_limit(facts, view, reserved_enis)
        if prefix_delegation and facts.hypervisor != "xen" and pods > HOST_NETWORK_PODS:
            addresses = (pods - HOST_NETWORK_PODS) * ADDRESSES_PER_PREFIX + HOST_NETWORK_PODS
            pods = min(addresses, DEFAULT_PODS if facts.vcpus <= LARGE_VCPUS else LARGE_PODS)
    else:
        pods = DEFAULT_PODS
    return capped_by_cores(pods, view, cpus)


def capped_by_cores(pods: int, view: ClassView, cpus: int) -> int:
    """Apply `podsPerCore` where the family knows it."""
    per_core = view.kubelet.pods_per_core or 0
    return min(pods, per_core * cpus) if per_core > 0 and view.family.pods_per_core else pods


def ephemeral_storage(facts: InstanceFacts, view: ClassView) -> int:
    """Bytes for container images, logs and emptyDir volumes."""
    if view.raid0 and facts.instance_storage is not None and facts.instance_storage.total_gb > 0:
        return facts.instance_storage.total_gb * 10**9
    devices = view.block_devices
    if devices:
        root = next((d.volume_size for d in devices if d.root and d.volume_size), None)
        if root:
            return root
        if view.family is CUSTOM:
            return devices[-1].volume_size or DEFAULT_EPHEMERAL
        named = (d.volume_size for d in devices if d.device_name == view.family.ephemeral_device)
        size = next((s for s in named if s), None)
        if size:
            return size
    return view.family.default_ephemeral or DEFAULT_EPHEMERAL


def gpus(entries: Iterable[Gpu]) -> dict[str, int]:
    """GPU resources by manufacturer. Those of other makers have no device plugin that we know."""
    found: dict[str, int] = {}
    for gpu in entries:
        resource = GPU_RESOURCES.get(gpu.manufacturer.lower())
        if resource:
            found[resource] = found.get(resource, 0) + gpu.count
    return found


def _neuron(facts: InstanceFacts) -> dict[str, int]:
    if not facts.neuron:
        return {}
    first = facts.neuron[0]
    return {NEURON: sum(n.count for n in facts.neuron), NEURON_CORE: first.count * first.cores_per_device}


def _branch_interfaces(facts: InstanceFacts) -> int:
    known = network_table().get(facts.name)
    return known.branch_interfaces if known is not None and known.trunking else 0
