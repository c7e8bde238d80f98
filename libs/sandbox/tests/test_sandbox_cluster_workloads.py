"""The loop under the controllers, and the corners of workloads and budgets that no real cluster is needed for."""

import asyncio
import itertools
from collections.abc import Hashable, Iterable
from typing import Any

import pytest

from sawhorse_sandbox.apiserver.errors import ApiError
from sawhorse_sandbox.apiserver.eviction import evict
from sawhorse_sandbox.apiserver.operations import MERGE, Api, pod_target
from sawhorse_sandbox.apiserver.resources import BUDGETS, DAEMONSETS, DEPLOYMENTS, NODES, PODS, REPLICASETS, Kind
from sawhorse_sandbox.apiserver.server import new_api
from sawhorse_sandbox.apiserver.storage import Change
from sawhorse_sandbox.apiserver.targets import DeleteOptions, Target, Write, target_of
from sawhorse_sandbox.cluster.budgets import Budgets
from sawhorse_sandbox.cluster.daemons import DaemonSets
from sawhorse_sandbox.cluster.loops import Worker
from sawhorse_sandbox.cluster.manager import run_cluster
from sawhorse_sandbox.cluster.replicas import share, template_hash
from sawhorse_sandbox.cluster.workloads import Deployments, ReplicaSets

TESTER = Write("tester")


class World:
    """An API with the workload and budget controllers over it."""

    def __init__(self) -> None:
        self.api = new_api()
        controllers = (Deployments(self.api), ReplicaSets(self.api), DaemonSets(self.api), Budgets(self.api))
        self._workers = [Worker(self.api.store, controller) for controller in controllers]

    def run(self) -> None:
        for _ in range(100):
            if not any([worker.work(1.0) for worker in self._workers]):
                return
        raise AssertionError("the controllers do not come to rest")

    def create(self, resource: Any, name: str, spec: dict[str, Any]) -> None:
        metadata = {"name": name}
        target = Target(resource, "default" if resource.namespaced else "")
        self.api.create(target, {"metadata": metadata, "spec": spec}, TESTER)

    def workload(self, resource: Any, name: str, **spec: Any) -> None:
        pod = {"containers": [{"name": "app", "image": "app:1"}]}
        template = {"metadata": {"labels": {"app": name}}, "spec": pod}
        self.create(resource, name, {"selector": {"matchLabels": {"app": name}}, "template": template, **spec})

    def patch(self, resource: Any, name: str, body: dict[str, Any]) -> None:
        self.api.patch(Target(resource, "default", name), MERGE, body, TESTER)

    def pods(self) -> list[Any]:
        return [p.obj for p in self.api.items(PODS) if "deletionTimestamp" not in p.obj["metadata"]]

    def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods()}

    def place(self, pod: Any, node: str = "node", ready: bool = True) -> None:
        """As scheduler and kubelet would."""
        target = pod_target("default", pod["metadata"]["name"])
        self.api.write_whole(target, lambda obj: obj["spec"].update(nodeName=node), TESTER)
        conditions = [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": self.api.now()}]
        status = {"status": {"phase": "Running", "conditions": conditions}}
        self.api.patch(pod_target("default", pod["metadata"]["name"], "status"), MERGE, status, TESTER)


def test_a_scaled_down_set_gives_up_what_costs_least_first() -> None:
    world = World()
    world.workload(REPLICASETS, "set", replicas=4)
    world.run()
    waiting, sick, cheap, dear = world.pods()
    world.place(sick, ready=False)
    world.place(cheap)
    world.place(dear)
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "10"}}}
    world.patch(PODS, dear["metadata"]["name"], cost)
    survivors = []
    for replicas in (3, 2, 1):
        world.patch(REPLICASETS, "set", {"spec": {"replicas": replicas}})
        world.run()
        survivors.append(world.names())

    names = [pod["metadata"]["name"] for pod in (waiting, sick, cheap, dear)]
    assert survivors == [set(names[1:]), set(names[2:]), set(names[3:])]


