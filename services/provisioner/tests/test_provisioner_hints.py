"""Before a node is opened, kube-scheduler is told which pods were planned for it."""

from typing import Any

import pytest

from sawhorse_kube.kinds import NODE, POD
from sawhorse_model.labels import HINT_MANAGER, UNREGISTERED_TAINT
from sawhorse_model.pod import Pod

pytestmark = pytest.mark.looptime


def pods_of(world: Any) -> list[Pod]:
    """All pods now."""
    return [POD.parse(world.kube.raw(POD, *reversed(key.split("/")))) for key in world.kube.names(POD)]


async def test_planned_pods_are_hinted_before_the_node_is_opened(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1", cpu="500m")
    world.pod("web-2", cpu="500m")

    async with world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))

    name = world.node().meta.name
    patches = [(c.kind, c.key) for c in world.kube.calls if c.verb == "patch"]
    hinted = max(i for i, (kind, _) in enumerate(patches) if kind == POD.name)
    opened = min(i for i, (kind, key) in enumerate(patches) if (kind, key) == (NODE.name, name))
    assert {p.nominated_node for p in pods_of(world)} == {name}
    assert {p.nominated_by for p in pods_of(world)} == {HINT_MANAGER}
    assert all(t.key != UNREGISTERED_TAINT for t in world.node().taints)
    assert hinted < opened


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
