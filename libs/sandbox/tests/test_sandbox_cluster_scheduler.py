"""The embedded scheduler: what it filters, prefers, promises and says. Driven by hand, on a clock of its own."""

from collections.abc import Iterator
from typing import Any

import pytest

from sawhorse_sandbox.apiserver.operations import MERGE, Api, pod_target
from sawhorse_sandbox.apiserver.resources import NAMESPACES, NODES, PODS
from sawhorse_sandbox.apiserver.server import new_api
from sawhorse_sandbox.apiserver.storage import thaw
from sawhorse_sandbox.apiserver.targets import Target, Write
from sawhorse_sandbox.cluster.facts import pod_requests
from sawhorse_sandbox.cluster.loops import Worker
from sawhorse_sandbox.cluster.quantities import amount
from sawhorse_sandbox.cluster.scheduler import Scheduler
from sawhorse_sandbox.cluster.terms import Taint, node_term, tolerations_of, untolerated

TESTER = Write("tester")
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


class World:
    """An API, a scheduler over it, and a clock that only tests move."""

    def __init__(self) -> None:
        self.api = new_api()
        self.time = 1000.0
        self.worker = Worker(self.api.store, Scheduler(self.api, lambda: self.time), lambda: self.time)

    def node(self, name: str, cpu: str = "4", memory: str = "8Gi", pods: str = "10", **more: Any) -> None:
        labels = {HOST: name, ZONE: more.pop("zone", "a"), **more.pop("labels", {})}
        taints = more.pop("taints", [])  # in place of the one every new node starts with
        room = {"cpu": cpu, "memory": memory, "pods": pods, **more.pop("room", {})}
        body = {"metadata": {"name": name, "labels": labels}, "spec": more, "status": {"allocatable": room}}
        self.api.create(Target(NODES), body, TESTER)
        self.api.modify(Target(NODES, "", name), lambda obj: obj["spec"].update(taints=taints), TESTER)

    def pod(self, name: str, cpu: str = "1", labels: dict[str, str] | None = None, **spec: Any) -> None:
        container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}
        body = {"metadata": {"name": name, "labels": labels or {}}, "spec": {"containers": [container], **spec}}
        self.api.create(Target(PODS, "default"), body, TESTER)

    def run(self, seconds: float = 0.0) -> None:
        """Let time pass, then let the scheduler look until it has nothing more to do."""
        self.time += seconds
        for _ in range(200):
            if not self.worker.work(1.0):
                return
        raise AssertionError("the scheduler does not come to rest")

    def places(self) -> dict[str, str]:
        return {p.obj["metadata"]["name"]: p.obj["spec"].get("nodeName", "") for p in self.api.items(PODS)}

    def message(self, pod: str) -> str:
        conditions = self.api.get(pod_target("default", pod)).obj["status"].get("conditions", [])
        return str(next(c["message"] for c in conditions if c["type"] == "PodScheduled"))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    assert placed_within_room(world.api), "a node holds more than it has"


def placed_within_room(api: Api) -> bool:
    for node in api.items(NODES):
        here = [p for p in api.items(PODS) if p.obj["spec"].get("nodeName") == node.obj["metadata"]["name"]]
        running = [pod for pod in here if pod.obj["status"]["phase"] != "Succeeded"]
        used = sum(pod_requests(pod.obj["spec"]).get("cpu", 0) for pod in running)
        if used > amount("cpu", node.obj["status"]["allocatable"]["cpu"]):
            return False
    return True


def test_the_least_filled_node_is_preferred(world: World) -> None:
    world.node("small", cpu="2")
    world.node("large", cpu="8")

    world.pod("a")
    world.run()

    assert world.places() == {"a": "large"}


def test_every_reason_is_counted_in_the_message(world: World) -> None:
    world.node("full", cpu="1")
    world.node("cordoned", unschedulable=True)
    world.node("tainted", taints=[{"key": "only", "value": "x", "effect": "NoSchedule"}])
    world.node("other", labels={"kind": "other"})

    world.pod("a", cpu="2", nodeSelector={"kind": "none"})
    world.pod("b", cpu="2", nodeSelector={"kind": "other"}, priority=0)
    world.pod("c", cpu="5")
    world.run()

    assert world.places() == {"a": "", "b": "other", "c": ""}
    assert world.message("a") == (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, "
        "2 node(s) didn't match Pod's node affinity/selector."
    )
    assert world.message("c") == (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient cpu."
    )


def test_without_nodes_the_message_says_so(world: World) -> None:
    world.pod("a")
    world.run()

    assert world.message("a") == "no nodes available to schedule pods"


