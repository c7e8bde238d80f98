"""The gRPC API and the life of a replica: any answers, one acts, and leadership ends cleanly."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_kube.leases import LeaderElector
from sawhorse_proto.provisioner.v1 import provisioner_pb2
from sawhorse_provisioner.grpc_api import ProvisionerApi
from sawhorse_provisioner.service import CATALOGUE, MIRROR, Replica
from sawhorse_runtime.errors import UnavailableError
from sawhorse_runtime.health import Readiness

pytestmark = pytest.mark.looptime


def api_of(replica: Any, asked: list[str]) -> ProvisionerApi:
    """The API over a leading replica."""

    async def look_now(why: str) -> None:
        asked.append(why)

    return ProvisionerApi(state=replica.state, planner=replica.planner, is_leading=lambda: True, look_now=look_now)


async def test_plan_tells_what_would_be_made_and_makes_nothing(world: Any, looptime: Any) -> None:
    world.node_class(ready=True)
    world.pool(ready=True)
    async with world.leading(act=False) as replica:
        await world.until(lambda: any(p.is_ready for p in replica.state.pools()))
        world.pod("web-1")
        world.pod("giant", cpu="500")
        await asyncio.sleep(0.3)
        answer = await api_of(replica, []).Plan(provisioner_pb2.PlanRequest(), None)
        made = len(world.claims())

    assert [list(n.pods) for n in answer.new_nodes] == [["default/web-1"]]
    assert answer.new_nodes[0].instance_types[0] == "m5.large"
    assert answer.price_per_hour == pytest.approx(0.04)
    assert [list(u.pods) for u in answer.unschedulable] == [["default/giant"]]
    assert answer.leader
    assert made == 0


async def test_nodes_are_listed_with_price_phase_and_pods(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    async with world.leading() as replica:
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        world.bind("web-1", world.node().meta.name)
        await asyncio.sleep(0.3)
        answer = await api_of(replica, []).ListNodes(provisioner_pb2.ListNodesRequest(), None)

    (node,) = answer.nodes
    assert (node.node, node.node_pool, node.phase, node.pods) == (world.node().meta.name, "default", "Initialized", 1)
    assert (node.instance_type, node.capacity_type) == ("m5.large", "spot")
    assert answer.price_per_hour == node.price_per_hour == pytest.approx(0.04)


async def test_nodes_are_listed_while_the_catalogue_is_away(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    async with world.leading() as replica:
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        world.catalog.error = UnavailableError("pricing is away")
        answer = await api_of(replica, []).ListNodes(provisioner_pb2.ListNodesRequest(), None)

    assert [(n.phase, n.price_per_hour) for n in answer.nodes] == [("Initialized", 0.0)]


async def test_look_now_is_passed_to_the_leader(world: Any, looptime: Any) -> None:
    asked: list[str] = []
    async with world.leading() as replica:
        await api_of(replica, asked).LookNow(provisioner_pb2.LookNowRequest(why="test"), None)

    assert asked == ["test"]


class Election:
    """A Lease that a test hands out."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    async def run(self, lead: Callable[[asyncio.Event, int], Awaitable[None]], stop: asyncio.Event) -> None:
        await lead(self.lost, 1)


class NoWakeUps:
    """Nobody ever asks."""

    async def wait(self, timeout: timedelta) -> tuple[str, ...]:
        await asyncio.sleep(timeout.total_seconds())
        return ()


async def test_a_replica_is_ready_with_mirror_and_catalogue_and_says_what_is_missing(world: Any, looptime: Any) -> None:
    readiness = Readiness((MIRROR, CATALOGUE))
    missing, stop = ["no full list yet of Pod"], asyncio.Event()
    async with world.leading() as leading:
        replica = a_replica(world, leading, readiness, lambda: missing[0])
        async with asyncio.TaskGroup() as group:
            group.create_task(replica.check(stop))
            await asyncio.sleep(1)
            before = readiness.missing()
            missing[0] = ""
            await asyncio.sleep(1)
            ready = readiness.is_ready
            world.catalog.error = UnavailableError("pricing is away")
            await asyncio.sleep(2)
            after = readiness.missing()
            stop.set()

    assert before == {MIRROR: "no full list yet of Pod"}
    assert ready
    assert CATALOGUE in after


async def test_a_term_ends_when_the_service_stops_and_hands_over_nothing_half_done(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.answer_latency = 3.0
    stop = asyncio.Event()
    async with world.leading(act=False) as idle:
        replica = a_replica(world, idle, Readiness(), lambda: "")
        idle.mirror.subscribe(replica.changed)
        async with asyncio.TaskGroup() as group:
            lead = group.create_task(replica.campaign(Election())(stop))
            await world.until(lambda: bool(world.cloud.instances))
            leading = replica.is_leading
            stop.set()
            await world.until(lead.done, seconds=25)

    assert leading
    assert not replica.is_leading
    assert world.claim().is_launched


def a_replica(world: Any, leading: Any, readiness: Readiness, missing: Callable[[], str]) -> Replica:
    """A replica over the surroundings of a world."""

    async def ask() -> None:
        if world.catalog.error is not None:
            raise world.catalog.error

    return Replica(leading.around, readiness=readiness, wake_ups=NoWakeUps(), mirror_missing=missing, ask_catalogue=ask)


async def test_a_standby_takes_over_at_once_when_the_leader_stops_and_launches_nothing_twice(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.join_after = 10.0
    stops = [asyncio.Event(), asyncio.Event()]
    async with world.leading(act=False) as one, world.leading(act=False) as two:
        replicas = [a_replica(world, each, Readiness(), lambda: "") for each in (one, two)]
        async with asyncio.TaskGroup() as group:
            for replica, around, stop, name in zip(replicas, (one, two), stops, "ab", strict=True):
                around.mirror.subscribe(replica.changed)
                election = LeaderElector(world.kube, "sawhorse-provisioner", "kube-system", name, clock=world.clock)
                group.create_task(replica.campaign(election)(stop))
            await world.until(lambda: bool(world.cloud.instances))
            leading_before = [r.is_leading for r in replicas]
            stops[leading_before.index(True)].set()
            await world.until(lambda: [r.is_leading for r in replicas] == [not b for b in leading_before], seconds=5)
            await world.until(lambda: any(c.is_initialized for c in world.claims()))
            for stop in stops:
                stop.set()

    assert sum(leading_before) == 1
    assert len(world.cloud.instances) == 1