def test_a_failed_pod_is_replaced_and_a_terminating_one_does_not_count() -> None:
    world = World()
    world.workload(REPLICASETS, "set", replicas=2)
    world.run()
    failed, going = world.pods()
    world.place(going)
    world.api.patch(
        pod_target("default", failed["metadata"]["name"], "status"), MERGE, {"status": {"phase": "Failed"}}, TESTER
    )
    world.api.delete(pod_target("default", going["metadata"]["name"]))
    world.run()

    fresh = world.names() - {failed["metadata"]["name"], going["metadata"]["name"]}
    status = world.api.get(Target(REPLICASETS, "default", "set")).obj["status"]
    assert len(fresh) == 2
    assert status["replicas"] == 2


def test_a_large_set_is_made_in_bursts_and_is_whole_in_the_end() -> None:
    world = World()
    world.workload(REPLICASETS, "set", replicas=350)

    world.run()

    assert len(world.pods()) == 350


def test_a_pod_becomes_available_after_its_minimum_of_ready_seconds() -> None:
    world = World()
    world.workload(DEPLOYMENTS, "web", replicas=1, minReadySeconds=3600)
    world.run()
    world.place(world.pods()[0])
    world.run()

    status = world.api.get(Target(DEPLOYMENTS, "default", "web")).obj["status"]
    assert (status["readyReplicas"], status["availableReplicas"]) == (1, 0)


def test_an_old_template_that_comes_back_uses_its_old_set_again() -> None:
    world = World()
    world.workload(DEPLOYMENTS, "web", replicas=1)
    world.run()
    for version in ("2", None):
        template = {"metadata": {"annotations": {"version": version}}}
        world.patch(DEPLOYMENTS, "web", {"spec": {"template": template}})
        world.run()
        for pod in world.pods():
            world.place(pod)
        world.run()

    sets = list(world.api.items(REPLICASETS))
    assert len(sets) == 2
    assert sorted(int(rs.obj["spec"]["replicas"]) for rs in sets) == [0, 1]


def test_a_recreating_deployment_waits_until_the_old_pods_are_gone() -> None:
    world = World()
    world.workload(DEPLOYMENTS, "web", replicas=2, strategy={"type": "Recreate"})
    world.run()
    old = world.pods()
    for pod in old:
        world.place(pod)
    world.run()
    world.patch(DEPLOYMENTS, "web", {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})
    world.run()
    while_ending = world.names()
    for pod in old:
        world.api.delete(pod_target("default", pod["metadata"]["name"]), DeleteOptions(grace=0))
    world.run()

    assert while_ending == set()
    assert len(world.names()) == 2


def test_old_sets_beyond_the_history_limit_go() -> None:
    world = World()
    world.workload(DEPLOYMENTS, "web", replicas=0, revisionHistoryLimit=1)
    world.run()
    for version in ("2", "3", "4"):
        template = {"metadata": {"annotations": {"version": version}}}
        world.patch(DEPLOYMENTS, "web", {"spec": {"template": template}})
        world.run()

    assert len(list(world.api.items(REPLICASETS))) == 2


def test_a_paused_deployment_rolls_nothing_out() -> None:
    world = World()
    world.workload(DEPLOYMENTS, "web", replicas=1, paused=True)

    world.run()

    assert list(world.api.items(REPLICASETS)) == []


def test_a_daemon_follows_its_node_selector_and_comes_and_goes_with_labels() -> None:
    world = World()
    pod = {"containers": [{"name": "app", "image": "app:1"}], "nodeSelector": {"gpu": "yes"}}
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": pod}
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    for name in ("a", "b"):
        world.create(NODES, name, {})
        world.api.modify(Target(NODES, "", name), lambda obj: obj["spec"].pop("taints"), TESTER)
    world.create(DAEMONSETS, "agent", spec)
    world.run()
    before = len(world.pods())
    for label in ("yes", None):
        world.api.patch(Target(NODES, "", "b"), MERGE, {"metadata": {"labels": {"gpu": label}}}, TESTER)
        world.run()
        before = before * 10 + len(world.pods())

    assert before == 10  # none, one, none


def test_a_daemons_new_template_replaces_one_pod_at_a_time() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.create(NODES, name, {})
        world.api.modify(Target(NODES, "", name), lambda obj: obj["spec"].pop("taints"), TESTER)
    world.workload(DAEMONSETS, "agent")
    world.run()
    for pod, node in zip(world.pods(), ("a", "b", "c"), strict=True):
        world.place(pod, node)
    world.run()
    old = world.names()

    world.patch(DAEMONSETS, "agent", {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})
    world.run()

    assert len(old & world.names()) == 2


