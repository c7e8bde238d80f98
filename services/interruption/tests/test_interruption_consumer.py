"""The consumer: what waits, what goes first, what is let go, and that nothing bad holds up anything good."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from sawhorse_cloud.cloud import InstanceState
from sawhorse_cloud.errors import CloudUnavailableError
from sawhorse_interruption.held import Handle, Held, Outcome, Wait
from sawhorse_kube.errors import ForbiddenError

pytestmark = pytest.mark.looptime


class Slow:
    """A handler that takes `seconds` and notes how many ran at once."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = self.most = 0
        self.order: list[str] = []

    def __call__(self, handle: Handle, queue: Any) -> Handle:
        async def slow(held: Held) -> Outcome | Wait:
            self.order.append(held.notice.instance_ids[0])
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(self.seconds)
            finally:
                self.now -= 1
            return Outcome.FOREIGN

        return slow


async def test_receivers_stop_while_all_handlers_are_busy(
    world: Any, warning: Callable[..., str], limits: Callable[..., Any]
) -> None:
    slow = Slow(5.0)
    replica = world.replica(planted=slow, limits=limits(handlers=8))
    for number in range(30):
        world.queue.put(warning(id=f"e-{number}"))

    async with world.running(replica, drain=False):
        await asyncio.sleep(1)
        taken = len(world.queue.in_flight)
        await asyncio.sleep(30)

    assert taken == 8
    assert slow.most == 8
    assert len(world.queue.deleted) == 30


async def test_a_message_in_hand_stays_hidden_for_as_long_as_it_takes(world: Any, warning: Callable[..., str]) -> None:
    world.queue.put(warning())

    async with world.running(world.replica(planted=Slow(50.0)), drain=False):
        await asyncio.sleep(45)
        receives, waiting = world.queue.receives("m1"), world.queue.waiting
        await asyncio.sleep(10)

    assert (receives, waiting) == (1, [])
    assert world.queue.deleted == ["m1"]


async def test_an_outage_of_kubernetes_of_60_s_moves_nothing_to_the_dead_letters(
    world: Any, warning: Callable[..., str], outage: Callable[[], Any]
) -> None:
    for number in range(20):
        world.node(f"n-{number}", instance_id=f"i-{number}")
        world.queue.put(warning(f"i-{number}", id=f"e-{number}"))
    kube = outage()
    replica = world.replica(kube=kube)

    async with world.running(replica, drain=False):
        await asyncio.sleep(60)
        receives = {world.queue.receives(f"m{n + 1}") for n in range(20)}
        parked = replica.consumer.parked
        kube.down = False
        await world.settle(lambda: len(world.queue.deleted) == 20, within=10)

    assert (receives, parked) == ({1}, 20)
    assert all(world.is_done(f"n-{n}") for n in range(20))
    assert world.queue.buried == []


async def test_what_waits_takes_no_handler(world: Any, warning: Callable[..., str], limits: Callable[..., Any]) -> None:
    world.node()
    for number in range(10):
        world.queue.put(warning(f"i-unknown-{number}", id=f"e-{number}"))

    async with world.running(world.replica(limits=limits(handlers=2)), drain=False):
        await asyncio.sleep(5)
        world.queue.put(warning("i-1", id="e-good"))
        at = await world.settle(world.is_done)

    assert at < 6


async def test_more_than_may_wait_here_is_left_to_the_queue(
    world: Any, warning: Callable[..., str], limits: Callable[..., Any]
) -> None:
    for number in range(10):
        world.queue.put(warning(f"i-{number}", id=f"e-{number}"))
    replica = world.replica(limits=limits(parked=3))

    async with world.running(replica, drain=False):
        await asyncio.sleep(10)
        most = replica.consumer.parked
        for number in range(10):
            world.node(f"n-{number}", instance_id=f"i-{number}")
        await world.settle(lambda: len(world.queue.deleted) == 10)

    assert most <= 3
    assert all(world.is_done(f"n-{n}") for n in range(10))


async def test_where_room_is_short_the_older_warnings_wait_here_and_the_younger_in_the_queue(
    world: Any, warning: Callable[..., str], limits: Callable[..., Any]
) -> None:
    for number in range(6):
        world.queue.put(warning(f"i-{number}", id=f"e-{number}", time=world.clock.now() - timedelta(seconds=number)))
    replica = world.replica(limits=limits(parked=2))

    async with world.running(replica, drain=False):
        await asyncio.sleep(20)
        for number in (4, 5):
            world.node(f"n-{number}", instance_id=f"i-{number}")
        await world.settle(lambda: len(world.queue.deleted) == 2, within=8)

    assert sorted(world.queue.deleted) == ["m5", "m6"]


