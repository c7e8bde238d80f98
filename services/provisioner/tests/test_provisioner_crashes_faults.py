"""What the leader talks to fails for a while, or another leads meanwhile: at the end all is as if nothing had happened.

In virtual time over the fakes; see `sawhorse_testing.town`.
"""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from sawhorse_cloud.errors import CloudUnavailableError, ThrottledError
from sawhorse_kube.errors import KubeUnavailableError
from sawhorse_kube.kinds import NODECLAIM
from sawhorse_proto.provisioner.v1 import provisioner_pb2
from sawhorse_provisioner.fence import CLOUD_WRITES, KUBE_WRITES, NotLeadingError, fenced
from sawhorse_provisioner.grpc_api import MOST_QUESTIONS, ProvisionerApi
from sawhorse_provisioner.steps import Step
from sawhorse_provisioner.writes import Writer
from sawhorse_runtime.errors import QueueFullError, RemoteError, Retry
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_scheduling.solve import solve
from sawhorse_state.errors import StateUnavailableError
from sawhorse_testing.crashes import Crash, Fault, Pause
from sawhorse_testing.town import COLLECTED, PODS, Town, a_town

pytestmark = [pytest.mark.looptime, pytest.mark.integration]

AWAY = 20.0  # seconds
NEVER = Crash()

# When something fails while pods get their nodes: what has just become so.
MOMENTS: dict[str, Callable[[Any], bool]] = {
    "pods-wait": lambda world: bool(world.kube.called("list", "NodeClaim")) or world.clock.monotonic() > 1.0,
    "claims-there": lambda world: bool(world.claims()),
    "tokens-there": lambda world: any(c.launch_token for c in world.claims()),
    "machines-there": lambda world: bool(world.cloud.instances),
    "nodes-there": lambda world: bool(world.nodes()),
    "one-registered": lambda world: any(c.is_registered for c in world.claims()),
}


@pytest.fixture
def town(world: Any) -> Town:
    """See `sawhorse_testing.town`."""
    return a_town(world)


def kube_away() -> Exception:
    return KubeUnavailableError("no answer")


def cloud_away() -> Exception:
    return CloudUnavailableError("CreateFleet: InternalError")


def throttled() -> Exception:
    return ThrottledError("CreateFleet: RequestLimitExceeded")


def pricing_away() -> Exception:
    return RemoteError("pricing cannot be reached", code="UNAVAILABLE", retry=Retry.BACKOFF)


def redis_away() -> Exception:
    return StateUnavailableError("no answer from Redis")


async def grows_through(town: Town, fault: Fault, part: Any, moment: str) -> None:
    """Pods get their nodes while a part of the world is away for a time from that moment on."""
    async with asyncio.TaskGroup() as group:
        others = group.create_task(town.workload.run())
        async with town.world.leading(link=lambda p: fault.link(p) if p is part else p):
            await town.grows(None)
            await town.world.until(lambda: MOMENTS[moment](town.world))
            fault.down = True
            await asyncio.sleep(AWAY)
            fault.down = False
            await town.settled()
            await asyncio.sleep(COLLECTED)
        others.cancel()


async def is_interrupted_through(town: Town, fault: Fault, part: Any) -> None:
    """A node is interrupted and a part of the world is away for a time."""
    async with asyncio.TaskGroup() as group:
        others = group.create_task(town.workload.run())
        async with town.world.leading(link=lambda p: fault.link(p) if p is part else p):
            await town.grows(None)
            await town.settled()
            await town.interrupted(town.world.claims()[0])
            await asyncio.sleep(0.2)
            fault.down = True
            await asyncio.sleep(AWAY)
            fault.down = False
            await town.settled()
            await asyncio.sleep(COLLECTED)
        others.cancel()


@pytest.mark.parametrize("answers_lost", [False, True], ids=["refused", "answers-lost"])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_kubernetes_may_be_away_while_pods_get_their_nodes(
    town: Town, looptime: Any, moment: str, answers_lost: bool
) -> None:
    fault = Fault(kube_away, answers_lost=answers_lost)

    await grows_through(town, fault, town.world.kube, moment)

    assert fault.refused > 0 or moment == "pods-wait"
    assert not town.problems(), town.problems()
    assert town.machines_per_claim() == 1


