"""The content of a launch template: RequestLaunchTemplateData of CreateLaunchTemplate. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sawhorse_catalog.account import BLOCK, Reservation
from sawhorse_cloud_aws.calls import tag_list
from sawhorse_cloud_aws.launch_fields import CpuRequest, InterfacePlan
from sawhorse_model.aws import BlockDevice, EC2NodeClass

_GIB = 2**30
# Regions whose EC2 does not know the IPv6 endpoint field.
_NO_IPV6_ENDPOINT = frozenset(
    {
        "us-iso-east-1",
        "us-iso-west-1",
        "us-isob-east-1",
        "us-isob-west-1",
        "us-isof-south-1",
        "us-isof-east-1",
    },
)


def _volume(device: str, gib: int) -> BlockDevice:
    return BlockDevice(device, volume_size=gib * _GIB, volume_type="gp3", encrypted=True)


_LINUX = (_volume("/dev/xvda", 20),)
_WINDOWS = (_volume("/dev/sda1", 50),)
# By AMI family. Of a custom image nobody but its maker knows the devices.
_DEFAULT_DEVICES = {
    "AL2": _LINUX,
    "AL2023": _LINUX,
    "Bottlerocket": (_volume("/dev/xvda", 4), _volume("/dev/xvdb", 20)),  # the system, then the pods
    "Windows2019": _WINDOWS,
    "Windows2022": _WINDOWS,
    "Windows2025": _WINDOWS,
}


@dataclass(frozen=True, slots=True)
class TemplateRequest:
    """What one template is for. `user_data` is base64, `tags` those of everything that a launch makes."""

    image_id: str
    user_data: str
    tags: Mapping[str, str]
    spot: bool
    region: str
    tenancy: str = "default"
    ipv6: bool = False
    interfaces: InterfacePlan = field(default_factory=InterfacePlan)
    cpu: CpuRequest = field(default_factory=CpuRequest)
    reservation: Reservation | None = None
    group_id: str = ""
    partition: int = 0  # 0 leaves it to EC2
    enclaves: bool = False  # Nitro Enclaves


def template_data(node_class: EC2NodeClass, request: TemplateRequest) -> dict[str, Any]:
    """The template's data."""
    tagged = ("network-interface", *(("spot-instances-request",) if request.spot else ()))
    data: dict[str, Any] = {
        "ImageId": request.image_id,
        "IamInstanceProfile": {"Name": node_class.resolved_profile},
        "Monitoring": {"Enabled": node_class.detailed_monitoring},
        "MetadataOptions": _metadata(node_class, request.region),
        "Placement": _placement(request),
        "NetworkInterfaces": _interfaces(node_class, request),
        "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list(request.tags)} for kind in tagged],
    }
    if request.user_data:
        data["UserData"] = request.user_data
    if cpu := request.cpu.to_raw():
        data["CpuOptions"] = cpu
    if request.enclaves:
        data["EnclaveOptions"] = {"Enabled": True}
    # Without a reservation to aim at the whole block is left out: EC2's default lets open reservations be used, and
    # "none" would leave them paid for and idle.
    if request.reservation is not None:
        data["CapacityReservationSpecification"] = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": request.reservation.id},
        }
        if request.reservation.kind == BLOCK:
            data["InstanceMarketOptions"] = {"MarketType": BLOCK}
    if devices := _devices(node_class):
        data["BlockDeviceMappings"] = devices
    return data


def _placement(request: TemplateRequest) -> dict[str, Any]:
    found: dict[str, Any] = {"Tenancy": request.tenancy}
    if request.group_id:
        found["GroupId"] = request.group_id
    if request.partition:
        found["PartitionNumber"] = request.partition
    return found


def _metadata(node_class: EC2NodeClass, region: str) -> dict[str, Any]:
    options = node_class.metadata_options
    metadata: dict[str, Any] = {
        "HttpEndpoint": options.http_endpoint,
        "HttpPutResponseHopLimit": options.hop_limit,
        "HttpTokens": options.http_tokens,
        "InstanceMetadataTags": "disabled",
    }
    if region not in _NO_IPV6_ENDPOINT:
        metadata["HttpProtocolIpv6"] = options.http_protocol_ipv6
    return metadata


def _interfaces(node_class: EC2NodeClass, request: TemplateRequest) -> list[dict[str, Any]]:
    plan = request.interfaces
    # Groups stand on the interfaces only: EC2 refuses them in both places.
    bare: dict[str, Any] = {"Groups": [g.id for g in node_class.security_groups]}
    full = bare | _addresses(node_class, request)
    if plan.requests:
        return [
            {
                "NetworkCardIndex": each.card,
                "DeviceIndex": each.device,
                "InterfaceType": "efa-only" if each.efa_only else "interface",
                **(bare if each.efa_only else full),
            }
            for each in plan.requests
        ]
    if plan.efa:
        return [
            {"NetworkCardIndex": card, "DeviceIndex": min(card, 1), "InterfaceType": "efa", **full}
            for card in range(plan.efa)
        ]
    return [{"DeviceIndex": 0, **full}]


def _addresses(node_class: EC2NodeClass, request: TemplateRequest) -> dict[str, Any]:
    """What an interface that carries IP traffic has, and one for EFA alone has not."""
    found: dict[str, Any] = {}
    if node_class.associate_public_ip is not None:
        found["AssociatePublicIpAddress"] = node_class.associate_public_ip
    if request.interfaces.prefixes:
        found["Ipv6PrefixCount" if request.ipv6 else "Ipv4PrefixCount"] = request.interfaces.prefixes
    if request.ipv6:
        found |= {"PrimaryIpv6": True, "Ipv6AddressCount": 1}
    if request.interfaces.tracking:
        found["ConnectionTrackingSpecification"] = dict(request.interfaces.tracking)
    return found


def _devices(node_class: EC2NodeClass) -> list[dict[str, Any]]:
    """The NodeClass's own mappings, else the family's."""
    if not node_class.block_devices:
        return [_device(d, None) for d in _DEFAULT_DEVICES.get(node_class.ami_family, ())]
    typed = node_class.node_class.spec.get("blockDeviceMappings") or ()
    rates = [(entry.get("ebs") or {}).get("volumeInitializationRate") for entry in typed]
    return [_device(d, rate) for d, rate in zip(node_class.block_devices, rates, strict=True)]


def _device(device: BlockDevice, initialization_rate: int | None) -> dict[str, Any]:
    ebs: dict[str, Any] = {}
    if device.volume_size is not None:
        ebs["VolumeSize"] = -(-device.volume_size // _GIB)
    for key, value in (
        ("VolumeType", device.volume_type),
        ("Iops", device.iops),
        ("Throughput", device.throughput),
        ("KmsKeyId", device.kms_key_id),
        ("SnapshotId", device.snapshot_id),
        ("VolumeInitializationRate", initialization_rate),
    ):
        if value:
            ebs[key] = value
    if device.encrypted is not None:
        ebs["Encrypted"] = device.encrypted
    if device.delete_on_termination is not None:
        ebs["DeleteOnTermination"] = device.delete_on_termination
    return {"DeviceName": device.device_name, **({"Ebs": ebs} if ebs else {})}
