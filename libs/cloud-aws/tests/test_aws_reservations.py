"""Capacity reservations and placement groups against the sandbox: status, launches, and what nodes learn."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sawhorse_catalog.account import AccountFacts, PlacementGroup
from sawhorse_catalog.aws import resolve
from sawhorse_catalog.builtin import builtin_facts
from sawhorse_catalog.prices import PriceBook, static_prices
from sawhorse_cloud.cloud import ResolvedNodeClass
from sawhorse_cloud.errors import InsufficientCapacityError, NodeClassNotReadyError
from sawhorse_cloud_aws.calls import client
from sawhorse_cloud_aws.catalog_source import connect_catalog_source
from sawhorse_model.aws import (
    PLACEMENT_GROUP_ID,
    PLACEMENT_GROUP_PARTITION,
    RESERVATION_ID,
    RESERVATION_TYPE,
    parse_ec2_node_class,
)
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import CAPACITY_TYPE
from sawhorse_model.meta import Condition
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.requirements import Operator, RequirementSpec
from sawhorse_testing.cloud_worlds import a_claim, a_token, an_ec2_node_class

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

REGION = "us-east-1"
ZONE = "us-east-1a"
ANY = {"capacity_types": ["reserved", "on-demand", "spot"]}
GROUP = {"GroupName": "near", "GroupId": "pg-0a1", "State": "available", "Strategy": "cluster"}
PARTED = {"GroupName": "apart", "GroupId": "pg-0b2", "State": "available", "Strategy": "partition", "PartitionCount": 3}


def a_reservation(reservation_id: str = "cr-0a1", **fields: Any) -> dict[str, Any]:
    return {"id": reservation_id, "type": "m5.large", "zone": ZONE, "count": 2, "tags": {"team": "a"}, **fields}


def terms(*given: dict[str, Any]) -> dict[str, Any]:
    return {"capacityReservationSelectorTerms": list(given)}


async def account(world: Any) -> AccountFacts:
    async with connect_catalog_source(region=REGION, endpoint_url=world.aws.endpoint_url) as source:
        return await source.fetch_account()


def sold(node_class: NodeClass, facts: AccountFacts, *names: str) -> tuple[InstanceType, ...]:
    """Types as the catalogue sees them, with what the account has."""
    return resolve(
        [f for f in builtin_facts() if f.name in names],
        parse_ec2_node_class(node_class),
        PriceBook(on_demand=static_prices(REGION).on_demand, spot_share=0.4),
        region=REGION,
        zones={f"{REGION}{letter}": f"use1-az{n}" for n, letter in enumerate("abcdef", 1)},
        placement_group=facts.group_of(node_class.spec.get("placementGroupSelector") or {}),
        free=facts.free,
    ).instance_types


async def launch(world: Any, node_class: NodeClass, *names: str, token: str = "", claims: int = 1, **claim: Any) -> Any:
    wanted = [a_claim(f"c-{n}", **{**ANY, **claim}) for n in range(claims)]
    types = sold(node_class, await account(world), *(names or ("m5.large",)))
    return await world.cloud.launch(token or a_token(), wanted, node_class, types)


def told(resolved: ResolvedNodeClass, kind: str) -> Condition:
    return next(c for c in resolved.conditions if c.type == kind)


async def templates(world: Any, name: str) -> list[dict[str, Any]]:
    """What the launch templates of a NodeClass hold."""
    async with client("ec2", region=REGION, endpoint_url=world.aws.endpoint_url) as ec2:
        mine = [{"Name": "tag:karpenter.k8s.aws/ec2nodeclass", "Values": [name]}]
        names = [
            t["LaunchTemplateName"] for t in (await ec2.describe_launch_templates(Filters=mine))["LaunchTemplates"]
        ]
        found = [await ec2.describe_launch_template_versions(LaunchTemplateName=n) for n in names]
    return [v["LaunchTemplateData"] for answer in found for v in answer["LaunchTemplateVersions"]]


@pytest.mark.parametrize(
    "term",
    [
        {"id": "cr-0a1"},
        {"tags": {"team": "a"}},
        {"tags": {"team": "*"}, "instanceMatchCriteria": "targeted"},
        {"ownerID": "123456789012", "tags": {"team": "a"}},
    ],
)
async def test_reservations_that_a_term_matches_are_in_the_status(world: Any, term: dict[str, Any]) -> None:
    others = [a_reservation("cr-0b2", tags={}, match="open"), a_reservation("cr-0c3", state="expired")]
    await world.aws.control({"reservations": [a_reservation(), *others]})

    resolved = await world.cloud.resolve_node_class(an_ec2_node_class(spec=terms(term)))

    status: Any = resolved.status
    assert [r["id"] for r in status["capacityReservations"]] == ["cr-0a1"]
    assert status["capacityReservations"][0] == {
        "availabilityZone": ZONE,
        "id": "cr-0a1",
        "instanceMatchCriteria": "targeted",
        "instanceType": "m5.large",
        "ownerID": "123456789012",
        "reservationType": "default",
        "state": "active",
    }
    assert told(resolved, "CapacityReservationsReady").status == "True"
    assert "CapacityReservationsReady" in resolved.dependents


async def test_terms_that_match_no_reservation_leave_the_class_usable(world: Any) -> None:
    resolved = await world.cloud.resolve_node_class(an_ec2_node_class(spec=terms({"id": "cr-0f9"})))

    assert resolved.status["capacityReservations"] == []
    assert told(resolved, "CapacityReservationsReady").status == "True"


async def test_a_failed_look_up_of_reservations_keeps_the_last_and_says_so(world: Any) -> None:
    await world.aws.control({"reservations": [a_reservation()]})
    node_class = await world.resolved("held", terms({"id": "cr-0a1"}))
    await world.fail("DescribeCapacityReservations", "UnauthorizedOperation", status=403)

    resolved = await world.cloud.resolve_node_class(node_class)

    condition = told(resolved, "CapacityReservationsReady")
    assert (condition.status, condition.reason) == ("Unknown", "LookupFailed")
    assert [r["id"] for r in resolved.status["capacityReservations"]] == ["cr-0a1"]


async def test_a_block_shortly_before_its_end_is_expiring_and_gets_no_launch(world: Any) -> None:
    soon = a_reservation(kind="capacity-block", end="2026-11-29T23:59:00Z")
    far = a_reservation("cr-0b2", kind="capacity-block", end="2099-01-01T00:00:00Z")
    await world.aws.control({"reservations": [{**soon, "end": _minutes_from_now(20)}, far]})
    node_class = await world.resolved("blocks", terms({"tags": {"team": "a"}}))

    status = {r["id"]: r["state"] for r in node_class.status["capacityReservations"]}
    (kind,) = sold(node_class, await account(world), "m5.large")

    assert status == {"cr-0a1": "expiring", "cr-0b2": "active"}
    assert {o.reservation_id: o.available for o in kind.offerings if o.reservation_id} == {
        "cr-0a1": False,
        "cr-0b2": True,
    }


async def test_a_claim_that_allows_it_is_launched_into_the_reservation(world: Any) -> None:
    await world.aws.control({"reservations": [a_reservation()]})
    node_class = await world.resolved("into", terms({"id": "cr-0a1"}))

    result = await launch(world, node_class)

    launched = result.launched["c-0"]
    described = await world.cloud.describe([launched.instance.id])
    (data,) = await templates(world, "into")
    assert launched.labels[CAPACITY_TYPE] == "reserved"
    assert (launched.labels[RESERVATION_ID], launched.labels[RESERVATION_TYPE]) == ("cr-0a1", "default")
    assert data["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-0a1"},
    }
    seen = described[launched.instance.id]
    assert (seen.capacity_type, seen.reservation_id) == ("reserved", "cr-0a1")
    assert (await account(world)).free == {"cr-0a1": 1}


async def test_p10_without_selector_terms_the_preference_is_left_out_so_that_open_reservations_are_used(
    world: Any,
) -> None:
    await world.aws.control({"reservations": [a_reservation(match="open")]})
    node_class = await world.resolved("open", {})

    result = await launch(world, node_class, capacity_types=["on-demand"])

    (data,) = await templates(world, "open")
    assert result.launched["c-0"].labels[CAPACITY_TYPE] == "on-demand"
    # What the sandbox shows is EC2's default; ours would name a target.
    assert "CapacityReservationTarget" not in data.get("CapacityReservationSpecification", {})
    assert data.get("CapacityReservationSpecification", {}).get("CapacityReservationPreference") != "none"


async def test_a_full_reservation_is_no_offering_and_the_launch_goes_on_demand(world: Any) -> None:
    await world.aws.control({"reservations": [a_reservation(count=0)]})
    node_class = await world.resolved("full", terms({"id": "cr-0a1"}))

    result = await launch(world, node_class, capacity_types=["reserved", "on-demand"])

    assert result.launched["c-0"].labels[CAPACITY_TYPE] == "on-demand"
    assert RESERVATION_ID not in result.launched["c-0"].labels


async def test_p01_a_reservation_that_runs_full_gives_what_it_has_and_names_the_offering(world: Any) -> None:
    await world.aws.control({"reservations": [a_reservation("cr-0d4", count=2)]})
    node_class = await world.resolved("short", terms({"id": "cr-0d4"}))

    result = await launch(world, node_class, claims=3, capacity_types=["reserved"])

    assert len(result.launched) == 2
    assert [(f.capacity_type, f.instance_type, f.zone, f.code) for f in result.failed] == [
        ("reserved", "m5.large", ZONE, "ReservationCapacityExceeded")
    ]


async def test_a_claim_for_one_reservation_never_gets_another(world: Any) -> None:
    await world.aws.control({"reservations": [a_reservation(count=9), a_reservation("cr-0b2", zone="us-east-1b")]})
    node_class = await world.resolved("either", terms({"tags": {"team": "a"}}))
    only = RequirementSpec(RESERVATION_ID, Operator.IN, ("cr-0b2",))

    result = await launch(world, node_class, requirements=[only])

    assert result.launched["c-0"].labels[RESERVATION_ID] == "cr-0b2"


async def test_a_placement_group_reaches_the_template_and_the_nodes_label(world: Any) -> None:
    await world.aws.control({"placementGroups": [GROUP]})
    node_class = await world.resolved("near", {"placementGroupSelector": {"name": "near"}})

    result = await launch(world, node_class, capacity_types=["on-demand"])

    (data,) = await templates(world, "near")
    assert data["Placement"]["GroupId"] == "pg-0a1"
    assert result.launched["c-0"].labels[PLACEMENT_GROUP_ID] == "pg-0a1"


async def test_the_partition_of_the_label_is_the_one_that_the_machine_lies_in(world: Any) -> None:
    await world.aws.control({"placementGroups": [PARTED]})
    node_class = await world.resolved("apart", {"placementGroupSelector": {"id": "pg-0b2"}})
    only = RequirementSpec(PLACEMENT_GROUP_PARTITION, Operator.IN, ("2",))

    result = await launch(world, node_class, capacity_types=["on-demand"], requirements=[only])

    launched = result.launched["c-0"]
    (data,) = await templates(world, "apart")
    assert launched.labels[PLACEMENT_GROUP_PARTITION] == "2"
    assert data["Placement"]["PartitionNumber"] == 2
    assert (await world.cloud.describe([launched.instance.id]))[launched.instance.id].partition == "2"


async def test_a_partition_that_the_group_does_not_have_is_refused_before_any_call(world: Any) -> None:
    await world.aws.control({"placementGroups": [PARTED]})
    node_class = await world.resolved("apart", {"placementGroupSelector": {"id": "pg-0b2"}})
    types = sold(node_class, AccountFacts(placement_groups=(PlacementGroup(id="pg-0b2", name="", strategy="spread"),)))
    before = (await world.aws.calls()).get("CreateFleet", 0)
    only = RequirementSpec(PLACEMENT_GROUP_PARTITION, Operator.IN, ("7",))

    with pytest.raises(InsufficientCapacityError):
        await world.cloud.launch(a_token(), [a_claim(requirements=[only])], node_class, types)

    assert (await world.aws.calls()).get("CreateFleet", 0) == before


async def test_a_placement_group_that_is_not_there_is_told_and_nothing_is_launched(world: Any) -> None:
    spec = {"placementGroupSelector": {"name": "nowhere"}}

    resolved = await world.cloud.resolve_node_class(an_ec2_node_class(spec=spec))
    with pytest.raises(NodeClassNotReadyError, match="placement group"):
        await launch(world, await world.resolved("lost", spec))

    condition = told(resolved, "PlacementGroupReady")
    assert (condition.status, condition.reason) == ("False", "PlacementGroupNotFound")
    assert "nowhere" in condition.message


async def test_a_look_up_of_the_placement_group_that_fails_is_unknown(world: Any) -> None:
    await world.fail("DescribePlacementGroups", "RequestLimitExceeded", status=503)

    resolved = await world.cloud.resolve_node_class(
        an_ec2_node_class(spec={"placementGroupSelector": {"name": "throttled"}})
    )

    condition = told(resolved, "PlacementGroupReady")
    assert (condition.status, condition.reason) == ("Unknown", "PlacementGroupResolutionFailed")


async def test_a_reserved_machine_is_adopted_with_its_labels(world: Any) -> None:
    await world.aws.control({"reservations": [a_reservation("cr-0e5")]})
    node_class = await world.resolved("found", terms({"id": "cr-0e5"}))
    token = a_token()
    launched = (await launch(world, node_class, token=token)).launched["c-0"]
    claim = a_claim("c-0", **ANY)

    (found,) = await world.cloud.find_by_token(token)
    adopted = await world.cloud.adopt([claim], [found], node_class, sold(node_class, await account(world), "m5.large"))

    assert adopted["c-0"].labels == launched.labels


def _minutes_from_now(minutes: int) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
