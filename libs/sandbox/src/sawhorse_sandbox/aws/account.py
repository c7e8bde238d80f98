"""Fills the sandbox's account with what a cluster's owner sets up: network, role, cluster, queue and event rules."""

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import botocore.config
import botocore.session
from botocore.exceptions import ClientError

VERSION = "1.36"
ZONES = "abcdef"
DISCOVERY_TAG = "karpenter.sh/discovery"
RETENTION_SECONDS = 900
VISIBILITY_SECONDS = 30
DEAD_LETTER_RETENTION_SECONDS = 14 * 24 * 3600
MAX_RECEIVE_COUNT = 50
RULES = {
    "health": ("aws.health", "AWS Health Event"),
    "spot": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "state-change": ("aws.ec2", "EC2 Instance State-change Notification"),
    "capacity-reservation": ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
}


@dataclass(frozen=True, slots=True)
class SeededAccount:
    """What the account holds for a cluster."""

    queue_url: str
    queue_name: str
    role_name: str  # also the name of its instance profile
    subnets: tuple[tuple[str, str], ...]  # (zone, subnet id), in the order of the zones
    security_group: str


async def seed_account(endpoint_url: str, cluster_name: str, region: str) -> SeededAccount:
    """Make sure that the account has all that a cluster of this name needs. May be repeated; finds what is there."""
    return await asyncio.to_thread(_seed, endpoint_url, cluster_name, region)


def _seed(endpoint_url: str, cluster: str, region: str) -> SeededAccount:
    session = botocore.session.Session()
    session.set_credentials("sandbox", "sandbox")
    config = botocore.config.Config(connect_timeout=5, read_timeout=20, retries={"max_attempts": 3})
    with ExitStack() as stack:

        def client(service: str) -> Any:
            made = session.create_client(service, region_name=region, endpoint_url=endpoint_url, config=config)
            return stack.enter_context(closing(made))

        ec2, iam, eks, sqs, events = (client(name) for name in ("ec2", "iam", "eks", "sqs", "events"))
        zones = _zones(ec2, region)
        vpc_id = _vpc(ec2, cluster)
        subnets = tuple((zone, _subnet(ec2, cluster, vpc_id, zone, index)) for index, zone in enumerate(zones))
        group = _security_group(ec2, cluster, vpc_id)
        role_name = f"KarpenterNodeRole-{cluster}"
        _role(iam, role_name)
        role_arn = iam.get_role(RoleName=role_name)["Role"]["Arn"]
        _cluster(eks, cluster, role_arn, [subnet for _, subnet in subnets], group)
        queue_url, queue_arn = _queue(sqs, cluster)
        _rules(events, cluster, queue_arn)
    return SeededAccount(
        queue_url=queue_url, queue_name=cluster, role_name=role_name, subnets=subnets, security_group=group
    )


def _zones(ec2: Any, region: str) -> list[str]:
    known = {zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]}
    return [zone for letter in ZONES if (zone := f"{region}{letter}") in known]


def _vpc(ec2: Any, cluster: str) -> str:
    found = ec2.describe_vpcs(Filters=_mine(cluster))["Vpcs"]
    if found:
        return str(found[0]["VpcId"])
    made = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=_tagged("vpc", cluster, cluster))
    return str(made["Vpc"]["VpcId"])


def _subnet(ec2: Any, cluster: str, vpc_id: str, zone: str, index: int) -> str:
    where = [*_mine(cluster), {"Name": "availability-zone", "Values": [zone]}]
    found = ec2.describe_subnets(Filters=where)["Subnets"]
    if found:
        return str(found[0]["SubnetId"])
    made = ec2.create_subnet(
        VpcId=vpc_id,
        AvailabilityZone=zone,
        CidrBlock=f"10.0.{index * 32}.0/19",  # 8,000 addresses each
        TagSpecifications=_tagged("subnet", cluster, f"{cluster}-{zone}"),
    )
    return str(made["Subnet"]["SubnetId"])


def _security_group(ec2: Any, cluster: str, vpc_id: str) -> str:
    found = ec2.describe_security_groups(Filters=_mine(cluster))["SecurityGroups"]
    if found:
        return str(found[0]["GroupId"])
    made = ec2.create_security_group(
        GroupName=f"{cluster}-nodes",
        Description=f"Nodes of {cluster}",
        VpcId=vpc_id,
        TagSpecifications=_tagged("security-group", cluster, f"{cluster}-nodes"),
    )
    return str(made["GroupId"])


def _role(iam: Any, name: str) -> None:
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    _unless_there("EntityAlreadyExists", lambda: iam.create_role(RoleName=name, AssumeRolePolicyDocument=document))
    _unless_there("EntityAlreadyExists", lambda: iam.create_instance_profile(InstanceProfileName=name))
    if not iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]:
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)


def _cluster(eks: Any, cluster: str, role_arn: str, subnets: list[str], group: str) -> None:
    def create() -> None:
        eks.create_cluster(
            name=cluster,
            version=VERSION,
            roleArn=role_arn,
            resourcesVpcConfig={"subnetIds": subnets, "securityGroupIds": [group]},
            kubernetesNetworkConfig={"serviceIpv4Cidr": "10.100.0.0/16"},
        )

    _unless_there("ResourceInUseException", create)


def _queue(sqs: Any, cluster: str) -> tuple[str, str]:
    def ensure(name: str, attributes: dict[str, str]) -> tuple[str, str]:
        url = sqs.create_queue(QueueName=name)["QueueUrl"]
        sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        return url, arn

    _, dead_arn = ensure(f"{cluster}-dead-letter", {"MessageRetentionPeriod": str(DEAD_LETTER_RETENTION_SECONDS)})
    url, arn = ensure(
        cluster,
        {
            "MessageRetentionPeriod": str(RETENTION_SECONDS),
            "VisibilityTimeout": str(VISIBILITY_SECONDS),
            "RedrivePolicy": json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": MAX_RECEIVE_COUNT}),
        },
    )
    allow = {
        "Effect": "Allow",
        "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
        "Action": "sqs:SendMessage",
        "Resource": arn,
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    return url, arn


def _rules(events: Any, cluster: str, queue_arn: str) -> None:
    for suffix, (source, detail_type) in RULES.items():
        name = f"{cluster}-{suffix}"
        events.put_rule(Name=name, EventPattern=json.dumps({"source": [source], "detail-type": [detail_type]}))
        events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": queue_arn}])


def _mine(cluster: str) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{DISCOVERY_TAG}", "Values": [cluster]}]


def _tagged(resource: str, cluster: str, name: str) -> list[dict[str, Any]]:
    tags = [{"Key": DISCOVERY_TAG, "Value": cluster}, {"Key": "Name", "Value": name}]
    return [{"ResourceType": resource, "Tags": tags}]


def _unless_there(code: str, create: Callable[[], Any]) -> None:
    try:
        create()
    except ClientError as err:
        if err.response["Error"]["Code"] != code:
            raise
