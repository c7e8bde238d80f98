"""Resolving a NodeClass against the sandbox's AWS: conditions for found, nothing found, and look-ups that fail."""

from dataclasses import replace
from typing import Any

import aioboto3
import pytest

from sawhorse_cloud.cloud import ResolvedNodeClass
from sawhorse_cloud_aws.hashing import HASH_VERSION
from sawhorse_model.aws import parse_ec2_node_class
from sawhorse_model.meta import Condition
from sawhorse_model.nodeclass import NodeClass
from sawhorse_testing.cloud_worlds import an_ec2_node_class

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

LOOKED_UP = ("subnets", "securityGroups", "amis", "instanceProfile")


def fresh(world: Any, name: str = "fresh", **spec: Any) -> NodeClass:
    """A NodeClass that was never looked up."""
    return an_ec2_node_class(
        name, spec={"role": world.seeded.role_name, **spec}, status=dict.fromkeys(LOOKED_UP), uid=f"uid-{name}"
    )


def told(resolved: ResolvedNodeClass, kind: str) -> Condition:
    return next(c for c in resolved.conditions if c.type == kind)


def aws(world: Any, service: str) -> Any:
    return aioboto3.Session().client(service, region_name="us-east-1", endpoint_url=world.aws.endpoint_url)


async def test_what_a_class_selects_is_in_its_status(world: Any) -> None:
    resolved = await world.cloud.resolve_node_class(fresh(world))

    status: Any = resolved.status
    assert {s["zone"] for s in status["subnets"]} == {zone for zone, _ in world.seeded.subnets}
    assert all(s["zoneID"].startswith("use1-az") for s in status["subnets"])
    assert [g["id"] for g in status["securityGroups"]] == [world.seeded.security_group]
    assert status["securityGroups"][0]["name"] == "demo-nodes"
    assert len(status["amis"]) == 5
    assert status["instanceProfile"].startswith("demo_")
    assert {c.status for c in resolved.conditions} == {"True"}
    assert resolved.hash_version == HASH_VERSION


async def test_the_status_is_read_back_as_it_was_found(world: Any) -> None:
    resolved = await world.cloud.resolve_node_class(fresh(world))

    parsed = parse_ec2_node_class(replace(fresh(world), status=dict(resolved.status)))

    assert len(parsed.subnets) == len(world.seeded.subnets)
    assert {r.key for ami in parsed.amis for r in ami.requirements} >= {"kubernetes.io/arch"}


@pytest.mark.parametrize(
    ("spec", "kind", "reason"),
    [
        ({"subnetSelectorTerms": [{"tags": {"no": "such"}}]}, "SubnetsReady", "SubnetsNotFound"),
        ({"subnetSelectorTerms": [{"id": "subnet-0000000000000000"}]}, "SubnetsReady", "SubnetsNotFound"),
        ({"securityGroupSelectorTerms": [{"name": "nobody"}]}, "SecurityGroupsReady", "SecurityGroupsNotFound"),
        ({"amiSelectorTerms": [{"alias": "al2023@v20200101"}]}, "AMIsReady", "AMINotFound"),
        (
            {"amiSelectorTerms": [{"id": "ami-00000000000000000"}], "amiFamily": "AL2023"},
            "AMIsReady",
            "AMINotFound",
        ),
        ({"amiSelectorTerms": [{"ssmParameter": "/no/such"}], "amiFamily": "AL2023"}, "AMIsReady", "AMINotFound"),
        ({"amiSelectorTerms": [{"alias": "al2@latest"}], "amiFamily": "Custom"}, "AMIsReady", "UnsupportedAlias"),
    ],
)
async def test_nothing_found_is_false_with_a_reason_and_the_field(
    world: Any, spec: dict[str, Any], kind: str, reason: str
) -> None:
    resolved = await world.cloud.resolve_node_class(fresh(world, **spec))

    condition = told(resolved, kind)
    assert (condition.status, condition.reason) == ("False", reason)
    assert condition.message.startswith("spec.")
    validation = told(resolved, "ValidationSucceeded")
    assert (validation.status, validation.reason) == ("False", "DependenciesNotReady")
    assert f"{kind}=False" in validation.message


