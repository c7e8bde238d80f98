"""The planning worker: another process, which may hang or die without taking the service along."""

import os
import signal
from datetime import timedelta

import pytest

from sawhorse_provisioner.solver import InlineSolver, PlanningError, ProcessSolver, process_solver
from sawhorse_scheduling.plan import Plan, Stats
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_scheduling.solve import solve
from sawhorse_testing.builders import a_group
from sawhorse_testing.eventually import eventually

pytestmark = pytest.mark.integration


def worker_of(solver: ProcessSolver) -> int:
    """The worker's process id."""
    pool = solver._pool
    assert pool is not None
    (pid,) = list(pool._processes)
    return pid


def is_running(pid: int) -> bool:
    """Whether a process that is no zombie has this id."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_plan_from_the_worker_is_the_plan() -> None:
    snapshot = Snapshot(pods=(a_group("web", 3),))
    async with process_solver(timedelta(seconds=30)) as solver:
        plan = await solver.solve(snapshot)
        pid = worker_of(solver)

    assert plan == solve(snapshot)
    assert pid != os.getpid()
    await eventually(lambda: not is_running(pid))


async def test_a_worker_that_dies_is_an_error_once_and_then_replaced() -> None:
    async with process_solver(timedelta(seconds=30)) as solver:
        first = worker_of(solver)
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: not is_running(first))
        with pytest.raises(PlanningError, match="died"):
            await solver.solve(Snapshot())
        again = await solver.solve(Snapshot())
        second = worker_of(solver)

    assert again.new_nodes == ()
    assert second != first


async def test_a_worker_that_hangs_is_ended_and_replaced() -> None:
    async with process_solver(timedelta(seconds=30)) as solver:
        first = worker_of(solver)
        os.kill(first, signal.SIGSTOP)
        solver._timeout = 0.5
        with pytest.raises(PlanningError, match=r"within 0\.5 s"):
            await solver.solve(Snapshot())
        solver._timeout = 30.0
        again = await solver.solve(Snapshot())

    assert again.new_nodes == ()
    await eventually(lambda: not is_running(first))


async def test_the_inline_solver_answers_by_its_function() -> None:
    answer = Plan((), (), (), Stats(0, 0, 0))

    assert await InlineSolver(lambda snapshot: answer).solve(Snapshot()) is answer
