"""The sandbox's AWS as a process, called through the SDK as the product calls AWS."""

import asyncio
import base64
import json
from typing import Any
from uuid import uuid4

import pytest

from sawhorse_sandbox.aws import ControlError, seed_account

pytestmark = pytest.mark.integration

REGION = "us-east-1"
X86 = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"
ARM = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id"


async def test_instances_are_found_by_tag(account: Any) -> None:
    token = uuid4().hex
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "sawhorse.dev/launch", "Value": token}]}]
    instance = account.launch(TagSpecifications=tags)

    found = account.ec2.describe_instances(Filters=[{"Name": "tag:sawhorse.dev/launch", "Values": [token]}])

    ids = [each["InstanceId"] for reservation in found["Reservations"] for each in reservation["Instances"]]
    assert ids == [instance["InstanceId"]]


async def test_an_instance_is_pending_then_running_then_shutting_down_then_terminated(account: Any) -> None:
    await account.aws.control({"pendingDelay": 0.3, "terminateDelay": 0.3})
    account.messages()

    instance_id = account.launch()["InstanceId"]
    first = account.instance(instance_id)["State"]["Name"]
    assert await account.reaches(instance_id, "running")
    change = account.ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"][0]
    assert await account.reaches(instance_id, "terminated")

    told = [each["detail"] for each in account.messages() if each["detail"].get("instance-id") == instance_id]
    assert first == "pending"
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
    assert [detail["state"] for detail in told] == ["pending", "running", "shutting-down", "terminated"]


async def test_a_spot_warning_reaches_the_queue_and_the_instance_is_reclaimed_in_time(account: Any) -> None:
    await account.aws.control({"pendingDelay": 0, "terminateDelay": 0})
    instance_id = account.launch(SpotOptions={"AllocationStrategy": "price-capacity-optimized"})["InstanceId"]
    account.messages()

    told = await account.aws.interrupt(instance_id, reclaim_after=0.3)

    (warning,) = [each for each in account.messages() if "Spot" in each["detail-type"]]
    assert warning == told["message"]
    assert warning["account"] == "123456789012"
    assert (told["queues"], told["known"]) == (["demo"], True)
    assert await account.reaches(instance_id, "terminated")
    assert account.instance(instance_id)["StateReason"]["Code"] == "Server.SpotInstanceTermination"


async def test_a_message_about_a_foreign_instance_is_sent_too(account: Any) -> None:
    told = await account.aws.interrupt("i-00000000000000000", "rebalance")

    assert told["known"] is False
    assert told["message"] in account.messages()


async def test_a_long_poll_gets_a_message_at_once_and_stops_nobody_else(account: Any) -> None:
    sqs = account.client("sqs")
    url = sqs.create_queue(QueueName=f"poll-{uuid4().hex}")["QueueUrl"]
    loop = asyncio.get_running_loop()

    started = loop.time()
    poll = asyncio.to_thread(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=10)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(poll)
        await asyncio.to_thread(account.ec2.describe_subnets)
        others_took = loop.time() - started
        await asyncio.to_thread(sqs.send_message, QueueUrl=url, MessageBody="now")
    poll_took = loop.time() - started

    assert [message["Body"] for message in waiting.result()["Messages"]] == ["now"]
    assert others_took < 5
    assert poll_took < 8


async def test_throttled_calls_fail_with_the_code_of_their_service(account: Any) -> None:
    await account.aws.control({"throttle": {"DescribeSubnets": 1, "GetParameter": 1}})

    ec2, _ = account.error_of(account.ec2.describe_subnets)
    ssm, _ = account.error_of(lambda: account.image())

    assert (ec2, ssm) == ("RequestLimitExceeded", "ThrottlingException")


async def test_an_injected_error_comes_as_often_as_asked(account: Any) -> None:
    error = {"action": "DescribeSubnets", "code": "InternalError", "message": "boom", "times": 1, "status": 500}
    await account.aws.control({"errors": [error]})

    told = account.error_of(account.ec2.describe_subnets)
    after = account.ec2.describe_subnets()["Subnets"]

    assert told == ("InternalError", "boom")
    assert len(after) > 0


async def test_latency_of_an_action_delays_it(account: Any) -> None:
    await account.aws.control({"latency": {"DescribeVpcs": 0.4}})
    loop = asyncio.get_running_loop()

    started = loop.time()
    account.ec2.describe_vpcs()

    assert loop.time() - started >= 0.4


async def test_a_bad_update_of_the_state_is_refused_with_its_reason(account: Any) -> None:
    with pytest.raises(ControlError, match="unknown field latencies"):
        await account.aws.control({"latencies": {}})


async def test_a_bad_interruption_is_refused_with_its_reason(account: Any) -> None:
    with pytest.raises(ControlError, match="kind: 'flood' is none of spot"):
        await account.aws.interrupt("i-1", "flood")


