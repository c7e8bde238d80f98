"""Dry runs: what a refusal says, how often it is tried, and that nothing is made."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sawhorse_cloud_aws.cloud import AwsCloud, AwsSettings, connect_cloud
from sawhorse_cloud_aws.dry_runs import DryRunMode
from sawhorse_model.meta import Condition
from sawhorse_testing.cloud_worlds import an_ec2_node_class

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

CALLS = ("CreateLaunchTemplate", "RunInstances", "CreateFleet")
REFUSAL = (
    "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:role/sawhorse is not authorized "
    "to perform: ec2:RunInstances on resource: arn:aws:ec2:us-east-1:123456789012:instance/*"
)


@asynccontextmanager
async def cloud_of(world: Any, mode: DryRunMode) -> AsyncIterator[AwsCloud]:
    settings = AwsSettings(
        cluster_name="demo", region="us-east-1", endpoint_url=world.aws.endpoint_url, attempts=1, dry_runs=mode
    )
    async with connect_cloud(settings) as cloud:
        yield cloud


async def validation(cloud: AwsCloud, world: Any, name: str = "dry") -> Condition:
    fresh = an_ec2_node_class(name, spec={"role": world.seeded.role_name}, status=dict.fromkeys(("subnets", "amis")))
    resolved = await cloud.resolve_node_class(fresh)
    return next(c for c in resolved.conditions if c.type == "ValidationSucceeded")


async def counts(world: Any) -> dict[str, int]:
    calls = await world.aws.calls()
    return {name: calls.get(name, 0) for name in CALLS}


async def test_what_is_allowed_is_valid_and_nothing_is_made(world: Any) -> None:
    machines = len(await world.aws.instances())

    async with cloud_of(world, DryRunMode.REQUIRE) as cloud:
        found = await validation(cloud, world)

    assert (found.status, found.reason) == ("True", "ValidationSucceeded")
    assert len(await world.aws.instances()) == machines


@pytest.mark.parametrize("action", CALLS)
async def test_l05_a_refusal_is_a_condition_that_names_action_and_resource(world: Any, action: str) -> None:
    encoded = f"{REFUSAL} Encoded authorization failure message: AbCdEf0123456789"
    await world.fail(action, "UnauthorizedOperation", status=403, message=encoded)

    async with cloud_of(world, DryRunMode.REQUIRE) as cloud:
        found = await validation(cloud, world)

    assert (found.status, found.reason) == ("False", f"{action}AuthCheckFailed")
    assert "ec2:RunInstances on resource: arn:aws:ec2:us-east-1:123456789012:instance/*" in found.message
    assert "AbCdEf" not in found.message


async def test_l05_as_advice_a_refusal_leaves_the_class_valid_and_says_so(world: Any) -> None:
    await world.fail("RunInstances", "UnauthorizedOperation", status=403, message=REFUSAL)

    async with cloud_of(world, DryRunMode.ADVISE) as cloud:
        found = await validation(cloud, world)

    assert (found.status, found.reason) == ("True", "RunInstancesAuthCheckFailed")
    assert "ec2:RunInstances" in found.message


async def test_an_error_that_is_no_refusal_says_nothing(world: Any) -> None:
    await world.fail("CreateFleet", "InvalidLaunchTemplateName.NotFoundException")

    async with cloud_of(world, DryRunMode.REQUIRE) as cloud:
        found = await validation(cloud, world)

    assert (found.status, found.message) == ("True", "")


async def test_what_passed_is_not_tried_again_for_a_while(world: Any) -> None:
    async with cloud_of(world, DryRunMode.REQUIRE) as cloud:
        await validation(cloud, world)
        before = await counts(world)
        await validation(cloud, world)

    assert await counts(world) == before


async def test_without_dry_runs_nothing_is_tried(world: Any) -> None:
    before = await counts(world)

    async with cloud_of(world, DryRunMode.OFF) as cloud:
        await validation(cloud, world)

    assert await counts(world) == before
