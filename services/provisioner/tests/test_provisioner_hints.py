"""Before a node is opened, kube-scheduler is told which pods were planned for it."""

import asyncio
from typing import Any

import pytest

from sawhorse_kube.errors import InvalidError
from sawhorse_kube.kinds import NODE, POD
from sawhorse_model.labels import HINT_MANAGER, UNREGISTERED_TAINT
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_provisioner.hints import Hints
from sawhorse_provisioner.registration import registration_patch
from sawhorse_testing.agreement.history import recorded

pytestmark = pytest.mark.looptime

SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "team",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]


def pods_of(world: Any) -> list[Pod]:
    """All pods now."""
    return [POD.parse(world.kube.raw(POD, *reversed(key.split("/")))) for key in world.kube.names(POD)]


def hinted(world: Any) -> dict[str, str]:
    """Pods that have a hint of ours, and to where."""
    return {p.meta.name: p.nominated_node for p in pods_of(world) if p.nominated_by == HINT_MANAGER}


async def clear(world: Any, pod: str) -> None:
    """What kube-scheduler does with the hint of a pod that it tried in vain."""
    body = {"status": {"nominatedNodeName": None}}
    await world.kube.patch(POD, pod, body, namespace="default", subresource="status", manager="kube-scheduler")


async def test_planned_pods_are_hinted_before_the_node_is_opened(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1", cpu="500m")
    world.pod("web-2", cpu="500m")

    async with recorded(world.kube) as history, world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))

    name = world.node().meta.name
    assert hinted(world) == {"web-1": name, "web-2": name}
    assert all(t.key != UNREGISTERED_TAINT for t in world.node().taints)
    assert list(history.opened()) == [name]
    assert all(at[name] < history.opened()[name] for at in history.hints().values())
    assert history.opened_before_hinted() == []


