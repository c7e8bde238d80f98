"""Nodes that come together are opened together, and nobody waits for long."""

import asyncio
from collections.abc import Collection, Mapping

import pytest

from sawhorse_provisioner.gathering import Gathering

pytestmark = pytest.mark.looptime


class Work:
    """Counts the groups it was done for."""

    def __init__(self, coming: Collection[str] = (), *, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.coming = set(coming)
        self.groups: list[list[str]] = []
        self.finished: list[list[str]] = []
        self._seconds = seconds
        self._error = error

    def others_come(self, here: Collection[str]) -> bool:
        return bool(self.coming - set(here))

    async def do(self, nodes: Mapping[str, str]) -> list[str]:
        await asyncio.sleep(self._seconds)
        self.groups.append(sorted(nodes))
        if self._error is not None:
            raise self._error
        return sorted(nodes, reverse=True)

    async def finish(self, nodes: Mapping[str, str]) -> None:
        self.finished.append(sorted(nodes))

    def gathering(self) -> Gathering:
        return Gathering(self.others_come, self.do, self.finish)


async def join_after(gathering: Gathering, seconds: float, claim: str) -> float:
    """Join at a moment; when it was over."""
    await asyncio.sleep(seconds)
    await gathering.join(claim, f"node-of-{claim}")
    return asyncio.get_running_loop().time()


async def test_who_is_the_only_one_does_not_wait(looptime: int) -> None:
    work = Work(coming=["a"])
    began = asyncio.get_running_loop().time()

    ended = await join_after(work.gathering(), 0.0, "a")

    assert ended == began
    assert work.groups == [["a"]]


async def test_nodes_that_come_soon_after_each_other_are_one_group(looptime: int) -> None:
    work = Work(coming=["a", "b", "c"])
    gathering = work.gathering()

    async with asyncio.TaskGroup() as group:
        ends = [
            group.create_task(join_after(gathering, at, claim)) for at, claim in ((0.0, "a"), (3.0, "b"), (6.0, "c"))
        ]

    assert work.groups == [["a", "b", "c"]]
    assert max(t.result() for t in ends) - min(t.result() for t in ends) < 0.01


async def test_a_node_that_does_not_come_is_waited_for_four_seconds(looptime: int) -> None:
    work = Work(coming=["a", "late"])
    began = asyncio.get_running_loop().time()

    ended = await join_after(work.gathering(), 0.0, "a")

    assert ended - began == pytest.approx(4.0, abs=0.15)


async def test_a_trickle_of_nodes_holds_the_first_one_for_ten_seconds_at_most(looptime: int) -> None:
    claims = [f"c{n}" for n in range(30)]
    work = Work(coming=claims)
    gathering = work.gathering()
    began = asyncio.get_running_loop().time()

    async with asyncio.TaskGroup() as group:
        ends = [group.create_task(join_after(gathering, 0.5 * n, claim)) for n, claim in enumerate(claims)]

    assert ends[0].result() - began == pytest.approx(10.0, abs=0.15)
    assert len(work.groups) >= 2
    assert sorted(c for g in work.groups for c in g) == sorted(claims)


async def test_nodes_that_come_while_others_are_worked_on_are_the_next_group(looptime: int) -> None:
    work = Work(seconds=2.0)
    gathering = work.gathering()

    async with asyncio.TaskGroup() as group:
        for at, claim in ((0.0, "a"), (0.5, "b"), (1.5, "c")):
            group.create_task(join_after(gathering, at, claim))

    assert work.groups == [["a"], ["b", "c"]]


async def test_when_the_work_fails_who_waits_goes_on(looptime: int) -> None:
    work = Work(coming=["a", "b"], error=RuntimeError("no"))
    gathering = work.gathering()

    async with asyncio.TaskGroup() as group:
        second = group.create_task(join_after(gathering, 0.3, "b"))
        with pytest.raises(RuntimeError, match="no"):
            await gathering.join("a", "node-of-a")

    assert second.result() > 0
    assert work.groups == [["a", "b"]]


async def test_who_has_gathered_leaves_at_the_same_moment(looptime: int) -> None:
    work = Work(coming=["a", "b"])
    gathering = work.gathering()
    left: dict[str, float] = {}  # in the order of leaving

    async def stay(at: float, claim: str, busy: float) -> None:
        await join_after(gathering, at, claim)
        await asyncio.sleep(busy)
        await gathering.leave(claim)
        left[claim] = asyncio.get_running_loop().time()

    async with asyncio.TaskGroup() as group:
        group.create_task(stay(0.0, "a", 0.1))
        group.create_task(stay(0.5, "b", 0.6))

    assert left["a"] == left["b"]
    assert list(left) == ["b", "a"]  # as the work has said
    assert work.finished == [["a", "b"]]


async def test_nobody_waits_long_for_one_that_does_not_leave(looptime: int) -> None:
    work = Work(coming=["a", "b"])
    gathering = work.gathering()
    async with asyncio.TaskGroup() as group:
        for claim in ("a", "b"):
            group.create_task(join_after(gathering, 0.0, claim))
    began = asyncio.get_running_loop().time()

    await gathering.leave("a")
    first = asyncio.get_running_loop().time() - began
    await gathering.leave("b")
    second = asyncio.get_running_loop().time() - began

    assert first == pytest.approx(1.0, abs=0.05)
    assert second == first
    await gathering.leave("nobody")