def test_a_heartbeat_of_a_node_does_not_wake_the_daemon_sets() -> None:
    world = World()
    world.create(NODES, "a", {})
    world.workload(DAEMONSETS, "agent")
    controller = DaemonSets(world.api)
    before = world.api.get(Target(NODES, "", "a"))
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    after, _ = world.api.patch(Target(NODES, "", "a", "status"), MERGE, status, TESTER)

    woken = list(controller.keys(Change("MODIFIED", NODES.storage, ("", "a"), after, before)))

    assert woken == []


def a_guarded_world(**spec: Any) -> tuple[World, list[Any]]:
    """Three ready pods of a deployment under a budget."""
    world = World()
    world.workload(DEPLOYMENTS, "web", replicas=3)
    world.run()
    pods = world.pods()
    for pod in pods:
        world.place(pod)
    world.create(BUDGETS, "budget", {"selector": {"matchLabels": {"app": "web"}}, **spec})
    return world, pods


def refusal(world: World, pod: Any) -> ApiError:
    with pytest.raises(ApiError) as refused:
        evict(world.api, "default", pod["metadata"]["name"], {})
    return refused.value


def test_a_budget_that_nobody_has_looked_at_yet_refuses_with_a_time_to_come_back() -> None:
    world, pods = a_guarded_world(minAvailable=1)

    refused = refusal(world, pods[0])

    assert (refused.code, refused.reason, refused.retry_after) == (429, "TooManyRequests", 10)
    assert "still being processed" in refused.details["causes"][0]["message"]


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 2}, 1),
        ({"minAvailable": "50%"}, 1),
        ({"maxUnavailable": 2}, 2),
        ({"maxUnavailable": "34%"}, 2),
        ({"maxUnavailable": 0}, 0),
        ({"minAvailable": 5}, 0),
    ],
)
def test_a_budget_allows_what_its_form_says(spec: dict[str, Any], allowed: int) -> None:
    world, _ = a_guarded_world(**spec)

    world.run()

    assert world.api.get(Target(BUDGETS, "default", "budget")).obj["status"]["disruptionsAllowed"] == allowed


def test_an_evicted_pod_is_counted_once_and_its_replacement_when_ready() -> None:
    world, pods = a_guarded_world(maxUnavailable=1)
    world.run()

    evict(world.api, "default", pods[0]["metadata"]["name"], {})
    world.run()
    refused = refusal(world, pods[1])
    replacement = next(p for p in world.pods() if p["metadata"]["name"] not in {o["metadata"]["name"] for o in pods})
    world.place(replacement)
    world.run()
    evict(world.api, "default", pods[1]["metadata"]["name"], {})

    assert refused.code == 429
    assert pods[1]["metadata"]["name"] not in world.names()


def test_pods_that_are_not_ready_may_go_while_the_budget_is_met_without_them() -> None:
    world, pods = a_guarded_world(minAvailable=2)
    world.place(pods[0], ready=False)
    world.run()

    evict(world.api, "default", pods[0]["metadata"]["name"], {})
    healthy = refusal(world, pods[1])

    assert pods[0]["metadata"]["name"] not in world.names()
    assert healthy.code == 429


def test_a_pod_under_two_budgets_cannot_be_evicted() -> None:
    world, pods = a_guarded_world(minAvailable=1)
    world.create(BUDGETS, "second", {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}})
    world.run()

    assert refusal(world, pods[0]).code == 500


def test_a_dry_run_of_an_eviction_takes_nothing_from_the_budget() -> None:
    world, pods = a_guarded_world(minAvailable=2)
    world.run()

    evict(world.api, "default", pods[0]["metadata"]["name"], {"deleteOptions": {"dryRun": ["All"]}})

    budget = world.api.get(Target(BUDGETS, "default", "budget")).obj["status"]
    assert (budget["disruptionsAllowed"], len(world.names())) == (1, 3)


def test_a_budget_over_bare_pods_fails_safe() -> None:
    world = World()
    pod = {"metadata": {"name": "bare", "labels": {"app": "x"}}}
    pod["spec"] = {"containers": [{"name": "app", "image": "app:1"}]}
    world.api.create(Target(PODS, "default"), pod, TESTER)
    world.create(BUDGETS, "budget", {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}})

    world.run()

    status = world.api.get(Target(BUDGETS, "default", "budget")).obj["status"]
    assert status["disruptionsAllowed"] == 0
    assert status["conditions"][0]["reason"] == "SyncFailed"


