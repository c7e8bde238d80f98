"""Launch templates into running instances: moto's RunInstances, with the template's fields that it leaves out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance
from moto.ec2.utils import parse_user_data
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends

DEFAULT_VOLUME_GIB = 20


@dataclass(frozen=True, slots=True)
class Template:
    """A version of a launch template."""

    id: str
    version: int
    data: Mapping[str, Any]

    @property
    def subnet_id(self) -> str | None:
        """Return the subnet that the template's interfaces name, if any."""
        return next((nic["SubnetId"] for nic in self.data.get("NetworkInterfaces") or () if nic.get("SubnetId")), None)

    @property
    def security_group_ids(self) -> list[str]:
        """Return the groups of the template and its interfaces, each once."""
        groups = list(self.data.get("SecurityGroupIds") or ())
        for nic in self.data.get("NetworkInterfaces") or ():
            groups += nic.get("Groups") or ()
        return list(dict.fromkeys(groups))

    @property
    def reservation_id(self) -> str | None:
        """Return the capacity reservation that the template aims at, if any."""
        aim = self.data.get("CapacityReservationSpecification") or {}
        return (aim.get("CapacityReservationTarget") or {}).get("CapacityReservationId")


def resolve_template(ec2: EC2Backend, specification: Mapping[str, Any]) -> Template:
    """Find the template version that a fleet names; raises EC2ClientError when there is none."""
    if name := specification.get("LaunchTemplateName"):
        template = ec2.get_launch_template_by_name(name)
    elif template_id := specification.get("LaunchTemplateId"):
        template = ec2.get_launch_template(template_id)
    else:
        raise EC2ClientError("MissingParameter", "A launch template id or name is required.")
    wanted = specification.get("Version") or "$Default"
    if not (wanted.lower() in ("$latest", "$default") or wanted.isdigit()):
        raise EC2ClientError("InvalidLaunchTemplateId.VersionNotFound", f"There is no version {wanted!r}.")
    version = template.get_version(wanted)
    return Template(id=template.id, version=version.number, data=version.data)


def launch_problem(
    ec2: EC2Backend, template: Template, override: Mapping[str, Any], subnet_id: str | None, instance_type: str
) -> tuple[str, str] | None:
    """Return EC2's code and message for what would stop a launch from this template, None when nothing would."""
    image_id = override.get("ImageId") or template.data.get("ImageId")
    image = ec2.amis.get(image_id or "")
    if image is None:
        return "InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist"
    architectures = INSTANCE_TYPES[instance_type]["ProcessorInfo"]["SupportedArchitectures"]
    if image.architecture not in architectures:
        text = (
            f"The architecture '{','.join(architectures)}' of the specified instance type does not match the "
            f"architecture '{image.architecture}' of the specified AMI."
        )
        return "InvalidParameterValue", text
    if problem := _cpu_problem(template.data.get("CpuOptions") or {}, instance_type):
        return problem
    if subnet_id and not any(subnet_id in by_id for by_id in ec2.subnets.values()):
        return "InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist"
    for group in template.security_group_ids:
        if ec2.get_security_group_from_id(group) is None:
            return "InvalidGroup.NotFound", f"The security group '{group}' does not exist"
    profile = template.data.get("IamInstanceProfile")
    if profile and not _profile_exists(ec2, profile):
        value = profile.get("Name") or profile.get("Arn")
        text = f"Value ({value}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
        return "InvalidParameterValue", text
    return None


def _cpu_problem(options: Mapping[str, Any], instance_type: str) -> tuple[str, str] | None:
    facts = INSTANCE_TYPES[instance_type]
    features = facts["ProcessorInfo"].get("SupportedFeatures") or ()
    if options.get("NestedVirtualization") == "enabled" and "nested-virtualization" not in features:
        return "UnsupportedOperation", f"Nested virtualization is not supported on {instance_type}."
    valid = facts["VCpuInfo"].get("ValidCores") or ()
    if options.get("CoreCount") and int(options["CoreCount"]) not in valid:
        text = f"The CPU options of {instance_type} do not allow {options['CoreCount']} cores."
        return "UnsupportedOperation", text
    return None


