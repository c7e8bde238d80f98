"""Launching against the sandbox's AWS: what reaches the machines, and what each failure leads to."""

import asyncio
import base64
from typing import Any

import aioboto3
import pytest
import yaml

from sawhorse_cloud.errors import (
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NodeClassNotReadyError,
    ThrottledError,
)
from sawhorse_cloud_aws.calls import client, session
from sawhorse_cloud_aws.hashing import HASH_VERSION
from sawhorse_model.aws import NODECLASS_HASH, NODECLASS_HASH_VERSION, TENANCY, ZONE_ID
from sawhorse_model.labels import ARCH, INSTANCE_TYPE, LAUNCH_TOKEN, NODEPOOL, OS, REGION, ZONE
from sawhorse_model.requirements import Operator, RequirementSpec
from sawhorse_sandbox.kubelet.userdata import parse_user_data
from sawhorse_testing.cloud_worlds import a_claim, a_token

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


def ec2_client(world: Any) -> Any:
    return aioboto3.Session().client("ec2", region_name="us-east-1", endpoint_url=world.aws.endpoint_url)


def one_of(key: str, *values: str) -> RequirementSpec:
    return RequirementSpec(key, Operator.IN, values)


async def launch(world: Any, *claims: Any, token: str = "", node_class: Any = None) -> Any:
    return await world.cloud.launch(
        token or a_token(), claims or [a_claim()], node_class or world.node_class, world.instance_types
    )


async def test_every_tag_is_there_at_the_first_moment(world: Any) -> None:
    token = a_token()
    node_class = await world.resolved("tagged", {"tags": {"team": "a", "Name": "x"}})

    result = await launch(world, a_claim(nodepool="workers"), token=token, node_class=node_class)

    instance_id = result.launched["default-1"].instance.id
    tags = (await world.instance(instance_id))["tags"]
    assert {k: v for k, v in tags.items() if not k.startswith("aws:")} == {
        "team": "a",
        "Name": "x",
        LAUNCH_TOKEN: token,
        NODEPOOL: "workers",
        "karpenter.k8s.aws/ec2nodeclass": "tagged",
        "eks:eks-cluster-name": "demo",
        "kubernetes.io/cluster/demo": "owned",
    }
    async with ec2_client(world) as ec2:
        where = [{"Name": "attachment.instance-id", "Values": [instance_id]}]
        (volume,) = (await ec2.describe_volumes(Filters=where))["Volumes"]
    assert {t["Key"]: t["Value"] for t in volume["Tags"]}[LAUNCH_TOKEN] == token


async def test_a_claim_learns_all_that_its_type_is(world: Any) -> None:
    claim = a_claim(capacity_types=["on-demand"], requirements=[one_of(INSTANCE_TYPE, "m6g.large")])

    launched = (await launch(world, claim)).launched[claim.meta.name]

    labels = launched.labels
    assert (labels[ARCH], labels[OS], labels[REGION]) == ("arm64", "linux", "us-east-1")
    assert labels[TENANCY] == "default"
    assert labels[ZONE_ID] == next(
        s["zoneID"] for s in world.node_class.status["subnets"] if s["zone"] == launched.instance.zone
    )
    assert launched.annotations[NODECLASS_HASH_VERSION] == HASH_VERSION
    assert launched.annotations[NODECLASS_HASH] == (await world.cloud.resolve_node_class(world.node_class)).hash
    assert launched.annotations["karpenter.k8s.aws/instance-profile-name"] == world.node_class.status["instanceProfile"]
    assert launched.instance.image_id == next(
        a["id"] for a in world.node_class.status["amis"] if "arm64-standard" in a["name"]
    )
    assert all(v > 0 for v in (*launched.capacity.values(), *launched.allocatable.values()))


async def test_a_zone_label_of_several_zones_is_never_told(world: Any) -> None:
    result = await launch(world, a_claim(requirements=[one_of(ZONE, "us-east-1b", "us-east-1c")]))

    launched = result.launched["default-1"]
    assert launched.labels[ZONE] == launched.instance.zone
    assert launched.instance.zone in ("us-east-1b", "us-east-1c")


