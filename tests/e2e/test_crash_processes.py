"""Real processes killed at their steps on the real control plane, and started again: nothing is lost, nothing twice.

One world for the module. Each test brings a workload of two pods that need a node each, and takes it away again, so
that the end of nodes is part of every story.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis.asyncio

from sawhorse_kube.client import KubeClient, connect_kube
from sawhorse_kube.errors import NotFoundError
from sawhorse_kube.kinds import EC2_NODECLASS, LEASE, NODE, NODECLAIM, NODEPOOL, POD, raw_kind
from sawhorse_model.labels import LAUNCH_TOKEN
from sawhorse_sandbox.controlplane import find_assets
from sawhorse_sandbox.processes import free_ports, stop_child
from sawhorse_sandbox.world import World, start_world
from sawhorse_testing.eventually import eventually
from sawhorse_testing.invariants import Machine, Scene, problems

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

DEPLOYMENT = raw_kind("Deployment", "apps", "v1", "deployments", namespaced=True)
PODS = 2
NAMESPACE = "default"
LEASES = {"watcher": "sawhorse-watcher", "provisioner": "sawhorse-provisioner"}
SHORT: Mapping[str, tuple[str, ...]] = {
    "watcher": ("--leader-election-lease-duration=3s",),
    "pricing": (),
    "provisioner": (
        "--leader-election-lease-duration=3s",
        "--launch-lookup-window=8s",
        "--garbage-collection-interval=5s",
        "--garbage-collection-age=10s",
        "--batch-idle-duration=300ms",
    ),
    "interruption": ("--queue-visibility=5s", "--queue-wait=1s"),
}


@dataclass
class Cluster:
    """The world, and what a test does in it."""

    world: World
    kube: KubeClient
    pricing_port: int
    before: set[str] = field(default_factory=set)  # ids of the machines there were when the test began

    async def start(self, name: str, failpoint: str = "", *, wait: bool = True) -> None:
        """Start a service, with a failpoint if one is named."""
        fixed = (f"--grpc-address=127.0.0.1:{self.pricing_port}",) if name == "pricing" else ()
        env = {"SAWHORSE_FAILPOINT": failpoint} if failpoint else {}
        await self.world.start_service(name, extra=(*SHORT[name], *fixed), env=env, wait=wait)

    async def restart(self, name: str, failpoint: str = "", *, wait: bool = True) -> None:
        """End a service in good order and start it again."""
        await self.world.stop_service(name)
        await self.start(name, failpoint, wait=wait)

    async def killed(self, name: str) -> None:
        """Wait until the service has come to its failpoint, and start it anew."""
        child = self.world.services[name].child
        await eventually(lambda: not child.is_running(), seconds=45, what=f"{name} came to its failpoint")
        assert child.process.returncode == -signal.SIGKILL, child.log.read_text()[-2000:]
        await self.start(name)

    async def deploy(self) -> None:
        """Two pods that need a node each."""
        labels = {"app": "web"}
        container = {
            "name": "web",
            "image": "example.test/web",
            "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}},
        }
        spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
        await self.kube.create(
            DEPLOYMENT,
            {
                "metadata": {"name": "web", "namespace": NAMESPACE},
                "spec": {
                    "replicas": PODS,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": spec},
                },
            },
        )

    async def clear(self) -> None:
        """The workload goes, and its nodes after it: whoever looks next whether all is well waits for that too."""
        try:
            await self.kube.delete(DEPLOYMENT, "web", NAMESPACE)
        except NotFoundError:
            return
        await eventually(self._no_pods, seconds=30)
        for claim in (await self.kube.list(NODECLAIM)).objects:
            await self.kube.delete(NODECLAIM, claim.meta.name)

    async def settled(self, seconds: float = 90.0) -> None:
        """Wait until all is as it must be."""
        wrong: list[str] = ["nothing was looked at"]

        async def well() -> bool:
            nonlocal wrong
            wrong = await self.problems()
            return not wrong

        try:
            await eventually(well, seconds=seconds)
        except AssertionError:
            told = "\n".join(line for name in ("watcher", "provisioner") for line in self.told(name))
            pytest.fail(f"after {seconds:g} s: {wrong}\n{told}")

    def told(self, name: str, lines: int = 60) -> list[str]:
        """The last lines of a service's log that say what it decided, not what it looked at."""
        log = self.world.services[name].child.log.read_text().splitlines()
        return [line for line in log if '"kind listed"' not in line][-lines:]

    async def problems(self) -> list[str]:
        """What is not as it must be now."""
        machines = [
            Machine(m["instanceId"], m.get("tags", {}).get(LAUNCH_TOKEN, ""))
            for m in await self.machines()
            if _alive(m)
        ]
        scene = Scene(
            pods=(await self.kube.list_raw(POD, namespace=NAMESPACE)).objects,
            nodes=(await self.kube.list_raw(NODE)).objects,
            claims=(await self.kube.list_raw(NODECLAIM)).objects,
            machines=machines,
        )
        return problems(scene, pods=PODS)

    async def machines(self) -> list[dict[str, Any]]:
        """Machines of this test, ended ones too."""
        return [m for m in await self.world.aws.instances() if m["instanceId"] not in self.before]

    async def _no_pods(self) -> bool:
        return not (await self.kube.list_raw(POD, namespace=NAMESPACE)).objects

    @asynccontextmanager
    async def redis(self) -> AsyncIterator[Any]:
        """The world's Redis."""
        password = self.world.redis_password_file.read_text()
        client = redis.asyncio.Redis(port=self.world.redis.port, password=password)
        try:
            yield client
        finally:
            await client.aclose()


