"""The service as a process, over the sandbox's SQS, a Redis and an API server."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
import yaml

from sawhorse_cloud_aws import connect_queue
from sawhorse_interruption.main import Intake
from sawhorse_interruption.settings import Settings
from sawhorse_kube.client import KubeClient, connect_kube
from sawhorse_kube.kinds import NODE, NODECLAIM, POD, raw_kind
from sawhorse_proto.interruption.v1 import interruption_pb2 as pb
from sawhorse_proto.interruption.v1 import interruption_pb2_grpc as pb_grpc
from sawhorse_runtime.health import Readiness
from sawhorse_runtime.rpc import call, channel
from sawhorse_sandbox.apiserver import EmbeddedKube, start_embedded_kube
from sawhorse_sandbox.aws import AwsSandbox, SeededAccount, seed_account, start_aws
from sawhorse_sandbox.redis import RedisSandbox, start_redis
from sawhorse_state.connection import connect_state
from sawhorse_state.mirror import MirrorWriter

pytestmark = pytest.mark.integration

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
CRD = raw_kind("CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
CLUSTER = "demo"
PASSWORD = "for-tests"


@dataclass(frozen=True)
class Sandbox:
    """What the service runs against."""

    aws: AwsSandbox
    account: SeededAccount
    redis: RedisSandbox
    kube: EmbeddedKube


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    directory = tmp_path_factory.mktemp("sandbox")
    async with (
        await start_aws(directory) as aws,
        await start_redis(directory, password=PASSWORD) as redis,
        await start_embedded_kube(directory / "kube") as kube,
    ):
        account = await seed_account(aws.endpoint_url, CLUSTER, aws.region)
        async with connect_kube(kubeconfig=kube.kubeconfig) as client:
            for file in sorted(CRDS.glob("*.yaml")):
                await client.create(CRD, yaml.safe_load(file.read_text()))
        yield Sandbox(aws, account, redis, kube)


async def until(condition: Callable[[], Any], *, seconds: float = 20.0) -> None:
    """Wait until `await condition()` is true."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110  other processes change it
            await asyncio.sleep(0.05)