async def test_the_node_is_told_its_labels_taints_and_pods(world: Any) -> None:
    result = await launch(world, a_claim(labels={"team": "a"}))

    instance = result.launched["default-1"].instance
    told = parse_user_data((await world.instance(instance.id))["userData"])
    assert (told.labels["team"], told.labels["karpenter.sh/capacity-type"]) == ("a", "spot")
    assert [t.key for t in told.taints] == ["karpenter.sh/unregistered"]
    assert told.max_pods == result.launched["default-1"].capacity["pods"]


async def test_the_cluster_of_eks_is_what_nodes_join(world: Any) -> None:
    result = await launch(world)

    raw = (await world.instance(result.launched["default-1"].instance.id))["userData"]
    config = yaml.safe_load(base64.b64decode(raw).decode().split("application/node.eks.aws\n\n")[1].split("\n--//")[0])
    cluster = config["spec"]["cluster"]
    assert (cluster["name"], cluster["cidr"]) == ("demo", "10.100.0.0/16")
    assert cluster["apiServerEndpoint"].startswith("https://")
    assert cluster["certificateAuthority"]


async def test_a_repeat_after_prices_and_zones_have_changed_gives_the_same_machines(world: Any) -> None:
    token, claims = a_token(), [a_claim("c-1"), a_claim("c-2")]
    first = await world.cloud.launch(token, claims, world.node_class, world.instance_types)

    second = await world.cloud.launch(token, claims, world.node_class, world.instance_types[:2])

    assert {x.instance.id for x in second.launched.values()} == {x.instance.id for x in first.launched.values()}
    assert len(await world.cloud.find_by_token(token)) == 2


async def test_another_process_that_repeats_a_token_finds_the_machines(world: Any) -> None:
    token, claims = a_token(), [a_claim("c-1"), a_claim("c-2")]
    first = await world.cloud.launch(token, claims, world.node_class, world.instance_types)
    world.cloud._launcher._asked.clear()  # what a restart forgets

    second = await world.cloud.launch(token, claims, world.node_class, world.instance_types[:2])

    assert {n: x.instance.id for n, x in second.launched.items()} == {
        n: x.instance.id for n, x in first.launched.items()
    }


async def test_a_used_token_without_a_living_machine_asks_for_a_new_one(world: Any) -> None:
    token = a_token()
    result = await launch(world, token=token)
    await world.cloud.terminate([result.launched["default-1"].instance.id])
    world.cloud._launcher._asked.clear()

    with pytest.raises(CloudError) as caught:
        await world.cloud.launch(token, [a_claim()], world.node_class, world.instance_types[:1])

    assert caught.value.reason == "IdempotentParameterMismatch"


async def test_a_fault_that_is_mended_does_not_come_back_from_ec2s_memory(world: Any) -> None:
    token = a_token()
    await world.aws.control({"outOfCapacity": [{"type": "*", "code": "InvalidAMIID.NotFound", "message": "gone"}]})
    with pytest.raises(CloudError):
        await launch(world, token=token)
    await world.aws.control({"outOfCapacity": []})

    result = await launch(world, token=token)

    assert result.launched["default-1"].instance.token == token
    assert len(await world.cloud.find_by_token(token)) == 1


async def test_fewer_machines_than_claims_is_no_error(world: Any) -> None:
    limit = {"capacityType": "spot", "type": "*", "zone": "*", "remaining": 2}
    await world.aws.control({"outOfCapacity": [limit]})

    result = await launch(world, *(a_claim(f"c-{n}") for n in range(3)))

    assert sorted(result.launched) == ["c-0", "c-1"]
    assert result.failed


async def test_a_repeat_for_fewer_claims_tells_the_surplus(world: Any) -> None:
    token = a_token()
    await launch(world, a_claim("c-1"), a_claim("c-2"), token=token)

    again = await launch(world, a_claim("c-1"), token=token)

    assert len(again.launched) == 1
    assert len(again.surplus) == 1