def _alive(machine: Mapping[str, Any]) -> bool:
    return machine["state"] not in ("terminated", "shutting-down")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """The world with its four services, a NodeClass and a NodePool of two small types."""
    assets = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))
    if assets is None:
        pytest.fail("the real control plane's binaries are absent; run `make kube-assets`")
    directory: Path = tmp_path_factory.mktemp("crash")
    async with (
        start_world(directory, cluster="crash", column="assets", assets=assets) as world,
        connect_kube(kubeconfig=world.kubeconfig) as kube,
    ):
        cluster = Cluster(world, kube, free_ports(1)[0])
        await cluster.start("pricing")
        for name in ("watcher", "provisioner", "interruption"):
            await cluster.start(name, wait=name != "watcher")
        discovery = [{"tags": {"karpenter.sh/discovery": "crash"}}]
        await kube.create(
            EC2_NODECLASS,
            {
                "metadata": {"name": "default"},
                "spec": {
                    "amiSelectorTerms": [{"alias": "al2023@latest"}],
                    "role": world.account.role_name,
                    "subnetSelectorTerms": discovery,
                    "securityGroupSelectorTerms": discovery,
                },
            },
        )
        types = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c5.large", "m5.large"]}
        spot = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
        node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
        spec = {"nodeClassRef": node_class, "requirements": [types, spot]}
        await kube.create(NODEPOOL, {"metadata": {"name": "default"}, "spec": {"template": {"spec": spec}}})
        yield cluster


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(shared: Cluster) -> AsyncIterator[Cluster]:
    """The world, empty, with all services running; empty again afterwards."""
    shared.before = {m["instanceId"] for m in await shared.world.aws.instances()}
    for name in SHORT:
        if name not in shared.world.services or not shared.world.services[name].child.is_running():
            await shared.start(name)
    yield shared
    await shared.clear()


@pytest.mark.parametrize("failpoint", ["token:after", "template:after", "fleet:after"])
async def test_a_provisioner_that_is_killed_launches_no_machine_twice(cluster: Cluster, failpoint: str) -> None:
    await cluster.restart("provisioner", failpoint)
    await cluster.deploy()
    await cluster.killed("provisioner")

    await cluster.settled()
    assert len(await cluster.machines()) == PODS


async def test_a_provisioner_that_is_killed_while_a_node_ends_leaves_nothing_behind(cluster: Cluster) -> None:
    await cluster.deploy()
    await cluster.settled()
    await cluster.restart("provisioner", "instance:after")
    await cluster.kube.delete(NODE, (await cluster.kube.list(NODE)).objects[0].meta.name)
    await cluster.killed("provisioner")

    await cluster.settled()
    assert len(await cluster.machines()) == PODS + 1