@pytest.mark.parametrize(
    ("action", "kind", "key"),
    [
        ("DescribeSubnets", "SubnetsReady", "subnets"),
        ("DescribeSecurityGroups", "SecurityGroupsReady", "securityGroups"),
        ("GetParameter", "AMIsReady", "amis"),
        ("DescribeImages", "AMIsReady", "amis"),
        ("GetInstanceProfile", "InstanceProfileReady", "instanceProfile"),
    ],
)
@pytest.mark.parametrize("code", ["InternalError", "AccessDenied"])
async def test_a_look_up_that_fails_is_unknown_and_keeps_the_last_good_status(
    world: Any, action: str, kind: str, key: str, code: str
) -> None:
    good = await world.resolved("good", {})
    await world.fail(action, code, status=500 if code == "InternalError" else 403, message="cause")

    resolved = await world.cloud.resolve_node_class(good)

    condition = told(resolved, kind)
    assert (condition.status, condition.reason) == ("Unknown", "LookupFailed")
    assert "cause" in condition.message
    assert resolved.status[key] == good.status[key]
    assert told(resolved, "ValidationSucceeded").status == "Unknown"
    others = [c for c in resolved.conditions if c.type not in (kind, "ValidationSucceeded")]
    assert {c.status for c in others} == {"True"}


@pytest.mark.parametrize(
    ("action", "kind", "key"),
    [
        ("DescribeSubnets", "SubnetsReady", "subnets"),
        ("DescribeSecurityGroups", "SecurityGroupsReady", "securityGroups"),
        ("GetParameter", "AMIsReady", "amis"),
        ("GetInstanceProfile", "InstanceProfileReady", "instanceProfile"),
    ],
)
async def test_what_was_found_for_this_spec_stays_true_while_a_look_up_fails(
    world: Any, action: str, kind: str, key: str
) -> None:
    good = await world.resolved("lasting", {})
    resolved = await world.cloud.resolve_node_class(good)
    judged = replace(good, conditions=tuple(replace(c, observed_generation=1) for c in resolved.conditions))
    this_spec = replace(judged, meta=replace(good.meta, generation=1))
    next_spec = replace(judged, meta=replace(good.meta, generation=2))
    await world.fail(action, "RequestLimitExceeded", status=503, times=2, message="cause")

    kept = await world.cloud.resolve_node_class(this_spec)
    changed = await world.cloud.resolve_node_class(next_spec)

    condition = told(kept, kind)
    assert (condition.status, condition.reason) == ("True", "LookupFailed")
    assert "cause" in condition.message
    assert kept.status[key] == good.status[key]
    assert told(kept, "ValidationSucceeded").status == "True"
    assert told(changed, kind).status == "Unknown"


async def test_an_interruptible_reservation_is_shown_and_a_condition_says_that_it_is_left_alone(world: Any) -> None:
    held = {"type": "m5.large", "zone": "us-east-1a", "count": 1, "tags": {"team": "a"}}
    await world.aws.control({"reservations": [{"id": "cr-1", **held}, {"id": "cr-2", "interruptible": True, **held}]})

    resolved = await world.cloud.resolve_node_class(
        fresh(world, capacityReservationSelectorTerms=[{"tags": {"team": "a"}}])
    )

    condition = told(resolved, "CapacityReservationsReady")
    shown = {each["id"]: each.get("interruptible", False) for each in resolved.status["capacityReservations"]}
    assert shown == {"cr-1": False, "cr-2": True}
    assert (condition.status, condition.reason) == ("True", "InterruptibleIgnored")
    assert "cr-2" in condition.message
    assert "cr-1" not in condition.message


async def test_a_spec_that_cannot_be_read_is_a_condition_and_the_rest_is_looked_up(world: Any) -> None:
    resolved = await world.cloud.resolve_node_class(fresh(world, kubelet={"maxPods": "vcpus * 10"}))

    validation = told(resolved, "ValidationSucceeded")
    assert (validation.status, validation.reason) == ("False", "KubeletExpressionsDisabled")
    assert "spec.kubelet.maxPods" in validation.message
    assert told(resolved, "SubnetsReady").status == "True"
    assert resolved.hash != (await world.cloud.resolve_node_class(fresh(world))).hash


async def test_g07_types_that_a_core_count_rules_out_are_counted_and_named(world: Any) -> None:
    resolved = await world.cloud.resolve_node_class(fresh(world, cpuOptions={"coreCount": 4}))

    told_of = told(resolved, "InstanceTypesCompatible")
    assert (told_of.status, told_of.reason) == ("True", "SomeExcluded")
    left, _, total, *_ = told_of.message.split()
    assert 0 < int(left) < int(total)
    assert "spec.cpuOptions.coreCount is 4, it takes 1, 2 (" in told_of.message