async def test_pools_out_of_capacity_are_listed_and_the_fleet_goes_elsewhere(world: Any) -> None:
    await world.aws.control(
        {"outOfCapacity": [{"type": "c5.large", "zone": "*"}, {"type": "m5.large", "zone": "us-east-1a"}]}
    )

    result = await launch(world, a_claim(capacity_types=["on-demand"]))

    failed = {(f.instance_type, f.zone) for f in result.failed}
    assert ("m5.large", "us-east-1a") in failed
    assert {code for f in result.failed for code in [f.code]} == {"InsufficientInstanceCapacity"}
    assert (
        result.launched["default-1"].instance.instance_type,
        result.launched["default-1"].instance.zone,
    ) not in failed


async def test_all_pools_out_of_capacity_lists_every_one(world: Any) -> None:
    await world.sell_out()

    with pytest.raises(InsufficientCapacityError) as caught:
        await launch(world, a_claim(requirements=[one_of(INSTANCE_TYPE, "m5.large")]))

    zones = {f.zone for f in caught.value.failed}
    offered = {o.zone for t in world.instance_types if t.name == "m5.large" for o in t.offerings if o.available}
    assert zones == offered


async def test_a_throttled_call_marks_nothing_and_launches_nothing(world: Any) -> None:
    token = a_token()
    await world.fail("CreateFleet", "RequestLimitExceeded", status=503)

    with pytest.raises(ThrottledError) as caught:
        await launch(world, token=token)

    assert caught.value.failed == ()
    assert await world.cloud.find_by_token(token) == []


async def test_a_throttle_among_a_fleets_errors_is_a_throttle_and_keeps_what_was_out(world: Any) -> None:
    await world.aws.control(
        {
            "outOfCapacity": [
                {"type": "m5.*", "code": "RequestLimitExceeded", "message": "slow"},
                {"type": "*", "code": "InsufficientInstanceCapacity"},
            ]
        }
    )

    with pytest.raises(ThrottledError) as caught:
        await launch(world)

    assert caught.value.failed
    assert not any(f.instance_type.startswith("m5.") for f in caught.value.failed)


