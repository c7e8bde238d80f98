"""Supervision: the loops of one process, its signals and its exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any

import structlog
import uvloop

from sawhorse_runtime.errors import SettingsError, describe, leaves

Loop = Callable[[asyncio.Event], Awaitable[None]]
"""A loop runs until the event it is given is set, then finishes what is in flight and returns."""

log = structlog.get_logger(__name__)


async def supervise(loops: Mapping[str, Loop], *, stop: asyncio.Event, drain: timedelta) -> None:
    """Own a service's loops until `stop` is set, then let them drain.

    A loop that fails, or returns early, takes the others down: Kubernetes restarts a dead process, nobody restarts
    half of one. A loop that fails while draining does not: the others have work in flight to hand back.

    Args:
        loops: by name; each gets `stop`.
        drain: how long they may go on after `stop`; those that are late are cancelled.
    Raises:
        ExceptionGroup: what the loops raised.
    """
    failed_draining: list[Exception] = []

    async def guarded(name: str, loop: Loop) -> None:
        try:
            await loop(stop)
        except Exception as exc:
            if not stop.is_set():
                raise
            log.warning("loop failed while draining", loop=name, error=describe(exc))
            failed_draining.append(exc)
            return
        if not stop.is_set():
            raise RuntimeError(f"loop {name!r} returned before it was asked to stop")

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(guarded(name, loop), name=name) for name, loop in loops.items()]
        await stop.wait()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=drain.total_seconds())
            for task in late:
                log.warning("drain deadline passed", loop=task.get_name())
                task.cancel()
    if failed_draining:
        raise ExceptionGroup("loops failed while draining", failed_draining)


def run_service(main: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Run `main(stop)` on a new uvloop and return the exit code of the process.

    SIGTERM and SIGINT set `stop`; a second signal cancels what runs; a third ends the process on the spot.

    Returns:
        0 when `main` returned; 2 when it found the settings wrong, listed on stderr; 1 when it failed, logged in one
        line; 128 + signal when a second signal was needed.
    """
    signals: list[signal.Signals] = []

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()

        def on_signal(number: signal.Signals) -> None:
            signals.append(number)
            if len(signals) == 1:
                log.info("stopping", signal=number.name)
                stop.set()
            elif len(signals) == 2:
                log.warning("stopping at once", signal=number.name)
                if task is not None:
                    task.cancel()
            else:
                os._exit(128 + number)

        handled = (signal.SIGTERM, signal.SIGINT)
        for number in handled:
            loop.add_signal_handler(number, on_signal, number)
        try:
            await main(stop)
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    return _run_to_exit_code(run(), signals)


def _run_to_exit_code(main: Coroutine[Any, Any, None], signals: list[signal.Signals]) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(main)
        except asyncio.CancelledError:
            # A second signal cancelled it; nothing else cancels the outermost task.
            return 128 + signals[-1] if signals else 1
        except Exception as exc:
            wrong = [leaf for leaf in leaves(exc) if isinstance(leaf, SettingsError)]
            for problem in (problem for err in wrong for problem in err.problems):
                sys.stderr.write(problem + "\n")
            if wrong:
                return 2
            log.error("service failed", exc_info=exc)
            return 1
    return 0
