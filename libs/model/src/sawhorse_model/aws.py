"""EC2NodeClass, karpenter.k8s.aws/v1, and the labels, resources and annotations that only AWS has.

`parse_ec2_node_class` reads the neutral NodeClass's spec and status into typed data with the API's defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sawhorse_model import labels
from sawhorse_model.instances import AttachEstimate
from sawhorse_model.manifests import fields
from sawhorse_model.manifests.fields import ManifestError, Raw
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.quantity import QuantityError, whole
from sawhorse_model.requirements import RequirementSpec

GROUP = "karpenter.k8s.aws"
KIND = "EC2NodeClass"

NODECLASS_LABEL = f"{GROUP}/ec2nodeclass"
NODECLASS_HASH = f"{GROUP}/ec2nodeclass-hash"
NODECLASS_HASH_VERSION = f"{GROUP}/ec2nodeclass-hash-version"
NODECLASS_FINALIZER = f"{GROUP}/termination"
TAGGED = f"{GROUP}/tagged"
CLUSTER_NAME_TAGGED = "compatibility.karpenter.k8s.aws/cluster-name-tagged"
INSTANCE_PROFILE_ANNOTATION = f"{GROUP}/instance-profile-name"
ZONE_ID = "topology.k8s.aws/zone-id"

CATEGORY = f"{GROUP}/instance-category"
FAMILY = f"{GROUP}/instance-family"
GENERATION = f"{GROUP}/instance-generation"
SIZE = f"{GROUP}/instance-size"
INSTANCE_CPU = f"{GROUP}/instance-cpu"
INSTANCE_CPU_MANUFACTURER = f"{GROUP}/instance-cpu-manufacturer"
INSTANCE_CPU_SPEED = f"{GROUP}/instance-cpu-sustained-clock-speed-mhz"
INSTANCE_MEMORY = f"{GROUP}/instance-memory"
INSTANCE_EBS_BANDWIDTH = f"{GROUP}/instance-ebs-bandwidth"
INSTANCE_NETWORK_BANDWIDTH = f"{GROUP}/instance-network-bandwidth"
INSTANCE_FLEX = f"{GROUP}/instance-capability-flex"
INSTANCE_LOCAL_NVME = f"{GROUP}/instance-local-nvme"
INSTANCE_HYPERVISOR = f"{GROUP}/instance-hypervisor"
INSTANCE_ENCRYPTION = f"{GROUP}/instance-encryption-in-transit-supported"
NITRO_SANDBOX = f"{GROUP}/nitro-sandbox"
GPU_NAME = f"{GROUP}/instance-gpu-name"
GPU_MANUFACTURER = f"{GROUP}/instance-gpu-manufacturer"
GPU_COUNT = f"{GROUP}/instance-gpu-count"
GPU_MEMORY = f"{GROUP}/instance-gpu-memory"
ACCELERATOR_NAME = f"{GROUP}/instance-accelerator-name"
ACCELERATOR_MANUFACTURER = f"{GROUP}/instance-accelerator-manufacturer"
ACCELERATOR_COUNT = f"{GROUP}/instance-accelerator-count"
TENANCY = f"{GROUP}/instance-tenancy"
RESERVATION_ID = f"{GROUP}/capacity-reservation-id"
RESERVATION_TYPE = f"{GROUP}/capacity-reservation-type"
RESERVATION_INTERRUPTIBLE = f"{GROUP}/capacity-reservation-interruptible"
RESERVATION_LABELS = (RESERVATION_ID, RESERVATION_TYPE, RESERVATION_INTERRUPTIBLE)
PLACEMENT_GROUP_ID = f"{GROUP}/placement-group-id"
PLACEMENT_GROUP_PARTITION = f"{GROUP}/placement-group-partition"

# AWS's own labels of instance types; one that a type lacks is DoesNotExist.
OWN_LABELS: frozenset[str] = frozenset(
    {
        ZONE_ID, CATEGORY, FAMILY, GENERATION, SIZE, INSTANCE_CPU, INSTANCE_CPU_MANUFACTURER, INSTANCE_CPU_SPEED,
        INSTANCE_MEMORY, INSTANCE_EBS_BANDWIDTH, INSTANCE_NETWORK_BANDWIDTH, INSTANCE_FLEX, INSTANCE_LOCAL_NVME,
        INSTANCE_HYPERVISOR, INSTANCE_ENCRYPTION, NITRO_SANDBOX, GPU_NAME, GPU_MANUFACTURER, GPU_COUNT, GPU_MEMORY,
        ACCELERATOR_NAME, ACCELERATOR_MANUFACTURER, ACCELERATOR_COUNT, TENANCY, RESERVATION_ID, RESERVATION_TYPE,
        RESERVATION_INTERRUPTIBLE, PLACEMENT_GROUP_ID, PLACEMENT_GROUP_PARTITION,
    },
)  # fmt: skip
# What the catalogue defines: a NodePool need not name these for pods to ask for them.
WELL_KNOWN: frozenset[str] = labels.WELL_KNOWN | OWN_LABELS

NVIDIA_GPU = "nvidia.com/gpu"
AMD_GPU = "amd.com/gpu"
GAUDI = "habana.ai/gaudi"
NEURON = "aws.amazon.com/neuron"
NEURON_CORE = "aws.amazon.com/neuroncore"
POD_ENI = "vpc.amazonaws.com/pod-eni"
EFA = "vpc.amazonaws.com/efa"

EBS_DRIVER = "ebs.csi.aws.com"
# On Nitro 28 attachments in all, of which the root volume and network interfaces take some; at or below what the EBS
# driver reports for the usual types.
ATTACHMENTS = (
    AttachEstimate(
        EBS_DRIVER,
        25,
        instead=((INSTANCE_HYPERVISOR, "xen", 38),),
        minus_if=((INSTANCE_LOCAL_NVME, 2),),
        minus_number=(GPU_COUNT,),
    ),
)

CLOSED_VALUES: Mapping[str, frozenset[str]] = {
    labels.CAPACITY_TYPE: frozenset({"spot", "on-demand", "reserved"}),
    TENANCY: frozenset({"default", "dedicated"}),
}

# Bare machines are dear, slow to start and rarely meant: for those who name them.
EXOTIC_LABELS = (("karpenter.k8s.aws/instance-size", "metal"),)
HINTS: Mapping[str, str] = {
    "ephemeral-storage": "raise volumeSize in the NodeClass's blockDeviceMappings, "
    "or let local disks count with instanceStorePolicy: RAID0",
}

ALIAS_FAMILIES: Mapping[str, str] = {
    "al2": "AL2",
    "al2023": "AL2023",
    "bottlerocket": "Bottlerocket",
    "windows2019": "Windows2019",
    "windows2022": "Windows2022",
    "windows2025": "Windows2025",
}


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One of several OR-ed selectors; the fields of one are AND-ed. Unused fields are empty."""

    tags: Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    name: str = ""
    owner: str = ""
    alias: str = ""
    ssm_parameter: str = ""


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A volume of each instance. Size in bytes; None: the snapshot decides."""

    device_name: str
    root: bool = False
    volume_size: int | None = None
    volume_type: str = ""
    iops: int | None = None
    throughput: int | None = None
    encrypted: bool | None = None
    delete_on_termination: bool | None = None
    kms_key_id: str = ""
    snapshot_id: str = ""


@dataclass(frozen=True, slots=True)
class MetadataOptions:
    """How an instance may read its own metadata."""

    http_endpoint: str = "enabled"
    http_protocol_ipv6: str = "disabled"
    hop_limit: int = 1
    http_tokens: str = "required"


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The kubelet settings that planning reads; `raw` is the whole object as typed."""

    max_pods: int | None = None
    pods_per_core: int | None = None
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: Mapping[str, str] = field(default_factory=dict)
    cluster_dns: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subnet:
    """A resolved subnet."""

    id: str
    zone: str
    zone_id: str = ""


