"""Draining: when each pod is evicted, what the deadline does, and who drains."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from sawhorse_interruption.precedence import Precedence
from sawhorse_kube.kinds import NODE, NODECLAIM, POD
from sawhorse_model.node import Node
from sawhorse_model.pod import Pod

pytestmark = pytest.mark.looptime


async def drained(world: Any, *, within: float = 130.0) -> float:
    """Wait for Drained=True; the time at which it was."""
    at: float = await world.settle(lambda: world.condition("Drained") == "True", within=within)
    return at


async def test_pods_wait_for_their_new_place_and_leave_as_soon_as_it_is_ready(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    world.pod("web-1", stops_after=2)
    world.queue.put(warning())

    async with world.running(world.replica()):
        await asyncio.sleep(20)
        early = dict(world.evicted)
        world.replacement_ready()
        await drained(world)

    assert early == {}
    assert 20 <= world.evicted["web-1"] <= 26


async def test_without_a_new_place_pods_leave_45_s_after_the_warning(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.pod("web-1")
    world.queue.put(warning())

    async with world.running(world.replica()):
        await drained(world)

    assert 45 <= world.evicted["web-1"] <= 47


async def test_a_pod_whose_grace_is_longer_than_what_is_left_leaves_at_once(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    world.pod("slow", grace=600, stops_after=100)
    world.queue.put(warning())

    async with world.running(world.replica()):
        await drained(world)

    assert world.evicted["slow"] <= 2
    assert world.ended["slow"] == pytest.approx(world.evicted["slow"] + 100, abs=1)


async def test_drained_is_true_only_5_s_after_the_drain_began(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.queue.put(warning())

    async with world.running(world.replica()):
        at = await drained(world)

    assert 5 <= at <= 7


async def test_a_pod_that_lands_late_is_drained_too(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.queue.put(warning())

    async with world.running(world.replica()):
        await asyncio.sleep(3)
        world.pod("late")
        world.replacement_ready()
        await drained(world)

    assert "late" in world.ended


@pytest.mark.parametrize("guard", ["do-not-disrupt", "budget"])
async def test_a_protected_pod_is_deleted_by_the_deadline_with_a_clamped_grace(
    world: Any, warning: Callable[..., str], guard: str
) -> None:
    world.node()
    if guard == "budget":
        world.pod("guarded", grace=30, stops_after=5)
        world.kube.block_evictions(lambda pod: True)
    else:
        world.pod("guarded", grace=30, stops_after=5, **{"karpenter.sh/do-not-disrupt": "true"})
    world.queue.put(warning())
    replica = world.replica()

    async with world.running(replica):
        await drained(world)
        killed = replica.count("sawhorse_interruption_pods_killed_by_deadline_total", nodepool="default")

    assert 80 <= world.evicted["guarded"] <= 82  # deadline 110, its grace 30
    assert world.ended["guarded"] < 110
    assert killed >= 1


async def test_a_pod_that_does_not_stop_is_ended_before_the_instance_is(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    world.pod("deaf", grace=200, stops_after=10_000)
    world.queue.put(warning())

    async with world.running(world.replica()):
        await drained(world)

    assert world.ended["deaf"] <= 112


async def test_daemons_and_critical_pods_leave_last(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.pod("web", stops_after=3)
    world.pod("dns", stops_after=1)
    raw = world.kube.raw(POD, "dns", "default")
    raw["spec"]["priorityClassName"] = "system-cluster-critical"
    world.kube.put(POD, raw)
    world.queue.put(warning())

    async with world.running(world.replica()):
        await asyncio.sleep(2)
        world.replacement_ready()
        await drained(world)

    assert world.evicted["dns"] >= world.ended["web"]


async def test_nothing_is_evicted_before_the_claim_is_deleted(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.pod("slow", grace=600)
    order: list[str] = []

    def note(step: Any, when: Any) -> None:
        order.append(f"{step}:{when}")

    world.queue.put(warning())

    async with world.running(world.replica(failpoint=note)):
        await drained(world)

    assert order.index("deleted:after") < order.index("evicting:before")
    assert [step for step in order if not step.startswith("hand-over")][-1] == "drained:after"


async def test_a_node_that_joins_after_its_warning_is_cordoned(world: Any, warning: Callable[..., str]) -> None:
    world.node(joined=False)
    world.queue.put(warning())

    async with world.running(world.replica()):
        await asyncio.sleep(10)
        world.kube.put(NODE, {"metadata": {"name": "n-1"}, "spec": {"providerID": "aws:///eu-west-1b/i-1"}})
        await world.settle(world.is_cordoned, within=10)

    assert world.is_deleting()


async def test_another_replica_goes_on_after_a_crash_in_the_middle_of_a_drain(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    world.pod("a")
    world.pod("b", grace=60)
    world.queue.put(warning())
    async with world.running(world.replica()):
        await world.settle(lambda: "b" in world.evicted)  # 110 - 60 - 15 s

    assert "a" not in world.evicted

    async with world.running(world.replica()):
        await drained(world)

    assert set(world.ended) == {"a", "b"}
    assert world.kube.called("delete", "NodeClaim") == ["n-1"]


async def test_claims_that_others_drain_are_left_alone(world: Any) -> None:
    world.node()
    world.pod("web")
    await world.kube.delete(NODECLAIM, "n-1")

    async with world.running(world.replica()):
        await asyncio.sleep(130)

    assert world.evicted == {}
    assert not world.is_cordoned()


class Heartbeats:
    """The heartbeats of a Redis that two replicas share; nothing else."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.held: dict[str, tuple[str, float]] = {}

    async def renew_drain(self, node: str, owner: str) -> bool:
        now = self._clock.monotonic()
        holder, until = self.held.get(node, ("", 0.0))
        if until > now and holder != owner:
            return False
        self.held[node] = (owner, now + 10)
        return True

    async def drop_drain(self, node: str, owner: str) -> None:
        if self.held.get(node, ("", 0.0))[0] == owner:
            del self.held[node]

    async def seen(self, key: str) -> bool:
        return False

    async def remember(self, key: str) -> None: ...

    async def claim_of(self, instance_id: str) -> str:
        return ""

    async def wake_provisioner(self, claim: str, node: str) -> None: ...

    async def mark_unavailable(self, offering: Any, reason: str) -> bool:
        return False

    async def record(self, entry: Any) -> None: ...


