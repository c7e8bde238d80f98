"""A seeded AWS of the sandbox, the adapter connected to it, and a world for the contract suite over both."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from sawhorse_catalog.aws import resolve
from sawhorse_catalog.builtin import builtin_facts
from sawhorse_catalog.prices import PriceBook, static_prices
from sawhorse_cloud_aws.cloud import AwsCloud, AwsSettings, connect_cloud
from sawhorse_model.aws import parse_ec2_node_class
from sawhorse_model.instances import InstanceType
from sawhorse_model.nodeclass import NodeClass
from sawhorse_sandbox.aws import AwsSandbox, SeededAccount, seed_account, start_aws
from sawhorse_sandbox.aws.state import State
from sawhorse_testing.cloud_worlds import an_ec2_node_class, made_ready

REGION = "us-east-1"
CLUSTER = "demo"
TYPES = ("c5.large", "m5.large", "m5.xlarge", "m6g.large", "r5.large")
# Which API action a method of Cloud begins with.
ACTIONS = {
    "launch": "CreateFleet",
    "find_by_token": "DescribeInstances",
    "describe": "DescribeInstances",
    "list_instances": "DescribeInstances",
    "terminate": "TerminateInstances",
    "tag": "CreateTags",
}
CODES = {
    "throttled": ("RequestLimitExceeded", 503),
    "unauthorized": ("UnauthorizedOperation", 403),
    "unavailable": ("InternalError", 500),
}
NOBODY = "i-0123456789abcdef0"


@dataclass
class AwsWorld:
    """A world over the adapter and the sandbox."""

    aws: AwsSandbox
    cloud: AwsCloud
    seeded: SeededAccount
    node_class: NodeClass
    hopeless: NodeClass
    instance_types: Sequence[InstanceType]

    async def sell_out(self, *, capacity_type: str = "*", instance_type: str = "*", zone: str = "*") -> None:
        await self.aws.control(
            {"outOfCapacity": [{"capacityType": capacity_type, "type": instance_type, "zone": zone}]}
        )

    async def restock(self) -> None:
        await self.aws.control({"outOfCapacity": []})

    async def break_next(self, method: str, fault: str) -> None:
        code, status = CODES[fault]
        await self.fail(ACTIONS[method], code, status=status)

    async def fail(self, action: str, code: str, *, status: int = 400, times: int = 1, message: str = "no") -> None:
        """The next calls of an API action fail."""
        error = {"action": action, "code": code, "status": status, "times": times, "message": message}
        await self.aws.control({"errors": [error]})

    async def ended(self, instance_id: str) -> bool:
        deadline = asyncio.get_running_loop().time() + 10
        while asyncio.get_running_loop().time() < deadline:
            states = {i["instanceId"]: i["state"] for i in await self.aws.instances()}
            if states[instance_id] == "terminated":
                return True
            await asyncio.sleep(0.02)
        return False

    async def stranger(self) -> str:
        # EC2 checks the ids of CreateTags, its double does not.
        await self.fail("CreateTags", "InvalidInstanceID.NotFound")
        return NOBODY

    async def resolved(self, name: str, spec: Mapping[str, Any]) -> NodeClass:
        """A NodeClass whose look-ups are written and taken for good."""
        fresh = an_ec2_node_class(name, spec={"role": self.seeded.role_name, **spec}, status=EMPTY_STATUS)
        return made_ready(fresh, (await self.cloud.resolve_node_class(fresh)).status)

    def types(self, node_class: NodeClass, *names: str) -> tuple[InstanceType, ...]:
        """Real types as the catalogue sees them under a NodeClass."""
        return types_of(node_class, names)

    async def instance(self, instance_id: str) -> dict[str, Any]:
        """The sandbox's own view of an instance."""
        return next(i for i in await self.aws.instances() if i["instanceId"] == instance_id)


EMPTY_STATUS = {"subnets": None, "securityGroups": None, "amis": None, "instanceProfile": None}
HOPELESS = {"subnetSelectorTerms": [{"tags": {"no-such": "tag"}}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def aws_sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AwsSandbox]:
    directory: Path = tmp_path_factory.mktemp("aws")
    with pytest.MonkeyPatch.context() as environment:
        async with await start_aws(directory) as aws:
            for name, value in aws.environment.items():
                environment.setenv(name, value)
            yield aws


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def aws_account(aws_sandbox: AwsSandbox) -> SeededAccount:
    return await seed_account(aws_sandbox.endpoint_url, CLUSTER, REGION)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def aws_cloud(aws_sandbox: AwsSandbox, aws_account: SeededAccount) -> AsyncIterator[AwsCloud]:
    settings = AwsSettings(cluster_name=CLUSTER, region=REGION, endpoint_url=aws_sandbox.endpoint_url, attempts=1)
    async with connect_cloud(settings) as cloud:
        yield cloud


@pytest_asyncio.fixture(loop_scope="module")
async def world(aws_sandbox: AwsSandbox, aws_account: SeededAccount, aws_cloud: AwsCloud) -> AsyncIterator[AwsWorld]:
    undone = msgspec.to_builtins(State())
    await aws_sandbox.control({**undone, "pendingDelay": 0.05, "terminateDelay": 0.05})
    world = AwsWorld(
        aws=aws_sandbox,
        cloud=aws_cloud,
        seeded=aws_account,
        node_class=an_ec2_node_class(),
        hopeless=an_ec2_node_class("hopeless", spec=HOPELESS, status=EMPTY_STATUS, ready=False),
        instance_types=(),
    )
    world.node_class = await world.resolved("default", {})
    world.instance_types = types_of(world.node_class)
    yield world
    await aws_sandbox.control(undone)


def types_of(node_class: NodeClass, names: Sequence[str] = TYPES) -> tuple[InstanceType, ...]:
    """Real types as the catalogue sees them under a NodeClass, spot at 40 % of on-demand."""
    facts = [f for f in builtin_facts() if f.name in names]
    listed = static_prices(REGION)
    prices = PriceBook(on_demand=listed.on_demand, spot_share=0.4)
    zones = {f"{REGION}{letter}": f"use1-az{n}" for n, letter in enumerate("abcdef", 1)}
    return resolve(facts, parse_ec2_node_class(node_class), prices, region=REGION, zones=zones).instance_types
