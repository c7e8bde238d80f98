"""The named steps of a spot warning: their order, their repetition, and what a crash at each of them leaves."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_interruption.cordon import cordon_patch
from sawhorse_interruption.held import Handle, Held, Outcome, Wait
from sawhorse_interruption.steps import Step, failpoint_from
from sawhorse_kube.errors import ConflictError, KubeUnavailableError
from sawhorse_kube.kinds import NODE, NODECLAIM
from sawhorse_model.manifests import format_time
from sawhorse_runtime.errors import SettingsError

pytestmark = pytest.mark.looptime

EFFECTS = [Step.MARKED, Step.DEADLINE, Step.CORDONED, Step.WOKEN, Step.DELETED]


class Woken:
    """A cache that only notes whom it was asked to wake, and what."""

    def __init__(self) -> None:
        self.woken: list[tuple[str, str]] = []

    async def wake_provisioner(self, claim: str, node: str) -> None:
        self.woken.append((claim, node))

    async def seen(self, key: str) -> bool:
        return False

    async def remember(self, key: str) -> None: ...

    async def claim_of(self, instance_id: str) -> str:
        return ""

    async def mark_unavailable(self, offering: Any, reason: str) -> bool:
        return False

    async def renew_drain(self, node: str, owner: str) -> bool:
        return True

    async def drop_drain(self, node: str, owner: str) -> None: ...

    async def record(self, entry: Any) -> None: ...


async def test_a_spot_warning_marks_sets_the_deadline_cordons_wakes_and_deletes_in_this_order(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    steps: list[str] = []
    cache = Woken()
    replica = world.replica(cache=cache, failpoint=lambda step, when: steps.append(f"{step}:{when}"))
    world.queue.put(warning())

    async with world.running(replica, drain=False):
        await world.settle(lambda: world.queue.deleted)

    order = [f"{step}:{when}" for step in (Step.RECEIVED, *EFFECTS, Step.ACKED) for when in ("before", "after")]
    of_the_service = {f"{step}:{when}" for step in (Step.START, Step.HAND_OVER) for when in ("before", "after")}
    assert [step for step in steps if step not in of_the_service] == order
    assert world.reported == [(("spot", "m7g.large", "eu-west-1b"), "SpotInterruption")]
    assert world.annotations()["sawhorse.dev/drain-owner"] == "interruption"
    assert world.annotations()["sawhorse.dev/interrupted-at"] == "2026-11-29T10:15:30Z"
    assert world.annotations()["karpenter.sh/nodeclaim-termination-timestamp"] == "2026-11-29T10:17:20Z"
    assert cache.woken == [("n-1", "n-1")]
    assert world.is_done()


async def test_the_cordon_is_one_patch(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.queue.put(warning())

    async with world.running(world.replica(), drain=False):
        await world.settle(lambda: world.queue.deleted)

    assert world.kube.called("patch", "Node") == ["n-1"]
    assert world.is_cordoned()


async def test_events_tell_claim_and_node_once(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.queue.put(warning(id="e-1"))
    world.queue.put(warning(id="e-2"))

    async with world.running(world.replica(), world.replica(), drain=False):
        await world.settle(lambda: len(world.queue.deleted) == 2)

    told = sorted((e.kind.name, e.reason) for e in world.kube.events)
    assert told == [
        ("Node", "SpotInterrupted"),
        ("Node", "TerminatingOnInterruption"),
        ("NodeClaim", "SpotInterrupted"),
        ("NodeClaim", "TerminatingOnInterruption"),
    ]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", [Step.RECEIVED, *EFFECTS, Step.ACKED])
async def test_a_crash_at_any_step_loses_nothing_and_repeats_nothing(
    world: Any, warning: Callable[..., str], crashing: Callable[..., Any], step: Step, when: str
) -> None:
    world.node()
    world.queue.put(warning())

    await survives_a_crash(world, crashing(step, when))

    assert world.is_done()
    assert world.kube.called("delete", "NodeClaim") == ["n-1"]
    assert world.kube.called("patch", "Node") == ["n-1"]


async def survives_a_crash(world: Any, failpoint: Any, **options: Any) -> None:
    """Crash one replica at the failpoint, let the next go on; all effects are in place at the end."""
    assert await world.until_crash(world.replica(failpoint=failpoint, **options))
    await_visibility = 40

    async with world.running(world.replica(**options), drain=False):
        await asyncio.sleep(await_visibility)

    assert world.is_done(), "the warning was lost"
    assert world.queue.waiting == []
    assert world.queue.in_flight == []


class AckFirst:
    """The planted bug: the message is deleted before its effects."""

    def __init__(self, handle: Handle, queue: Any) -> None:
        self._handle = handle
        self._queue = queue

    async def __call__(self, held: Held) -> Outcome | Wait:
        await self._queue.delete([held.message])
        return await self._handle(held)


@pytest.mark.parametrize("step", EFFECTS)
async def test_acknowledging_before_the_effects_is_caught_by_the_crash_test(
    world: Any, warning: Callable[..., str], crashing: Callable[..., Any], step: Step
) -> None:
    world.node()
    world.queue.put(warning())

    with pytest.raises(AssertionError, match="the warning was lost"):
        await survives_a_crash(world, crashing(step, "before"), planted=AckFirst)


async def test_two_replicas_with_the_same_message_at_once_have_one_effect(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    first, second = world.replica(), world.replica()
    world.queue.put(warning(id="e-1"))
    world.queue.put(warning(id="e-1"))  # what a visibility race looks like to the second

    async with world.running(first, second, drain=False):
        await world.settle(lambda: len(world.queue.deleted) == 2)

    assert world.is_done()
    assert world.reasons().count("TerminatingOnInterruption") == 1
    acted = [r.count("karpenter_nodeclaims_disrupted_total", **LABELS) for r in (first, second)]
    assert sum(acted) == 1


LABELS = {"reason": "spot_interrupted", "nodepool": "default", "capacity_type": "spot"}


async def test_a_claim_that_is_deleting_already_gets_its_deadline_tightened(
    world: Any, warning: Callable[..., str]
) -> None:
    far = format_time(world.clock.now() + timedelta(hours=12))
    world.node(**{"karpenter.sh/nodeclaim-termination-timestamp": far})
    await world.kube.delete(NODECLAIM, "n-1")
    world.queue.put(warning())

    async with world.running(world.replica(), drain=False):
        await world.settle(lambda: world.queue.deleted)

    assert world.annotations()["karpenter.sh/nodeclaim-termination-timestamp"] == "2026-11-29T10:17:20Z"
    assert world.annotations()["sawhorse.dev/drain-owner"] == "interruption"
    assert world.is_cordoned()
    assert world.reasons() == ["SpotInterrupted"]


async def test_an_earlier_deadline_stays(world: Any, warning: Callable[..., str]) -> None:
    near = format_time(world.clock.now() + timedelta(seconds=20))
    world.node(**{"karpenter.sh/nodeclaim-termination-timestamp": near})
    world.queue.put(warning())

    async with world.running(world.replica(), drain=False):
        await world.settle(lambda: world.queue.deleted)

    assert world.annotations()["karpenter.sh/nodeclaim-termination-timestamp"] == near


async def test_conflicting_writers_are_read_again_and_written_over(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.kube.fail("patch", ConflictError("changed", status=409), kind="NodeClaim", times=3)
    world.kube.fail("patch", ConflictError("changed", status=409), kind="Node", times=3)
    world.kube.fail("delete", ConflictError("changed", status=409), kind="NodeClaim", times=3)
    world.queue.put(warning())

    async with world.running(world.replica(), drain=False):
        at = await world.settle(lambda: world.queue.deleted)

    assert world.is_done()
    assert at < 1


async def test_without_its_node_the_claim_is_annotated_and_deleted(world: Any, warning: Callable[..., str]) -> None:
    world.node(joined=False)
    world.queue.put(warning())

    async with world.running(world.replica(), drain=False):
        await world.settle(lambda: world.queue.deleted)

    assert world.is_deleting()
    assert "sawhorse.dev/interrupted-at" in world.annotations()


async def test_a_node_whose_name_was_given_to_another_instance_is_left_alone(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node()
    world.kube.remove(NODE, "n-1")
    world.kube.put(NODE, {"metadata": {"name": "n-1"}, "spec": {"providerID": "aws:///eu-west-1b/i-2"}})
    world.queue.put(warning())

    async with world.running(world.replica(), drain=False):
        await world.settle(lambda: world.queue.deleted)

    assert not world.kube.raw(NODE, "n-1")["spec"].get("unschedulable")
    assert world.is_deleting()


async def test_pricing_out_of_reach_delays_nothing_else(world: Any, warning: Callable[..., str]) -> None:
    async def hangs(offering: Any, reason: str) -> None:
        await asyncio.sleep(3600)

    for number in range(5):
        world.node(f"n-{number}", instance_id=f"i-{number}")
        world.queue.put(warning(f"i-{number}", id=f"e-{number}"))

    async with world.running(world.replica(report=hangs), drain=False):
        at = await world.settle(lambda: all(world.is_cordoned(f"n-{n}") for n in range(5)))

    assert at < 2


async def test_a_wave_of_one_offering_is_marked_once(world: Any, warning: Callable[..., str]) -> None:
    for number in range(20):
        world.node(f"n-{number}", instance_id=f"i-{number}")
        world.queue.put(warning(f"i-{number}", id=f"e-{number}"))

    async with world.running(world.replica(), drain=False):
        await world.settle(lambda: len(world.queue.deleted) == 20)

    assert len(world.reported) == 1


async def test_a_failed_event_stops_nothing(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.kube.fail("record", KubeUnavailableError("no answer"), times=100)
    world.queue.put(warning())

    async with world.running(world.replica(), drain=False):
        await world.settle(lambda: world.queue.deleted)

    assert world.is_done()


def test_the_cordon_keeps_other_taints_as_they_are_and_replaces_ours_with_another_effect() -> None:
    other = {"key": "example.com/a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    old = {"key": "karpenter.sh/disrupted", "effect": "NoExecute"}

    patch = cordon_patch({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": [other, old]}})

    assert patch is not None
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["spec"]["taints"] == [other, {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]


def test_a_person_s_own_cordon_without_the_taint_is_completed() -> None:
    patch = cordon_patch({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"unschedulable": True}})

    assert patch is not None
    assert patch["spec"]["taints"] == [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]


def test_a_failpoint_is_off_unless_testing() -> None:
    named = {"SAWHORSE_FAILPOINT": "cordoned:before"}

    assert failpoint_from(named) is None
    assert failpoint_from({**named, "SAWHORSE_TESTING": "1"}) is not None
    assert failpoint_from({"SAWHORSE_TESTING": "1"}) is None


def test_a_failpoint_that_names_no_step_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="is no failpoint"):
        failpoint_from({"SAWHORSE_FAILPOINT": "cordonned:before", "SAWHORSE_TESTING": "1"})