async def test_a_class_that_no_type_can_serve_is_not_ready_and_says_why(world: Any) -> None:
    resolved = await world.cloud.resolve_node_class(fresh(world, cpuOptions={"coreCount": 1001}))

    told_of = told(resolved, "InstanceTypesCompatible")
    assert (told_of.status, told_of.reason) == ("False", "NoCompatibleInstanceTypes")
    assert told_of.message.startswith("0 of ")
    assert told_of.type in resolved.dependents


async def test_a_class_that_asks_for_nothing_special_needs_no_list_of_types(world: Any) -> None:
    before = (await world.aws.calls()).get("DescribeInstanceTypes", 0)

    resolved = await world.cloud.resolve_node_class(fresh(world))

    assert told(resolved, "InstanceTypesCompatible").reason == "AllCompatible"
    assert (await world.aws.calls()).get("DescribeInstanceTypes", 0) == before


async def test_terms_are_or_ed_and_an_id_stands_alone(world: Any) -> None:
    (_, first), (_, second) = world.seeded.subnets[:2]

    terms = [{"id": first, "tags": {"no": "such"}}, {"tags": {"Name": f"demo-{world.seeded.subnets[1][0]}"}}]
    resolved = await world.cloud.resolve_node_class(fresh(world, subnetSelectorTerms=terms))

    assert {s["id"] for s in resolved.status["subnets"]} == {first, second}


async def test_tags_of_one_term_are_and_ed(world: Any) -> None:
    zone, wanted = world.seeded.subnets[2]
    terms = [{"tags": {"karpenter.sh/discovery": "*", "Name": f"demo-{zone}"}}]

    resolved = await world.cloud.resolve_node_class(fresh(world, subnetSelectorTerms=terms))

    assert [s["id"] for s in resolved.status["subnets"]] == [wanted]


async def test_more_ids_than_a_filter_takes_are_looked_up(world: Any) -> None:
    unknown = [{"id": f"subnet-{n:017x}"} for n in range(450)]
    known = [{"id": subnet} for _, subnet in world.seeded.subnets]

    resolved = await world.cloud.resolve_node_class(fresh(world, subnetSelectorTerms=[*unknown, *known]))

    assert len(resolved.status["subnets"]) == len(known)


async def test_a_group_is_found_by_its_name(world: Any) -> None:
    resolved = await world.cloud.resolve_node_class(fresh(world, securityGroupSelectorTerms=[{"name": "demo-nodes"}]))

    assert [g["id"] for g in resolved.status["securityGroups"]] == [world.seeded.security_group]


async def test_subnets_come_with_the_most_free_addresses_first(world: Any) -> None:
    async with aws(world, "ec2") as ec2:
        vpc = (await ec2.create_vpc(CidrBlock="10.7.0.0/16"))["Vpc"]["VpcId"]
        tags = [{"ResourceType": "subnet", "Tags": [{"Key": "size", "Value": "mixed"}]}]
        for cidr in ("10.7.0.0/28", "10.7.1.0/24", "10.7.2.0/26"):
            await ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone="us-east-1a", TagSpecifications=tags)
        found = (await ec2.describe_subnets(Filters=[{"Name": "tag:size", "Values": ["mixed"]}]))["Subnets"]

    resolved = await world.cloud.resolve_node_class(fresh(world, subnetSelectorTerms=[{"tags": {"size": "mixed"}}]))

    by_room = sorted(found, key=lambda s: -s["AvailableIpAddressCount"])
    assert [s["id"] for s in resolved.status["subnets"]] == [s["SubnetId"] for s in by_room]


async def test_latest_and_a_pin_find_their_releases(world: Any) -> None:
    latest = await world.cloud.resolve_node_class(fresh(world))
    pinned = await world.cloud.resolve_node_class(fresh(world, amiSelectorTerms=[{"alias": "al2023@v20260915"}]))

    assert all(a["name"].endswith("v20261118") for a in latest.status["amis"])
    assert all(a["name"].endswith("v20260915") for a in pinned.status["amis"])
    assert pinned.hash == latest.hash


async def test_images_are_found_by_id_name_and_parameter(world: Any) -> None:
    by_alias = (await world.cloud.resolve_node_class(fresh(world))).status["amis"]
    standard = {a["name"].split("-")[4]: a for a in by_alias if "standard" in a["name"]}
    path = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/recommended/image_id"

    terms = [{"id": standard["x86_64"]["id"]}, {"ssmParameter": path}]
    by_id = await world.cloud.resolve_node_class(fresh(world, amiFamily="AL2023", amiSelectorTerms=terms))
    name = {"name": "amazon-eks-node-al2023-arm64-standard-1.36-*", "owner": "amazon"}
    by_name = await world.cloud.resolve_node_class(fresh(world, amiFamily="AL2023", amiSelectorTerms=[name]))

    assert {a["id"] for a in by_id.status["amis"]} == {standard["x86_64"]["id"], standard["arm64"]["id"]}
    assert [a["requirements"][0]["values"] for a in by_name.status["amis"]] == [["arm64"]]
    assert by_name.status["amis"][0]["name"].endswith("v20261118")