async def test_a_taint_that_is_lifted_before_the_hints_is_seen(
    world: Any, looptime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of the tests: the check that the other tests and the real trial use catches the planted bug."""
    in_time = Hints.hinted

    async def too_late(hints: Hints, claim: NodeClaim, node: Node) -> bool:
        raw = await world.kube.get_raw(NODE, node.meta.name)
        await world.kube.patch(NODE, node.meta.name, registration_patch(raw, claim, lift=True))
        return await in_time(hints, claim, node)

    monkeypatch.setattr(Hints, "hinted", too_late)
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with recorded(world.kube) as history, world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))

    (problem,) = history.opened_before_hinted()
    assert problem.startswith(f"{world.node().meta.name} was opened at ")
    assert hinted(world) == {"web-1": world.node().meta.name}


async def test_nodes_of_a_plan_that_come_together_are_hinted_before_any_is_opened(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.catalog.types = world.catalog.types[:1]
    for number in range(4):
        world.pod(f"web-{number}", cpu="1500m")

    async with recorded(world.kube) as history, world.leading():
        await world.until(lambda: len(world.claims()) == 4 and all(c.is_registered for c in world.claims()))

    last_hint = max(at for nodes in history.hints().values() for at in nodes.values())
    assert len(history.hints()) == 4
    assert last_hint < min(history.opened().values())


async def test_pods_that_would_keep_each_other_off_are_hinted_one_after_the_other(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool(labels={"team": "a"})
    names = {f"web-{number}" for number in range(3)}
    for name in names:
        world.pod(name, cpu="200m", labels={"app": "web"}, topologySpreadConstraints=SPREAD)
    seen: list[set[str]] = []

    async with world.leading():
        await world.until(lambda: bool(world.claims()) and all(c.is_registered for c in world.claims()))
        while len(seen) < len(names):
            done = set().union(*seen)
            await world.until(lambda done=done: bool(hinted(world).keys() - done), seconds=10)
            seen.append(hinted(world).keys() - done)
            for name in seen[-1]:
                world.bind(name, world.node().meta.name)

    assert [len(names) for names in seen] == [1, 1, 1]
    assert set().union(*seen) == names


async def test_a_hint_that_kube_scheduler_drops_is_given_again(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))
        before = hinted(world)
        await clear(world, "web-1")
        assert hinted(world) == {}
        await world.until(lambda: bool(hinted(world)), seconds=10)

    assert hinted(world) == before


async def test_a_pod_that_is_bound_meanwhile_costs_the_others_nothing(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.pod("web-2")
    world.kube.fail("patch", InvalidError("status.nominatedNodeName: Forbidden", status=422), kind=POD.name)

    async with recorded(world.kube) as history, world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))

    (opened,) = history.opened().values()
    assert len([at for nodes in history.hints().values() for at in nodes.values() if at < opened]) == 1


async def test_a_node_stays_closed_while_kube_scheduler_still_drops_hints(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    names = ("web-1", "web-2", "web-3")
    for name in names:
        world.pod(name, cpu="200m")

    async def try_each() -> None:  # as kube-scheduler does when a node comes, while the node is closed
        for name in names:
            await world.until(lambda name=name: name in hinted(world))
            await asyncio.sleep(0.4)
            await clear(world, name)

    async with recorded(world.kube) as history, world.leading(), asyncio.TaskGroup() as group:
        group.create_task(try_each())
        await world.until(lambda: any(c.is_registered for c in world.claims()))

    (opened,) = history.opened().values()
    last = {}
    for version, kind, pod in history.changes:
        if kind == POD.name and version < opened:
            last[pod.meta.name] = pod.nominated_node
    assert last == dict.fromkeys(names, world.node().meta.name)


async def test_nodes_are_not_held_group_after_group_by_a_kube_scheduler_that_is_never_done(
    world: Any, looptime: Any
) -> None:
    loop = asyncio.get_running_loop()
    world.node_class()
    world.pool()
    held: list[float] = []

    async def drop_all() -> None:
        while True:
            await asyncio.sleep(0.2)
            for name in hinted(world):
                await clear(world, name)

    async with world.leading(), asyncio.TaskGroup() as group:
        dropper = group.create_task(drop_all())
        for number in range(2):
            world.pod(f"web-{number}", cpu="1500m")
            began = loop.time()
            await world.until(lambda n=number: sum(c.is_registered for c in world.claims()) > n, seconds=60)
            held.append(loop.time() - began)
            world.bind(f"web-{number}", world.nodes()[number].meta.name)
        dropper.cancel()

    assert held[0] > 20
    assert held[1] < 12


async def test_without_hints_nothing_is_nominated(world: Any, looptime: Any) -> None:
    world.settings = {"nominate_pods": "off"}
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))

    assert {p.nominated_node for p in pods_of(world)} == {""}


async def test_a_hint_to_a_node_that_is_not_there_is_cleared(world: Any, looptime: Any) -> None:
    world.pod("web-1")
    await world.kube.patch(
        POD,
        "web-1",
        {"status": {"nominatedNodeName": "never-came"}},
        namespace="default",
        subresource="status",
        manager=HINT_MANAGER,
    )

    async with world.leading():
        await world.until(lambda: {p.nominated_node for p in pods_of(world)} == {""})

    assert [p.nominated_node for p in pods_of(world)] == [""]


async def test_a_hint_that_holds_room_where_the_pod_is_not_expected_any_more_is_cleared(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading() as replica:
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        node = world.node().meta.name
        assert hinted(world) == {"web-1": node}
        replica.state.expected.reset()
        await world.until(lambda: any(not p.nominated_node for p in pods_of(world)), seconds=15)

    assert hinted(world) in ({}, {"web-1": node})


async def test_the_nomination_of_a_preemption_is_left_alone(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.pod("web-2")
    body = {"status": {"nominatedNodeName": "elsewhere"}}
    await world.kube.patch(POD, "web-2", body, namespace="default", subresource="status", manager="kube-scheduler")

    async with world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))
        await world.until(lambda: "web-1" in hinted(world))

    assert {p.meta.name: p.nominated_node for p in pods_of(world)}["web-2"] == "elsewhere"
