"""When the provisioner is woken, and how often."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from sawhorse_model.meta import Condition, ObjectMeta
from sawhorse_model.node import Node
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.pod import Pod
from sawhorse_runtime.metrics import Metrics
from sawhorse_state.connection import State, connect_state
from sawhorse_state.wake import Wake
from sawhorse_testing.eventually import eventually
from sawhorse_watcher.instruments import Instruments
from sawhorse_watcher.wakeups import (
    CLASS_CHANGED,
    NODE_CHANGED,
    NODE_DELETED,
    PODS_PENDING,
    Waker,
    WakeRule,
)


def a_pod(name: str = "a", *, uid: str = "u", pending: bool = True) -> Pod:
    return Pod(ObjectMeta(name, "default", uid=uid), unschedulable=pending)


def a_node(version: int = 1, *, ready: bool = False) -> Node:
    conditions = (Condition("Ready", "True" if ready else "False"),)
    return Node(ObjectMeta("n", resource_version=str(version)), conditions=conditions)


def test_a_pod_wakes_when_it_becomes_provisionable_and_not_again_while_it_stays_so() -> None:
    rule = WakeRule("Pod")

    told = [rule.change("default/a", pod) for pod in (a_pod(pending=False), a_pod(), a_pod(), a_pod(pending=False))]

    assert told == ["", PODS_PENDING, "", ""]


def test_a_new_pod_of_the_same_name_wakes_again() -> None:
    rule = WakeRule("Pod")
    rule.change("default/a", a_pod(uid="one"))

    assert rule.change("default/a", a_pod(uid="two")) == PODS_PENDING


def test_a_pending_pod_that_goes_away_wakes_nobody() -> None:
    rule = WakeRule("Pod")
    rule.change("default/a", a_pod())

    assert rule.change("default/a", None) == ""


def test_a_heartbeat_of_a_node_wakes_nobody_and_a_change_does() -> None:
    rule = WakeRule("Node")

    told = [rule.change("n", node) for node in (a_node(1), a_node(2), a_node(3, ready=True))]

    assert told == [NODE_CHANGED, "", NODE_CHANGED]


def test_a_node_that_is_deleted_wakes_by_its_own_word() -> None:
    rule = WakeRule("Node")
    rule.change("n", a_node())

    assert rule.change("n", None) == NODE_DELETED


def test_a_full_list_wakes_for_what_is_new_in_it_only() -> None:
    pods, nodes = WakeRule("Pod"), WakeRule("Node")
    first = (pods.replace([a_pod("a"), a_pod("b", pending=False)]), nodes.replace([a_node()]))

    second = (pods.replace([a_pod("a")]), nodes.replace([a_node(2)]))
    third = (pods.replace([a_pod("a"), a_pod("c", uid="c")]), nodes.replace([]))

    assert (first, second, third) == ((PODS_PENDING, NODE_CHANGED), ("", ""), (PODS_PENDING, NODE_DELETED))


def test_a_node_class_of_any_cloud_wakes_and_other_kinds_do_not() -> None:
    made = NodeClass(ObjectMeta("default"), "g", "GCENodeClass", spec={"a": 1})

    assert WakeRule("GCENodeClass", node_class=True).change("default", made) == CLASS_CHANGED
    assert WakeRule("Namespace").change("default", replace(made, kind="Namespace")) == ""


@pytest.mark.integration
async def test_reasons_that_come_together_are_one_wake_up(state: State) -> None:
    metrics, stop, heard = Metrics(), asyncio.Event(), Wake(state, "provisioner")
    waker = Waker(state, Instruments(metrics), pause=timedelta(milliseconds=300))
    await heard.wait(timedelta(milliseconds=10))

    async with asyncio.TaskGroup() as group:
        group.create_task(waker.run(stop))
        waker.notify("first")
        one = await heard.wait(timedelta(seconds=5))
        for n in range(100):
            waker.notify(f"more-{n % 2}")
        waker.notify("")
        two = await heard.wait(timedelta(seconds=5))
        stop.set()

    assert one == ("first",)
    assert two == ("more-0", "more-1")
    assert await state.redis.xlen(state.key("wake:provisioner")) == 2


async def test_a_wake_up_that_cannot_be_sent_is_counted_and_the_next_is_tried() -> None:
    metrics, stop = Metrics(), asyncio.Event()

    def failures() -> float:
        return metrics.registry.get_sample_value("sawhorse_watcher_wakes_total", {"result": "error"}) or 0

    async with connect_state("redis://127.0.0.1:1/0", "none") as nowhere, asyncio.TaskGroup() as group:
        waker = Waker(nowhere, Instruments(metrics), pause=timedelta(milliseconds=1))
        group.create_task(waker.run(stop))
        waker.notify("one")
        await eventually(lambda: failures() == 1)
        waker.notify("two")
        await eventually(lambda: failures() == 2)
        stop.set()

    assert failures() == 2
