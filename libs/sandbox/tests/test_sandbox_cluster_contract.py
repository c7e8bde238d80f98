"""What the embedded scheduler and controllers promise, asked of them and of the real ones: no drift."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from sawhorse_sandbox.apiserver import start_embedded_kube
from sawhorse_sandbox.controlplane import find_assets, start_control_plane

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
MERGE = "application/merge-patch+json"
ZONE = "topology.kubernetes.io/zone"
DEADLINE = 40  # seconds; the real controllers work through their queues at their own pace
VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."

Json = dict[str, Any]


@dataclass(frozen=True)
class Cluster:
    """A cluster, spoken to in plain JSON, in a namespace of one test."""

    http: aiohttp.ClientSession
    url: str
    namespace: str

    def at(self, kind: str, name: str = "") -> str:
        group = {"pods": "/api/v1", "poddisruptionbudgets": "/apis/policy/v1"}.get(kind, "/apis/apps/v1")
        return f"{group}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Json]:
        headers = {"Content-Type": kind}
        async with self.http.request(method, self.url + path, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def done(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Json:
        status, answer = await self.ask(method, path, body, kind)
        assert status < 300, answer
        return answer

    async def until(self, path: str, holds: Callable[[Json], Any]) -> Json:
        """Wait until what is at `path` is as wanted; the assertion shows what it was instead."""
        deadline = asyncio.get_running_loop().time() + DEADLINE
        while True:
            _, found = await self.ask("GET", path)
            if holds(found):
                return found
            assert asyncio.get_running_loop().time() < deadline, found
            await asyncio.sleep(0.1)

    async def pods(self, holds: Callable[[list[Json]], Any]) -> list[Json]:
        """Wait until the pods of the namespace are as wanted."""
        found = await self.until(self.at("pods"), lambda listed: holds(listed["items"]))
        items: list[Json] = found["items"]
        return items

    async def add_node(self, name: str, zone: str = "a", cpu: str = "4", taints: list[Json] | None = None) -> None:
        """A node that is ready, for pods of this test only, with a Lease that lasts as long as the test."""
        labels = {"kubernetes.io/hostname": name, ZONE: zone, "test": self.namespace}
        await self.done("POST", NODES, {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints or []}})
        room = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
        await self.done("POST", LEASES, {"metadata": {"name": name}, "spec": {"holderIdentity": name}})
        status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.done("PATCH", f"{NODES}/{name}/status", {"status": status}, MERGE)
        await self.until(f"{NODES}/{name}", lambda node: "not-ready" not in str(node["spec"].get("taints")))

    async def make_ready(self, pods: list[Json]) -> None:
        for pod in pods:
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await self.done("PATCH", self.at("pods", _name(pod)) + "/status", {"status": status}, MERGE)

    def spec(self, cpu: str = "1", **fields: Any) -> Json:
        container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}
        return {"nodeSelector": {"test": self.namespace}, "containers": [container], **fields}

    async def pod(self, name: str, cpu: str = "1", labels: Json | None = None, **fields: Any) -> None:
        body = {"metadata": {"name": name, "labels": labels or {"app": "x"}}, "spec": self.spec(cpu, **fields)}
        await self.done("POST", self.at("pods"), body)

    async def workload(self, kind: str, name: str, replicas: int | None = None, **fields: Any) -> Json:
        template = {"metadata": {"labels": {"app": name}}, "spec": self.spec(**fields)}
        spec: Json = {"selector": {"matchLabels": {"app": name}}, "template": template}
        if replicas is not None:
            spec["replicas"] = replicas
        return await self.done("POST", self.at(kind), {"metadata": {"name": name}, "spec": spec})


@pytest_asyncio.fixture(
    params=["embedded", pytest.param("real", marks=pytest.mark.real)], loop_scope="module", scope="module"
)
async def kube(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    directory = tmp_path_factory.mktemp("kube")
    trust: ssl.SSLContext | bool = True
    if request.param == "embedded":
        started: Any = await start_embedded_kube(directory)
    else:
        assets = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))
        assert assets is not None, "no control plane binaries: run `make kube-assets`"
        started = await start_control_plane(directory, assets)
        trust = ssl.create_default_context(cafile=str(directory / "certs" / "apiserver.crt"))
    async with started:
        headers = {"Authorization": f"Bearer {started.token}"}
        connector = aiohttp.TCPConnector(ssl=trust)
        timeout = aiohttp.ClientTimeout(total=15)
        async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as http:
            yield Cluster(http, started.url, "default")


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(kube: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """The cluster, with a namespace and nodes of the test's own."""
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:60].strip("-")
    await kube.done("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return Cluster(kube.http, kube.url, name)


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def _node(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _is_going(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _scheduled(pod: Json) -> Json:
    found: list[Json] = [c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
    return found[0] if found else {}


def _placed(count: int) -> Callable[[list[Json]], bool]:
    return lambda pods: sum(bool(_node(pod)) for pod in pods) == count


def _replicas_are(count: int) -> Callable[[list[Json]], bool]:
    return lambda pods: len([pod for pod in pods if not _is_going(pod)]) == count


async def test_a_pod_lands_on_the_node_that_has_room(cluster: Cluster) -> None:
    await cluster.add_node("room-small", cpu="1")
    await cluster.add_node("room-large", cpu="4")

    await cluster.pod("wants-two", cpu="2")
    pods = await cluster.pods(_placed(1))

    assert _node(pods[0]) == "room-large"
    assert _scheduled(pods[0])["status"] == "True"


async def test_a_pod_without_room_is_told_why_and_lands_when_a_node_comes(cluster: Cluster) -> None:
    await cluster.add_node("why-full", cpu="1")
    await cluster.add_node("why-tainted", taints=[{"key": "only", "effect": "NoSchedule"}])

    await cluster.pod("large", cpu="3")
    waiting = await cluster.pods(lambda pods: _scheduled(pods[0]).get("status") == "False")
    await cluster.add_node("why-new", cpu="4")
    placed = await cluster.pods(_placed(1))

    assert _scheduled(waiting[0])["reason"] == "Unschedulable"
    message = _scheduled(waiting[0])["message"]
    assert message.startswith("0/")
    assert " nodes are available: " in message
    assert "1 Insufficient cpu" in message
    assert "node(s) had untolerated taint(s)" in message
    assert _node(placed[0]) == "why-new"


async def test_a_nominated_node_is_taken_though_another_scores_better(cluster: Cluster) -> None:
    gate = {"schedulingGates": [{"name": "test.dev/wait"}]}
    await cluster.add_node("nominated-crowded", cpu="2")
    await cluster.add_node("nominated-empty", cpu="16")
    await cluster.pod("hinted", **gate)
    path = cluster.at("pods", "hinted")
    await cluster.done("PATCH", path + "/status", {"status": {"nominatedNodeName": "nominated-crowded"}}, MERGE)

    await cluster.done("PATCH", path, {"spec": {"schedulingGates": None}}, MERGE)
    pods = await cluster.pods(_placed(1))

    assert _node(pods[0]) == "nominated-crowded"


async def test_zones_are_filled_evenly_where_the_spread_is_hard(cluster: Cluster) -> None:
    for zone in ("a", "b", "c"):
        await cluster.add_node(f"even-{zone}", zone=zone, cpu="16")
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}},
    }

    await cluster.workload("deployments", "even", 6, topologySpreadConstraints=[constraint])
    pods = await cluster.pods(_placed(6))

    assert sorted(_node(pod) for pod in pods) == sorted(["even-a", "even-b", "even-c"] * 2)


async def test_anti_affinity_keeps_pods_on_nodes_of_their_own(cluster: Cluster) -> None:
    for index in range(2):
        await cluster.add_node(f"apart-{index}")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    await cluster.workload("deployments", "apart", 3, affinity=affinity)
    pods = await cluster.pods(
        lambda pods: _placed(2)(pods) and any(_scheduled(p).get("reason") == "Unschedulable" for p in pods)
    )

    assert sorted(_node(pod) for pod in pods) == ["", "apart-0", "apart-1"]
    waiting = next(pod for pod in pods if not _node(pod))
    assert "node(s) didn't match pod anti-affinity rules" in _scheduled(waiting)["message"]


async def test_a_deployment_keeps_its_replicas_and_follows_its_scale(cluster: Cluster) -> None:
    await cluster.add_node("replicas-a", cpu="16")
    await cluster.workload("deployments", "web", 3)
    three = await cluster.pods(_placed(3))
    await cluster.done("DELETE", cluster.at("pods", _name(three[0])))
    replaced = await cluster.pods(_replicas_are(3))
    await cluster.done("PATCH", cluster.at("deployments", "web"), {"spec": {"replicas": 1}}, MERGE)
    await cluster.pods(_replicas_are(1))
    status = await cluster.until(cluster.at("deployments", "web"), lambda d: d["status"].get("replicas") == 1)

    sets = await cluster.done("GET", cluster.at("replicasets"))
    owner = three[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ReplicaSet", _name(sets["items"][0]), True)
    assert _name(three[0]).startswith(owner["name"] + "-")
    assert owner["name"] == f"web-{three[0]['metadata']['labels']['pod-template-hash']}"
    assert {_name(pod) for pod in replaced if not _is_going(pod)} != {_name(pod) for pod in three}
    assert status["status"]["observedGeneration"] == status["metadata"]["generation"] == 2


async def test_a_new_template_rolls_out_while_enough_stay_ready(cluster: Cluster) -> None:
    await cluster.add_node("rolling-a", cpu="16")
    await cluster.workload("deployments", "roll", 4)
    old = await cluster.pods(_placed(4))
    await cluster.make_ready(old)
    ready = cluster.at("deployments", "roll")
    await cluster.until(ready, lambda d: d["status"].get("readyReplicas") == 4)
    template = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}

    await cluster.done("PATCH", ready, template, MERGE)
    halfway = await cluster.pods(lambda pods: len(pods) > 4 and any(_is_going(pod) for pod in pods))
    names = {_name(pod) for pod in old}
    kept = [pod for pod in halfway if _name(pod) in names and not _is_going(pod)]
    for _ in range(4):
        fresh = [p for p in (await cluster.pods(lambda pods: True)) if _name(p) not in names and _node(p)]
        await cluster.make_ready(fresh)
        for pod in await cluster.pods(lambda pods: True):
            if _is_going(pod):
                await cluster.done("DELETE", cluster.at("pods", _name(pod)) + "?gracePeriodSeconds=0")
        await asyncio.sleep(0.3)
    final = await cluster.pods(lambda pods: all(_name(p) not in names or _is_going(p) for p in pods))

    assert len(kept) == 3  # 25 % of four may be unavailable
    assert len([pod for pod in final if not _is_going(pod)]) == 4


async def test_a_daemon_runs_on_every_node_that_takes_it(cluster: Cluster) -> None:
    await cluster.add_node("daemon-plain")
    await cluster.add_node(
        "daemon-cordoned", taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    )
    await cluster.add_node("daemon-tainted", taints=[{"key": "only", "effect": "NoSchedule"}])

    await cluster.done("PATCH", f"{NODES}/daemon-cordoned", {"spec": {"unschedulable": True}}, MERGE)
    await cluster.workload("daemonsets", "agent")
    pods = await cluster.pods(_placed(2))
    status = await cluster.until(
        cluster.at("daemonsets", "agent"), lambda d: d["status"].get("currentNumberScheduled") == 2
    )

    assert sorted(_node(pod) for pod in pods) == ["daemon-cordoned", "daemon-plain"]
    assert status["status"]["desiredNumberScheduled"] == 2
    affinity = pods[0]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    field = {"key": "metadata.name", "operator": "In", "values": [_node(pods[0])]}
    assert affinity["nodeSelectorTerms"] == [{"matchFields": [field]}]


async def test_a_no_execute_taint_drives_out_who_does_not_tolerate_it(cluster: Cluster) -> None:
    await cluster.add_node("driven")
    tolerates = {"key": "karpenter.sh/unregistered", "operator": "Exists", "effect": "NoExecute"}
    tolerations = {"stays": [tolerates], "stays-a-while": [{**tolerates, "tolerationSeconds": 600}], "goes": []}
    for name, tolerated in tolerations.items():
        await cluster.pod(name, tolerations=tolerated)
    await cluster.pods(_placed(3))

    taint = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
    await cluster.done("PATCH", f"{NODES}/driven", {"spec": {"taints": [taint]}}, MERGE)
    pods = await cluster.pods(lambda pods: any(_is_going(pod) for pod in pods))

    assert [_name(pod) for pod in pods if _is_going(pod)] == ["goes"]
    disrupted = [c for c in pods[0]["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert [c["reason"] for c in disrupted] == ["DeletionByTaintManager"]


async def test_taints_follow_readiness_and_the_cordon(cluster: Cluster) -> None:
    await cluster.add_node("follows")
    path = f"{NODES}/follows"

    def has(*wanted: str) -> Callable[[Json], bool]:
        return lambda node: {f"{t['key']}:{t['effect']}" for t in node["spec"].get("taints", ())} == set(wanted)

    await cluster.done("PATCH", path, {"spec": {"unschedulable": True}}, MERGE)
    cordoned = await cluster.until(path, has("node.kubernetes.io/unschedulable:NoSchedule"))
    await cluster.done("PATCH", path, {"spec": {"unschedulable": None}}, MERGE)
    await cluster.until(path, has())
    status = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await cluster.done("PATCH", path + "/status", status, MERGE)
    not_ready = "node.kubernetes.io/not-ready"
    await cluster.until(path, has(f"{not_ready}:NoSchedule", f"{not_ready}:NoExecute"))
    status["status"]["conditions"][0]["status"] = "True"
    await cluster.done("PATCH", path + "/status", status, MERGE)
    ready = await cluster.until(path, has())

    assert cordoned["spec"]["unschedulable"] is True
    assert not ready["spec"].get("taints")


async def test_a_budget_lets_one_go_and_refuses_the_next(cluster: Cluster) -> None:
    await cluster.add_node("budget-a", cpu="16")
    await cluster.workload("deployments", "guarded", 3)
    pods = await cluster.pods(_placed(3))
    await cluster.make_ready(pods)
    budget = {"metadata": {"name": "two"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "guarded"}}}}
    await cluster.done("POST", cluster.at("poddisruptionbudgets"), budget)
    path = cluster.at("poddisruptionbudgets", "two")
    allowed = await cluster.until(path, lambda b: b.get("status", {}).get("disruptionsAllowed") == 1)

    first = await cluster.ask("POST", cluster.at("pods", _name(pods[0])) + "/eviction", _eviction(pods[0]))
    second = await cluster.ask("POST", cluster.at("pods", _name(pods[1])) + "/eviction", _eviction(pods[1]))
    evicted = await cluster.done("GET", cluster.at("pods", _name(pods[0])))

    counts = {name: allowed["status"][name] for name in ("currentHealthy", "desiredHealthy", "expectedPods")}
    assert counts == {"currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3}
    assert first[0] == 201
    assert _is_going(evicted)
    assert "EvictionByEvictionAPI" in [c.get("reason") for c in evicted["status"]["conditions"]]
    assert (second[0], second[1]["reason"], second[1]["message"]) == (429, "TooManyRequests", VIOLATES)
    causes = [(cause["reason"], cause["message"]) for cause in second[1]["details"]["causes"]]
    assert causes == [("DisruptionBudget", "The disruption budget two needs 2 healthy pods and has 2 currently")]


def _eviction(pod: Json, **options: Any) -> Json:
    metadata = {"name": _name(pod), "namespace": pod["metadata"]["namespace"]}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}


async def test_max_unavailable_counts_what_the_deployment_wants(cluster: Cluster) -> None:
    await cluster.add_node("half-a", cpu="16")
    await cluster.workload("deployments", "half", 4)
    await cluster.make_ready(await cluster.pods(_placed(4)))
    selector = {"matchLabels": {"app": "half"}}
    budget = {"metadata": {"name": "half"}, "spec": {"maxUnavailable": "50%", "selector": selector}}

    await cluster.done("POST", cluster.at("poddisruptionbudgets"), budget)
    path = cluster.at("poddisruptionbudgets", "half")
    found = await cluster.until(path, lambda b: b.get("status", {}).get("disruptionsAllowed") == 2)

    assert (found["status"]["desiredHealthy"], found["status"]["expectedPods"]) == (2, 4)


async def test_an_eviction_checks_its_preconditions(cluster: Cluster) -> None:
    await cluster.add_node("checked")
    await cluster.pod("kept")
    pods = await cluster.pods(_placed(1))
    await cluster.make_ready(pods)
    path = cluster.at("pods", "kept")

    wrong = await cluster.ask("POST", path + "/eviction", _eviction(pods[0], preconditions={"uid": "other"}))
    unharmed = await cluster.done("GET", path)
    options = {"preconditions": {"uid": pods[0]["metadata"]["uid"]}, "gracePeriodSeconds": 7}
    right = await cluster.ask("POST", path + "/eviction", _eviction(pods[0], **options))
    going = await cluster.done("GET", path)

    assert (wrong[0], right[0]) == (409, 201)
    assert not _is_going(unharmed)
    assert going["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_dependents_go_after_their_owner_and_orphans_stay(cluster: Cluster) -> None:
    for name in ("dropped", "orphaned"):
        await cluster.workload("deployments", name, 1)
    await cluster.pods(_replicas_are(2))

    orphaning = {"propagationPolicy": "Orphan"}
    await cluster.done("DELETE", cluster.at("deployments", "orphaned"), orphaning)
    await cluster.done("DELETE", cluster.at("deployments", "dropped"))
    sets = await cluster.until(
        cluster.at("replicasets"),
        lambda found: len(found["items"]) == 1 and "ownerReferences" not in found["items"][0]["metadata"],
    )
    pods = await cluster.pods(lambda found: [pod["metadata"]["labels"]["app"] for pod in found] == ["orphaned"])

    assert pods[0]["metadata"]["ownerReferences"][0]["name"] == _name(sets["items"][0])
    assert _name(sets["items"][0]).startswith("orphaned-")


async def test_a_foreground_deletion_waits_for_dependents(cluster: Cluster) -> None:
    await cluster.add_node("foreground-a")
    await cluster.workload("deployments", "slow", 1)
    pods = await cluster.pods(_placed(1))

    await cluster.done("DELETE", cluster.at("deployments", "slow"), {"propagationPolicy": "Foreground"})
    await cluster.pods(lambda found: bool(found) and _is_going(found[0]))
    waiting = await cluster.done("GET", cluster.at("deployments", "slow"))
    await cluster.done("DELETE", cluster.at("pods", _name(pods[0])) + "?gracePeriodSeconds=0")
    gone = await cluster.until(cluster.at("deployments", "slow"), lambda found: found.get("code") == 404)

    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert gone["reason"] == "NotFound"


async def test_a_deleted_namespace_takes_its_content_along(cluster: Cluster) -> None:
    await cluster.workload("deployments", "content", 2)
    await cluster.pods(_replicas_are(2))
    path = f"/api/v1/namespaces/{cluster.namespace}"

    going = await cluster.done("DELETE", path)
    gone = await cluster.until(path, lambda found: found.get("code") == 404)
    left = await cluster.done("GET", f"/api/v1/pods?fieldSelector=metadata.namespace%3D{cluster.namespace}")

    assert going["status"]["phase"] == "Terminating"
    assert gone["reason"] == "NotFound"
    assert left["items"] == []