async def test_a_watcher_that_is_killed_while_it_begins_is_followed_by_one_that_lists_anew(cluster: Cluster) -> None:
    await cluster.restart("watcher", "synced:before", wait=False)
    await cluster.deploy()
    await cluster.killed("watcher")

    await cluster.settled()
    assert len(await cluster.machines()) == PODS


async def test_a_watcher_that_is_killed_after_it_saw_a_change_loses_no_pod(cluster: Cluster) -> None:
    await cluster.restart("watcher", "seen:after", wait=False)
    await cluster.deploy()
    await cluster.killed("watcher")

    await cluster.settled()
    assert len(await cluster.machines()) == PODS


@pytest.mark.parametrize("failpoint", ["fetched:after", "published:after"])
async def test_pricing_that_is_killed_while_it_publishes_comes_back_with_a_catalogue(
    cluster: Cluster, failpoint: str
) -> None:
    await cluster.world.stop_service("pricing")
    async with cluster.redis() as client:
        await client.flushall()
    await cluster.start("pricing", failpoint, wait=False)
    await cluster.killed("pricing")
    await cluster.deploy()

    await cluster.settled()
    assert len(await cluster.machines()) == PODS


@pytest.mark.parametrize("failpoint", ["cordoned:after", "deleted:after"])
async def test_an_interruption_service_that_is_killed_replaces_a_node_exactly_once(
    cluster: Cluster, failpoint: str
) -> None:
    await cluster.deploy()
    await cluster.settled()
    doomed = (await cluster.kube.list(NODECLAIM)).objects[0]
    await cluster.restart("interruption", failpoint)
    await cluster.world.aws.interrupt(doomed.instance_id, "spot")
    await cluster.killed("interruption")

    await eventually(lambda: _is_gone(cluster.kube, doomed.meta.name), seconds=120)
    await cluster.settled()
    assert len(await cluster.machines()) == PODS + 1


async def test_a_provisioner_that_stood_still_while_another_took_over_does_no_harm_when_it_wakes(
    cluster: Cluster,
) -> None:
    paused = cluster.world.services["provisioner"].child
    await cluster.deploy()
    await eventually(lambda: _has_claims(cluster.kube), seconds=30)
    os.kill(paused.pid, signal.SIGSTOP)
    try:
        await cluster.start("provisioner")
        await cluster.settled()
        os.kill(paused.pid, signal.SIGCONT)
        await asyncio.sleep(5)  # long enough for it to do whatever it was about to do
        await cluster.settled()
        assert paused.is_running()
    finally:
        os.kill(paused.pid, signal.SIGCONT)
        await stop_child(paused, grace=20)


async def test_pods_get_their_nodes_though_redis_is_flushed_and_ec2_throttles_and_fails(cluster: Cluster) -> None:
    errors = [{"action": "CreateFleet", "code": "InternalError", "times": 2, "status": 500}]
    await cluster.world.aws.control({"throttle": {"*": 0.5}, "errors": errors})
    try:
        await cluster.deploy()
        await eventually(lambda: _has_claims(cluster.kube), seconds=30)
        async with cluster.redis() as client:
            await client.flushall()
        await asyncio.sleep(5)
    finally:
        await cluster.world.aws.control({"throttle": {}, "errors": []})

    await cluster.settled(120)  # the pauses between tries have grown meanwhile
    assert len(await cluster.machines()) == PODS


async def _has_claims(kube: KubeClient) -> bool:
    return bool((await kube.list(NODECLAIM)).objects)


async def _is_gone(kube: KubeClient, claim: str) -> bool:
    try:
        await kube.get(NODECLAIM, claim)
    except NotFoundError:
        return True
    return False


@pytest.mark.parametrize("name", ["watcher", "provisioner", "interruption", "pricing"])
async def test_a_service_that_is_told_to_stop_ends_in_time_with_code_0_and_holds_no_lease(
    cluster: Cluster, name: str
) -> None:
    child = cluster.world.services[name].child
    child.process.send_signal(signal.SIGTERM)

    await eventually(lambda: not child.is_running(), seconds=20, what=f"{name} ended")
    assert child.process.returncode == 0, child.log.read_text()[-2000:]
    if name in LEASES:
        lease = await cluster.kube.get(LEASE, LEASES[name], "kube-system")
        assert not lease["spec"].get("holderIdentity")