@pytest.mark.parametrize("answers_lost", [False, True], ids=["refused", "answers-lost"])
@pytest.mark.parametrize("error", [cloud_away, throttled], ids=["errors", "throttling"])
@pytest.mark.parametrize("moment", ["claims-there", "tokens-there", "machines-there", "one-registered"])
async def test_ec2_may_answer_with_errors_while_pods_get_their_nodes(
    town: Town, looptime: Any, moment: str, error: Callable[[], Exception], answers_lost: bool
) -> None:
    await grows_through(town, Fault(error, answers_lost=answers_lost), town.world.cloud, moment)

    town.check(PODS)


@pytest.mark.parametrize("moment", ["pods-wait", "claims-there", "machines-there"])
async def test_pricing_may_be_away_while_pods_get_their_nodes(town: Town, looptime: Any, moment: str) -> None:
    await grows_through(town, Fault(pricing_away), town.world.catalog, moment)

    town.check(PODS)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_redis_may_be_flushed_and_away_while_pods_get_their_nodes(town: Town, looptime: Any, moment: str) -> None:
    world, fault = town.world, Fault(redis_away)
    async with asyncio.TaskGroup() as group:
        others = group.create_task(town.workload.run())
        async with world.leading(link=lambda p: fault.link(p) if p is world.store else p) as replica:
            await town.grows(None)
            await world.until(lambda: MOMENTS[moment](world))
            fault.down, replica.mirror.synced = True, False
            world.store.index.clear()
            world.store.placements.clear()
            await asyncio.sleep(AWAY)
            fault.down, replica.mirror.synced = False, True
            await town.settled()
            await asyncio.sleep(COLLECTED)
        others.cancel()

    town.check(PODS)


@pytest.mark.parametrize(
    ("error", "part"),
    [
        pytest.param(kube_away, "kube", id="kubernetes"),
        pytest.param(cloud_away, "cloud", id="ec2"),
        pytest.param(pricing_away, "catalog", id="pricing"),
        pytest.param(redis_away, "store", id="redis"),
    ],
)
async def test_an_interrupted_node_is_replaced_once_whatever_is_away(
    town: Town, looptime: Any, error: Callable[[], Exception], part: str
) -> None:
    await is_interrupted_through(town, Fault(error), getattr(town.world, part))

    town.check(PODS + 1)


# Clocks


class OffClock:
    """The clock of one process, off by some seconds; how time passes is the same."""

    def __init__(self, clock: Any, seconds: float) -> None:
        self._clock = clock
        self._off = timedelta(seconds=seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def now(self) -> datetime:
        now: datetime = self._clock.now()
        return now + self._off


@pytest.mark.parametrize("seconds", [-300.0, 300.0], ids=["behind", "ahead"])
async def test_the_clock_may_be_five_minutes_off_while_pods_get_their_nodes(
    town: Town, looptime: Any, seconds: float
) -> None:
    town.world.clock = OffClock(town.world.clock, seconds)

    await grows_through(town, Fault(kube_away), None, "pods-wait")

    town.check(PODS)


@pytest.mark.parametrize("seconds", [-300.0, 300.0], ids=["behind", "ahead"])
async def test_a_leader_with_another_clock_takes_over_in_the_middle_of_an_interruption(
    town: Town, looptime: Any, seconds: float
) -> None:
    crash = Crash(Step.REPLANNED, "after")
    happening = town.loses_a_node(crash, town.interrupted)

    async def then_the_clock_jumps(replica: Any) -> None:
        await happening(replica)
        town.world.clock = OffClock(town.world.clock, seconds)

    await town.survives(crash, then_the_clock_jumps, claims=PODS + 1)


# Two leaders for a moment


@asynccontextmanager
async def paused_leader(town: Town, pause: Pause, *, fence: bool = True) -> Any:
    """A leader that stands still at the pause, and whose Lease is another's from then on."""

    def link(part: Any) -> Any:
        if fence and part is town.world.kube:
            part = fenced(part, KUBE_WRITES, lambda: not pause.began)
        elif fence and part is town.world.cloud:
            part = fenced(part, CLOUD_WRITES, lambda: not pause.began)
        return pause.link(part)

    async with town.world.leading(failpoint=pause.failpoint, link=link) as replica:
        yield replica


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "step",
    [Step.COMMIT, Step.CLAIMS_CREATED, Step.TOKEN, Step.FLEET, Step.LAUNCHED, Step.HINTED, Step.REGISTERED],
)
async def test_a_leader_that_was_paused_while_another_took_over_makes_nothing_twice(
    town: Town, looptime: Any, step: Step, when: Any
) -> None:
    pause = Pause(step, when)
    async with asyncio.TaskGroup() as group:
        others = group.create_task(town.workload.run())
        async with paused_leader(town, pause):
            await town.grows(None)
            await town.world.until(lambda: pause.began)
            async with town.world.leading():
                await town.settled()
                pause.resume.set()
                await asyncio.sleep(10)  # both run: the old one has not noticed
                await town.settled()
        others.cancel()

    assert not town.problems(), town.problems()
    assert town.machines_per_claim() == 1