async def test_of_messages_in_hand_the_oldest_warning_is_handled_first(
    world: Any, warning: Callable[..., str], limits: Callable[..., Any]
) -> None:
    slow = Slow(1.0)
    for instance_id, age in (("i-young", 1), ("i-old", 60), ("i-middle", 30)):
        world.queue.put(warning(instance_id, id=instance_id, time=world.clock.now() - timedelta(seconds=age)))

    async with world.running(world.replica(planted=slow, limits=limits(receivers=1)), drain=False):
        await asyncio.sleep(10)

    assert slow.order == ["i-old", "i-middle", "i-young"]


async def test_every_other_kind_is_counted_and_acknowledged_without_a_call_to_kubernetes(
    world: Any, warning: Callable[..., str], changed: Callable[..., str]
) -> None:
    world.node()
    world.queue.put(warning(id="a", detail_type="EC2 Instance Rebalance Recommendation"))
    world.queue.put(changed("i-1", "shutting-down", id="b"))
    world.queue.put(changed("i-1", "running", id="c"))
    world.queue.put(warning(id="d", detail_type="EC2 Something New"))
    replica = world.replica()

    async with world.running(replica, drain=False):
        await world.settle(lambda: len(world.queue.deleted) == 4)

    assert world.kube.calls == []
    received = "karpenter_interruption_received_messages_total"
    assert replica.count(received, message_type="rebalance_recommendation") == 1
    assert replica.count(received, message_type="instance_terminated") == 1
    assert replica.count(received, message_type="no_op") == 2
    assert replica.count("karpenter_interruption_deleted_messages_total") == 4


async def test_acknowledgements_go_in_batches_of_ten(world: Any, changed: Callable[..., str]) -> None:
    for number in range(40):
        world.queue.put(changed("i-1", "running", id=f"e-{number}"))

    async with world.running(world.replica(), drain=False):
        await world.settle(lambda: len(world.queue.deleted) == 40)

    assert world.queue.calls["delete"] <= 8


async def test_a_single_message_is_acknowledged_within_a_fraction_of_a_second(
    world: Any, changed: Callable[..., str]
) -> None:
    world.queue.put(changed("i-1", "running", id="e"))

    async with world.running(world.replica(), drain=False):
        at = await world.settle(lambda: world.queue.deleted)

    assert at <= 0.3


async def test_a_message_that_is_not_deleted_at_first_is_deleted_later(world: Any, changed: Callable[..., str]) -> None:
    world.queue.put(changed("i-1", "running", id="e"))
    world.queue.keeping.add("m1")

    async with world.running(world.replica(), drain=False):
        await asyncio.sleep(1)
        world.queue.keeping.clear()
        await world.settle(lambda: world.queue.deleted == ["m1"], within=40)

    assert world.queue.in_flight == []


