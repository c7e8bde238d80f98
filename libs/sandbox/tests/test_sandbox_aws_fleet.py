"""CreateFleet of the sandbox: choice of pools, capacity, client tokens, and what reaches the instances."""

import asyncio
import base64
from typing import Any
from uuid import uuid4

import pytest

pytestmark = pytest.mark.integration

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


async def test_an_on_demand_fleet_takes_the_cheapest_type(account: Any) -> None:
    answer = account.fleet(account.override("m5.large", "us-east-1a"), account.override("c5.large", "us-east-1a"))

    assert [each["InstanceType"] for each in answer["Instances"]] == ["c5.large"]
    assert answer["Instances"][0]["Lifecycle"] == "on-demand"


async def test_a_prioritized_fleet_takes_the_lowest_priority_number(account: Any) -> None:
    answer = account.fleet(
        account.override("c5.large", "us-east-1a", Priority=2.0),
        account.override("m5.large", "us-east-1a", Priority=1.0),
        OnDemandOptions={"AllocationStrategy": "prioritized"},
    )

    assert [each["InstanceType"] for each in answer["Instances"]] == ["m5.large"]


async def test_a_spot_fleet_takes_the_cheapest_spot_pool_and_its_instances_say_spot(account: Any) -> None:
    await account.aws.control({"spotPrices": {"m5.large/us-east-1b": 0.001}})

    answer = account.fleet(
        *(account.override("m5.large", zone) for zone in ZONES),
        SpotOptions={"AllocationStrategy": "price-capacity-optimized"},
    )

    (launched,) = answer["Instances"]
    instance = account.instance(launched["InstanceIds"][0])
    assert launched["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] == "us-east-1b"
    assert (instance["InstanceLifecycle"], instance["Placement"]["AvailabilityZone"]) == ("spot", "us-east-1b")


async def test_a_pool_out_of_capacity_is_passed_over_and_reported_with_its_override(account: Any) -> None:
    await account.aws.control({"outOfCapacity": [{"type": "c5.*", "zone": "us-east-1a", "capacityType": "on-demand"}]})
    sold_out = account.override("c5.large", "us-east-1a")

    answer = account.fleet(sold_out, account.override("c5.large", "us-east-1b"))

    (error,) = answer["Errors"]
    assert error["ErrorCode"] == "InsufficientInstanceCapacity"
    assert error["LaunchTemplateAndOverrides"]["Overrides"] == sold_out
    assert answer["Instances"][0]["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] == "us-east-1b"


async def test_a_fleet_without_any_capacity_answers_with_errors_and_no_instances(account: Any) -> None:
    await account.aws.control({"outOfCapacity": [{}]})

    answer = account.fleet(*(account.override("m5.large", zone) for zone in ZONES))

    assert answer["Instances"] == []
    assert len(answer["Errors"]) == 3


async def test_a_fleet_of_three_gives_three_instances_with_names_of_their_own(account: Any) -> None:
    answer = account.fleet(account.override("m5.large", "us-east-1a"), count=3)

    ids = answer["Instances"][0]["InstanceIds"]
    names = {account.instance(instance_id)["PrivateDnsName"] for instance_id in ids}
    assert len(names) == 3
    assert all(name.startswith("ip-10-0-") and name.endswith(".ec2.internal") for name in names)


async def test_an_address_is_not_given_again_after_its_instance_ended(account: Any) -> None:
    await account.aws.control({"pendingDelay": 0, "terminateDelay": 0})
    first = account.launch()

    account.ec2.terminate_instances(InstanceIds=[first["InstanceId"]])
    second = account.launch()

    assert second["PrivateDnsName"] != first["PrivateDnsName"]


async def test_the_same_client_token_gives_the_same_fleet_and_no_new_instances(account: Any) -> None:
    template, token = account.template(), uuid4().hex
    override = account.override("m5.large", "us-east-1a")

    first = account.fleet(override, template=template, ClientToken=token)
    before = len(await account.aws.instances())
    second = account.fleet(override, template=template, ClientToken=token)

    assert (second["FleetId"], second["Instances"]) == (first["FleetId"], first["Instances"])
    assert len(await account.aws.instances()) == before


async def test_a_client_token_with_other_parameters_is_refused(account: Any) -> None:
    template, token = account.template(), uuid4().hex
    override = account.override("m5.large", "us-east-1a")
    account.fleet(override, template=template, ClientToken=token)

    code, _ = account.error_of(lambda: account.fleet(override, template=template, ClientToken=token, count=2))

    assert code == "IdempotentParameterMismatch"


async def test_a_type_that_does_not_exist_is_refused(account: Any) -> None:
    code, message = account.error_of(lambda: account.fleet(account.override("zz9.large", "us-east-1a")))

    assert code == "InvalidParameterValue"
    assert "zz9.large" in message


async def test_a_template_that_does_not_exist_is_refused(account: Any) -> None:
    override = account.override("m5.large", "us-east-1a")

    code, _ = account.error_of(lambda: account.fleet(override, template="no-such-template"))

    assert code == "InvalidLaunchTemplateName.NotFoundException"


@pytest.mark.parametrize(
    ("instance_type", "fields", "code", "told"),
    [
        ("m5.large", {"ImageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound", "does not exist"),
        ("m6g.large", {}, "InvalidParameterValue", "architecture"),
        (
            "m5.large",
            {"IamInstanceProfile": {"Name": "nobody"}},
            "InvalidParameterValue",
            "Invalid IAM Instance Profile",
        ),
        ("m5.large", {"SecurityGroupIds": ["sg-00000000"]}, "InvalidGroup.NotFound", "sg-00000000"),
    ],
)
async def test_a_template_that_cannot_be_launched_is_an_error_of_the_pool(
    account: Any, instance_type: str, fields: dict[str, Any], code: str, told: str
) -> None:
    answer = account.fleet(account.override(instance_type, "us-east-1a"), template=account.template(**fields))

    (error,) = answer["Errors"]
    assert error["ErrorCode"] == code
    assert told in error["ErrorMessage"]
    assert answer["Instances"] == []


async def test_a_type_that_the_zone_does_not_offer_is_unsupported_there(account: Any) -> None:
    answer = account.fleet(account.override("m5.large", "us-east-1e"), account.override("m5.large", "us-east-1a"))

    assert [error["ErrorCode"] for error in answer["Errors"]] == ["Unsupported"]
    assert answer["Instances"][0]["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] == "us-east-1a"


async def test_the_fields_of_the_template_reach_the_instance(account: Any) -> None:
    template = account.template(
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        BlockDeviceMappings=[
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 33, "VolumeType": "io2", "Iops": 700, "Encrypted": True}}
        ],
        CpuOptions={"CoreCount": 1, "ThreadsPerCore": 1},
        EbsOptimized=True,
        Monitoring={"Enabled": True},
    )

    instance = account.launch(template=template)

    user_data = account.ec2.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
    (device,) = instance["BlockDeviceMappings"]
    (volume,) = account.ec2.describe_volumes(VolumeIds=[device["Ebs"]["VolumeId"]])["Volumes"]
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["CpuOptions"] == {"CoreCount": 1, "ThreadsPerCore": 1}
    assert (instance["EbsOptimized"], instance["Monitoring"]["State"]) == (True, "enabled")
    assert instance["IamInstanceProfile"]["Arn"].endswith(f"/{account.seeded.role_name}")
    assert [group["GroupId"] for group in instance["SecurityGroups"]] == [account.seeded.security_group]
    assert base64.b64decode(user_data["UserData"]["Value"]) == b"hello"
    assert (device["DeviceName"], volume["Size"], volume["VolumeType"], volume["Iops"]) == ("/dev/xvda", 33, "io2", 700)


async def test_tags_of_template_fleet_and_ec2_are_on_the_instance_and_its_volume(account: Any) -> None:
    def tags(resource: str, **values: str) -> dict[str, Any]:
        return {"ResourceType": resource, "Tags": [{"Key": key, "Value": value} for key, value in values.items()]}

    template = account.template(TagSpecifications=[tags("instance", a="template", b="template")])

    answer = account.fleet(
        account.override("m5.large", "us-east-1a"),
        template=template,
        TagSpecifications=[tags("instance", b="fleet"), tags("volume", v="fleet")],
    )

    instance = account.instance(answer["Instances"][0]["InstanceIds"][0])
    found = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    volume_id = instance["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    (volume,) = account.ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"]
    assert (found["a"], found["b"]) == ("template", "fleet")
    assert found["aws:ec2:fleet-id"] == answer["FleetId"]
    assert found["aws:ec2launchtemplate:version"] == "1"
    assert found["aws:ec2launchtemplate:id"].startswith("lt-")
    assert volume["Tags"] == [{"Key": "v", "Value": "fleet"}]


async def test_sixteen_fleets_at_once_all_succeed(account: Any) -> None:
    template, override = account.template(), account.override("m5.large", "us-east-1a")

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asyncio.to_thread(account.fleet, override, template=template)) for _ in range(16)]

    ids = [task.result()["Instances"][0]["InstanceIds"][0] for task in tasks]
    assert len(set(ids)) == 16