async def test_an_answer_that_comes_after_another_leader_launched_anew_is_left_to_the_collector(
    town: Town, looptime: Any
) -> None:
    """The launch of the paused leader was under way already, so that no fence could stop it."""
    pause = Pause(Step.FLEET, "before")
    async with asyncio.TaskGroup() as group:
        others = group.create_task(town.workload.run())
        async with paused_leader(town, pause, fence=False):
            await town.grows(None)
            await town.world.until(lambda: pause.began)
            async with town.world.leading():
                await town.settled()
                held = {c.provider_id for c in town.world.claims()}
                pause.resume.set()
                await asyncio.sleep(5)
                late = len(town.world.cloud.alive())
                held_after = {c.provider_id for c in town.world.claims()}
                await asyncio.sleep(COLLECTED)
        others.cancel()

    assert late == 2 * PODS
    assert held_after == held
    assert not town.problems(), town.problems()


def test_a_fenced_part_is_read_always_and_written_only_while_the_lease_is_held() -> None:
    class Part:
        def get(self) -> str:
            return "read"

        def patch(self) -> str:
            return "written"

    held = [True]
    part = fenced(Part(), frozenset({"patch"}), lambda: held[0])
    before = part.patch()
    held[0] = False

    assert (before, part.get()) == ("written", "read")
    with pytest.raises(NotLeadingError, match="patch"):
        part.patch()


# Bounds


async def test_plans_that_are_asked_for_wait_in_a_bounded_line_one_at_a_time(town: Town, looptime: Any) -> None:
    """Each holds a snapshot of the cluster, and the leader's own plans come from the same worker."""
    running, most, asked = 0, 0, MOST_QUESTIONS + 5

    class SlowPlanner:
        async def freeze(self) -> Any:
            return None, {}

        async def solve(self, frozen: Any) -> Plan:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1
            return solve(Snapshot())

    async def look_now(why: str) -> None:
        raise AssertionError(why)

    async with town.world.leading(act=False) as replica:
        planner: Any = SlowPlanner()
        api = ProvisionerApi(state=replica.state, planner=planner, is_leading=lambda: True, look_now=look_now)
        request = provisioner_pb2.PlanRequest()
        answers = await asyncio.gather(*(api.Plan(request, None) for _ in range(asked)), return_exceptions=True)
        later = await api.Plan(request, None)

    assert most == 1
    assert sum(isinstance(a, QueueFullError) for a in answers) == asked - MOST_QUESTIONS
    assert later.leader


# A test of the tests


async def remade_while_paused(town: Town) -> bool:
    """A leader is paused before it deletes a claim; meanwhile the claim is made anew under its name. Is it there still?

    The fence is off: what protects here is the precondition of the call.
    """
    world, pause = town.world, Pause("delete", "before")
    world.cloud.out_of_stock = {"m5.large"}
    async with paused_leader(town, pause, fence=False) as replica:
        await town.grows(None)
        world.pod("web-1", cpu="1500m")
        await world.until(lambda: bool(world.claims()))
        pause.began = True
        claim = world.claim()
        raw = dict(world.kube.raw(NODECLAIM, claim.meta.name))
        await asyncio.sleep(2)
        world.kube.remove(NODECLAIM, claim.meta.name)
        raw["metadata"] = {k: v for k, v in raw["metadata"].items() if k in ("name", "labels", "finalizers")}
        await world.kube.create(NODECLAIM, raw)
        async with asyncio.TaskGroup() as group:
            late = group.create_task(replica.term.launcher._writer.delete_claim(claim, "late"))
            await asyncio.sleep(1)
            pause.resume.set()
            await late
        return not world.claim().meta.is_deleting


async def test_a_claim_that_was_made_anew_is_not_deleted_by_a_leader_that_means_the_old_one(
    town: Town, looptime: Any
) -> None:
    assert await remade_while_paused(town)


async def test_a_deletion_without_its_precondition_is_caught(
    town: Town, looptime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def by_name_alone(self: Any, claim: Any, reason: str) -> None:
        await self.kube.delete(NODECLAIM, claim.meta.name)

    monkeypatch.setattr(Writer, "delete_claim", by_name_alone)

    assert not await remade_while_paused(town)
