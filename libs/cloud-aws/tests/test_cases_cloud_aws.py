"""Cases of launch that run on to what a node reads and to what is tried again."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sawhorse_catalog.account import Reservation
from sawhorse_catalog.aws import ResolveSettings, resolve
from sawhorse_catalog.prices import PriceBook
from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.dry_runs import DryRunMode, DryRuns
from sawhorse_cloud_aws.template_data import TemplateRequest, template_data
from sawhorse_cloud_aws.user_data import build_user_data
from sawhorse_model.aws import EC2NodeClass, parse_ec2_node_class
from sawhorse_model.resources import PODS
from sawhorse_sandbox.kubelet.userdata import parse_user_data
from sawhorse_testing.catalog import an_ec2_type
from sawhorse_testing.cloud_worlds import an_ec2_node_class

CLUSTER = ClusterFacts("demo", "https://demo.example", "Q0E=", "10.100.0.0/16", "1.36")


def a_class(**spec: Any) -> EC2NodeClass:
    return parse_ec2_node_class(an_ec2_node_class(spec=spec))


@pytest.mark.parametrize(("prefixes", "pods"), [(True, 110), (False, 29)])
def test_z05_the_kubelet_is_told_the_number_of_pods_that_the_plan_counts_with(prefixes: bool, pods: int) -> None:
    node_class = a_class(amiFamily="AL2023")
    (kind,) = resolve(
        [an_ec2_type("m5.large")],
        node_class,
        PriceBook(),
        region="us-east-1",
        zones={},
        settings=ResolveSettings(prefix_delegation=prefixes),
    ).instance_types

    told = parse_user_data(
        build_user_data(node_class, CLUSTER, labels={}, taints=(), max_pods=kind.capacity[PODS]),
    )

    assert told.max_pods == kind.allocatable[PODS] == pods


class Account:
    """EC2 that answers dry runs; what the role may not do is in `refused`."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.asked: list[str] = []

    async def create_launch_template(self, **request: Any) -> None:
        await self._answer("CreateLaunchTemplate")

    async def run_instances(self, **request: Any) -> None:
        await self._answer("RunInstances")

    async def create_fleet(self, **request: Any) -> None:
        await self._answer("CreateFleet")

    async def _answer(self, action: str) -> None:
        self.asked.append(action)
        code = "UnauthorizedOperation" if action in self.refused else "DryRunOperation"
        raise ClientError({"Error": {"Code": code, "Message": "as asked"}, "ResponseMetadata": {}}, action)


@pytest.mark.parametrize("action", ["CreateLaunchTemplate", "RunInstances", "CreateFleet"])
async def test_l05_a_refusal_is_tried_again_after_a_minute_and_a_mended_policy_counts_from_then(action: str) -> None:
    account, now = Account(), [0.0]
    runs = DryRuns(ec2=account, cluster=CLUSTER, region="us-east-1", mode=DryRunMode.REQUIRE, monotonic=lambda: now[0])
    account.refused.add(action)
    refused = await runs.check(a_class())
    account.refused.clear()
    now[0] = 59.0
    held = await runs.check(a_class())
    now[0] = 61.0
    mended = await runs.check(a_class())

    assert (refused.status, refused.reason) == ("False", f"{action}AuthCheckFailed")
    assert held == refused
    assert (mended.status, mended.reason) == ("True", "ValidationSucceeded")
    assert account.asked.count(action) == 2


def template(**request: Any) -> dict[str, Any]:
    """A launch template's data."""
    given = {"image_id": "ami-1", "user_data": "", "tags": {}, "spot": False, "region": "us-east-1", **request}
    return template_data(a_class(), TemplateRequest(**given))


@pytest.mark.parametrize("spot", [True, False])
@pytest.mark.parametrize("tenancy", ["default", "dedicated"])
def test_p10_without_a_reservation_to_aim_at_the_whole_block_is_left_out(spot: bool, tenancy: str) -> None:
    data = template(spot=spot, tenancy=tenancy)

    assert "CapacityReservationSpecification" not in data
    assert "InstanceMarketOptions" not in data


def test_p10_with_a_reservation_it_is_the_target_and_nothing_else_will_do() -> None:
    reservation = Reservation(id="cr-1", instance_type="m6i.large", zone="us-east-1a", free=1)

    assert template(reservation=reservation)["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-1"},
    }


def test_p10_no_golden_request_says_none() -> None:
    golden = [path.read_text("utf-8") for path in (Path(__file__).parent / "golden").glob("*.json")]

    assert len(golden) > 30
    assert [text for text in golden if '"CapacityReservationPreference": "none"' in text] == []
    assert sum("CapacityReservationSpecification" in text for text in golden) >= 2
