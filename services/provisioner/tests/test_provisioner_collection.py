"""F04, F05: what nobody owns is removed, found by provider id alone, and one bad item never keeps the others."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sawhorse_cloud.cloud import Instance, InstanceState
from sawhorse_cloud.errors import CloudError, UnauthorizedError
from sawhorse_kube.kinds import NODE, NODECLAIM, nodeclass_kind
from sawhorse_model.labels import NODEPOOL
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.node import Node
from sawhorse_provisioner.collector import Holdings, stale_nodes

pytestmark = pytest.mark.looptime

CLASS = nodeclass_kind("fake.example", "v1", "FakeNodeClass", "fakenodeclasses")
LONG_AGO = datetime(2026, 11, 29, 6, 0, tzinfo=UTC)


def an_instance(instance_id: str, token: str = "t-nobody", **changes: Any) -> Instance:
    """A machine that runs for hours."""
    made = Instance(
        instance_id,
        f"fake:///z/{instance_id}",
        InstanceState.RUNNING,
        "m5.large",
        "z",
        "spot",
        launched=LONG_AGO,
        tags={NODEPOOL: "default"},
        token=token,
    )
    return replace(made, **changes)


def a_node(world: Any, name: str, instance_id: str, *, ready: bool = True, **labels: str) -> None:
    """A Node of ours that a machine left behind."""
    world.kube.put(
        NODE,
        {
            "metadata": {
                "name": name,
                "labels": {"fake.example/nodeclass": "default", NODEPOOL: "default", **labels},
                "creationTimestamp": "2026-11-29T06:00:00Z",
            },
            "spec": {"providerID": f"fake:///z/{instance_id}"},
            "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
        },
    )


async def test_f05_machines_of_nobody_are_ended_though_one_of_them_cannot_be(world: Any, looptime: Any) -> None:
    for name in ("i-1", "i-2", "i-3"):
        world.cloud.put(an_instance(name))
    world.cloud.errors["terminate"] = [UnauthorizedError("not allowed")]

    async with world.leading() as replica:
        await world.until(lambda: len(world.cloud.alive()) == 1, seconds=45)
        await world.until(lambda: world.cloud.alive() == [], seconds=45)
        collected = replica.count("sawhorse_garbage_collected_total", kind="instance")

    assert collected == 3


async def test_f05_calls_that_hang_for_some_machines_do_not_keep_the_others(world: Any, looptime: Any) -> None:
    for number in range(30):
        world.cloud.put(an_instance(f"i-{number:02}"))
    terminate = world.cloud.terminate

    async def hangs_for_some(ids: Any) -> None:
        if ids[0] < "i-10":
            await asyncio.sleep(3600)
        await terminate(ids)

    world.cloud.terminate = hangs_for_some

    async with world.leading():
        await world.until(lambda: len(world.cloud.alive()) == 10, seconds=40)

    assert [i.id for i in world.cloud.alive()] == [f"i-0{number}" for number in range(10)]


async def test_f05_young_machines_and_those_of_an_open_launch_are_spared(world: Any, looptime: Any) -> None:
    world.node_class()
    raw = {
        "metadata": {"name": "open", "annotations": {"sawhorse.dev/launch": "t-open"}},
        "spec": {"nodeClassRef": {"group": "fake.example", "kind": "Other", "name": "x"}, "requirements": []},
    }
    await world.kube.create(NODECLAIM, raw)
    world.cloud.put(an_instance("i-open", token="t-open"))
    world.cloud.put(an_instance("i-young", launched=datetime(2026, 11, 29, 10, 1, tzinfo=UTC)))

    async with world.leading():
        await asyncio.sleep(95)

    assert [i.id for i in world.cloud.alive()] == ["i-open", "i-young"]


async def test_f05_a_claim_that_makes_no_sense_keeps_its_machine_and_stops_nothing(world: Any, looptime: Any) -> None:
    world.kube.put(
        NODECLAIM,
        {
            "metadata": {"name": "odd", "annotations": {"sawhorse.dev/launch": "t-odd"}},
            "spec": {
                "nodeClassRef": {"group": "fake.example", "kind": "FakeNodeClass", "name": "x"},
                "requirements": [],
                "resources": {"requests": {"cpu": "no quantity"}},
            },
            "status": {"providerID": "fake:///z/i-odd"},
        },
    )
    world.cloud.put(an_instance("i-odd", token="t-odd"))
    world.cloud.put(an_instance("i-lost"))

    async with world.leading():
        await world.until(lambda: [i.id for i in world.cloud.alive()] == ["i-odd"], seconds=45)
        await asyncio.sleep(90)

    assert [i.id for i in world.cloud.alive()] == ["i-odd"]


async def test_f05_templates_that_cannot_be_collected_stop_no_round(world: Any, looptime: Any) -> None:
    world.cloud.errors["collect_templates"] = [CloudError("no")]
    world.settings["garbage_collection_interval"] = timedelta(seconds=5)

    async with world.leading():
        await world.until(lambda: not world.cloud.errors["collect_templates"], seconds=120)
        world.cloud.put(an_instance("i-1"))
        await world.until(lambda: world.cloud.alive() == [], seconds=15)

    assert [what for method, what in world.cloud.calls if method == "collect_templates"] == [()]


@pytest.mark.parametrize("ready", [True, False])
async def test_f04_the_node_of_an_ended_machine_is_removed_and_the_machine_with_its_name_joins(
    world: Any, looptime: Any, ready: bool
) -> None:
    a_node(world, "ip-10-0-0-5", "i-old", ready=ready)
    world.node_class()
    world.pool(labels={"team": "new"})
    world.pod("web-1", selector={"team": "new"})
    world.join_after = None

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))
        claim = world.claim()
        await world.until(lambda: world.condition(world.claim(), "Registered").reason == "NodeNotFound")
        await world.until(lambda: world.kube.names(NODE) == [], seconds=100)
        world.join(claim.instance_id, "ip-10-0-0-5")
        await world.until(lambda: world.claim().is_registered)

    assert world.claim().meta.uid == claim.meta.uid
    assert world.node().provider_id == claim.provider_id
    assert [i.id for i in world.cloud.alive()] == [claim.instance_id]


async def test_f04_a_node_whose_machine_lives_is_left_alone_whatever_it_is_called(world: Any, looptime: Any) -> None:
    a_node(world, "ip-10-0-0-5", "i-1")
    a_node(world, "ip-10-0-0-6", "i-stopped")
    # Not in the list of our machines, as its tags are gone, and yet it runs.
    world.cloud.put(an_instance("i-1", tags={}, launched=None))
    world.cloud.put(an_instance("i-stopped", state=InstanceState.STOPPED, launched=None))

    async with world.leading():
        await asyncio.sleep(150)

    assert world.kube.names(NODE) == ["ip-10-0-0-5", "ip-10-0-0-6"]


async def test_f04_nodes_of_others_are_never_removed(world: Any, looptime: Any) -> None:
    a_node(world, "theirs", "i-gone")
    raw = dict(world.kube.raw(NODE, "theirs"))
    raw["metadata"]["labels"] = {}
    world.kube.put(NODE, raw)

    async with world.leading():
        await asyncio.sleep(150)

    assert world.kube.names(NODE) == ["theirs"]


def test_f04_a_node_is_stale_by_its_provider_id_alone(looptime: Any) -> None:
    def node(name: str, instance_id: str) -> Node:
        return Node(ObjectMeta(name), provider_id=f"fake:///z/{instance_id}" if instance_id else "")

    nodes = [node("held", "i-held"), node("listed", "i-listed"), node("old", "i-old"), node("young", "")]
    holdings = Holdings((), provider_ids=frozenset({"fake:///z/i-held"}))

    found = stale_nodes(
        nodes, holdings, [an_instance("i-listed"), an_instance("i-old", state=InstanceState.TERMINATED)]
    )

    assert [n.meta.name for n in found] == ["old"]


async def test_a_class_that_cannot_be_released_keeps_its_finalizer_and_is_tried_again(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    world.node_class("other")
    world.cloud.errors["release_node_class"] = [CloudError("AccessDenied: iam:DeleteInstanceProfile")] * 2

    async with world.leading():
        await world.until(lambda: bool(CLASS.parse(world.kube.raw(CLASS, "default")).meta.finalizers))
        await world.kube.delete(CLASS, "default")
        await world.until(lambda: len(world.cloud.errors["release_node_class"]) == 1)
        kept = world.kube.names(CLASS)
        await world.until(lambda: world.kube.names(CLASS) == ["other"], seconds=30)

    assert kept == ["default", "other"]
    assert world.cloud.released == ["default"]
