"""The fake kubelets on both columns: a machine becomes a Node, runs pods, ends them, and dies silently."""

import asyncio
import base64
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sawhorse_sandbox.apiserver.kubeconfig import write_kubeconfig
from sawhorse_sandbox.apiserver.server import new_api, serve_api
from sawhorse_sandbox.controlplane import KUBERNETES_VERSION, find_assets, start_control_plane
from sawhorse_sandbox.kubelet import KubeletSettings, run_kubelets
from sawhorse_sandbox.processes import start_child, stop_child, wait_until_ready

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

USER_DATA = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      maxPods: 29
      registerWithTaints: [{key: karpenter.sh/unregistered, effect: NoExecute}]
    flags: ['--node-labels=karpenter.sh/nodepool=default']
--//--
"""
PODS = "/api/v1/namespaces/default/pods"
Json = dict[str, Any]


class Cluster:
    """Requests to the API server, and the instance list that the kubelets read."""

    def __init__(self, http: aiohttp.ClientSession, url: str, kubeconfig: Path) -> None:
        self._http = http
        self._url = url
        self.kubeconfig = kubeconfig
        self.instances: list[Json] = []

    async def call(self, method: str, path: str, body: Json | None = None, *, kind: str = "application/json") -> Json:
        headers = {"Content-Type": kind}
        url = self._url + path
        async with self._http.request(method, url, json=body, headers=headers) as answer:
            found: Json = await answer.json()
            return found

    async def create(self, path: str, body: Json) -> Json:
        made = await self.call("POST", path, body)
        assert made.get("kind") != "Status", made
        return made

    async def has(self, path: str, holds: Callable[[Json], bool]) -> None:
        """Wait until what is at `path` is as wanted, twenty seconds at most."""
        found: Json = {}
        try:
            async with asyncio.timeout(20):
                while not holds(found := await self.call("GET", path)):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail(f"{path} never was as wanted; last seen: {json.dumps(found)[:3000]}")

    def run_instance(self, number: int, **overrides: Any) -> str:
        """List one more running instance; returns its node's name."""
        name = f"ip-10-0-0-{number}.ec2.internal"
        entry = {
            "instanceId": f"i-{number}",
            "state": "running",
            "type": "m5.large",
            "zone": "us-east-1b",
            "lifecycle": "spot",
            "tags": {},
            "privateDnsName": name,
            "privateIp": f"10.0.0.{number}",
            "launchTime": "2026-01-02T03:04:05Z",
            "userData": base64.b64encode(USER_DATA.encode()).decode(),
        }
        self.instances.append(entry | overrides)
        return name


def a_pod(name: str, node: str, *, grace: int = 30, **annotations: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {"app": name}, "annotations": annotations},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": grace,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "app", "image": "app:1"}],
        },
    }


def is_ready(thing: Json) -> bool:
    if thing.get("kind") == "Status":
        return False  # not there yet
    return any(c["type"] == "Ready" and c["status"] == "True" for c in thing.get("status", {}).get("conditions", ()))


def is_absent(answer: Json) -> bool:
    return answer.get("kind") == "Status" and answer.get("code") == 404


def taints(node: Json) -> set[str]:
    return {f"{taint['key']}:{taint['effect']}" for taint in node.get("spec", {}).get("taints", ())}


@pytest.fixture
def assets() -> Path:
    found = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))
    if found is None and os.environ.get("REQUIRE_REAL") == "1":
        pytest.fail("REQUIRE_REAL=1, but the real control plane's binaries are missing; run `make kube-assets`")
    if found is None:
        pytest.skip("the real column did not run: no control plane binaries; run `make kube-assets`")
    return found


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with serve_api(new_api(), "token") as serving, session("token", True) as http:
        write_kubeconfig(tmp_path / "kubeconfig", serving.url, "token")
        yield Cluster(http, serving.url, tmp_path / "kubeconfig")