def run(
    ec2: EC2Backend,
    template: Template,
    override: Mapping[str, Any],
    *,
    subnet_id: str | None,
    zone: str,
    count: int,
    spot: bool,
    fleet_id: str,
    tag_specifications: Iterable[Mapping[str, Any]],
) -> list[Instance]:
    """Start `count` instances of a template whose `launch_problem` is None."""
    data = {**template.data, **override}
    tags = _tags(template.data.get("TagSpecifications") or ())
    for resource, more in _tags(tag_specifications).items():
        tags[resource] = tags.get(resource, {}) | more
    system = {
        "aws:ec2:fleet-id": fleet_id,
        "aws:ec2launchtemplate:id": template.id,
        "aws:ec2launchtemplate:version": str(template.version),
    }
    reservation = ec2.run_instances(
        data["ImageId"],
        count,
        parse_user_data(_text(data.get("UserData"))),
        [],
        instance_type=data["InstanceType"],
        is_instance_type_default=False,
        region_name=ec2.region_name,  # the private DNS name follows from it
        subnet_id=subnet_id or _default_subnet(ec2, zone),
        security_group_ids=template.security_group_ids or _default_groups(ec2, subnet_id),
        nics=_interfaces(data),
        key_name=data.get("KeyName"),
        tags={"instance": tags.get("instance", {}) | system},
        ebs_optimized=bool(data.get("EbsOptimized")),
        monitoring_state="enabled" if (data.get("Monitoring") or {}).get("Enabled") else "disabled",
        metadata_options=data.get("MetadataOptions") or {},
        block_device_mappings=[],  # made below: moto drops IOPS and throughput, and refuses io1 without them
        lifecycle="spot" if spot else None,
        fleet_id=fleet_id,
    )
    for instance in reservation.instances:
        _attach_volumes(ec2, instance, data.get("BlockDeviceMappings") or (), tags.get("volume", {}))
        _finish(ec2, instance, template, data)
    return reservation.instances


def _finish(ec2: EC2Backend, instance: Any, template: Template, data: Mapping[str, Any]) -> None:
    profile = data.get("IamInstanceProfile") or {}
    if profile:
        ec2.associate_iam_instance_profile(
            instance.id, iam_instance_profile_name=profile.get("Name"), iam_instance_profile_arn=profile.get("Arn")
        )
    if data.get("CpuOptions"):
        instance.cpu_options = dict(data["CpuOptions"])
    if template.reservation_id:
        instance.capacity_reservation_id = template.reservation_id
        instance.capacity_reservation_specification = dict(data["CapacityReservationSpecification"])
    if instance.lifecycle == "spot":
        instance.spot_instance_request_id = "sir-" + instance.id[-8:]
    placement = data.get("Placement") or {}
    instance.placement.tenancy = placement.get("Tenancy", "default")
    instance.placement.group_name = placement.get("GroupName", "")
    instance.placement.group_id = placement.get("GroupId")
    instance.placement.partition_number = placement.get("PartitionNumber")


def _attach_volumes(
    ec2: EC2Backend, instance: Instance, mappings: Iterable[Mapping[str, Any]], tags: dict[str, str]
) -> None:
    by_device = {each["DeviceName"]: each["Ebs"] for each in mappings if each.get("Ebs")}
    for device, ebs in {instance.root_device_name: {}, **by_device}.items():
        kind = ebs.get("VolumeType") or "gp3"
        volume = ec2.create_volume(
            size=ebs.get("VolumeSize") or DEFAULT_VOLUME_GIB,
            zone_name=instance.availability_zone or "",
            snapshot_id=ebs.get("SnapshotId"),
            encrypted=bool(ebs.get("Encrypted")),
            kms_key_id=ebs.get("KmsKeyId"),
            volume_type=kind,
            iops=ebs.get("Iops"),
            throughput=ebs.get("Throughput"),
        )
        volume.add_tags(tags)
        ec2.attach_volume(volume.id, instance.id, device, ebs.get("DeleteOnTermination", True))


def _interfaces(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    # Groups go to the instance as a whole; like EC2, interfaces made by a launch end with it.
    wanted = data.get("NetworkInterfaces") or ({"DeviceIndex": 0},)
    dropped = ("Groups", "SubnetId")
    return [
        {"DeviceIndex": 0, "DeleteOnTermination": True} | {k: v for k, v in nic.items() if k not in dropped}
        for nic in wanted
    ]


def _default_subnet(ec2: EC2Backend, zone: str) -> str:
    subnet = (ec2.get_default_subnets() or {}).get(zone)
    if subnet is None:
        raise EC2ClientError("MissingInput", f"No subnet was given and there is no default subnet in {zone}.")
    return str(subnet.id)


def _default_groups(ec2: EC2Backend, subnet_id: str | None) -> list[str]:
    vpc_id = ec2.get_subnet(subnet_id).vpc_id if subnet_id else ec2.default_vpc.id
    group = ec2.get_security_group_from_name("default", vpc_id)
    return [group.id] if group else []


def _profile_exists(ec2: EC2Backend, profile: Mapping[str, Any]) -> bool:
    iam = iam_backends[ec2.account_id][ec2.partition]
    try:
        if profile.get("Arn"):
            return bool(iam.get_instance_profile_by_arn(profile["Arn"]))
        return bool(iam.get_instance_profile(profile["Name"]))
    except NotFoundException:
        return False


def _tags(specifications: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for each in specifications:
        tags = found.setdefault(each.get("ResourceType", ""), {})
        tags.update({tag["Key"]: tag.get("Value", "") for tag in each.get("Tags") or ()})
    return found


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
