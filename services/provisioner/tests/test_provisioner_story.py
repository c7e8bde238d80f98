"""The whole story in virtual time: pods get nodes, and nodes go again."""

from typing import Any

import pytest

from sawhorse_kube.kinds import NODE, NODECLAIM, NODEPOOL
from sawhorse_model.labels import (
    DISRUPTED_TAINT,
    INITIALIZED,
    INSTANCE_TYPE,
    NODEPOOL_HASH_VERSION,
    REGISTERED,
    TERMINATION_FINALIZER,
    UNREGISTERED_TAINT,
)

pytestmark = pytest.mark.looptime


async def test_a_pending_pod_gets_a_node_that_is_registered_and_initialized(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))

    claim, node = world.claim(), world.node()
    assert (node.is_registered, node.is_initialized) == (True, True)
    assert TERMINATION_FINALIZER in node.meta.finalizers
    assert [o.uid for o in node.meta.owners] == [claim.meta.uid]
    assert all(t.key != UNREGISTERED_TAINT for t in node.taints)
    assert claim.node_name == node.meta.name
    assert node.meta.labels["fake.example/nodeclass"] == "default"
    assert len(world.cloud.alive()) == 1
    assert world.store.index == {claim.instance_id: claim.meta.name}


async def test_the_claim_says_what_was_planned_and_who_owns_it(world: Any, looptime: Any) -> None:
    world.node_class()
    pool = world.pool(labels={"team": "a"}, template={"expireAfter": "Never", "terminationGracePeriod": "1h"})
    world.pod("web-1", cpu="1")
    world.pod("web-2", cpu="500m")

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))

    claim = world.claim()
    types = next(r for r in claim.requirements if r.key == INSTANCE_TYPE)
    assert types.values[0] == "m5.large"
    assert claim.requests["cpu"] == 1500
    assert claim.meta.labels["team"] == "a"
    assert claim.meta.annotations[NODEPOOL_HASH_VERSION] == "sawhorse-v1"
    assert [(o.uid, o.block_owner_deletion) for o in claim.meta.owners] == [(pool.meta.uid, True)]
    assert claim.expire_after is None
    assert claim.termination_grace_period is not None
    assert world.store.placements[claim.meta.name][0]["owner_uid"] == "uid-owner"
    assert sum(row["count"] for row in world.store.placements[claim.meta.name]) == 2


async def test_pods_that_wait_together_are_planned_together(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()

    async with world.leading() as replica:
        await world.until(lambda: any(p.is_ready for p in replica.state.pools()))
        for number in range(7):
            world.pod(f"web-{number}", cpu="1")
        await world.until(lambda: any(c.is_initialized for c in world.claims()))

    assert sum(c.requests["cpu"] for c in world.claims()) == 7000
    assert len({round(c.meta.created.timestamp()) for c in world.claims()}) == 1


async def test_a_planned_pod_is_not_planned_again_while_its_node_comes(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.join_after = 90.0

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()), seconds=120)

    assert len(world.claims()) == 1
    assert len(world.cloud.alive()) == 1


async def test_deleting_a_node_ends_its_claim_and_its_machine(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.ending_seconds = 12.0

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        node = world.node()
        world.bind("web-1", node.meta.name)
        await world.kube.delete(NODE, node.meta.name)
        await world.until(lambda: any(t.key == DISRUPTED_TAINT for n in world.nodes() for t in n.taints))
        await world.until(lambda: not world.nodes() and not world.claims())

    assert world.cloud.alive() == []
    assert world.kube.called("evict") == ["default/web-1"]
    assert world.store.index == {}


async def test_deleting_a_claim_drains_its_node_first(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        world.bind("web-1", world.node().meta.name)
        world.kube.block_evictions(lambda pod: True)
        first = world.claim()
        await world.kube.delete(NODECLAIM, first.meta.name)
        await world.until(lambda: len(world.kube.called("evict")) > 3)
        alive_while_blocked = {i.id for i in world.cloud.alive()}
        world.kube.block_evictions(lambda pod: False)
        await world.until(lambda: first.meta.name not in world.kube.names(NODECLAIM))

    assert first.instance_id in alive_while_blocked
    assert first.instance_id not in {i.id for i in world.cloud.alive()}
    assert first.node_name not in world.kube.names(NODE)


async def test_nothing_is_made_for_pods_that_fit_the_room_that_is_there(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1", cpu="200m")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        world.bind("web-1", world.node().meta.name)
        world.pod("web-2", cpu="200m")
        await world.until(lambda: any("node/" in m for m in world.events("Nominated")))

    assert len(world.claims()) == 1


async def test_labels_of_the_node_say_that_it_is_complete_only_when_it_is(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool(template={"startupTaints": [{"key": "example.com/agent", "effect": "NoSchedule"}]})
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(n.is_registered and n.is_ready for n in world.nodes()))
        await world.until(lambda: world.condition(world.claim(), "Initialized").reason == "StartupTaintsExist")
        before = world.node()
        raw = dict(world.kube.raw(NODE, before.meta.name))
        raw["spec"] = {**raw["spec"], "taints": []}
        world.kube.put(NODE, raw)
        await world.until(lambda: world.claim().is_initialized)

    assert before.meta.labels[REGISTERED] == "true"
    assert INITIALIZED not in before.meta.labels
    assert world.node().meta.labels[INITIALIZED] == "true"
    assert world.node().taints == ()


async def test_the_pools_status_counts_its_nodes(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        await world.until(lambda: world.kube.raw(NODEPOOL, "default")["status"].get("nodes") == 1)

    resources = world.kube.raw(NODEPOOL, "default")["status"]["resources"]
    assert (resources["cpu"], resources["nodes"]) == ("2", "1")
