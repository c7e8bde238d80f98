"""P01, P02: a pool whose launches fail makes few claims and lets others go on; what is out is tried again later."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from sawhorse_cloud.errors import CloudError, FailedOffering, InsufficientCapacityError
from sawhorse_kube.kinds import NODECLAIM
from sawhorse_model.labels import INSTANCE_TYPE
from sawhorse_provisioner.pacing import PROBES, PoolPace, PoolSlots
from sawhorse_testing.catalog import an_instance_type

pytestmark = pytest.mark.looptime

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
ONLY_GPU = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g5.xlarge"]}]
ONLY_OTHER = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g6.xlarge"]}]
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}


def created(world: Any, pool: str) -> list[float]:
    """When claims of a pool were created, in seconds."""
    return [at for at, name in CREATED[id(world)] if name == pool]


CREATED: dict[int, list[tuple[float, str]]] = {}


def watch_creates(world: Any) -> None:
    """Note each claim that is created, with its time."""
    seen = CREATED[id(world)] = []
    create = world.kube.create

    async def noted(kind: Any, raw: Any) -> Any:
        made = await create(kind, raw)
        if kind is NODECLAIM:
            seen.append((world.clock.monotonic(), made.nodepool))
        return made

    world.kube.create = noted


def gpu_types(world: Any) -> None:
    """Two accelerator types beside the plain ones."""
    world.catalog.types = (
        *world.catalog.types,
        an_instance_type("g5.xlarge", cpu="4", memory="16Gi", price=1.0, spot_price=0.4),
        an_instance_type("g6.xlarge", cpu="4", memory="16Gi", price=2.0, spot_price=0.9),
    )


async def test_p01_a_pool_out_of_capacity_makes_few_claims_and_another_gets_its_node(world: Any, looptime: Any) -> None:
    watch_creates(world)
    gpu_types(world)
    world.node_class()
    world.pool("res", requirements=ONLY_GPU)
    world.pool("web", requirements=[{"key": INSTANCE_TYPE, "operator": "In", "values": ["m5.large"]}])
    world.cloud.out_of_stock = {"g5.xlarge"}
    # Nothing is remembered as unavailable: the worst case for a loop.
    world.catalog.report_unavailable = accept_all
    for number in range(10):
        world.pod(f"big-{number}", cpu="3", selector={"karpenter.sh/nodepool": "res"})

    async with world.leading():
        await world.until(lambda: len(created(world, "res")) > 0)
        world.pod("web-1", selector={"karpenter.sh/nodepool": "web"})
        asked = world.clock.monotonic()
        await world.until(lambda: any(c.nodepool == "web" and c.is_launched for c in world.claims()), seconds=10)
        took = world.clock.monotonic() - asked
        await asyncio.sleep(300)

    minutes = [sum(start <= at < start + 60 for at in created(world, "res")) for start in range(0, 300, 60)]
    assert took < 5
    assert minutes[0] <= 10 + 4 * PROBES
    assert all(count <= 2 * PROBES for count in minutes[1:])


async def accept_all(failed: Any) -> None:
    """A catalogue that takes reports and forgets them."""


async def test_p01_a_reservation_with_room_for_six_of_ten_launches_six_and_does_not_loop(
    world: Any, looptime: Any
) -> None:
    watch_creates(world)
    gpu_types(world)
    world.node_class()
    world.pool("res", requirements=[*ONLY_GPU, ON_DEMAND])
    world.cloud.most_per_fleet = 6
    launch = world.cloud.launch

    async def then_full(*asked: Any) -> Any:
        result = await launch(*asked)
        world.cloud.out_of_stock = {"g5.xlarge"}
        return result

    world.cloud.launch = then_full
    for number in range(10):
        world.pod(f"big-{number}", cpu="3")

    async with world.leading():
        await asyncio.sleep(120)

    assert len(world.cloud.alive()) == 6
    assert len(world.claims()) == 6
    assert len(created(world, "res")) <= 10 + 3 * PROBES


async def test_p02_after_the_last_zone_of_a_slow_walk_the_fallback_pool_is_tried_at_once(
    world: Any, looptime: Any
) -> None:
    gpu_types(world)
    world.node_class()
    world.pool("gpu-a", requirements=[*ONLY_GPU, ON_DEMAND], weight=20)
    world.pool("gpu-b", requirements=[*ONLY_OTHER, ON_DEMAND], weight=10)
    failures: list[float] = []
    launch = world.cloud.launch

    async def one_zone_at_a_time(token: str, claims: Any, node_class: Any, types: Any) -> Any:
        if claims[0].nodepool != "gpu-a":
            return await launch(token, claims, node_class, types)
        await asyncio.sleep(90)
        failures.append(world.clock.monotonic())
        zone = ZONES[(len(failures) - 1) % 3]
        failed = (FailedOffering("on-demand", "g5.xlarge", zone, "InsufficientInstanceCapacity"),)
        raise no_capacity(failed)

    world.cloud.launch = one_zone_at_a_time
    # As in the store: each is out for three minutes and then offered again, so the walk alone would never end.
    forgetful(world, seconds=180)
    world.pod("train-1", cpu="3")

    async with world.leading():
        await world.until(lambda: any(c.nodepool == "gpu-b" and c.is_launched for c in world.claims()), seconds=400)
        at = world.clock.monotonic()

    assert len(failures) == 3
    assert at - failures[-1] < 5


def no_capacity(failed: tuple[FailedOffering, ...]) -> Exception:
    """What a fleet without capacity says."""
    return InsufficientCapacityError("no capacity", failed=failed)


def forgetful(world: Any, seconds: float) -> None:
    """A catalogue that offers what was reported again after a while."""
    marks: list[tuple[float, tuple[str, str, str]]] = []
    resolve = world.catalog.resolve

    async def report(failed: Any) -> None:
        marks.extend((world.clock.monotonic() + seconds, (f.capacity_type, f.instance_type, f.zone)) for f in failed)

    async def resolved(node_class: Any) -> Any:
        world.catalog._marked = {what for until, what in marks if until > world.clock.monotonic()}
        return await resolve(node_class)

    world.catalog.report_unavailable = report
    world.catalog.resolve = resolved


async def test_p02_a_failure_in_one_capacity_type_tries_the_next_at_once_and_then_makes_the_rest(
    world: Any, looptime: Any
) -> None:
    watch_creates(world)
    world.node_class()
    world.pool()
    world.catalog.types = world.catalog.types[:1]
    world.cloud.out_of_stock = {("spot", "m5.large", zone) for zone in ZONES}
    world.cloud.launch_latency = 1.0
    for number in range(10):
        world.pod(f"web-{number}", cpu="1500m")

    async with world.leading():
        await world.until(lambda: len(world.cloud.alive()) == 10, seconds=20)

    assert len(created(world, "default")) == 20
    assert all(c.meta.labels["karpenter.sh/capacity-type"] == "on-demand" for c in world.claims())


async def test_a_pool_whose_launches_hang_takes_no_more_than_its_share_of_the_workers(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    for name in ("slow", "quick"):
        world.pool(name)
    launch = world.cloud.launch

    async def slow_for_one(token: str, claims: Any, node_class: Any, types: Any) -> Any:
        if claims[0].nodepool == "slow":
            await asyncio.sleep(100)
        return await launch(token, claims, node_class, types)

    world.cloud.launch = slow_for_one
    for number in range(40):  # each asks for something else, and so is a fleet of its own
        world.pod(f"s-{number}", cpu=f"{7000 + number}m", selector={"karpenter.sh/nodepool": "slow"})

    async with world.leading():
        await world.until(lambda: sum(c.nodepool == "slow" for c in world.claims()) == 40)
        world.pod("q-1", selector={"karpenter.sh/nodepool": "quick"})
        await world.until(lambda: any(c.nodepool == "quick" and c.is_launched for c in world.claims()), seconds=10)

    assert all(not c.is_launched for c in world.claims() if c.nodepool == "slow")


async def test_any_launch_error_tells_the_offerings_that_had_no_capacity_on_the_way(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    out = FailedOffering("spot", "m5.large", ZONES[1], "InsufficientInstanceCapacity")
    world.cloud.errors["launch"] = [CloudError("image not found", reason="AMINotFound", failed=(out,))]

    async with world.leading() as replica:
        await world.until(lambda: bool(world.catalog.reported))
        launched = world.condition(world.claim(), "Launched")
        failures = replica.count(
            "karpenter_cloudprovider_instance_launch_failures_total",
            zone=ZONES[1],
            capacity_type="spot",
            reason="InsufficientInstanceCapacity",
        )

    assert world.catalog.reported == [out]
    assert launched.status == "Unknown"
    assert failures == 1


async def test_a_pool_is_left_out_only_from_the_third_failure_on_and_for_longer_each_time(
    world: Any, looptime: Any
) -> None:
    pace = PoolPace(world.clock)

    delays = [pace.failed("a") for _ in range(9)]

    assert delays[:2] == [0.0, 0.0]
    assert 9 <= delays[2] <= 11
    assert all(1.5 < later / earlier < 2.5 for earlier, later in pairwise(delays[2:7]))
    assert max(delays) <= 300
    assert pace.is_held("a")
    assert not pace.is_held("b")


async def test_one_launch_that_works_ends_a_row_of_failures(world: Any, looptime: Any) -> None:
    pace = PoolPace(world.clock)
    for _ in range(5):
        pace.failed("a")
    limited = [pace.room("a", under_way) for under_way in range(4)]

    ended = pace.worked("a")

    assert limited == [2, 1, 0, 0]
    assert ended
    assert not pace.worked("a")
    assert pace.room("a", 0) is None
    assert not pace.is_held("a")


def test_fleets_beyond_a_pools_share_wait_in_order_and_those_of_other_pools_do_not(looptime: Any) -> None:
    slots = PoolSlots(2)
    entered = [slots.enter(token, "a") for token in ("1", "2", "3", "4", "5")]
    other = slots.enter("6", "b")
    slots.forget("4")

    called = [slots.leave("6"), slots.leave("1"), slots.leave("2")]

    assert entered == [True, True, False, False, False]
    assert other
    assert called == [None, "3", "5"]
    assert slots.enter("3", "a")


async def test_p01_a_pool_that_rests_says_so_on_itself_and_on_the_pods_that_wait_for_it(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    world.pool()
    world.pod("web-1")
    world.cloud.out_of_stock = {"m5.large", "m5.2xlarge"}
    world.catalog.report_unavailable = accept_all

    async with world.leading():
        await world.until(lambda: bool(world.events("LaunchBackoff")), seconds=30)
        await world.until(lambda: bool(world.events("FailedScheduling")), seconds=30)

    assert "as its launches fail: no capacity in any of" in world.events("LaunchBackoff")[0]
    assert "NodePool default rests for" in world.events("FailedScheduling")[0]