class Counting:
    """A reconciler that notes what it is asked to look at, and can fail or ask to be asked again."""

    name = "counting"
    kinds: tuple[Kind, ...] | None = (NODES.storage,)

    def __init__(self, *answers: float | Exception | None) -> None:
        self.looked: list[Hashable] = []
        self._answers = list(answers)

    def keys(self, change: Change) -> Iterable[Hashable]:
        return [change.key[1]]

    def reconcile(self, key: Hashable) -> float | None:
        self.looked.append(key)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


async def until_untainted(api: Api, node: str) -> None:
    tainted = True
    while tainted:
        await asyncio.sleep(0.01)
        tainted = bool(api.get(Target(NODES, "", node)).obj["spec"].get("taints"))


def add_node(api: Api, name: str) -> None:
    api.create(Target(NODES), {"metadata": {"name": name}}, TESTER)


def test_a_worker_starts_with_what_exists_and_looks_once_at_a_key_that_changed_often() -> None:
    api = new_api()
    add_node(api, "old")
    counting = Counting()
    worker = Worker(api.store, counting)
    add_node(api, "new")
    for value in ("1", "2", "3"):
        api.patch(Target(NODES, "", "new"), MERGE, {"metadata": {"labels": {"v": value}}}, TESTER)

    worker.work(1.0)

    assert counting.looked == ["old", "new"]


def test_a_worker_looks_again_when_asked_and_no_sooner() -> None:
    api = new_api()
    counting = Counting(5.0)
    now = 0.0
    worker = Worker(api.store, counting, lambda: now)
    add_node(api, "a")
    worker.work(1.0)
    now = 4.9
    early = worker.work(1.0)
    now = 5.0
    due = worker.work(1.0)

    assert (early, due) == (False, True)
    assert counting.looked == ["a", "a"]


@pytest.mark.parametrize("failure", [ApiError(409, "Conflict", "stale"), RuntimeError("broken")])
def test_a_failing_key_is_tried_again_with_growing_pauses_and_stops_nobody(failure: Exception) -> None:
    api = new_api()
    counting = Counting(failure, None, failure, failure)
    now = 0.0
    worker = Worker(api.store, counting, lambda: now)
    add_node(api, "bad")
    add_node(api, "good")
    moments = []
    for step in range(100):
        now = step / 100
        seen = len(counting.looked)
        worker.work(1.0)
        moments += [now] * (len(counting.looked) - seen)

    assert counting.looked == ["bad", "good", "bad", "bad", "bad"]
    gaps = [round(later - earlier, 2) for earlier, later in itertools.pairwise(moments[1:])]
    assert gaps == sorted(gaps)
    assert gaps[0] >= 0.1


async def test_the_cluster_runs_until_told_to_stop() -> None:
    api = new_api()
    stop = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_cluster(api, stop))
        add_node(api, "node")
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        api.patch(Target(NODES, "", "node", "status"), MERGE, status, TESTER)
        async with asyncio.timeout(5):
            await until_untainted(api, "node")
        stop.set()
        async with asyncio.timeout(5):
            await running

    assert running.done()


@pytest.mark.parametrize(
    ("value", "whole", "up", "expected"),
    [("25%", 3, True, 1), ("25%", 3, False, 0), (2, 3, True, 2), (None, 3, True, 0), ("100%", 3, False, 3)],
)
def test_a_share_is_rounded_the_asked_way(value: int | str | None, whole: int, up: bool, expected: int) -> None:
    assert share(value, whole, up=up) == expected


def test_equal_templates_have_equal_hashes_whatever_the_order() -> None:
    assert template_hash({"a": 1, "b": {"c": 2, "d": 3}}) == template_hash({"b": {"d": 3, "c": 2}, "a": 1})
    assert template_hash({"a": 1}) != template_hash({"a": 2})


def test_deleting_what_a_controller_made_brings_it_back() -> None:
    world = World()
    world.workload(DEPLOYMENTS, "web", replicas=1)
    world.run()
    made = next(iter(world.api.items(REPLICASETS)))

    world.api.delete(target_of(REPLICASETS, made))
    world.run()

    again = next(iter(world.api.items(REPLICASETS)))
    assert again.obj["metadata"]["name"] == made.obj["metadata"]["name"]
    assert again.uid != made.uid
