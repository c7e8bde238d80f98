"""A running AWS of the sandbox, seeded for the cluster `demo`, for the tests that call it through the SDK."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import botocore.config
import botocore.session
import msgspec
import pytest
import pytest_asyncio
from botocore.exceptions import ClientError

from sawhorse_sandbox.aws import AwsSandbox, SeededAccount, seed_account, start_aws
from sawhorse_sandbox.aws.state import State

REGION = "us-east-1"
X86 = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"


@dataclass(frozen=True)
class Account:
    """The seeded sandbox and a client for each service."""

    aws: AwsSandbox
    seeded: SeededAccount
    client: Callable[[str], Any]

    @property
    def ec2(self) -> Any:
        return self.client("ec2")

    def image(self, parameter: str = X86) -> str:
        return str(self.client("ssm").get_parameter(Name=parameter)["Parameter"]["Value"])

    def template(self, **fields: Any) -> str:
        """Create a launch template as the product does; return its name."""
        name = f"template-{uuid4().hex[:12]}"
        nic = {"DeviceIndex": 0, "Groups": [self.seeded.security_group], "AssociatePublicIpAddress": False}
        data = {
            "ImageId": self.image(),
            "IamInstanceProfile": {"Name": self.seeded.role_name},
            "NetworkInterfaces": [nic],
            "UserData": base64.b64encode(b"hello").decode(),
        }
        self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data | fields)
        return name

    def override(self, instance_type: str, zone: str, **fields: Any) -> dict[str, Any]:
        subnet = dict(self.seeded.subnets)[zone]
        return {"InstanceType": instance_type, "SubnetId": subnet, "AvailabilityZone": zone} | fields

    def fleet(self, *overrides: dict[str, Any], template: str = "", count: int = 1, **fields: Any) -> Any:
        """Call CreateFleet for on-demand instances; say only what the test is about."""
        specification = {"LaunchTemplateName": template or self.template(), "Version": "$Latest"}
        request = {
            "Type": "instant",
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": count,
                "DefaultTargetCapacityType": "spot" if "SpotOptions" in fields else "on-demand",
            },
            "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": specification, "Overrides": list(overrides)}],
        }
        return self.ec2.create_fleet(**(request | fields))

    def launch(self, **fields: Any) -> dict[str, Any]:
        """Launch one m5.large in zone a and describe it."""
        answer = self.fleet(self.override("m5.large", "us-east-1a"), **fields)
        return self.instance(answer["Instances"][0]["InstanceIds"][0])

    def instance(self, instance_id: str) -> dict[str, Any]:
        answer = self.ec2.describe_instances(InstanceIds=[instance_id])
        instance: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
        return instance

    def error_of(self, call: Callable[[], Any]) -> tuple[str, str]:
        """Return code and message of the error that a call must end in."""
        with pytest.raises(ClientError) as failed:
            call()
        error = failed.value.response["Error"]
        return error["Code"], error["Message"]

    async def reaches(self, instance_id: str, state: str, seconds: float = 10) -> bool:
        """Return True once the instance is in the state, False when it was not within `seconds`."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self.instance(instance_id)["State"]["Name"] != state:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    def messages(self) -> list[dict[str, Any]]:
        """Take what is on the queue now."""
        sqs, taken = self.client("sqs"), []
        while True:
            answer = sqs.receive_message(QueueUrl=self.seeded.queue_url, MaxNumberOfMessages=10)
            if not answer.get("Messages"):
                return taken
            for message in answer["Messages"]:
                taken.append(json.loads(message["Body"]))
                sqs.delete_message(QueueUrl=self.seeded.queue_url, ReceiptHandle=message["ReceiptHandle"])


@pytest.fixture(scope="module")
def aws_clients() -> Iterator[dict[str, Any]]:
    made: dict[str, Any] = {}
    yield made
    for client in made.values():
        client.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def aws_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AwsSandbox]:
    async with await start_aws(tmp_path_factory.mktemp("aws")) as aws:
        yield aws


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def aws_seeded(aws_server: AwsSandbox) -> SeededAccount:
    return await seed_account(aws_server.endpoint_url, "demo", REGION)


@pytest.fixture
async def account(
    aws_server: AwsSandbox, aws_seeded: SeededAccount, aws_clients: dict[str, Any]
) -> AsyncIterator[Account]:
    session = botocore.session.Session()
    session.set_credentials("test", "test")
    config = botocore.config.Config(retries={"total_max_attempts": 1})

    def client(service: str) -> Any:
        if service not in aws_clients:
            aws_clients[service] = session.create_client(
                service, region_name=REGION, endpoint_url=aws_server.endpoint_url, config=config
            )
        return aws_clients[service]

    yield Account(aws_server, aws_seeded, client)
    await aws_server.control(msgspec.to_builtins(State()))  # undoes what the test switched
