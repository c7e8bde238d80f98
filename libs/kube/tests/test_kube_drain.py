"""Draining a node over FakeKube: what is sent, told and written, and that any drainer can go on where another ended."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sawhorse_kube.drain import MANAGER, Drainer, DrainPolicy, DrainStep, Outcome
from sawhorse_kube.errors import ConflictError, KubeUnavailableError
from sawhorse_kube.events import EventRecorder
from sawhorse_kube.kinds import NODE, NODECLAIM, POD
from sawhorse_model.labels import DO_NOT_DISRUPT
from sawhorse_model.meta import find_condition
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import DRAINED, INITIALIZED, NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_testing.kube import FakeKube

START = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)


class Moment:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class World:
    """A node with a claim, and somebody who drains it."""

    def __init__(self, **kube: Any) -> None:
        self.clock = Moment()
        self.kube = FakeKube(now=self.clock.now, **kube)
        self.outcomes: list[tuple[str, str]] = []
        self.node: Node = self.kube.put(NODE, {"metadata": {"name": "n"}})
        self.kube.put(
            NODECLAIM,
            {"metadata": {"name": "c"}, "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "default"}}},
        )
        self.drainer = self.another_drainer()

    def another_drainer(self) -> Drainer:
        return Drainer(
            self.kube,
            EventRecorder(self.kube, self.clock),
            self.clock,
            on_outcome=lambda outcome, pod: self.outcomes.append((outcome.value, pod.meta.name)),
        )

    def pod(self, name: str, *, grace: int = 30, **annotations: str) -> Pod:
        metadata = {"name": name, "annotations": annotations}
        spec = {"nodeName": "n", "terminationGracePeriodSeconds": grace}
        made: Pod = self.kube.put(POD, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
        return made

    async def pods(self) -> tuple[Pod, ...]:
        return (await self.kube.list(POD)).objects

    async def claim(self) -> NodeClaim:
        found: NodeClaim = await self.kube.get(NODECLAIM, "c")
        return found

    async def look(
        self, *, deadline: float | None = None, policy: DrainPolicy | None = None, drainer: Drainer | None = None
    ) -> DrainStep:
        until = START + timedelta(seconds=deadline) if deadline is not None else None
        who = drainer if drainer is not None else self.drainer
        return await who.step(self.node, await self.pods(), until, policy, await self.claim())

    async def drained(self) -> str:
        found = find_condition((await self.claim()).conditions, DRAINED)
        return f"{found.status}/{found.reason}" if found else ""

    def told(self, reason: str) -> list[str]:
        return [event.message for event in self.kube.events if event.reason == reason]


async def test_a_drain_evicts_waits_and_says_when_the_node_is_empty() -> None:
    world = World()
    world.pod("a")
    first = await world.look()
    begun = await world.drained()
    world.kube.end_pod("a")
    world.clock.seconds = 4
    early = await world.look()
    world.clock.seconds = 5

    last = await world.look()

    assert [pod.meta.name for pod in first.evict] == ["a"]
    assert (begun, early.done, last.done) == ("Unknown/Draining", False, True)
    assert await world.drained() == "True/Drained"
    assert world.told("Evicted") == ["Evicted from n: Forceful Termination"]


async def test_the_conditions_of_others_stay_and_the_drains_manager_writes() -> None:
    world = World()
    status = {"conditions": [{"type": INITIALIZED, "status": "True"}]}
    await world.kube.patch(NODECLAIM, "c", {"status": status}, subresource="status")

    await world.look()

    raw = world.kube.raw(NODECLAIM, "c")
    assert sorted(c["type"] for c in raw["status"]["conditions"]) == [DRAINED, INITIALIZED]
    assert raw["metadata"]["managedFields"][-1]["manager"] == MANAGER


async def test_a_claim_that_changed_meanwhile_is_read_again() -> None:
    world = World()
    old = await world.claim()
    await world.kube.patch(NODECLAIM, "c", {"metadata": {"labels": {"by": "other"}}})

    written = await world.drainer.set_condition(old, DRAINED, "True", reason="Drained")

    assert written.meta.labels == {"by": "other"}
    assert await world.drained() == "True/Drained"


async def test_a_claim_that_keeps_changing_is_given_up_after_some_tries() -> None:
    world = World()
    world.kube.fail("patch", ConflictError("changed"), kind="NodeClaim", times=100)

    with pytest.raises(ConflictError):
        await world.look()

    assert len(world.kube.called("patch", "NodeClaim")) == 4


async def test_looking_again_changes_nothing_while_nothing_is_due() -> None:
    world = World()
    world.pod("a")
    await world.look()
    before = len(world.kube.called("evict")) + len(world.kube.called("patch"))

    await world.look()

    assert len(world.kube.called("evict")) + len(world.kube.called("patch")) == before


async def test_a_second_drainer_goes_on_where_the_first_ended() -> None:
    world = World()
    world.pod("a")
    world.pod("b", **{DO_NOT_DISRUPT: "true"})
    await world.look(deadline=100)
    world.kube.end_pod("a")
    world.clock.seconds = 70

    step = await world.look(deadline=100, drainer=world.another_drainer())

    assert [(pod.meta.name, grace) for pod, grace in step.force_delete] == [("b", 30)]
    assert (await world.kube.get(POD, "b", "default")).meta.deletion_grace_seconds == 30
    assert world.told("Disrupted")[0].startswith("Deleted from n with 30 s of grace")


async def test_a_blocked_eviction_is_told_and_asked_again_with_growing_pauses() -> None:
    world = World()
    world.pod("a")
    world.kube.block_evictions(lambda pod: True)
    asked = []

    for tenth in range(100):
        world.clock.seconds = tenth / 10
        step = await world.look()
        if step.evict:
            asked.append(tenth / 10)

    assert asked[:6] == [0.0, 0.1, 0.3, 0.7, 1.5, 3.1]
    assert len(world.told("FailedDraining")) == 2  # one about the pod, one about the node
    assert "disruption budget" in world.told("FailedDraining")[0]


async def test_a_blocked_pod_is_deleted_at_its_deadline() -> None:
    world = World()
    world.pod("a")
    world.kube.block_evictions(lambda pod: True)
    await world.look(deadline=100)
    world.clock.seconds = 70

    await world.look(deadline=100)

    assert world.outcomes == [("blocked", "a"), ("forced", "a")]


async def test_a_warned_pod_with_a_long_grace_is_evicted_with_what_is_left() -> None:
    world = World()
    world.pod("a", grace=600)
    world.clock.seconds = 5

    await world.look(deadline=110, policy=DrainPolicy(warned_at=START))

    assert world.outcomes == [("evicted", "a")]
    assert (await world.kube.get(POD, "a", "default")).meta.deletion_grace_seconds == 105


async def test_a_pod_that_became_another_is_left_alone() -> None:
    world = World()
    world.pod("a")
    stale = await world.pods()
    world.kube.remove(POD, "a", "default")
    world.pod("a")

    await world.drainer.step(world.node, stale, None, None, await world.claim())

    assert world.outcomes == [("gone", "a")]
    assert world.kube.called("evict") == []


async def test_protection_added_since_the_mirror_saw_the_pod_is_respected() -> None:
    world = World()
    world.pod("a")
    stale = await world.pods()
    world.pod("a", **{DO_NOT_DISRUPT: "true"})

    await world.drainer.step(world.node, stale, None, None, await world.claim())

    assert world.outcomes == [("changed", "a")]


async def test_an_error_with_one_pod_stops_no_other() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.pod(name)
    world.kube.fail("evict", KubeUnavailableError("refused"))

    await world.look()

    assert sorted(outcome for outcome, _ in world.outcomes) == [Outcome.EVICTED, Outcome.EVICTED, Outcome.FAILED]


async def test_a_node_without_a_claim_is_drained_without_the_minimum_time() -> None:
    world = World()

    step = await world.drainer.step(world.node, [], None)

    assert step.done


async def test_a_claim_that_is_gone_does_not_stop_the_drain() -> None:
    world = World()
    world.pod("a")
    claim = await world.claim()
    world.kube.remove(NODECLAIM, "c")

    step = await world.drainer.step(world.node, await world.pods(), None, None, claim)

    assert [pod.meta.name for pod in step.evict] == ["a"]
    assert world.outcomes == [("evicted", "a")]
