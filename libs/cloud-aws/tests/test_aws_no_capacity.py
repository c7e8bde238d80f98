"""Launches that find no capacity: what they mark, what they say of it, and which partitions the next ones take."""

from typing import Any

import pytest

from sawhorse_catalog.account import PlacementGroup
from sawhorse_cloud.cloud import Instance
from sawhorse_cloud.errors import InsufficientCapacityError
from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.fleet import FleetLauncher
from sawhorse_cloud_aws.partitions import FULL_SECONDS, FullPartitions, partition_for
from sawhorse_cloud_aws.subnets import SubnetPicker
from sawhorse_cloud_aws.templates import LaunchTemplates
from sawhorse_model.aws import PLACEMENT_GROUP_PARTITION, EC2NodeClass, parse_ec2_node_class
from sawhorse_model.requirements import Operator, Requirements, RequirementSpec
from sawhorse_testing.catalog import an_instance_type
from sawhorse_testing.cloud_worlds import a_claim, an_ec2_node_class

GROUP = PlacementGroup(id="pg-1", name="apart", strategy="partition", partitions=12)
LARGE, XLARGE = ("m5.large", "us-west-2a"), ("m5.xlarge", "us-west-2a")


def asking(*partitions: str) -> Requirements:
    specs = [RequirementSpec(PLACEMENT_GROUP_PARTITION, Operator.IN, partitions)] if partitions else []
    return Requirements.from_specs(specs)


def test_fleets_spread_over_all_partitions_and_a_repeat_finds_its_own() -> None:
    chosen = {token: partition_for(asking(), GROUP, token) for token in map(str, range(300))}

    assert set(chosen.values()) == set(range(1, 13))
    assert chosen["7"] == partition_for(asking(), GROUP, "7")


def test_a_claim_gets_a_partition_that_it_allows() -> None:
    assert {partition_for(asking("2", "10"), GROUP, str(n)) for n in range(50)} == {2, 10}
    with pytest.raises(InsufficientCapacityError, match="allows none of the 12 partitions"):
        partition_for(asking("13"), GROUP, "token")


def test_a_full_partition_is_taken_only_where_all_are_full() -> None:
    assert {partition_for(asking("2", "10"), GROUP, str(n), {2}) for n in range(50)} == {10}
    assert {partition_for(asking("2", "10"), GROUP, str(n), {2, 10}) for n in range(50)} == {2, 10}


def test_a_partition_is_full_for_a_fleet_once_it_has_nothing_of_all_that_is_asked_for() -> None:
    full = FullPartitions(monotonic=lambda: 0.0)
    full.mark("pg-1", 3, LARGE)

    assert full.full("pg-1", [LARGE]) == {3}
    assert full.full("pg-1", [LARGE, XLARGE]) == frozenset()
    assert full.full("pg-2", [LARGE]) == frozenset()
    full.mark("pg-1", 3, XLARGE)
    assert full.full("pg-1", [LARGE, XLARGE]) == {3}


def test_a_full_partition_is_tried_again_after_three_minutes() -> None:
    now = [0.0]
    full = FullPartitions(monotonic=lambda: now[0])
    full.mark("pg-1", 3, LARGE)

    now[0] = FULL_SECONDS

    assert full.full("pg-1", [LARGE]) == frozenset()


class FullEc2:
    """Answers every fleet with one error for each override, and launches nothing."""

    def __init__(self, code: str, message: str = "none left") -> None:
        self.code = code
        self.message = message
        self.partitions: list[int] = []

    async def create_launch_template(self, **request: Any) -> dict[str, Any]:
        self.partitions.append(request["LaunchTemplateData"]["Placement"].get("PartitionNumber", 0))
        return {}

    async def create_fleet(self, **request: Any) -> dict[str, Any]:
        overrides = [o for config in request["LaunchTemplateConfigs"] for o in config["Overrides"]]
        errors = [
            {"ErrorCode": self.code, "ErrorMessage": self.message, "LaunchTemplateAndOverrides": {"Overrides": o}}
            for o in overrides
        ]
        return {"Instances": [], "Errors": errors}


def a_launcher(ec2: FullEc2, group: PlacementGroup) -> FleetLauncher:
    async def group_of(node_class: EC2NodeClass) -> PlacementGroup:
        return group

    async def nothing(token: str) -> list[Instance]:
        return []

    return FleetLauncher(
        ec2=ec2,
        templates=LaunchTemplates(ec2=ec2, cluster="demo", monotonic=lambda: 0.0),
        subnets=SubnetPicker(monotonic=lambda: 0.0),
        find=nothing,
        group_of=group_of,
        cluster=ClusterFacts("demo", "https://demo.example", "Q0E=", "10.100.0.0/16", "1.36"),
        region="us-west-2",
        monotonic=lambda: 0.0,
    )


async def refused(launcher: FleetLauncher, token: str) -> InsufficientCapacityError:
    node_class = parse_ec2_node_class(an_ec2_node_class(spec={"placementGroupSelector": {"name": "apart"}}))
    types = [an_instance_type("m5.large", price=0.1, spot_price=0.04, zones=("us-west-2a",))]
    with pytest.raises(InsufficientCapacityError) as error:
        await launcher.launch(token, [a_claim()], node_class, types)
    return error.value


async def test_a_full_partition_is_marked_alone_and_the_next_fleets_take_the_others() -> None:
    ec2 = FullEc2("InsufficientInstanceCapacity")
    launcher = a_launcher(ec2, PlacementGroup(id="pg-1", name="apart", strategy="partition", partitions=4))

    errors = [await refused(launcher, f"token-{n}") for n in range(4)]

    marked = [(f.capacity_type, f.instance_type, f.zone, f.scope) for e in errors for f in e.failed]
    assert sorted(ec2.partitions) == [1, 2, 3, 4]
    assert marked == [("spot", "m5.large", "us-west-2a", f"group/pg-1/{n}") for n in ec2.partitions]


async def test_a_spread_group_that_is_full_in_a_zone_is_no_fault_and_marks_the_zone_for_the_group() -> None:
    ec2 = FullEc2("InstanceLimitExceeded", "The limit of instances in this spread group was reached.")
    launcher = a_launcher(ec2, PlacementGroup(id="pg-2", name="apart", strategy="spread"))

    error = await refused(launcher, "token")

    assert [(f.instance_type, f.zone, f.scope) for f in error.failed] == [("*", "us-west-2a", "group/pg-2")]


@pytest.mark.parametrize(
    ("code", "reason", "helps"),
    [
        ("InsufficientInstanceCapacity", "InsufficientCapacity", "Allow more instance types"),
        ("VcpuLimitExceeded", "VCPULimitExceeded", "Ask AWS for a higher quota."),
        ("MaxSpotInstanceCountExceeded", "SpotQuotaExceeded", "Ask AWS for a higher quota."),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "SpotSLRCreationFailed", "service-linked role"),
    ],
)
async def test_a_launch_without_a_machine_names_the_code_and_what_helps(code: str, reason: str, helps: str) -> None:
    launcher = a_launcher(FullEc2(code), PlacementGroup(id="pg-3", name="apart", strategy="cluster"))

    error = await refused(launcher, "token")

    assert code in str(error)
    assert error.reason == reason
    assert helps in error.action
