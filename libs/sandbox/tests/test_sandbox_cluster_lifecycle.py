"""Nodes that fall silent, taints that run out, pods and content of what is gone; on a clock of their own."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from sawhorse_sandbox.apiserver.errors import ApiError
from sawhorse_sandbox.apiserver.operations import MERGE, Api, pod_target
from sawhorse_sandbox.apiserver.resources import CRDS, LEASES, NAMESPACES, NODES, PODS, Resource
from sawhorse_sandbox.apiserver.server import new_api
from sawhorse_sandbox.apiserver.targets import DeleteOptions, Target, Write
from sawhorse_sandbox.cluster.garbage import ContentFinalizer, OwnerGarbage, PodGarbage
from sawhorse_sandbox.cluster.loops import Reconciler, Worker
from sawhorse_sandbox.cluster.nodes import NodeLifecycle, TaintEviction, wanted_taints

TESTER = Write("tester")
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class World:
    """An API and some controllers over it, and a clock that only tests move."""

    def __init__(self, *controllers: Callable[[Api, Callable[[], float]], Reconciler]) -> None:
        self.seconds = 0.0
        self.api = new_api(lambda: START + datetime.timedelta(seconds=self.seconds))

        def clock() -> float:
            return self.seconds

        self._workers = [Worker(self.api.store, make(self.api, clock), clock) for make in controllers]

    def run(self, seconds: float = 0.0) -> None:
        """Let time pass, then let every controller look until nothing is left to do."""
        self.seconds += seconds
        for _ in range(100):
            if not any([worker.work(1.0) for worker in self._workers]):
                return
        raise AssertionError("the controllers do not come to rest")

    def node(self, name: str, *conditions: tuple[str, str], **spec: Any) -> None:
        status = {"conditions": [{"type": kind, "status": word} for kind, word in conditions or [("Ready", "True")]]}
        self.api.create(Target(NODES), {"metadata": {"name": name}, "spec": spec, "status": status}, TESTER)

    def pod(self, name: str, node: str = "node", **spec: Any) -> None:
        containers = [{"name": "app", "image": "app:1"}]
        body = {"metadata": {"name": name}, "spec": {"containers": containers, "nodeName": node, **spec}}
        self.api.create(Target(PODS, "default"), body, TESTER)

    def renew(self, node: str) -> None:
        target = Target(LEASES, "kube-node-lease", node)
        if self.api.find(target) is None:
            self.api.create(Target(LEASES, "kube-node-lease"), {"metadata": {"name": node}}, TESTER)
        self.api.patch(target, MERGE, {"spec": {"renewTime": self.api.now()}}, TESTER)

    def taints(self, node: str) -> set[str]:
        listed = self.api.get(Target(NODES, "", node)).obj["spec"].get("taints", [])
        return {f"{taint['key']}:{taint['effect']}" for taint in listed}

    def condition(self, target: Target, kind: str) -> tuple[str, str]:
        conditions = self.api.get(target).obj["status"]["conditions"]
        found = next(c for c in conditions if c["type"] == kind)
        return found["status"], found.get("reason", "")

    def going(self) -> set[str]:
        return {p.obj["metadata"]["name"] for p in self.api.items(PODS) if "deletionTimestamp" in p.obj["metadata"]}

    def names(self, resource: Resource = PODS) -> list[str]:
        return [stored.obj["metadata"]["name"] for stored in self.api.items(resource)]


def lifecycle() -> World:
    return World(NodeLifecycle, TaintEviction)


def test_a_node_is_not_ready_until_it_says_so() -> None:
    world = lifecycle()
    world.node("node", ("Ready", "False"))
    world.run()
    before = world.taints("node")

    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    world.api.patch(Target(NODES, "", "node", "status"), MERGE, status, TESTER)
    world.run()

    assert before == {"node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"}
    assert world.taints("node") == set()


def test_a_node_whose_lease_is_renewed_stays_ready() -> None:
    world = lifecycle()
    world.node("node")
    for _ in range(10):
        world.renew("node")
        world.run(10)

    assert world.condition(Target(NODES, "", "node"), "Ready") == ("True", "")
    assert world.taints("node") == set()


def test_a_node_that_is_silent_for_forty_seconds_is_unknown_and_tainted() -> None:
    world = lifecycle()
    world.node("node")
    world.pod("app")
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    world.api.patch(pod_target("default", "app", "status"), MERGE, status, TESTER)
    world.renew("node")
    world.run(39)
    before = world.condition(Target(NODES, "", "node"), "Ready")
    world.run(1)

    assert before == ("True", "")
    assert world.condition(Target(NODES, "", "node"), "Ready") == ("Unknown", "NodeStatusUnknown")
    assert world.taints("node") == {
        "node.kubernetes.io/unreachable:NoSchedule",
        "node.kubernetes.io/unreachable:NoExecute",
    }
    assert world.condition(pod_target("default", "app"), "Ready") == ("False", "NodeNotReady")


def test_pods_of_an_unreachable_node_go_when_their_default_patience_ends() -> None:
    world = lifecycle()
    world.node("node")
    world.pod("app")
    world.pod("daemon", tolerations=[{"operator": "Exists"}])
    world.run(40)
    world.run(299)
    before = world.going()
    world.run(1)

    assert before == set()
    assert world.going() == {"app"}
    assert world.condition(pod_target("default", "app"), "DisruptionTarget") == ("True", "DeletionByTaintManager")


def test_a_taint_that_is_lifted_in_time_drives_nobody_out() -> None:
    world = lifecycle()
    world.node("node", ("Ready", "False"))
    world.pod("app")
    world.run(200)
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    world.api.patch(Target(NODES, "", "node", "status"), MERGE, status, TESTER)
    for _ in range(10):
        world.renew("node")
        world.run(30)

    assert world.going() == set()


def test_a_taint_that_comes_back_counts_from_then() -> None:
    world = World(TaintEviction)
    toleration = {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}
    world.node("node")
    world.pod("app", tolerations=[toleration])
    for taints in ([{"key": "a", "effect": "NoExecute"}], [], [{"key": "a", "effect": "NoExecute"}]):
        world.api.patch(Target(NODES, "", "node"), MERGE, {"spec": {"taints": taints}}, TESTER)
        world.run(8)
    before = world.going()
    world.run(10)

    assert before == set()
    assert world.going() == {"app"}


def test_foreign_taints_are_kept() -> None:
    world = lifecycle()
    world.node("node", ("Ready", "True"), taints=[{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}])

    world.run()

    assert world.taints("node") == {"karpenter.sh/unregistered:NoExecute"}


@pytest.mark.parametrize(
    ("conditions", "unschedulable", "expected"),
    [
        ({"Ready": "True"}, False, set()),
        ({}, False, {("node.kubernetes.io/not-ready", "NoSchedule")}),
        ({"Ready": "True", "DiskPressure": "True"}, False, {("node.kubernetes.io/disk-pressure", "NoSchedule")}),
        ({"Ready": "True", "MemoryPressure": "False"}, False, set()),
        ({"Ready": "True"}, True, {("node.kubernetes.io/unschedulable", "NoSchedule")}),
    ],
)
def test_conditions_and_the_cordon_call_for_taints(
    conditions: dict[str, str], unschedulable: bool, expected: set[tuple[str, str]]
) -> None:
    listed = [{"type": kind, "status": status} for kind, status in conditions.items()]

    assert wanted_taints({"spec": {"unschedulable": unschedulable}, "status": {"conditions": listed}}) == expected


def test_pods_of_a_vanished_node_are_removed_after_a_moment() -> None:
    world = World(PodGarbage)
    world.node("node")
    world.pod("app")
    world.pod("going", terminationGracePeriodSeconds=600)
    world.pod("elsewhere", node="other")
    world.node("other")
    world.api.delete(pod_target("default", "going"))
    world.api.delete(Target(NODES, "", "node"))
    world.run()
    world.run(2.9)
    before = world.names()
    world.run(0.2)

    assert before == ["app", "elsewhere", "going"]
    assert world.names() == ["elsewhere"]


def test_a_node_that_comes_back_in_time_keeps_its_pods() -> None:
    world = World(PodGarbage)
    world.pod("app")
    world.run(2)
    world.node("node")
    world.run(10)

    assert world.names() == ["app"]


def owned(world: World, name: str, *owners: str) -> None:
    references = [{"apiVersion": "v1", "kind": "Pod", "name": uid, "uid": uid} for uid in owners]
    containers = [{"name": "app", "image": "app:1"}]
    metadata = {"name": name, "ownerReferences": references}
    world.api.create(Target(PODS, "default"), {"metadata": metadata, "spec": {"containers": containers}}, TESTER)


def collector() -> World:
    return World(lambda api, _: OwnerGarbage(api), lambda api, _: ContentFinalizer(api))


def test_what_has_lost_its_last_owner_goes_and_the_rest_forgets_the_dead_one() -> None:
    world = collector()
    world.node("one")
    world.node("two")
    uids = [world.api.get(Target(NODES, "", name)).uid for name in ("one", "two")]
    owned(world, "of-one", uids[0])
    owned(world, "of-both", *uids)
    world.run()
    before = world.names()

    world.api.delete(Target(NODES, "", "one"))
    world.run()

    references = world.api.get(pod_target("default", "of-both")).obj["metadata"]["ownerReferences"]
    assert before == ["of-both", "of-one"]
    assert world.names() == ["of-both"]
    assert [reference["uid"] for reference in references] == [uids[1]]


def test_an_object_that_names_an_owner_who_never_was_goes() -> None:
    world = collector()
    owned(world, "stray", "no-such-uid")

    world.run()

    assert world.names() == []


def test_a_dependent_with_a_finalizer_is_marked_and_waits() -> None:
    world = collector()
    world.node("one")
    owned(world, "held", world.api.get(Target(NODES, "", "one")).uid)
    finalizers = {"metadata": {"finalizers": ["test.dev/hold"]}}
    world.api.patch(pod_target("default", "held"), MERGE, finalizers, TESTER)

    world.api.delete(Target(NODES, "", "one"))
    world.run()

    assert world.going() == {"held"}


def test_a_definition_goes_after_its_objects() -> None:
    world = collector()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "test.dev", "scope": "Cluster", "versions": [version]}
    spec["names"] = {"plural": "things", "kind": "Thing"}
    world.api.create(Target(CRDS), {"metadata": {"name": "things.test.dev"}, "spec": spec}, TESTER)
    resource = world.api.resources.find("test.dev", "v1", "things")
    assert resource is not None
    held = {"metadata": {"name": "held", "finalizers": ["test.dev/hold"]}}
    world.api.create(Target(resource), held, TESTER)
    world.api.create(Target(resource), {"metadata": {"name": "free"}}, TESTER)

    world.api.delete(Target(CRDS, "", "things.test.dev"))
    world.run()
    waiting = (world.names(CRDS), world.names(resource))
    world.api.patch(Target(resource, "", "held"), MERGE, {"metadata": {"finalizers": None}}, TESTER)
    world.run()

    assert waiting == (["things.test.dev"], ["held"])
    assert world.names(CRDS) == []
    assert world.api.resources.find("test.dev", "v1", "things") is None


def test_a_terminating_namespace_takes_nothing_new() -> None:
    world = World()

    world.api.delete(Target(NAMESPACES, "", "default"))

    with pytest.raises(ApiError) as refused:
        world.pod("late")
    assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
    assert "because it is being terminated" in refused.value.message


def test_a_deletion_with_a_longer_grace_does_not_lengthen_a_running_one() -> None:
    world = World()
    world.pod("app", terminationGracePeriodSeconds=10)

    world.api.delete(pod_target("default", "app"))
    world.seconds += 5
    world.api.delete(pod_target("default", "app"), DeleteOptions(grace=60))

    metadata = world.api.get(pod_target("default", "app")).obj["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 10
    assert metadata["deletionTimestamp"] == "2026-01-01T00:00:10Z"