async def test_a_reservation_has_fewer_free_places_after_a_launch_into_it_and_then_none(account: Any) -> None:
    reservation = {"id": "cr-1", "type": "m5.large", "zone": "us-east-1a", "count": 1, "tags": {"team": "a"}}
    await account.aws.control({"reservations": [reservation]})
    aim = {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-1"},
    }
    template = account.template(CapacityReservationSpecification=aim)
    where = [{"Name": "tag:team", "Values": ["a"]}]

    before = account.ec2.describe_capacity_reservations(Filters=where)["CapacityReservations"]
    account.launch(template=template)
    after = account.ec2.describe_capacity_reservations(CapacityReservationIds=["cr-1"])["CapacityReservations"]
    refused = account.fleet(account.override("m5.large", "us-east-1a"), template=template)

    assert [each["AvailableInstanceCount"] for each in (*before, *after)] == [1, 0]
    assert [error["ErrorCode"] for error in refused["Errors"]] == ["ReservationCapacityExceeded"]
    assert refused["Instances"] == []


async def test_a_full_subnet_refuses_launches_and_counts_no_free_address_and_no_other_does(account: Any) -> None:
    zone, subnet = account.seeded.subnets[0]
    await account.aws.control({"fullSubnets": [subnet]})

    answer = account.fleet(account.override("m5.large", zone), account.override("m5.large", ZONES[1]))

    subnets = account.ec2.describe_subnets()["Subnets"]
    free = {s["SubnetId"]: s["AvailableIpAddressCount"] for s in subnets}
    assert [e["ErrorCode"] for e in answer["Errors"]] == ["InsufficientFreeAddressesInSubnet"]
    launched = answer["Instances"][0]["LaunchTemplateAndOverrides"]["Overrides"]
    assert launched["AvailabilityZone"] == ZONES[1]
    assert free.pop(subnet) == 0
    assert min(free.values()) > 0


async def test_instances_that_are_to_die_end_by_themselves_after_they_ran_and_the_next_ones_live(account: Any) -> None:
    await account.aws.control({"dying": 1, "pendingDelay": 0.05, "terminateDelay": 0.05})

    doomed, lucky = account.launch(), account.launch()

    assert await account.reaches(doomed["InstanceId"], "terminated")
    assert account.instance(doomed["InstanceId"])["StateReason"]["Code"] == "Server.InternalError"
    assert await account.reaches(lucky["InstanceId"], "running")


async def test_instance_profiles_are_listed_below_the_path_that_is_asked_for(account: Any) -> None:
    iam = account.client("iam")
    iam.create_instance_profile(InstanceProfileName="below", Path="/team/a/")
    iam.create_instance_profile(InstanceProfileName="beside", Path="/team/b/")

    below = iam.list_instance_profiles(PathPrefix="/team/a/")["InstanceProfiles"]
    everywhere = iam.list_instance_profiles()["InstanceProfiles"]

    assert [p["InstanceProfileName"] for p in below] == ["below"]
    assert {"below", "beside"} < {p["InstanceProfileName"] for p in everywhere}
