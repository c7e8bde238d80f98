"""Planning off the loop: one worker process, since a thread would starve heartbeats and gRPC."""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from datetime import timedelta
from multiprocessing.connection import wait
from typing import Protocol

import structlog

from sawhorse_provisioner.packing import Packed, Packer, Unpacker
from sawhorse_runtime.errors import Retry, SawhorseError
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import Snapshot

log = structlog.get_logger(__name__)

SolveFunction = Callable[[Snapshot], Plan]


class PlanningError(SawhorseError):
    """No plan came: the worker took too long or died."""

    reason = "PlanningFailed"
    retry = Retry.BACKOFF


class Solver(Protocol):
    """Makes plans. Bounded in time."""

    async def solve(self, snapshot: Snapshot) -> Plan:
        """The plan for a snapshot.

        Raises:
            PlanningError: none came.
        """
        ...


class InlineSolver:
    """Solves on the loop, for small snapshots: tests and commands."""

    def __init__(self, function: SolveFunction) -> None:
        self._function = function

    async def solve(self, snapshot: Snapshot) -> Plan:
        """See Solver."""
        return self._function(snapshot)


class ProcessSolver:
    """Solves in a worker process, one plan at a time; made anew when it dies or hangs. See `process_solver`."""

    def __init__(self, timeout: timedelta) -> None:
        self._timeout = timeout.total_seconds()
        self._pool: ProcessPoolExecutor | None = None
        self._packer = Packer()
        self._one = asyncio.Lock()

    async def solve(self, snapshot: Snapshot) -> Plan:
        """See Solver."""
        async with self._one:
            if self._pool is None:
                self._pool, self._packer = _make_pool(), Packer()
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(self._timeout):
                    return await loop.run_in_executor(self._pool, _solve, self._packer.pack(snapshot))
            except TimeoutError as error:
                self.close()
                raise PlanningError(
                    f"no plan within {self._timeout:g} s", action="Raise --solve-timeout, or give the service more CPU."
                ) from error
            except BrokenProcessPool as error:
                self.close()
                raise PlanningError(
                    "the planning worker died", action="Check the memory limit of the service."
                ) from error

    async def warm_up(self) -> None:
        """Start the worker now, so that the first plan does not wait for imports."""
        await self.solve(Snapshot())

    def close(self) -> None:
        """End the worker at once, whatever it is doing."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        workers = list(getattr(pool, "_processes", None) or {})
        pool.shutdown(wait=False, cancel_futures=True)
        for pid in workers:  # the executor has no public way to end a worker that computes
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@asynccontextmanager
async def process_solver(timeout: timedelta) -> AsyncIterator[ProcessSolver]:
    """A ProcessSolver for the block; its worker is warm."""
    solver = ProcessSolver(timeout)
    try:
        await solver.warm_up()
        yield solver
    finally:
        solver.close()


def _make_pool() -> ProcessPoolExecutor:
    # Spawn: a fork would copy sockets, locks and the loop of a process full of tasks.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(max_workers=1, mp_context=context, initializer=_prepare_worker)


def _prepare_worker() -> None:
    """In the worker: import the engine, leave signals to the parent, and never outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import sawhorse_scheduling.solve  # noqa: F401


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


_unpacker = Unpacker()  # the worker's: it lives as long as the process


def _solve(packed: Packed) -> Plan:
    from sawhorse_scheduling.solve import solve

    return solve(_unpacker.unpack(packed))