@pytest.fixture
async def real(assets: Path, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with await start_control_plane(tmp_path / "kube", assets) as plane:
        trust = ssl.create_default_context(cafile=str(tmp_path / "kube" / "certs" / "apiserver.crt"))
        async with session(plane.token, trust) as http:
            cluster = Cluster(http, plane.url, plane.kubeconfig)
            version = await cluster.call("GET", "/version")
            assert version["gitVersion"] == KUBERNETES_VERSION == plane.version, "linked without its version"
            yield cluster


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The same story must hold on both."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


@asynccontextmanager
async def session(token: str, trust: ssl.SSLContext | bool) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {token}"}
    timeout = aiohttp.ClientTimeout(total=15)
    connector = aiohttp.TCPConnector(ssl=trust)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as http:
        yield http


@pytest.fixture
async def aws(cluster: Cluster) -> AsyncIterator[str]:
    """The address of an instance list."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(cluster.instances)

    application = web.Application()
    application.router.add_get("/sandbox/instances", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_machine_becomes_a_node_runs_pods_and_dies_silently(cluster: Cluster, aws: str) -> None:
    settings = KubeletSettings(
        kubeconfig=cluster.kubeconfig,
        aws_endpoint=aws,
        join_delay=0.3,
        ready_delay=0.2,
        device_delay=0.2,
        node_delete_delay=1.0,
        lease_period=1.0,
    )

    async with asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        group.create_task(run_kubelets(settings, stop))
        try:
            await a_machine_joins(cluster)
            await a_broken_instance_stops_nobody(cluster)
            await a_bound_pod_runs_and_an_evicted_one_goes(cluster)
            await a_slow_pod_takes_its_time_and_a_finite_one_succeeds(cluster)
            await a_dead_machine_is_silent_and_its_node_is_deleted(cluster)
        finally:
            stop.set()


async def a_machine_joins(cluster: Cluster) -> None:
    name = cluster.run_instance(1)

    await cluster.has(f"/api/v1/nodes/{name}", is_ready)
    await cluster.has(f"/api/v1/nodes/{name}", lambda n: "node.kubernetes.io/not-ready:NoSchedule" not in taints(n))

    node = await cluster.call("GET", f"/api/v1/nodes/{name}")
    version = await cluster.call("GET", "/version")
    assert node["status"]["nodeInfo"]["kubeletVersion"] == version["gitVersion"]
    assert node["spec"]["providerID"] == "aws:///us-east-1b/i-1"
    assert "karpenter.sh/unregistered:NoExecute" in taints(node)
    assert node["metadata"]["labels"]["karpenter.sh/nodepool"] == "default"
    assert node["metadata"]["labels"]["topology.kubernetes.io/region"] == "us-east-1"
    assert node["status"]["allocatable"]["cpu"] == "1930m"
    assert node["status"]["allocatable"]["pods"] == "29"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
    first = (await cluster.call("GET", lease))["spec"]["renewTime"]
    await cluster.has(lease, lambda found: found["spec"]["renewTime"] > first)


async def a_broken_instance_stops_nobody(cluster: Cluster) -> None:
    cluster.run_instance(50, type="zz9.large")
    cluster.run_instance(51, userData="not base64!")
    cluster.instances.append({"instanceId": 7})
    sound = cluster.run_instance(2, type="g5.12xlarge")

    await cluster.has(
        f"/api/v1/nodes/{sound}",
        lambda node: is_ready(node) and node["status"]["allocatable"].get("nvidia.com/gpu") == "4",
    )

    nodes = await cluster.call("GET", "/api/v1/nodes")
    assert len(nodes["items"]) == 2


async def a_bound_pod_runs_and_an_evicted_one_goes(cluster: Cluster) -> None:
    node = "ip-10-0-0-1.ec2.internal"
    await cluster.create(PODS, a_pod("web", node))

    await cluster.has(f"{PODS}/web", is_ready)
    pod = await cluster.call("GET", f"{PODS}/web")
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["podIP"].startswith("100.64.")
    assert pod["status"]["hostIP"] == "10.0.0.1"

    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": "default"}}
    await cluster.call("POST", f"{PODS}/web/eviction", eviction)
    await cluster.has(f"{PODS}/web", is_absent)


async def a_slow_pod_takes_its_time_and_a_finite_one_succeeds(cluster: Cluster) -> None:
    node = "ip-10-0-0-1.ec2.internal"
    await cluster.create(PODS, a_pod("slow", node, **{"sandbox.sawhorse.dev/shutdown-seconds": "60"}))
    await cluster.create(PODS, a_pod("job", node, **{"sandbox.sawhorse.dev/run-seconds": "0.2"}))
    await cluster.has(f"{PODS}/slow", is_ready)

    await cluster.has(f"{PODS}/job", lambda pod: pod["status"]["phase"] == "Succeeded")
    await cluster.call("DELETE", f"{PODS}/slow")
    await cluster.call("DELETE", f"{PODS}/job")
    await cluster.has(f"{PODS}/job", is_absent)

    slow = await cluster.call("GET", f"{PODS}/slow")
    assert slow["metadata"]["deletionTimestamp"]
    # A later delete may only shorten the grace, and the kubelet follows.
    await cluster.call("DELETE", f"{PODS}/slow", {"gracePeriodSeconds": 1})
    await cluster.has(f"{PODS}/slow", is_absent)


async def a_dead_machine_is_silent_and_its_node_is_deleted(cluster: Cluster) -> None:
    node = "ip-10-0-0-1.ec2.internal"
    finalizer = {"metadata": {"finalizers": ["karpenter.sh/termination"]}}
    await cluster.call("PATCH", f"/api/v1/nodes/{node}", finalizer, kind="application/merge-patch+json")
    await cluster.create(PODS, a_pod("left", node, grace=1))
    await cluster.has(f"{PODS}/left", is_ready)

    cluster.instances[0]["state"] = "shutting-down"
    await asyncio.sleep(1.0)  # four polls; there is no sign of silence to wait for
    await cluster.call("DELETE", f"{PODS}/left")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
    last = (await cluster.call("GET", lease))["spec"]["renewTime"]
    await asyncio.sleep(2.5)  # two lease periods, twice the pod's grace
    assert (await cluster.call("GET", lease))["spec"]["renewTime"] == last
    assert (await cluster.call("GET", f"{PODS}/left"))["metadata"]["deletionTimestamp"]
    assert "deletionTimestamp" not in (await cluster.call("GET", f"/api/v1/nodes/{node}"))["metadata"]

    cluster.instances[0]["state"] = "terminated"
    await cluster.has(f"/api/v1/nodes/{node}", lambda n: "deletionTimestamp" in n["metadata"])
    await cluster.call(
        "PATCH", f"/api/v1/nodes/{node}", {"metadata": {"finalizers": None}}, kind="application/merge-patch+json"
    )
    await cluster.has(f"/api/v1/nodes/{node}", is_absent)


@pytest.mark.real
async def test_both_run_as_processes_and_leave_nothing_behind(assets: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "sawhorse_sandbox.controlplane", "--directory", tmp_path / "kube"]
    plane = start_child(
        "controlplane", [*command, "--ready-file", ready, "--assets", assets], log=tmp_path / "plane.log"
    )
    kubelet = None
    try:
        await wait_until_ready(plane, exists(ready), timeout=60)
        facts = json.loads(ready.read_text())
        command = [sys.executable, "-m", "sawhorse_sandbox.kubelet", "--kubeconfig", facts["kubeconfig"]]
        # Nobody listens there: machines of a cloud that cannot be reached stay as they are.
        command += ["--aws-endpoint", "http://127.0.0.1:9", "--directory", str(tmp_path)]
        kubelet = start_child("kubelet", command, log=tmp_path / "kubelet.log")
        await wait_until_ready(kubelet, says(tmp_path / "kubelet.log", "instance list cannot be read"), timeout=30)

        kubelet.process.send_signal(signal.SIGTERM)
        plane.process.send_signal(signal.SIGTERM)

        assert await asyncio.to_thread(kubelet.process.wait, 20) == 0
        assert await asyncio.to_thread(plane.process.wait, 40) == 0
        assert set(facts["pids"]) == {"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"}
        assert not any(is_alive(pid) for pid in facts["pids"].values())
        assert not ready.exists()
    finally:
        for child in (kubelet, plane):
            if child is not None:
                await stop_child(child, grace=30)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def exists(path: Path) -> Callable[[], Awaitable[bool]]:
    async def probe() -> bool:
        return path.exists()  # noqa: ASYNC240

    return probe


def says(path: Path, words: str) -> Callable[[], Awaitable[bool]]:
    async def probe() -> bool:
        return words in path.read_text()  # noqa: ASYNC240

    return probe