@pytest.mark.parametrize("code", ["UnsupportedOperation", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"])
async def test_quotas_and_unsupported_types_are_gone_elsewhere(world: Any, code: str) -> None:
    await world.aws.control({"outOfCapacity": [{"type": "*", "code": code, "message": "no"}]})

    with pytest.raises(InsufficientCapacityError) as caught:
        await launch(world)

    assert {f.code for f in caught.value.failed} == {code}


async def test_spot_that_the_account_may_not_start_is_out_everywhere(world: Any) -> None:
    code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    await world.aws.control({"outOfCapacity": [{"capacityType": "spot", "code": code, "message": "no"}]})

    with pytest.raises(InsufficientCapacityError) as caught:
        await launch(world)

    assert [(f.capacity_type, f.instance_type, f.scope) for f in caught.value.failed] == [("spot", "*", "quota/all")]


async def test_t02_a_template_that_somebody_deleted_is_made_again_once(world: Any) -> None:
    await launch(world)
    async with ec2_client(world) as ec2:
        for template in (await ec2.describe_launch_templates(MaxResults=200))["LaunchTemplates"]:
            await ec2.delete_launch_template(LaunchTemplateName=template["LaunchTemplateName"])
    before = await world.aws.calls()

    result = await launch(world)

    after = await world.aws.calls()
    assert len(result.launched) == 1
    assert after["CreateFleet"] - before["CreateFleet"] == 2


async def test_a_template_that_is_deleted_again_and_again_is_an_error(world: Any) -> None:
    await world.fail("CreateFleet", "InvalidLaunchTemplateName.NotFoundException", times=2)

    with pytest.raises(CloudError) as caught:
        await launch(world)

    assert caught.value.reason == "LaunchTemplateNotFound"


async def test_l04_a_request_that_is_too_large_is_tried_once_with_fewer_offerings(world: Any) -> None:
    await world.fail("CreateFleet", "RequestEntityTooLarge", status=413)
    before = await world.aws.calls()

    result = await launch(world)

    assert len(result.launched) == 1
    assert (await world.aws.calls())["CreateFleet"] - before["CreateFleet"] == 2


async def test_templates_are_shared_by_launches_of_equal_content(world: Any) -> None:
    await launch(world)
    before = await world.aws.calls()

    await launch(world)

    assert (await world.aws.calls())["CreateLaunchTemplate"] == before["CreateLaunchTemplate"]


async def test_a_full_subnet_gives_way_to_another_of_its_zone(world: Any) -> None:
    async with ec2_client(world) as ec2:
        vpc = (await ec2.describe_subnets(SubnetIds=[world.seeded.subnets[0][1]]))["Subnets"][0]["VpcId"]
        tags = [{"ResourceType": "subnet", "Tags": [{"Key": "pair", "Value": "yes"}]}]
        for cidr in ("10.0.224.0/20", "10.0.240.0/24"):
            await ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone="us-east-1a", TagSpecifications=tags)
    node_class = await world.resolved("pair", {"subnetSelectorTerms": [{"tags": {"pair": "yes"}}]})
    larger, smaller = (s["id"] for s in node_class.status["subnets"])
    full = {"type": "*", "zone": "us-east-1a", "code": "InsufficientFreeAddressesInSubnet", "message": "full"}
    await world.aws.control({"outOfCapacity": [full]})

    with pytest.raises(InsufficientCapacityError) as first:
        await launch(world, node_class=node_class)
    with pytest.raises(InsufficientCapacityError) as second:
        await launch(world, node_class=node_class)
    await world.aws.control({"outOfCapacity": []})
    result = await launch(world, node_class=node_class)

    # Other classes may have other subnets in the zone: its offerings stay.
    assert [f.scope for f in first.value.failed] == [f"subnet/{larger}"]
    assert [f.scope for f in second.value.failed] == [f"subnet/{smaller}"]
    assert second.value.reason == "InsufficientFreeAddressesInSubnet"
    assert str(first.value).startswith(f"no free address in {larger}")
    assert smaller in str(second.value)
    assert len(result.launched) == 1
    assert larger != smaller


@pytest.mark.parametrize("field", ["subnets", "securityGroups", "amis", "instanceProfile"])
async def test_a_class_without_a_part_of_its_status_is_not_ready(world: Any, field: str) -> None:
    node_class = await world.resolved("part", {})
    node_class.status.pop(field)

    with pytest.raises(NodeClassNotReadyError):
        await launch(world, node_class=node_class)


async def test_a_class_that_cannot_be_read_is_not_ready(world: Any) -> None:
    node_class = await world.resolved("unreadable", {"kubelet": {"maxPods": "vcpus"}})

    with pytest.raises(NodeClassNotReadyError, match=r"spec\.kubelet\.maxPods"):
        await launch(world, node_class=node_class)


async def test_l04_user_data_that_is_too_large_is_told_by_its_word(world: Any) -> None:
    node_class = await world.resolved("large", {"userData": "#!/bin/sh\n" + "#" * 15_900})

    with pytest.raises(CloudError) as caught:
        await launch(world, a_claim(labels={f"label-{n}": "x" * 60 for n in range(10)}), node_class=node_class)

    assert caught.value.reason == "UserDataSizeLimitExceeded"


async def test_a_faulty_image_is_a_fault_and_not_a_lack_of_capacity(world: Any) -> None:
    node_class = await world.resolved("imageless", {})
    for ami in node_class.status["amis"]:
        ami["id"] = "ami-00000000000000000"

    with pytest.raises(CloudError) as caught:
        await launch(world, node_class=node_class)

    assert not isinstance(caught.value, InsufficientCapacityError)
    assert caught.value.reason == "AMINotFound"


async def test_no_answer_is_unavailable(world: Any) -> None:
    await world.fail("CreateFleet", "ServiceUnavailable", status=503)

    with pytest.raises(CloudUnavailableError):
        await launch(world)


async def test_no_claims_launch_nothing(world: Any) -> None:
    before = await world.aws.calls()

    result = await world.cloud.launch(a_token(), [], world.node_class, world.instance_types)

    assert dict(result.launched) == {}
    assert (await world.aws.calls()).get("CreateFleet", 0) == before.get("CreateFleet", 0)


async def test_many_fleets_at_once_share_their_templates(world: Any) -> None:
    node_class = await world.resolved("busy", {"tags": {"busy": "yes"}})
    before = await world.aws.calls()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(launch(world, a_claim(f"c-{n}"), node_class=node_class)) for n in range(8)]

    ids = {x.instance.id for t in tasks for x in t.result().launched.values()}
    made = (await world.aws.calls())["CreateLaunchTemplate"] - before["CreateLaunchTemplate"]
    assert len(ids) == 8
    assert made <= 3  # one for each image and number of pods