async def test_of_two_replicas_one_drains_and_the_other_takes_over_when_it_stops(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    world.pod("web")
    beats = Heartbeats(world.clock)
    first, second = world.replica(cache=beats), world.replica(cache=beats)
    world.queue.put(warning())
    async with world.running(first) as stop_first:
        await world.settle(lambda: first.draining.states())
        async with world.running(second):
            await asyncio.sleep(15)
            while_first = second.draining.states()
            stop_first.set()
            await world.settle(lambda: second.draining.states(), within=5)
            await drained(world)

    assert while_first == []
    assert world.kube.called("evict") == ["default/web"]
    assert beats.held == {}


async def test_a_heartbeat_stays_fresh_during_a_long_wait(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.pod("web")
    beats = Heartbeats(world.clock)
    replica = world.replica(cache=beats)
    world.queue.put(warning())
    left: list[float] = []

    async with world.running(replica):
        await world.settle(lambda: replica.draining.states())
        for _ in range(30):
            await asyncio.sleep(1)
            left.append(beats.held["n-1"][1] - world.clock.monotonic())

    assert min(left) > 5


class LiveMirror:
    """A mirror that is always as new as Kubernetes, but for the pods it is told to miss."""

    def __init__(self, kube: Any) -> None:
        self._kube = kube
        self.synced = True
        self.misses_pods = False

    def all(self, kind: str) -> Mapping[str, Any]:
        return {name: NODECLAIM.parse(self._kube.raw(NODECLAIM, name)) for name in self._kube.names(NODECLAIM)}

    def pods_on(self, node_name: str) -> Sequence[Pod]:
        pods = [POD.parse(self._kube.raw(POD, *reversed(key.split("/")))) for key in self._kube.names(POD)]
        return [] if self.misses_pods else [p for p in pods if p.node_name == node_name]

    def node_by_provider_id(self, provider_id: str) -> Node | None:
        nodes = [NODE.parse(self._kube.raw(NODE, name)) for name in self._kube.names(NODE)]
        return next((n for n in nodes if n.provider_id == provider_id), None)

    def subscribe(self, callback: Callable[[str, str, str], None]) -> None: ...


async def test_with_a_synced_mirror_a_waiting_drain_reads_nothing_from_kubernetes(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    world.pod("web")
    world.queue.put(warning())

    async with world.running(world.replica(mirror=LiveMirror(world.kube))):
        await asyncio.sleep(10)
        before = len(world.kube.calls)
        await asyncio.sleep(30)
        during = len(world.kube.calls) - before
        await drained(world)

    assert during == 0


async def test_a_mirror_that_lags_never_makes_a_node_empty(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.pod("web")
    mirror = LiveMirror(world.kube)
    mirror.misses_pods = True
    world.queue.put(warning())

    async with world.running(world.replica(mirror=mirror)):
        await drained(world)

    assert "web" in world.ended


async def test_the_state_tells_node_claim_deadline_and_pods_left(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.pod("a")
    world.pod("b")
    replica = world.replica()
    world.queue.put(warning())

    async with world.running(replica):
        await world.settle(lambda: replica.draining.states() and replica.draining.states()[0].pods_left)
        (state,) = replica.draining.states()

    assert (state.node, state.claim, state.pods_left) == ("n-1", "n-1", 2)
    assert state.deadline is not None
    assert state.deadline.isoformat() == "2026-11-29T10:17:20+00:00"


async def test_a_drain_stands_back_while_effects_are_under_way_but_not_for_ever() -> None:
    precedence = Precedence()
    loop = asyncio.get_running_loop()

    with precedence.effects():
        await precedence.stand_back(2.0)
        waited_in_vain = loop.time()
    await precedence.stand_back(2.0)

    assert waited_in_vain == 2.0
    assert loop.time() == 2.0


async def test_in_a_storm_cordons_go_before_evictions(world: Any, warning: Callable[..., str]) -> None:
    for number in range(60):
        world.node(f"n-{number}", instance_id=f"i-{number}")
        world.pod(f"p-{number}", f"n-{number}", grace=600, stops_after=1)
        world.queue.put(warning(f"i-{number}", id=f"e-{number}"))

    async with world.running(world.replica()):
        await world.settle(lambda: len(world.ended) == 60)

    calls = [c.verb for c in world.kube.calls if (c.verb, c.kind) in {("patch", "Node"), ("evict", "Pod")}]
    assert calls.index("evict") > 50