@asynccontextmanager
async def service(sandbox: Sandbox, directory: Path, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The service as a process. It gets SIGTERM at the end, unless it has ended by itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sawhorse_interruption",
        f"--cluster-name={CLUSTER}",
        f"--interruption-queue={sandbox.account.queue_name}",
        f"--aws-region={sandbox.aws.region}",
        f"--aws-endpoint-url={sandbox.aws.endpoint_url}",
        f"--kubeconfig={sandbox.kube.kubeconfig}",
        f"--redis-url-file={_secret(directory, sandbox.redis.url)}",
        f"--ready-file={directory / 'ready.json'}",
        "--bind-address=127.0.0.1",
        "--grpc-address=127.0.0.1:0",
        "--metrics-port=0",
        "--health-probe-port=0",
        "--pricing-address=",
        "--queue-visibility=5s",
        "--queue-wait=1s",  # a killed client's poll goes on at the server and may take the message once more
        env={**os.environ, **sandbox.aws.environment, **environment},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(30):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.communicate()


def _secret(directory: Path, url: str) -> Path:
    file = directory / "redis-url"
    file.write_text(url)
    return file


@asynccontextmanager
async def mirrored(sandbox: Sandbox, kube: KubeClient) -> AsyncIterator[None]:
    """The mirror as a watcher would have it now; flushed afterwards."""
    async with connect_state(sandbox.redis.url, CLUSTER) as state:
        writer = MirrorWriter(state, 1)
        await writer.begin()
        for kind in (POD, NODE, NODECLAIM):
            listing = await kube.list(kind)
            await writer.replace_all(kind.name, listing.objects, listing.resource_version)
        yield
        await state.redis.flushall()


async def a_node(kube: KubeClient) -> tuple[str, str]:
    """A spot NodeClaim with its Node and a pod `<name>-pod`; its name and instance id."""
    instance_id = f"i-{uuid4().hex[:17]}"
    name = f"n-{instance_id}"
    labels = {
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/capacity-type": "spot",
        "node.kubernetes.io/instance-type": "m7g.large",
        "topology.kubernetes.io/zone": "us-east-1a",
    }
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    provider_id = f"aws:///us-east-1a/{instance_id}"
    await kube.create(
        NODECLAIM,
        {
            "metadata": {"name": name, "labels": labels, "finalizers": ["karpenter.sh/termination"]},
            "spec": {"nodeClassRef": reference, "requirements": []},
        },
    )
    await kube.patch(NODECLAIM, name, {"status": {"providerID": provider_id, "nodeName": name}}, subresource="status")
    await kube.create(NODE, {"metadata": {"name": name, "labels": labels}, "spec": {"providerID": provider_id}})
    container = {"name": "app", "image": "app"}
    await kube.create(
        POD,
        {
            "metadata": {"name": f"{name}-pod", "namespace": "default"},
            "spec": {"nodeName": name, "terminationGracePeriodSeconds": 600, "containers": [container]},
        },
    )
    return name, instance_id


async def is_doomed(kube: KubeClient, name: str) -> bool:
    claim, node = await kube.get(NODECLAIM, name), await kube.get(NODE, name)
    return (
        claim.meta.is_deleting
        and claim.meta.annotations.get("sawhorse.dev/drain-owner") == "interruption"
        and node.unschedulable
        and any(t.key == "karpenter.sh/disrupted" for t in node.taints)
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_a_spot_warning_from_the_queue_dooms_its_node_and_garbage_lands_in_the_dead_letters(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in sandbox.aws.environment.items():
        monkeypatch.setenv(key, value)
    where = {"region": sandbox.aws.region, "endpoint_url": sandbox.aws.endpoint_url}
    async with (
        connect_kube(kubeconfig=sandbox.kube.kubeconfig) as kube,
        connect_queue(sandbox.account.queue_name, **where) as queue,
        connect_queue(f"{sandbox.account.queue_name}-dead-letter", **where) as dead,
    ):
        name, instance_id = await a_node(kube)
        garbage = ["abcd", "{}", "x" * 200 * 1024]
        async with mirrored(sandbox, kube), service(sandbox, tmp_path) as process:

            async def ready() -> bool:
                return (tmp_path / "ready.json").exists()

            async def evicted() -> bool:
                return bool((await kube.get(POD, f"{name}-pod", "default")).meta.is_deleting)

            await until(ready)
            for body in garbage:
                await queue.send(body)
            await sandbox.aws.interrupt(instance_id)
            await until(lambda: is_doomed(kube, name))
            await until(evicted)
            address = f"127.0.0.1:{json.loads((tmp_path / 'ready.json').read_text())['grpc']}"
            async with channel(address) as made:
                stub = pb_grpc.InterruptionServiceStub(made)
                state = await call(stub.GetState, pb.GetStateRequest())
            buried: list[str] = []
            async with asyncio.timeout(20):
                while len(buried) < len(garbage):
                    received = await dead.receive(wait_seconds=1)
                    buried += [message.body for message in received]
                    await dead.delete(received)

        assert process.returncode == 0
        assert sorted(body[:1000] for body in buried) == sorted(body[:1000] for body in garbage)
        assert state.synced
        assert dict(state.received) == {"spot_interrupted": 1}
        assert dict(state.acted) == {"spot_interrupted": 1}
        assert [(drain.node, drain.claim) for drain in state.drains] == [(name, name)]
        assert list(await queue.receive(wait_seconds=6)) == []


@pytest.mark.asyncio(loop_scope="module")
async def test_a_process_killed_between_cordon_and_deletion_leaves_the_warning_to_the_next(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    async with connect_kube(kubeconfig=sandbox.kube.kubeconfig) as kube:
        name, instance_id = await a_node(kube)
        async with mirrored(sandbox, kube):
            failing = {"SAWHORSE_TESTING": "1", "SAWHORSE_FAILPOINT": "deleted:before"}
            async with service(sandbox, tmp_path, **failing) as first:
                await sandbox.aws.interrupt(instance_id)
                async with asyncio.timeout(30):
                    killed = await first.wait()
            between = await kube.get(NODECLAIM, name)
            async with service(sandbox, tmp_path):
                await until(lambda: is_doomed(kube, name), seconds=30)

    assert killed == -signal.SIGKILL
    assert not between.meta.is_deleting
    assert "sawhorse.dev/interrupted-at" in between.meta.annotations


@pytest.mark.asyncio(loop_scope="module")
async def test_without_redis_a_warning_is_acted_upon_all_the_same(sandbox: Sandbox, tmp_path: Path) -> None:
    async with connect_kube(kubeconfig=sandbox.kube.kubeconfig) as kube:
        name, instance_id = await a_node(kube)
        nobody = tmp_path / "nobody"
        nobody.mkdir()
        gone = RedisSandbox("redis://127.0.0.1:1/0", 1, "valkey", sandbox.redis.child)
        without = Sandbox(sandbox.aws, sandbox.account, gone, sandbox.kube)

        async with service(without, nobody):
            await sandbox.aws.interrupt(instance_id)
            await until(lambda: is_doomed(kube, name), seconds=30)

        assert not (nobody / "ready.json").exists()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_queue_that_is_made_later_is_found_and_told_as_missing_until_then(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in sandbox.aws.environment.items():
        monkeypatch.setenv(key, value)
    argv = ["--cluster-name=later", "--interruption-queue=later", f"--aws-region={sandbox.aws.region}"]
    settings = Settings.load(
        [*argv, f"--aws-endpoint-url={sandbox.aws.endpoint_url}"], {}, prog="interruption", description=""
    )
    consumed: list[Any] = []

    class Consuming:
        def __init__(self, queue: Any) -> None:
            consumed.append(queue)

        async def run(self, stop: asyncio.Event) -> None:
            await stop.wait()

    readiness, stop = Readiness(["queue"]), asyncio.Event()
    intake = Intake(settings, Consuming, readiness)  # type: ignore[arg-type]  # the part of Consumer that it uses

    async def told_missing() -> bool:
        return "later" in readiness.missing().get("queue", "")

    async def ready() -> bool:
        return readiness.is_ready

    async with asyncio.TaskGroup() as group:
        group.create_task(intake.run(stop))
        await until(told_missing)
        await seed_account(sandbox.aws.endpoint_url, "later", sandbox.aws.region)
        await until(ready, seconds=30)
        stop.set()

    assert len(consumed) == 1


async def test_wrong_settings_are_listed_in_one_line_each() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sawhorse_interruption",
        "--cluster-name=c",
        "--aws-region=r",
        "--queue-visibility=1s",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )

    async with asyncio.timeout(30):
        out, err = await process.communicate()

    lines = err.decode().splitlines()
    assert (process.returncode, out) == (2, b"")
    assert any("--interruption-queue" in line for line in lines)
    assert not any("Traceback" in line for line in lines)