@dataclass(frozen=True, slots=True)
class SecurityGroup:
    """A resolved security group."""

    id: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Ami:
    """A resolved machine image; `requirements` say which types boot it."""

    id: str
    name: str = ""
    deprecated: bool = False
    requirements: tuple[RequirementSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class EC2NodeClass:
    """An EC2NodeClass, spec and status. `ami_family` is the resolved one: the field, else the alias's, else Custom."""

    node_class: NodeClass
    subnet_terms: tuple[SelectorTerm, ...] = ()
    security_group_terms: tuple[SelectorTerm, ...] = ()
    ami_terms: tuple[SelectorTerm, ...] = ()
    ami_family: str = "Custom"
    role: str = ""
    instance_profile: str = ""
    user_data: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    kubelet: Kubelet = field(default_factory=Kubelet)
    block_devices: tuple[BlockDevice, ...] = ()
    instance_store_policy: str = ""
    detailed_monitoring: bool = False
    metadata_options: MetadataOptions = field(default_factory=MetadataOptions)
    associate_public_ip: bool | None = None
    context: str = ""
    nested_virtualization: str = ""
    subnets: tuple[Subnet, ...] = ()
    security_groups: tuple[SecurityGroup, ...] = ()
    amis: tuple[Ami, ...] = ()
    resolved_profile: str = ""

    @property
    def name(self) -> str:
        """The object's name."""
        return self.node_class.meta.name

    @property
    def alias(self) -> str:
        """The AMI alias, e.g. `al2023@latest`; empty without one."""
        return next((t.alias for t in self.ami_terms if t.alias), "")


def _terms(spec: Raw, key: str) -> tuple[SelectorTerm, ...]:
    path = f"spec.{key}"
    return tuple(
        SelectorTerm(
            tags=fields.string_map(t, "tags", f"{path}[{i}]"),
            id=fields.text(t, "id", f"{path}[{i}]"),
            name=fields.text(t, "name", f"{path}[{i}]"),
            owner=fields.text(t, "owner", f"{path}[{i}]") or fields.text(t, "ownerID", f"{path}[{i}]"),
            alias=fields.text(t, "alias", f"{path}[{i}]"),
            ssm_parameter=fields.text(t, "ssmParameter", f"{path}[{i}]"),
        )
        for i, t in enumerate(fields.items(spec, key, "spec"))
    )


def _optional_int(raw: Raw, key: str, path: str) -> int | None:
    return fields.integer(raw, key, path) if raw.get(key) is not None else None


def _reserved(raw: Raw, key: str) -> dict[str, str]:
    # Quantities and percentages as typed; YAML may read `1` as a number.
    return {name: str(value) for name, value in fields.mapping(raw, key, "spec.kubelet").items()}


def _kubelet(spec: Raw) -> Kubelet:
    raw = fields.mapping(spec, "kubelet", "spec")
    return Kubelet(
        max_pods=_optional_int(raw, "maxPods", "spec.kubelet"),
        pods_per_core=_optional_int(raw, "podsPerCore", "spec.kubelet"),
        system_reserved=_reserved(raw, "systemReserved"),
        kube_reserved=_reserved(raw, "kubeReserved"),
        eviction_hard=_reserved(raw, "evictionHard"),
        cluster_dns=fields.texts(raw, "clusterDNS", "spec.kubelet"),
        raw=raw,
    )


def _block_devices(spec: Raw) -> tuple[BlockDevice, ...]:
    devices = []
    for index, entry in enumerate(fields.items(spec, "blockDeviceMappings", "spec")):
        path = f"spec.blockDeviceMappings[{index}]"
        ebs = fields.mapping(entry, "ebs", path)
        size = fields.text(ebs, "volumeSize", f"{path}.ebs")
        try:
            volume_size = whole(size) if size else None
        except QuantityError as error:
            raise ManifestError(f"{path}.ebs.volumeSize", str(error)) from error
        if volume_size is not None and volume_size < 0:
            raise ManifestError(f"{path}.ebs.volumeSize", f"{size!r} is negative; a volume has a size")
        devices.append(
            BlockDevice(
                device_name=fields.text(entry, "deviceName", path),
                root=bool(entry.get("rootVolume")),
                volume_size=volume_size,
                volume_type=fields.text(ebs, "volumeType", path),
                iops=_optional_int(ebs, "iops", path),
                throughput=_optional_int(ebs, "throughput", path),
                encrypted=ebs.get("encrypted"),
                delete_on_termination=ebs.get("deleteOnTermination"),
                kms_key_id=fields.text(ebs, "kmsKeyID", path),
                snapshot_id=fields.text(ebs, "snapshotID", path),
            ),
        )
    return tuple(devices)


def parse_ec2_node_class(node_class: NodeClass) -> EC2NodeClass:
    """Read spec and status of an EC2NodeClass.

    Raises:
        ManifestError: naming the field.
    """
    spec, status = node_class.spec, node_class.status
    ami_terms = _terms(spec, "amiSelectorTerms")
    alias = next((t.alias for t in ami_terms if t.alias), "")
    family = fields.text(spec, "amiFamily", "spec") or ALIAS_FAMILIES.get(alias.partition("@")[0], "Custom")
    metadata = fields.mapping(spec, "metadataOptions", "spec")
    return EC2NodeClass(
        node_class=node_class,
        subnet_terms=_terms(spec, "subnetSelectorTerms"),
        security_group_terms=_terms(spec, "securityGroupSelectorTerms"),
        ami_terms=ami_terms,
        ami_family=family,
        role=fields.text(spec, "role", "spec"),
        instance_profile=fields.text(spec, "instanceProfile", "spec"),
        user_data=fields.text(spec, "userData", "spec"),
        tags=fields.string_map(spec, "tags", "spec"),
        kubelet=_kubelet(spec),
        block_devices=_block_devices(spec),
        instance_store_policy=fields.text(spec, "instanceStorePolicy", "spec"),
        detailed_monitoring=bool(spec.get("detailedMonitoring")),
        metadata_options=MetadataOptions(
            http_endpoint=fields.text(metadata, "httpEndpoint", "spec.metadataOptions") or "enabled",
            http_protocol_ipv6=fields.text(metadata, "httpProtocolIPv6", "spec.metadataOptions") or "disabled",
            hop_limit=fields.integer(metadata, "httpPutResponseHopLimit", "spec.metadataOptions", 1),
            http_tokens=fields.text(metadata, "httpTokens", "spec.metadataOptions") or "required",
        ),
        associate_public_ip=spec.get("associatePublicIPAddress"),
        context=fields.text(spec, "context", "spec"),
        nested_virtualization=fields.text(
            fields.mapping(spec, "cpuOptions", "spec"), "nestedVirtualization", "spec.cpuOptions"
        ),
        subnets=tuple(
            Subnet(str(s.get("id", "")), str(s.get("zone", "")), str(s.get("zoneID", "")))
            for s in fields.items(status, "subnets", "status")
        ),
        security_groups=tuple(
            SecurityGroup(str(s.get("id", "")), str(s.get("name", "")))
            for s in fields.items(status, "securityGroups", "status")
        ),
        amis=tuple(
            Ami(
                id=str(a.get("id", "")),
                name=str(a.get("name", "")),
                deprecated=bool(a.get("deprecated")),
                requirements=fields.requirements(a, "requirements", "status.amis"),
            )
            for a in fields.items(status, "amis", "status")
        ),
        resolved_profile=fields.text(status, "instanceProfile", "status"),
    )