def test_the_number_of_pods_and_extended_resources_are_counted(world: World) -> None:
    gpu = {"name": "g", "image": "g:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    world.node("node", pods="2", room={"nvidia.com/gpu": "1"})

    world.pod("a", containers=[gpu])
    world.pod("b", containers=[gpu])
    world.run()
    world.pod("c")
    world.pod("d")
    world.run()

    assert world.places() == {"a": "node", "b": "", "c": "node", "d": ""}
    assert "Insufficient nvidia.com/gpu" in world.message("b")
    assert "1 Too many pods" in world.message("d")


def test_a_host_port_is_given_once_per_node(world: World) -> None:
    def container(port: int) -> dict[str, Any]:
        return {"name": "app", "image": "app:1", "ports": [{"containerPort": 80, "hostPort": port}]}

    world.node("node")
    world.pod("a", containers=[container(8080)])
    world.pod("b", containers=[container(8080)])
    world.pod("c", containers=[container(8081)])
    world.run()

    assert world.places() == {"a": "node", "b": "", "c": "node"}
    assert "free ports" in world.message("b")


def test_higher_priority_goes_first(world: World) -> None:
    world.node("node", cpu="1")
    world.pod("early")
    world.pod("important", priorityClassName="system-cluster-critical")
    world.run()

    assert world.places() == {"early": "", "important": "node"}


def test_room_promised_to_a_nominated_pod_is_not_given_to_its_equals(world: World) -> None:
    world.pod("hinted", cpu="3", schedulingGates=[{"name": "test.dev/wait"}])
    world.pod("other", cpu="2", schedulingGates=[{"name": "test.dev/wait"}])
    hint = {"status": {"nominatedNodeName": "node"}}
    world.api.patch(pod_target("default", "hinted", "status"), MERGE, hint, TESTER)
    for name in ("other", "hinted"):
        world.api.patch(pod_target("default", name), MERGE, {"spec": {"schedulingGates": None}}, TESTER)
    world.run()

    world.node("node", cpu="4")
    world.run(1.0)

    assert world.places() == {"hinted": "node", "other": ""}


def test_a_nomination_for_a_node_that_never_comes_hinders_nobody(world: World) -> None:
    world.node("node")
    world.pod("hinted", schedulingGates=[{"name": "test.dev/wait"}])
    hint = {"status": {"nominatedNodeName": "never"}}
    world.api.patch(pod_target("default", "hinted", "status"), MERGE, hint, TESTER)
    world.api.patch(pod_target("default", "hinted"), MERGE, {"spec": {"schedulingGates": None}}, TESTER)
    world.run()

    assert world.places() == {"hinted": "node"}


def test_a_gated_pod_waits_and_says_so(world: World) -> None:
    world.node("node")
    world.pod("gated", schedulingGates=[{"name": "test.dev/wait"}])
    world.run()
    waiting = world.api.get(pod_target("default", "gated")).obj["status"]["conditions"][0]

    world.api.patch(pod_target("default", "gated"), MERGE, {"spec": {"schedulingGates": None}}, TESTER)
    world.run()

    assert (waiting["status"], waiting["reason"]) == ("False", "SchedulingGated")
    assert world.places() == {"gated": "node"}


def test_pods_of_other_schedulers_are_left_alone(world: World) -> None:
    world.node("node")
    world.pod("theirs", schedulerName="other")
    world.run()

    assert world.places() == {"theirs": ""}


@pytest.mark.parametrize("change", ["node added", "pod deleted", "taint lifted", "uncordoned"])
def test_a_pod_that_fitted_nowhere_is_tried_again_when_that_may_help(world: World, change: str) -> None:
    world.node("full", cpu="1")
    world.node("tainted", taints=[{"key": "a", "effect": "NoExecute"}])
    world.node("cordoned", unschedulable=True)
    world.pod("first")
    world.run()
    world.pod("waits", cpu="1")
    world.run()
    waiting = world.places()["waits"]

    if change == "node added":
        world.node("new")
    elif change == "pod deleted":
        world.api.delete(pod_target("default", "first"))
        world.api.store.remove(PODS.storage, ("default", "first"))
    elif change == "taint lifted":
        world.api.modify(Target(NODES, "", "tainted"), lambda obj: obj["spec"].pop("taints"), TESTER)
    else:
        world.api.modify(Target(NODES, "", "cordoned"), lambda obj: obj["spec"].pop("unschedulable"), TESTER)
    world.run()
    world.run(2.0)

    expected = {"node added": "new", "pod deleted": "full", "taint lifted": "tainted", "uncordoned": "cordoned"}
    assert waiting == ""
    assert world.places()["waits"] == expected[change]


def test_a_heartbeat_or_its_own_mark_does_not_make_it_try_again(world: World) -> None:
    world.node("full", cpu="1")
    world.pod("waits", cpu="2")
    world.run()
    before = world.api.store.revision

    status = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}
    world.api.patch(Target(NODES, "", "full", "status"), MERGE, {"status": status}, TESTER)
    world.run()
    world.run(5.0)

    assert world.api.store.revision == before + 1