async def test_dead_letters_out_of_reach_hold_up_nothing(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.queue.refusing["bury"] = CloudUnavailableError("no answer")
    for _ in range(100):
        world.queue.put("abcd")
    world.queue.put(warning())

    async with world.running(world.replica(), drain=False):
        at = await world.settle(world.is_done)
        del world.queue.refusing["bury"]
        await world.settle(lambda: len(world.queue.buried) == 100, within=120)

    assert at < 2
    assert world.queue.waiting == []


async def test_a_queue_that_does_not_answer_is_asked_again_with_growing_pauses(
    world: Any, warning: Callable[..., str], limits: Callable[..., Any]
) -> None:
    world.node()
    world.queue.refusing["receive"] = CloudUnavailableError("no answer")
    world.queue.put(warning())

    async with world.running(world.replica(limits=limits(receivers=1)), drain=False):
        await asyncio.sleep(60)
        asked = world.queue.calls["receive"]
        world.queue.refusing.clear()
        await world.settle(world.is_done, within=30)

    assert 4 <= asked <= 12


async def test_stopping_hands_back_what_waits(world: Any, warning: Callable[..., str]) -> None:
    world.queue.put(warning("i-unknown"))
    replica = world.replica()

    async with world.running(replica, drain=False):
        await asyncio.sleep(3)
        parked = replica.consumer.parked

    assert parked == 1
    assert world.queue.waiting == ["m1"]


async def test_a_handler_that_is_running_at_the_stop_finishes_and_is_acknowledged(
    world: Any, warning: Callable[..., str]
) -> None:
    world.queue.put(warning())
    slow = Slow(5.0)

    async with world.running(world.replica(planted=slow), drain=False):
        await asyncio.sleep(1)

    assert world.queue.deleted == ["m1"]


async def test_a_message_that_comes_again_while_it_is_in_hand_is_handled_once(
    world: Any, warning: Callable[..., str], limits: Callable[..., Any]
) -> None:
    slow = Slow(9.0)  # it comes again after 6 s
    world.queue.put(warning())
    world.queue.refusing["extend"] = CloudUnavailableError("no answer")

    async with world.running(world.replica(planted=slow, limits=limits(visibility=timedelta(seconds=6))), drain=False):
        await world.settle(lambda: world.queue.deleted == ["m1"])

    assert len(slow.order) == 1


async def test_an_unexpected_error_keeps_only_its_own_message(world: Any, warning: Callable[..., str]) -> None:
    def planted(handle: Handle, queue: Any) -> Handle:
        async def breaks(held: Held) -> Outcome | Wait:
            if held.notice.instance_ids == ("i-bad",):
                raise ZeroDivisionError
            return await handle(held)

        return breaks

    world.node()
    world.queue.put(warning("i-bad", id="e-1"))
    world.queue.put(warning("i-1", id="e-2"))
    replica = world.replica(planted=planted)

    with capture_logs() as logs:
        async with world.running(replica, drain=False):
            at = await world.settle(world.is_done)
            await asyncio.sleep(20)
            parked = replica.consumer.parked + replica.consumer.handling

    assert at < 1
    assert parked == 1
    warned = [line for line in logs if line["log_level"] == "warning"]
    assert [line["event"] for line in warned] == ["message not handled, trying again"]


async def test_a_message_that_can_never_be_handled_is_let_go_after_its_retention(
    world: Any, warning: Callable[..., str], limits: Callable[..., Any]
) -> None:
    world.node()
    world.kube.fail("list", ForbiddenError("no"), times=10**9)
    world.queue.put(warning())
    replica = world.replica(limits=limits(retention=timedelta(seconds=60)))

    async with world.running(replica, drain=False):
        await asyncio.sleep(70)
        expired = replica.count("sawhorse_interruption_expired_total")

    assert expired == 1
    assert world.queue.deleted == []
    assert world.queue.buried == []


async def test_a_warning_for_an_instance_whose_claim_has_no_provider_id_yet_is_not_lost(
    world: Any, warning: Callable[..., str]
) -> None:
    world.node(instance_id="", joined=False)
    world.queue.put(warning())

    async with world.running(world.replica(), drain=False):
        await asyncio.sleep(20)
        kept = list(world.queue.deleted)
        world.node(instance_id="i-1", joined=False)
        await world.settle(world.is_deleting)

    assert kept == []
    assert "sawhorse.dev/interrupted-at" in world.annotations()


async def test_a_foreign_instance_is_dropped_when_it_has_been_unknown_for_60_s_and_not_before(
    world: Any, warning: Callable[..., str]
) -> None:
    world.queue.put(warning("i-foreign"))
    replica = world.replica()

    async with world.running(replica, drain=False):
        at = await world.settle(lambda: world.queue.deleted, within=90)

    assert 60 <= at <= 70
    assert replica.count("sawhorse_interruption_foreign_total", reason="unknown_instance") == 1


async def test_many_unknown_instances_cost_few_lists(world: Any, warning: Callable[..., str]) -> None:
    for number in range(60):
        world.queue.put(warning(f"i-{number}", id=f"e-{number}"))

    async with world.running(world.replica(), drain=False):
        await asyncio.sleep(30)

    assert len(world.kube.called("list", "NodeClaim")) <= 20


@pytest.mark.parametrize(
    ("state", "deadline"),
    [
        (InstanceState.RUNNING, "2026-11-29T10:15:50Z"),  # a short grace from now
        (InstanceState.TERMINATED, "2026-11-29T10:12:20Z"),  # 110 s after its time
        (None, "2026-11-29T10:12:20Z"),
    ],
)
async def test_the_cloud_is_asked_about_a_late_warning(
    world: Any, warning: Callable[..., str], state: InstanceState | None, deadline: str
) -> None:
    world.node()
    if state is not None:
        world.instances["i-1"] = state
    world.queue.put(warning(time=world.clock.now() - timedelta(seconds=300)))

    async with world.running(world.replica(), drain=False):
        await world.settle(world.is_done)

    assert world.asked == ["i-1"]
    assert world.annotations()["karpenter.sh/nodeclaim-termination-timestamp"] == deadline


async def test_a_fresh_warning_asks_the_cloud_nothing(world: Any, warning: Callable[..., str]) -> None:
    world.node()
    world.queue.put(warning())

    async with world.running(world.replica(), drain=False):
        await world.settle(world.is_done)

    assert world.asked == []
