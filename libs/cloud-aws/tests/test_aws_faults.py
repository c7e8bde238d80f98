"""Faults of AWS at the adapter: the right error or condition, nothing leaked, and other NodeClasses unharmed."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sawhorse_cloud.errors import CloudError, InsufficientCapacityError, ThrottledError
from sawhorse_cloud_aws.cloud import AwsCloud, AwsSettings, connect_cloud
from sawhorse_model.meta import Condition
from sawhorse_testing.cloud_worlds import a_claim, a_token, an_ec2_node_class

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

TRIES = 30


@pytest_asyncio.fixture(loop_scope="module")
async def patient(world: Any) -> AsyncIterator[AwsCloud]:
    """The adapter as services connect it: the SDK repeats a throttled call."""
    settings = AwsSettings(cluster_name="demo", region="us-east-1", endpoint_url=world.aws.endpoint_url)
    async with connect_cloud(settings) as cloud:
        yield cloud


def told(conditions: Any, kind: str) -> Condition:
    found: Condition = next(c for c in conditions if c.type == kind)
    return found


async def launched_at_last(cloud: AwsCloud, world: Any, token: str, *claims: Any) -> Any:
    """Repeat with the same token, as the provisioner does."""
    for _ in range(TRIES):
        try:
            return await cloud.launch(token, claims, world.node_class, world.instance_types)
        except ThrottledError:
            continue
    raise AssertionError(f"not launched in {TRIES} tries")


async def test_t01_half_of_the_calls_throttled_launch_each_claim_once_and_mark_nothing(
    world: Any, patient: AwsCloud
) -> None:
    await world.aws.control({"throttle": {"*": 0.5}})
    tokens = [a_token() for _ in range(4)]

    results = [
        await launched_at_last(patient, world, token, a_claim(f"a-{n}"), a_claim(f"b-{n}"))
        for n, token in enumerate(tokens)
    ]

    await world.aws.control({"throttle": {}})
    machines = [i.id for token in tokens for i in await world.cloud.find_by_token(token)]
    ours = [x.instance.id for r in results for x in r.launched.values()]
    assert sorted(machines) == sorted(ours)
    assert len(set(ours)) == 8
    assert all(r.failed == () for r in results)


async def test_t01_a_throttled_fleet_is_one_slow_answer_and_no_failure(world: Any, patient: AwsCloud) -> None:
    await world.fail("CreateFleet", "RequestLimitExceeded", status=503, times=2)
    claims = [a_claim(f"c-{n}") for n in range(20)]

    result = await patient.launch(a_token(), claims, world.node_class, world.instance_types)

    assert len(result.launched) == 20
    assert result.failed == ()


async def test_throttled_look_ups_are_unknown_and_keep_the_status(world: Any) -> None:
    await world.aws.control({"throttle": {"*": 1.0}})

    resolved = await world.cloud.resolve_node_class(world.node_class)

    await world.aws.control({"throttle": {}})
    before = world.node_class.status
    kept = ("subnets", "securityGroups", "amis", "instanceProfile")
    assert told(resolved.conditions, "SubnetsReady").status == "Unknown"
    assert not [c for c in resolved.conditions if c.status == "False"]
    assert {key: resolved.status[key] for key in kept} == {key: before[key] for key in kept}


async def test_with_half_of_the_types_out_of_capacity_the_others_are_launched(world: Any) -> None:
    out = ("c5.large", "m5.xlarge", "m6g.large")
    await world.aws.control({"outOfCapacity": [{"type": name} for name in out]})

    results = [
        await world.cloud.launch(a_token(), [a_claim(f"c-{n}")], world.node_class, world.instance_types)
        for n in range(3)
    ]

    types = Counter(x.instance.instance_type for r in results for x in r.launched.values())
    failed = {f.instance_type for r in results for f in r.failed}
    assert sum(types.values()) == 3
    assert not set(types) & set(out)
    assert failed <= set(out)


async def test_p02_a_fleet_tries_all_zones_of_a_sold_out_type_at_once_and_names_each(world: Any) -> None:
    await world.aws.control({"outOfCapacity": [{"type": "m5.large"}]})
    before = (await world.aws.calls()).get("CreateFleet", 0)

    with pytest.raises(InsufficientCapacityError) as error:
        await world.cloud.launch(
            a_token(),
            [a_claim(capacity_types=["on-demand"])],
            world.node_class,
            world.types(world.node_class, "m5.large"),
        )

    (kind,) = world.types(world.node_class, "m5.large")
    zones = {o.zone for o in kind.offerings if o.available}
    assert (await world.aws.calls())["CreateFleet"] == before + 1
    assert {(f.capacity_type, f.instance_type) for f in error.value.failed} == {("on-demand", "m5.large")}
    assert {f.zone for f in error.value.failed} == zones


async def test_without_ssm_an_alias_is_unknown_with_its_cause_and_classes_by_id_go_on(world: Any) -> None:
    image = world.node_class.status["amis"][0]["id"]
    by_alias = an_ec2_node_class("alias", spec={"amiSelectorTerms": [{"alias": "bottlerocket@1.44.0"}]})
    by_id = an_ec2_node_class("ids", spec={"amiFamily": "AL2023", "amiSelectorTerms": [{"id": image}]})
    await world.fail("GetParameter", "AccessDeniedException", times=50)

    without = await world.cloud.resolve_node_class(by_alias)
    with_id = await world.cloud.resolve_node_class(by_id)

    condition = told(without.conditions, "AMIsReady")
    assert (condition.status, condition.reason) == ("Unknown", "LookupFailed")
    assert "GetParameter" in condition.message
    assert without.status["amis"] == list(by_alias.status["amis"])
    assert told(with_id.conditions, "AMIsReady").status == "True"


async def test_a_full_subnet_is_told_by_its_word_and_other_classes_go_on_in_the_same_zone(world: Any) -> None:
    zone, subnet = world.seeded.subnets[0]
    narrow = await world.resolved("narrow", {"subnetSelectorTerms": [{"id": subnet}]})
    full = {"type": "*", "zone": zone, "code": "InsufficientFreeAddressesInSubnet", "message": "full"}
    await world.aws.control({"outOfCapacity": [full]})

    with pytest.raises(InsufficientCapacityError) as error:
        await world.cloud.launch(a_token(), [a_claim()], narrow, world.types(narrow, "m5.large"))
    others = await world.cloud.launch(a_token(), [a_claim()], world.node_class, world.instance_types)

    assert error.value.reason == "InsufficientFreeAddressesInSubnet"
    assert [(f.instance_type, f.zone, f.scope) for f in error.value.failed] == [("*", zone, f"subnet/{subnet}")]
    assert others.failed == ()
    assert subnet in str(error.value)
    assert "subnet" in error.value.action
    assert next(iter(others.launched.values())).instance.zone != zone


async def test_t02_a_template_that_is_known_is_neither_described_nor_made_again(world: Any) -> None:
    node_class = await world.resolved("often", {"tags": {"often": "yes"}})
    only = world.types(node_class, "m5.large")
    await world.cloud.launch(a_token(), [a_claim("first")], node_class, only)
    before = await world.aws.calls()

    for n in range(5):
        await world.cloud.launch(a_token(), [a_claim(f"c-{n}")], node_class, only)

    after = await world.aws.calls()
    asked = ("DescribeLaunchTemplates", "CreateLaunchTemplate", "DescribeInstanceTypes")
    assert {name: after.get(name, 0) - before.get(name, 0) for name in asked} == dict.fromkeys(asked, 0)


async def test_t02_a_failing_read_ends_no_machine(world: Any) -> None:
    token = a_token()
    result = await world.cloud.launch(token, [a_claim()], world.node_class, world.instance_types)
    machine = next(iter(result.launched.values())).instance
    await world.fail("DescribeInstances", "RequestLimitExceeded", status=503, times=3)

    for read in (world.cloud.list_instances, lambda: world.cloud.describe([machine.id])):
        with pytest.raises(CloudError):
            await read()
    await world.aws.control({"errors": []})

    assert [i.id for i in await world.cloud.find_by_token(token)] == [machine.id]


async def test_f05_only_instances_with_our_tags_and_our_cluster_are_ours(world: Any) -> None:
    result = await world.cloud.launch(a_token(), [a_claim()], world.node_class, world.instance_types)
    mine = next(iter(result.launched.values())).instance
    other = AwsSettings(
        cluster_name="deleted",
        region="us-east-1",
        endpoint_url=world.aws.endpoint_url,
        cluster_endpoint="https://other.example",
        cluster_ca="Q0E=",
        service_cidr="10.100.0.0/16",
        kubernetes_version="1.34",
    )

    async with connect_cloud(other) as elsewhere:
        theirs = await elsewhere.list_instances()

    assert mine.id in {i.id for i in await world.cloud.list_instances()}
    assert theirs == []
