"""Before a node opens, its taint evicts nobody: what evicts may read of a bound pod before the lifted taint."""

from typing import Any

import pytest

from sawhorse_kube.kinds import NODE
from sawhorse_model.labels import UNREGISTERED_TAINT
from sawhorse_provisioner.registration import softening_patch
from sawhorse_testing.agreement.history import recorded


def test_only_the_taint_that_keeps_pods_off_is_softened_once() -> None:
    other = {"key": "team", "effect": "NoExecute"}
    node = {
        "metadata": {"resourceVersion": "7"},
        "spec": {"taints": [other, {"key": UNREGISTERED_TAINT, "effect": "NoExecute"}]},
    }

    patch = softening_patch(node)

    softened = [other, {"key": UNREGISTERED_TAINT, "effect": "NoSchedule"}]
    assert patch == {"metadata": {"resourceVersion": "7"}, "spec": {"taints": softened}}
    assert softening_patch({**node, "spec": {"taints": softened}}) == {}


@pytest.mark.looptime
async def test_a_node_evicts_nobody_for_a_while_before_it_opens(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with recorded(world.kube) as history, world.leading():
        await world.until(lambda: any(c.is_registered for c in world.claims()))

    effects = [
        next((t.effect for t in node.taints if t.key == UNREGISTERED_TAINT), "")
        for _, kind, node in history.changes
        if kind == NODE.name
    ]
    assert list(dict.fromkeys(effects))[-2:] == ["NoSchedule", ""]