async def test_calls_are_counted_by_action(account: Any) -> None:
    before = (await account.aws.calls()).get("DescribeVpcs", 0)

    account.ec2.describe_vpcs()

    assert (await account.aws.calls())["DescribeVpcs"] == before + 1


async def test_the_cheap_list_of_instances_tells_what_a_kubelet_needs(account: Any) -> None:
    described = account.launch()

    (listed,) = [each for each in await account.aws.instances() if each["instanceId"] == described["InstanceId"]]

    assert listed["tags"]["aws:ec2launchtemplate:version"] == "1"
    assert base64.b64decode(listed["userData"]) == b"hello"
    assert (listed["type"], listed["zone"], listed["lifecycle"]) == ("m5.large", "us-east-1a", "on-demand")
    assert listed["privateDnsName"] == described["PrivateDnsName"]
    assert listed["privateIp"] == described["PrivateIpAddress"]
    assert listed["launchTime"] == described["LaunchTime"].strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_instance_types_come_in_pages_that_hold_each_once(account: Any) -> None:
    pages = list(account.ec2.get_paginator("describe_instance_types").paginate())

    names = [each["InstanceType"] for page in pages for each in page["InstanceTypes"]]
    assert len(pages) > 1
    assert len(names) == len(set(names)) > 700


async def test_spot_history_has_a_price_for_each_zone_that_offers_the_type(account: Any) -> None:
    where = [{"Name": "instance-type", "Values": ["m5.large"]}]
    offers = account.ec2.describe_instance_type_offerings(LocationType="availability-zone", Filters=where)

    history = account.ec2.describe_spot_price_history(InstanceTypes=["m5.large"], ProductDescriptions=["Linux/UNIX"])

    prices = {each["AvailabilityZone"]: float(each["SpotPrice"]) for each in history["SpotPriceHistory"]}
    assert set(prices) == {offer["Location"] for offer in offers["InstanceTypeOfferings"]}
    assert all(0.25 * 0.096 <= price <= 0.60 * 0.096 for price in prices.values())


async def test_the_pricing_service_answers_with_the_shipped_prices(account: Any) -> None:
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in PRICING_FILTERS.items()]

    pages = account.client("pricing").get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=filters)

    found = [json.loads(text) for page in pages for text in page["PriceList"]]
    names = [each["product"]["attributes"]["instanceType"] for each in found]
    assert len(names) == len(set(names)) > 700
    assert "m5.large" in names


PRICING_FILTERS = {
    "regionCode": REGION,
    "preInstalledSw": "NA",
    "operatingSystem": "Linux",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
    "tenancy": "Shared",
    "productFamily": "Compute Instance",
}


async def test_parameters_of_eks_point_to_images_that_can_be_described(account: Any) -> None:
    ids = [account.image(parameter) for parameter in (X86, ARM)]

    images = account.ec2.describe_images(ImageIds=ids, Owners=["amazon"])["Images"]

    assert {image["ImageId"]: image["Architecture"] for image in images} == dict(
        zip(ids, ("x86_64", "arm64"), strict=True)
    )
    assert {image["State"] for image in images} == {"available"}


async def test_all_launch_templates_are_listed_however_many(account: Any) -> None:
    made = {account.template() for _ in range(17)}

    pages = account.ec2.get_paginator("describe_launch_templates").paginate()

    names = {each["LaunchTemplateName"] for page in pages for each in page["LaunchTemplates"]}
    assert made <= names


async def test_placement_groups_are_those_of_the_state(account: Any) -> None:
    none = account.ec2.describe_placement_groups()["PlacementGroups"]
    group = {"GroupName": "close", "GroupId": "pg-1", "Strategy": "cluster", "State": "available"}
    await account.aws.control({"placementGroups": [group]})

    found = account.ec2.describe_placement_groups(GroupNames=["close"])["PlacementGroups"]

    assert (none, found) == ([], [group])


async def test_seeding_twice_finds_what_the_first_time_made(account: Any) -> None:
    again = await seed_account(account.aws.endpoint_url, "demo", REGION)

    where = [{"Name": "tag:karpenter.sh/discovery", "Values": ["demo"]}]
    subnets = account.ec2.describe_subnets(Filters=where)["Subnets"]
    assert again == account.seeded
    assert sorted(subnet["AvailabilityZone"][-1] for subnet in subnets) == list("abcdef")


async def test_the_seeded_queue_and_cluster_are_as_the_product_expects(account: Any) -> None:
    queue = account.client("sqs").get_queue_attributes(QueueUrl=account.seeded.queue_url, AttributeNames=["All"])
    cluster = account.client("eks").describe_cluster(name="demo")["cluster"]

    attributes = queue["Attributes"]
    redrive = json.loads(attributes["RedrivePolicy"])
    assert (attributes["MessageRetentionPeriod"], attributes["VisibilityTimeout"]) == ("900", "30")
    assert redrive["deadLetterTargetArn"].endswith(":demo-dead-letter")
    assert redrive["maxReceiveCount"] == 50
    assert (cluster["version"], cluster["status"]) == ("1.36", "ACTIVE")
