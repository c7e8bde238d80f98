"""Launch templates: one per content, named by the hash of the content, collected when idle."""

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.calls import TEMPLATE_NOT_FOUND, call, error_code, pages, tag_list
from sawhorse_model.aws import GROUP, BlockDevice, EC2NodeClass

_GIB = 2**30
_EXISTS = frozenset({"InvalidLaunchTemplateName.AlreadyExistsException"})
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
_DEFAULT_DEVICES = {"AL2023": (BlockDevice("/dev/xvda", volume_size=20 * _GIB, volume_type="gp3", encrypted=True),)}


def _device(device: BlockDevice) -> dict[str, Any]:
    ebs: dict[str, Any] = {}
    if device.volume_size is not None:
        ebs["VolumeSize"] = -(-device.volume_size // _GIB)
    for key, value in (
        ("VolumeType", device.volume_type),
        ("Iops", device.iops),
        ("Throughput", device.throughput),
        ("KmsKeyId", device.kms_key_id),
        ("SnapshotId", device.snapshot_id),
    ):
        if value:
            ebs[key] = value
    if device.encrypted is not None:
        ebs["Encrypted"] = device.encrypted
    if device.delete_on_termination is not None:
        ebs["DeleteOnTermination"] = device.delete_on_termination
    return {"DeviceName": device.device_name, "Ebs": ebs}


def template_data(
    node_class: EC2NodeClass, *, image_id: str, user_data: str, tags: Mapping[str, str], spot: bool, region: str
) -> dict[str, Any]:
    """RequestLaunchTemplateData of CreateLaunchTemplate."""
    options = node_class.metadata_options
    metadata: dict[str, Any] = {
        "HttpEndpoint": options.http_endpoint,
        "HttpPutResponseHopLimit": options.hop_limit,
        "HttpTokens": options.http_tokens,
        "InstanceMetadataTags": "disabled",
    }
    if region not in _NO_IPV6_ENDPOINT:
        metadata["HttpProtocolIpv6"] = options.http_protocol_ipv6
    interface: dict[str, Any] = {
        "DeviceIndex": 0,
        "NetworkCardIndex": 0,
        # Groups stand on the interface only: EC2 refuses them in both places.
        "Groups": [g.id for g in node_class.security_groups],
    }
    if node_class.associate_public_ip is not None:
        interface["AssociatePublicIpAddress"] = node_class.associate_public_ip
    data: dict[str, Any] = {
        "ImageId": image_id,
        "UserData": user_data,
        "IamInstanceProfile": {"Name": node_class.resolved_profile},
        "Monitoring": {"Enabled": node_class.detailed_monitoring},
        "MetadataOptions": metadata,
        "NetworkInterfaces": [interface],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tag_list(tags)}
            for kind in ("network-interface", *(("spot-instances-request",) if spot else ()))
        ],
    }
    devices = node_class.block_devices or _DEFAULT_DEVICES.get(node_class.ami_family, ())
    if devices:
        data["BlockDeviceMappings"] = [_device(d) for d in devices]
    if not data["UserData"]:
        del data["UserData"]
    return data


def template_name(cluster: str, node_class: str, data: Mapping[str, Any]) -> str:
    """The name for a content: equal content, equal name."""
    text = json.dumps([cluster, node_class, data], sort_keys=True, separators=(",", ":"))
    return f"{GROUP}/{int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], 'big')}"


class LaunchTemplates:
    """Ensures and collects launch templates. `ec2` is an SDK client, `monotonic` a clock in seconds."""

    def __init__(self, *, ec2: Any, cluster: str, monotonic: Callable[[], float], idle_seconds: float = 600.0) -> None:
        self._ec2 = ec2
        self._cluster = cluster
        self._monotonic = monotonic
        self._idle_seconds = idle_seconds
        self._known: set[str] = set()
        self._used: dict[str, float] = {}
        # One lock per name: launches of other contents must not wait for this one's calls.
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ensure(self, node_class: EC2NodeClass, data: Mapping[str, Any], tags: Mapping[str, str]) -> str:
        """Name of the template with this content; made if it is not there. May be repeated."""
        name = template_name(self._cluster, node_class.name, data)
        async with self._locks[name]:
            self._used[name] = self._monotonic()
            if name in self._known:
                return name
            try:
                await call(
                    "CreateLaunchTemplate",
                    self._ec2.create_launch_template,
                    LaunchTemplateName=name,
                    LaunchTemplateData=dict(data),
                    TagSpecifications=[{"ResourceType": "launch-template", "Tags": tag_list(tags)}],
                )
            except CloudError as error:
                if error_code(error) not in _EXISTS:
                    raise
            self._known.add(name)
        return name

    def forget(self, name: str) -> None:
        """Somebody deleted it: make it again at the next use."""
        self._known.discard(name)

    async def collect(self) -> int:
        """Delete this cluster's templates that nobody used for a while; returns how many went.

        A template first seen here counts as just used: another replica may have made it for a launch under way.
        """
        now = self._monotonic()
        gone = 0
        for name in await self._names({"tag:eks:eks-cluster-name": self._cluster}):
            if now - self._used.setdefault(name, now) >= self._idle_seconds:
                await self._delete(name)
                gone += 1
        return gone

    async def delete_of(self, node_class: EC2NodeClass) -> None:
        """Delete all templates of a NodeClass."""
        wanted = {
            "tag:eks:eks-cluster-name": self._cluster,
            "tag:karpenter.k8s.aws/ec2nodeclass": node_class.name,
        }
        for name in await self._names(wanted):
            await self._delete(name)

    async def _names(self, filters: Mapping[str, str]) -> list[str]:
        found = await pages(
            "DescribeLaunchTemplates",
            self._ec2,
            "describe_launch_templates",
            "LaunchTemplates",
            Filters=[{"Name": key, "Values": [value]} for key, value in filters.items()],
        )
        return sorted(t["LaunchTemplateName"] for t in found if t["LaunchTemplateName"].startswith(f"{GROUP}/"))

    async def _delete(self, name: str) -> None:
        async with self._locks[name]:
            self._known.discard(name)
            self._used.pop(name, None)
            try:
                await call("DeleteLaunchTemplate", self._ec2.delete_launch_template, LaunchTemplateName=name)
            except CloudError as error:
                if error_code(error) not in TEMPLATE_NOT_FOUND:
                    raise
        self._locks.pop(name, None)
