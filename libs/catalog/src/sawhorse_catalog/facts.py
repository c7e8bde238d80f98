"""Raw facts about an instance type, as a cloud describes it, before any NodeClass.

The JSON form (one object a line in `data/ec2-instance-types.jsonl`, and in the published catalogue) uses the field
names given in `rename`. Source: DescribeInstanceTypes and DescribeInstanceTypeOfferings.
"""

import msgspec


class NetworkCard(msgspec.Struct, frozen=True, rename="camel"):
    """One network card. Bandwidth in Gbit/s."""

    index: int
    max_interfaces: int
    baseline_gbps: float | None = None
    peak_gbps: float | None = None


class Network(msgspec.Struct, frozen=True, rename="camel"):
    """Interfaces and addresses."""

    max_interfaces: int
    ipv4_per_interface: int = msgspec.field(name="ipv4PerInterface")
    ipv6: bool = False
    ena: str = "unsupported"
    encryption_in_transit: bool = False
    default_card: int = 0
    cards: tuple[NetworkCard, ...] = ()
    efa_max_interfaces: int = 0


class Ebs(msgspec.Struct, frozen=True, rename="camel"):
    """Block storage over the network. Bandwidth in Mbit/s."""

    optimized: str = "unsupported"
    max_mbps: int | None = None
    max_attachments: int | None = None
    attachment_limit: str | None = None


class InstanceStorage(msgspec.Struct, frozen=True, rename="camel"):
    """Local disks. Size in decimal GB."""

    total_gb: int = msgspec.field(name="totalGB")
    nvme: str = "unsupported"


class Gpu(msgspec.Struct, frozen=True, rename="camel"):
    """GPUs of one model."""

    name: str
    manufacturer: str
    count: int
    memory_mib: int = msgspec.field(name="memoryMiB", default=0)


class Accelerator(msgspec.Struct, frozen=True, rename="camel"):
    """Inference accelerators of one model."""

    name: str
    manufacturer: str
    count: int


class Neuron(msgspec.Struct, frozen=True, rename="camel"):
    """Neuron devices of one model."""

    name: str
    count: int
    cores_per_device: int
    memory_mib: int = msgspec.field(name="memoryMiB", default=0)


class InstanceFacts(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One instance type."""

    name: str
    architectures: tuple[str, ...]  # as EC2 names them: x86_64, arm64
    vcpus: int
    memory_mib: int = msgspec.field(name="memoryMiB")
    network: Network
    current_generation: bool = True
    usage_classes: tuple[str, ...] = ("on-demand",)
    virtualization: tuple[str, ...] = ()
    bare_metal: bool = False
    hypervisor: str | None = None  # None on bare metal
    cpu_manufacturer: str = ""
    clock_ghz: float | None = msgspec.field(name="clockGHz", default=None)
    processor_features: tuple[str, ...] = ()
    cores: int | None = None
    threads_per_core: int | None = None
    valid_cores: tuple[int, ...] = ()
    valid_threads_per_core: tuple[int, ...] = ()
    ebs: Ebs = Ebs()
    nitro_enclaves: str = "unsupported"
    placement_strategies: tuple[str, ...] = ()
    instance_storage: InstanceStorage | None = None
    gpus: tuple[Gpu, ...] = ()
    inference_accelerators: tuple[Accelerator, ...] = ()
    neuron: tuple[Neuron, ...] = ()
    zones: tuple[str, ...] = ()
    retired: bool = False  # EC2 lists it no more; kept for the nodes that still run on it