def test_fruitless_rounds_grow_rarer_up_to_a_second(world: World) -> None:
    world.pod("waits", cpu="64")
    world.run()
    pauses = []
    for index in range(6):
        world.node(f"small-{index}")
        started = world.time
        while f"0/{index + 1} nodes" not in world.message("waits"):
            world.run(0.05)
        pauses.append(world.time - started)

    assert pauses[0] <= 0.2
    assert pauses == sorted(pauses)
    assert pauses[-1] <= 1.1


def a_spread(key: str, when: str = "DoNotSchedule", **more: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "x"}}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector, **more}


def test_a_hard_spread_holds_pods_back_rather_than_skew(world: World) -> None:
    world.node("a", zone="a", cpu="8")
    world.node("b", zone="b", cpu="1")

    for index in range(4):
        world.pod(f"p{index}", labels={"app": "x"}, topologySpreadConstraints=[a_spread(ZONE)])
    world.run()

    placed = list(world.places().values())
    assert (placed.count("a"), placed.count("b"), placed.count("")) == (2, 1, 1)
    waiting = next(name for name, node in world.places().items() if not node)
    assert "1 node(s) didn't match pod topology spread constraints" in world.message(waiting)


def test_a_node_without_the_topology_label_is_out_and_said_to_be(world: World) -> None:
    world.node("plain")

    world.pod("a", labels={"app": "x"}, topologySpreadConstraints=[a_spread("rack")])
    world.run()

    assert "(missing required label)" in world.message("a")


def test_min_domains_makes_too_few_domains_count_as_empty_ones(world: World) -> None:
    world.node("a", zone="a", cpu="8")

    for name in ("p0", "p1"):
        world.pod(name, labels={"app": "x"}, topologySpreadConstraints=[a_spread(ZONE, minDomains=2)])
    world.run()

    assert sorted(world.places().values()) == ["", "a"]


def test_a_soft_spread_only_leans(world: World) -> None:
    world.node("a", zone="a", cpu="8")
    world.node("b", zone="b", cpu="8")

    for index in range(4):
        world.pod(f"p{index}", labels={"app": "x"}, topologySpreadConstraints=[a_spread(ZONE, "ScheduleAnyway")])
    world.run()

    assert sorted(world.places().values()) == ["a", "a", "b", "b"]


def test_match_label_keys_spread_each_revision_on_its_own(world: World) -> None:
    world.node("a", zone="a", cpu="8")
    world.node("b", zone="b", cpu="8")
    constraint = a_spread(ZONE, matchLabelKeys=["hash"])

    for name, revision in (("old-0", "1"), ("old-1", "1"), ("new-0", "2"), ("new-1", "2")):
        world.pod(name, labels={"app": "x", "hash": revision}, topologySpreadConstraints=[constraint])
    world.run()

    places = world.places()
    assert {places["old-0"], places["old-1"]} == {places["new-0"], places["new-1"]} == {"a", "b"}


def a_term(key: str, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "db"}}, **more}


