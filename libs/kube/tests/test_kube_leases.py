"""Leader election on a virtual clock: one leader at a time, quick hand-over, and an epoch that always grows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_kube.errors import ConflictError, KubeUnavailableError
from sawhorse_kube.kinds import LEASE
from sawhorse_kube.leases import LeaderElector, LeaseTimes
from sawhorse_testing.eventually import eventually
from sawhorse_testing.kube import FakeKube

pytestmark = pytest.mark.looptime

AWAY = KubeUnavailableError("refused")


@dataclass
class Candidate:
    """An elector that runs, and what its leadership was like."""

    elector: LeaderElector
    stop: asyncio.Event
    task: asyncio.Task[None]
    epochs: list[int] = field(default_factory=list)
    leading: bool = False
    lost: bool = False

    async def leads(self) -> None:
        await eventually(lambda: self.leading, seconds=120)


class Field:
    """Candidates for one Lease."""

    def __init__(self, kube: FakeKube, group: asyncio.TaskGroup) -> None:
        self.kube = kube
        self.group = group
        self.all: list[Candidate] = []

    def enter(self, name: str, work: Callable[[], Awaitable[None]] | None = None) -> Candidate:
        elector = LeaderElector(self.kube, "watcher", "kube-system", name)
        stop = asyncio.Event()

        async def lead(lost: asyncio.Event, epoch: int) -> None:
            candidate.leading = True
            candidate.epochs.append(epoch)
            try:
                await (work() if work is not None else stop.wait())
            finally:
                candidate.leading = False
                candidate.lost = lost.is_set()

        candidate = Candidate(elector, stop, self.group.create_task(elector.run(lead, stop)))
        self.all.append(candidate)
        return candidate

    def lease(self) -> dict[str, Any]:
        return dict(self.kube.raw(LEASE, "watcher", "kube-system")["spec"])


@asynccontextmanager
async def candidates(kube: FakeKube | None = None) -> AsyncIterator[Field]:
    async with asyncio.TaskGroup() as group:
        field = Field(kube if kube is not None else FakeKube(), group)
        yield field
        for each in field.all:
            each.stop.set()


def now() -> float:
    return asyncio.get_running_loop().time()


async def kill(candidate: Candidate) -> None:
    """As a crash does: nothing is released."""
    candidate.elector._held = None
    candidate.task.cancel()
    await asyncio.wait({candidate.task})


async def test_the_first_candidate_leads_and_its_lease_says_so() -> None:
    async with candidates() as race:
        one = race.enter("one")
        await one.leads()

        assert one.epochs == [1]
        assert one.elector.is_leading
        assert race.lease()["holderIdentity"] == one.elector.identity
        assert race.lease()["leaseDurationSeconds"] == 15


async def test_two_candidates_never_lead_at_the_same_time_while_one_renews() -> None:
    async with candidates() as race:
        one, two = race.enter("one"), race.enter("two")
        await asyncio.sleep(120)

        assert sorted([one.leading, two.leading]) == [False, True]
        assert sorted([one.epochs, two.epochs]) == [[], [1]]


async def test_a_leader_that_stops_hands_over_at_once() -> None:
    async with candidates() as race:
        one = race.enter("one")
        await one.leads()
        two = race.enter("two")
        await asyncio.sleep(20)
        began = now()
        one.stop.set()
        await two.leads()

        assert now() - began < 2
        assert two.epochs == [2]
        assert race.kube.raw(LEASE, "watcher", "kube-system")["spec"]["leaseTransitions"] == 2


async def test_a_leader_that_crashed_is_replaced_when_its_lease_has_run_out() -> None:
    async with candidates() as race:
        one = race.enter("one")
        await one.leads()
        two = race.enter("two")
        await asyncio.sleep(3)
        await kill(one)
        began = now()
        await two.leads()

        assert 9 < now() - began < 16
        assert two.epochs == [2]


async def test_a_restarted_candidate_of_the_same_name_does_not_take_its_old_lease_for_its_own() -> None:
    async with candidates() as race:
        one = race.enter("pod-0")
        await one.leads()
        await kill(one)
        again = race.enter("pod-0")
        await asyncio.sleep(5)
        early = again.leading
        await again.leads()

        assert not early
        assert again.epochs == [2]


async def test_a_leader_that_cannot_renew_stops_before_another_may_start() -> None:
    async with candidates() as race:
        one = race.enter("one")
        await one.leads()
        began = now()
        race.kube.fail("patch", AWAY, kind="Lease", times=1000)
        await eventually(lambda: not one.leading, seconds=120)

        assert one.lost
        assert 9.5 < now() - began < 11


async def test_a_leader_outlives_a_short_absence_of_the_api_server() -> None:
    async with candidates() as race:
        one = race.enter("one")
        await one.leads()
        race.kube.fail("patch", AWAY, kind="Lease", times=3)
        await asyncio.sleep(60)

        assert one.leading
        assert one.epochs == [1]


async def test_a_write_whose_answer_was_lost_does_not_end_leadership() -> None:
    async with candidates() as race:
        one = race.enter("one")
        await one.leads()
        # Somebody else, or our own lost write, moved the version; the holder is still ours.
        race.kube.put(LEASE, {"metadata": {"name": "watcher", "namespace": "kube-system"}, "spec": race.lease()})
        await asyncio.sleep(30)

        assert one.leading


async def test_a_lease_taken_by_another_ends_leadership() -> None:
    async with candidates() as race:
        one = race.enter("one")
        await one.leads()
        stolen = {**race.lease(), "holderIdentity": "thief", "leaseTransitions": 9}
        race.kube.put(LEASE, {"metadata": {"name": "watcher", "namespace": "kube-system"}, "spec": stolen})
        await asyncio.sleep(6)
        led = one.leading

        assert not led
        assert one.lost


async def test_a_deleted_lease_ends_leadership_and_is_made_anew() -> None:
    async with candidates() as race:
        one = race.enter("one")
        await one.leads()
        race.kube.remove(LEASE, "watcher", "kube-system")
        await asyncio.sleep(10)

        assert one.epochs == [1, 1]
        assert one.leading


async def test_the_epoch_can_be_moved_past_a_higher_one_while_leading() -> None:
    async with candidates() as race:
        one = race.enter("one")
        await one.leads()

        moved = await one.elector.advance_epoch(41)

        assert moved == 42
        assert race.lease()["leaseTransitions"] == 42
        assert await one.elector.advance_epoch(7) == 42


async def test_the_epoch_cannot_be_moved_without_the_lease() -> None:
    elector = LeaderElector(FakeKube(), "watcher", "kube-system", "one")

    with pytest.raises(ConflictError):
        await elector.advance_epoch(1)


async def test_work_that_ends_by_itself_steps_down_and_campaigns_again() -> None:
    async def short() -> None:
        await asyncio.sleep(1)

    async with candidates() as race:
        one = race.enter("one", short)
        await asyncio.sleep(10)

        assert len(one.epochs) >= 3
        assert one.epochs == list(range(1, len(one.epochs) + 1))


async def test_work_that_fails_releases_the_lease_and_the_error_comes_out() -> None:
    async def failing() -> None:
        raise RuntimeError("broken")

    kube = FakeKube()

    async def fail() -> None:
        async with candidates(kube) as race:
            race.enter("one", failing)
            await asyncio.sleep(10)

    with pytest.raises(ExceptionGroup, match="unhandled errors") as caught:
        await fail()

    assert caught.group_contains(RuntimeError, match="broken")
    assert kube.raw(LEASE, "watcher", "kube-system")["spec"]["holderIdentity"] == ""


async def test_work_in_flight_is_finished_under_a_renewed_lease_after_stop() -> None:
    async def slow() -> None:
        await asyncio.sleep(40)

    async with candidates() as race:
        one, two = race.enter("one", slow), race.enter("two", slow)
        await one.leads()
        one.stop.set()
        await asyncio.sleep(30)
        meanwhile = (one.leading, two.leading)
        await two.leads()

        assert meanwhile == (True, False)
        assert not one.leading


async def test_a_cancelled_leader_releases_its_lease() -> None:
    async with candidates() as race:
        one = race.enter("one")
        await one.leads()
        one.task.cancel()
        await asyncio.wait({one.task})

        assert race.lease()["holderIdentity"] == ""


async def test_a_standby_knows_who_leads_and_that_it_can_look() -> None:
    async with candidates() as race:
        one = race.enter("one")
        await one.leads()
        two = race.enter("two")
        await asyncio.sleep(30)

        assert two.elector.holder == one.elector.identity
        assert asyncio.get_running_loop().time() - two.elector.looked_at < 2


async def test_a_standby_outlives_an_absence_of_the_api_server() -> None:
    kube = FakeKube()
    kube.fail("get", AWAY, kind="Lease", times=20)

    async with candidates(kube) as race:
        one = race.enter("one")
        await one.leads()

        assert one.epochs == [1]


def test_times_that_would_let_two_lead_are_refused() -> None:
    with pytest.raises(ValueError, match="renew_deadline < duration"):
        LeaseTimes(timedelta(seconds=10), renew_deadline=timedelta(seconds=10))


def test_times_for_another_duration_keep_their_proportions() -> None:
    times = LeaseTimes.of(timedelta(seconds=3))

    assert (times.renew, times.renew_deadline) == (timedelta(seconds=1), timedelta(seconds=2))