async def test_a_profile_is_made_for_the_role_once(world: Any) -> None:
    first = await world.cloud.resolve_node_class(fresh(world, "profiled"))
    second = await world.cloud.resolve_node_class(fresh(world, "profiled"))

    name = first.status["instanceProfile"]
    async with aws(world, "iam") as iam:
        profile = (await iam.get_instance_profile(InstanceProfileName=name))["InstanceProfile"]
    assert second.status["instanceProfile"] == name
    assert [r["RoleName"] for r in profile["Roles"]] == [world.seeded.role_name]
    assert profile["Path"] == "/karpenter/us-east-1/demo/uid-profiled/"
    assert {t["Key"]: t["Value"] for t in profile["Tags"]}["karpenter.k8s.aws/ec2nodeclass"] == "profiled"


async def test_a_changed_role_is_another_profile(world: Any) -> None:
    async with aws(world, "iam") as iam:
        await iam.create_role(RoleName="second-role", AssumeRolePolicyDocument="{}", Path="/team/")
    before = await world.cloud.resolve_node_class(fresh(world, "changing"))
    after = await world.cloud.resolve_node_class(fresh(world, "changing", role="team/second-role"))

    assert after.status["instanceProfile"] != before.status["instanceProfile"]
    assert after.hash != before.hash


async def test_a_role_that_does_not_exist_is_told_by_name(world: Any) -> None:
    resolved = await world.cloud.resolve_node_class(fresh(world, "roleless", role="nobody"))

    condition = told(resolved, "InstanceProfileReady")
    assert condition.status == "Unknown"
    assert "there is no role nobody" in condition.message


async def test_a_role_that_was_deleted_is_told_though_its_profile_was_there_before(world: Any) -> None:
    async with aws(world, "iam") as iam:
        await iam.create_role(RoleName="short-lived", AssumeRolePolicyDocument="{}")
        before = await world.cloud.resolve_node_class(fresh(world, "orphan", role="short-lived"))
        profile = before.status["instanceProfile"]
        await iam.remove_role_from_instance_profile(InstanceProfileName=profile, RoleName="short-lived")
        await iam.delete_role(RoleName="short-lived")
    judged = tuple(replace(c, observed_generation=1) for c in before.conditions)
    good = fresh(world, "orphan", role="short-lived")
    known = replace(good, meta=replace(good.meta, generation=1), status=before.status, conditions=judged)

    after = await world.cloud.resolve_node_class(known)

    assert told(before, "InstanceProfileReady").status == "True"
    assert told(after, "InstanceProfileReady").status == "Unknown"
    assert "there is no role short-lived" in told(after, "InstanceProfileReady").message


async def test_the_users_own_profile_is_taken_as_it_is(world: Any) -> None:
    calls = await world.aws.calls()
    resolved = await world.cloud.resolve_node_class(fresh(world, role=None, instanceProfile="mine"))

    assert resolved.status["instanceProfile"] == "mine"
    assert (await world.aws.calls()).get("GetInstanceProfile", 0) == calls.get("GetInstanceProfile", 0)


async def test_release_deletes_the_profiles_of_all_roles_that_the_class_had(world: Any) -> None:
    await world.cloud.resolve_node_class(fresh(world, "leaving"))
    async with aws(world, "iam") as iam:
        await iam.create_role(RoleName="third-role", AssumeRolePolicyDocument="{}")
        await world.cloud.resolve_node_class(fresh(world, "leaving", role="third-role"))

        await world.cloud.release_node_class(fresh(world, "leaving"))

        left = await iam.list_instance_profiles(PathPrefix="/karpenter/us-east-1/demo/uid-leaving/")
    assert left["InstanceProfiles"] == []


async def test_a_class_that_cannot_be_read_is_released_all_the_same(world: Any) -> None:
    await world.cloud.resolve_node_class(fresh(world, "broken"))

    await world.cloud.release_node_class(fresh(world, "broken", tags="none"))

    async with aws(world, "iam") as iam:
        left = await iam.list_instance_profiles(PathPrefix="/karpenter/us-east-1/demo/uid-broken/")
    assert left["InstanceProfiles"] == []