async def test_g05_nested_virtualization_is_launched_on_types_that_have_it_only(world: Any) -> None:
    node_class = await world.resolved("nested", {"cpuOptions": {"nestedVirtualization": "enabled"}})
    world.instance_types = world.types(node_class, "m5.large", "m8i.large")

    result = await launch(world, node_class=node_class)

    assert result.launched["default-1"].instance.instance_type == "m8i.large"


async def test_g05_a_type_that_a_stale_catalogue_still_offers_is_set_aside_and_no_loop(world: Any) -> None:
    node_class = await world.resolved("stale", {"cpuOptions": {"nestedVirtualization": "enabled"}})
    # As if the feature had been withdrawn: types as a class without the option sees them.
    world.instance_types = world.types(world.node_class, "m5.large")

    with pytest.raises(InsufficientCapacityError) as caught:
        await launch(world, a_claim(capacity_types=["on-demand"]), node_class=node_class)

    assert {(f.instance_type, f.code) for f in caught.value.failed} == {("m5.large", "UnsupportedOperation")}


async def test_nested_virtualization_disabled_leaves_every_type(world: Any) -> None:
    node_class = await world.resolved("flat", {"cpuOptions": {"nestedVirtualization": "disabled"}})
    world.instance_types = world.types(node_class, "m5.large")

    assert len((await launch(world, node_class=node_class)).launched) == 1


@pytest.mark.parametrize(
    ("options", "block"),
    [
        (None, None),
        ({}, None),
        ({"nestedVirtualization": "enabled"}, {"NestedVirtualization": "enabled"}),
        ({"nestedVirtualization": "disabled"}, {"NestedVirtualization": "disabled"}),
    ],
)
async def test_the_launch_template_holds_nested_virtualization_as_typed_and_else_no_block(
    world: Any, options: dict[str, str] | None, block: dict[str, str] | None
) -> None:
    node_class = await world.resolved("kept", {} if options is None else {"cpuOptions": options})
    world.instance_types = world.types(node_class, "m8i.large")

    await launch(world, node_class=node_class)

    async with client("ec2", region="us-east-1", endpoint_url=world.aws.endpoint_url) as ec2:
        mine = [{"Name": "tag:karpenter.k8s.aws/ec2nodeclass", "Values": ["kept"]}]
        (template,) = (await ec2.describe_launch_templates(Filters=mine))["LaunchTemplates"]
        name = template["LaunchTemplateName"]
        (version,) = (await ec2.describe_launch_template_versions(LaunchTemplateName=name))["LaunchTemplateVersions"]
        await ec2.delete_launch_template(LaunchTemplateName=name)
    assert version["LaunchTemplateData"].get("CpuOptions") == block


