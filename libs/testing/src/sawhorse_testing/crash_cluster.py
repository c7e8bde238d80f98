"""A cluster of real processes on the real control plane for crash tests: services that are killed at their steps."""

import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from sawhorse_kube.client import KubeClient, connect_kube
from sawhorse_kube.errors import NotFoundError
from sawhorse_kube.kinds import EC2_NODECLASS, NODE, NODECLAIM, NODEPOOL, POD, raw_kind
from sawhorse_model.labels import LAUNCH_TOKEN
from sawhorse_sandbox.processes import free_ports
from sawhorse_sandbox.world import World, start_world
from sawhorse_testing.eventually import eventually
from sawhorse_testing.invariants import Machine, Scene, problems

DEPLOYMENT = raw_kind("Deployment", "apps", "v1", "deployments", namespaced=True)
PODS = 2
NAMESPACE = "default"
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


@asynccontextmanager
async def crash_cluster(directory: Path, assets: Path) -> AsyncIterator[Cluster]:
    """The world with its four services, a NodeClass and a NodePool of two small types."""
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


@asynccontextmanager
async def made_empty(cluster: Cluster) -> AsyncIterator[Cluster]:
    """The cluster, empty, with all services running; empty again afterwards."""
    cluster.before = {m["instanceId"] for m in await cluster.world.aws.instances()}
    for name in SHORT:
        if name not in cluster.world.services or not cluster.world.services[name].child.is_running():
            await cluster.start(name)
    yield cluster
    await cluster.clear()