def near(term: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def away(term: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_affinity_follows_the_other_pod_into_its_zone(world: World) -> None:
    world.node("a", zone="a", cpu="1")
    world.node("a2", zone="a", cpu="2")
    world.node("b", zone="b", cpu="16")
    world.pod("db", labels={"app": "db"}, nodeSelector={HOST: "a"})
    world.run()

    world.pod("web", affinity=near(a_term(ZONE)))
    world.run()

    assert world.places()["web"] == "a2"


def test_affinity_to_nobody_waits_unless_the_pod_is_what_it_looks_for(world: World) -> None:
    world.node("a", cpu="8")

    world.pod("web", affinity=near(a_term(ZONE)))
    world.run()
    waiting = world.places()
    reason = world.message("web")
    world.pod("db", labels={"app": "db"}, affinity=near(a_term(ZONE)))
    world.run()
    world.run(2.0)

    assert waiting == {"web": ""}
    assert "didn't match pod affinity rules" in reason
    assert world.places() == {"web": "a", "db": "a"}


def test_anti_affinity_of_a_placed_pod_keeps_others_out(world: World) -> None:
    world.node("a", zone="a", cpu="8")
    world.pod("lonely", affinity=away(a_term(ZONE)))
    world.run()

    world.pod("db", labels={"app": "db"})
    world.run()

    assert world.places() == {"lonely": "a", "db": ""}
    assert "didn't satisfy existing pods anti-affinity rules" in world.message("db")


def test_affinity_looks_into_the_namespaces_it_names(world: World) -> None:
    world.api.create(Target(NAMESPACES), {"metadata": {"name": "data", "labels": {"kind": "data"}}}, TESTER)
    world.node("a", zone="a", cpu="8")
    container = {"name": "app", "image": "app:1"}
    body = {"metadata": {"name": "db", "labels": {"app": "db"}}, "spec": {"containers": [container]}}
    world.api.create(Target(PODS, "data"), body, TESTER)
    world.run()

    world.pod("own-only", affinity=near(a_term(ZONE)))
    world.pod("by-name", affinity=near(a_term(ZONE, namespaces=["data"])))
    world.pod("by-label", affinity=near(a_term(ZONE, namespaceSelector={"matchLabels": {"kind": "data"}})))
    world.run()

    places = world.places()
    assert (places["own-only"], places["by-name"], places["by-label"]) == ("", "a", "a")


def test_preferred_node_affinity_and_soft_taints_lean(world: World) -> None:
    world.node("disliked", cpu="16", taints=[{"key": "a", "effect": "PreferNoSchedule"}])
    world.node("plain", cpu="16")
    world.node("liked", cpu="16", labels={"disk": "ssd"})
    preference = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    term = {"weight": 100, "preference": preference}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}

    world.pod("a", affinity=affinity)
    world.pod("b", nodeSelector={}, affinity={})
    world.run()

    assert world.places()["a"] == "liked"
    assert world.places()["b"] != "disliked"


def test_equal_pods_that_fit_nowhere_all_get_the_message(world: World) -> None:
    for index in range(20):
        world.node(f"n{index}", taints=[{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}])
    for index in range(300):
        world.pod(f"p{index}")

    world.run()

    assert set(world.places().values()) == {""}
    assert (
        world.message("p0") == world.message("p299") == "0/20 nodes are available: 20 node(s) had untolerated taint(s)."
    )


def test_a_pod_bound_by_someone_else_takes_room(world: World) -> None:
    world.pod("bound", cpu="3", nodeName="node")
    world.node("node", cpu="4")

    world.pod("large", cpu="2")
    world.pod("small", cpu="1")
    world.run()

    assert world.places() == {"bound": "node", "large": "", "small": "node"}


def test_finished_pods_take_no_room(world: World) -> None:
    world.node("node", cpu="1")
    world.pod("done")
    world.run()
    world.api.patch(pod_target("default", "done", "status"), MERGE, {"status": {"phase": "Succeeded"}}, TESTER)

    world.pod("next")
    world.run()

    assert world.places()["next"] == "node"


@pytest.mark.parametrize(
    ("resource", "quantity", "expected"),
    [
        ("cpu", "1", 1000),
        ("cpu", "250m", 250),
        ("cpu", "0.0001", 1),
        ("cpu", 2, 2000),
        ("memory", "1Gi", 2**30),
        ("memory", "1.5k", 1500),
        ("memory", "128974848", 128974848),
        ("memory", "1e3", 1000),
        ("memory", "500m", 1),
        ("pods", "110", 110),
    ],
)
def test_quantities_are_whole_numbers_rounded_up(resource: str, quantity: str | int, expected: int) -> None:
    assert amount(resource, quantity) == expected


def test_a_text_that_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        amount("cpu", "lots")


def test_requests_count_init_containers_sidecars_and_overhead() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [container("100m"), container("200m")],
        "initContainers": [container("1"), container("50m", restartPolicy="Always"), container("400m")],
        "overhead": {"cpu": "10m"},
    }
    light_start = {**spec, "initContainers": [container("50m", restartPolicy="Always"), container("100m")]}

    assert pod_requests(spec) == {"cpu": 1010, "pods": 1}
    assert pod_requests(light_start) == {"cpu": 360, "pods": 1}


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "5"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["5"]}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["5"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["4"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Lt", "values": ["5"]}]}, False),
        ({"matchExpressions": [{"key": "word", "operator": "Gt", "values": ["4"]}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}, {"key": "a", "operator": "Exists"}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}, False),
        ({}, False),
    ],
)
def test_node_terms_match_as_documented(term: dict[str, Any], matches: bool) -> None:
    assert node_term(term).matches("n", {"a": "5", "word": "x"}) is matches


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_match_as_documented(toleration: dict[str, Any], tolerated: bool) -> None:
    taint = Taint("k", "v", "NoSchedule")

    left = untolerated([taint], tolerations_of({"tolerations": [toleration]}), frozenset({"NoSchedule"}))

    assert (left is None) is tolerated


def test_stored_objects_are_not_changed_by_scheduling(world: World) -> None:
    world.node("node")
    world.pod("a")
    before = world.api.get(pod_target("default", "a"))
    copy = thaw(before)

    world.run()

    assert before.obj == copy
    assert world.places() == {"a": "node"}