async def test_nested_virtualization_goes_over_the_wire(world: Any) -> None:
    sent: list[str] = []
    data = {"ImageId": "ami-1", "CpuOptions": {"NestedVirtualization": "enabled"}}

    async with client("ec2", region="us-east-1", endpoint_url=world.aws.endpoint_url) as ec2:
        ec2.meta.events.register("before-send.ec2.CreateLaunchTemplate", lambda request, **_: sent.append(request.body))
        await ec2.create_launch_template(LaunchTemplateName="wired", LaunchTemplateData=data)

    assert "LaunchTemplateData.CpuOptions.NestedVirtualization=enabled" in sent[0]


async def test_fewer_cores_reach_the_machine_and_its_capacity(world: Any) -> None:
    node_class = await world.resolved("cores", {"cpuOptions": {"coreCount": 2, "threadsPerCore": 1}})
    world.instance_types = world.types(node_class, "m5.large", "m5.2xlarge")

    launched = (await launch(world, node_class=node_class)).launched["default-1"]

    async with ec2_client(world) as ec2:
        (described,) = (await ec2.describe_instances(InstanceIds=[launched.instance.id]))["Reservations"]
    assert launched.instance.instance_type == "m5.2xlarge"  # m5.large has one core
    assert described["Instances"][0]["CpuOptions"] == {"CoreCount": 2, "ThreadsPerCore": 1}
    assert launched.capacity["cpu"] == 2000


async def test_network_interfaces_and_time_outs_launch(world: Any) -> None:
    interfaces = [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]
    node_class = await world.resolved(
        "efa", {"networkInterfaces": interfaces, "connectionTracking": {"udpTimeout": "30s"}, "ipPrefixCount": 1}
    )
    world.instance_types = world.types(node_class, "m5.large", "c6in.32xlarge")

    launched = (await launch(world, node_class=node_class)).launched["default-1"]

    (template,) = await _templates(world, "efa")
    first, second = template["NetworkInterfaces"]
    assert (first["Ipv4PrefixCount"], first["ConnectionTrackingSpecification"]) == (1, {"UdpTimeout": 30})
    assert (second["InterfaceType"], "Ipv4PrefixCount" in second) == ("efa-only", False)
    assert launched.instance.instance_type == "c6in.32xlarge"
    assert launched.capacity["vpc.amazonaws.com/efa"] == 1


async def test_efa_is_there_for_the_claim_that_asks_and_for_no_other(world: Any) -> None:
    world.instance_types = world.types(world.node_class, "c6in.32xlarge")

    asking = await launch(world, a_claim(requests={"cpu": "1", "vpc.amazonaws.com/efa": "2"}))
    other = await launch(world)

    assert asking.launched["default-1"].capacity["vpc.amazonaws.com/efa"] == 2
    assert "vpc.amazonaws.com/efa" not in other.launched["default-1"].capacity


async def _templates(world: Any, node_class: str) -> list[dict[str, Any]]:
    """What the templates of a class say, as EC2 has it."""
    async with session().client("ec2", region_name="us-east-1", endpoint_url=world.aws.endpoint_url) as ec2:
        where = [{"Name": "tag:karpenter.k8s.aws/ec2nodeclass", "Values": [node_class]}]
        found = (await ec2.describe_launch_templates(Filters=where))["LaunchTemplates"]
        versions = [
            (await ec2.describe_launch_template_versions(LaunchTemplateName=t["LaunchTemplateName"]))[
                "LaunchTemplateVersions"
            ][0]
            for t in found
        ]
    return [v["LaunchTemplateData"] for v in versions]


@pytest.mark.parametrize("alias", ["bottlerocket@latest", "windows2022@latest"])
async def test_every_family_with_images_launches_and_its_node_is_told_its_pods(world: Any, alias: str) -> None:
    node_class = await world.resolved("family", {"amiSelectorTerms": [{"alias": alias}]})
    world.instance_types = world.types(node_class, "m5.large")

    launched = (await launch(world, a_claim(labels={"team": "a"}), node_class=node_class)).launched["default-1"]

    told = parse_user_data((await world.instance(launched.instance.id))["userData"])
    assert told.labels["team"] == "a"
    assert told.max_pods == launched.capacity["pods"]
    assert launched.labels[OS] == ("windows" if "windows" in alias else "linux")
