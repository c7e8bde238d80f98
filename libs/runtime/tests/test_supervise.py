"""Supervision: loops live and die together, and drain; a process ends with the right code."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_runtime.errors import SettingsError, UnavailableError
from sawhorse_runtime.supervise import run_service, supervise

DRAIN = timedelta(seconds=20)


async def until_stopped(stop: asyncio.Event) -> None:
    await stop.wait()


async def after(seconds: float, stop: asyncio.Event) -> None:
    await asyncio.sleep(seconds)
    stop.set()


@pytest.mark.looptime
async def test_loops_run_until_stop_and_finish_what_is_in_flight(looptime: Any) -> None:
    stop = asyncio.Event()
    finished: list[str] = []

    async def drains_for_5s(stop: asyncio.Event) -> None:
        await stop.wait()
        await asyncio.sleep(5)
        finished.append("slow")

    async with asyncio.TaskGroup() as group:
        group.create_task(after(100, stop))
        await supervise({"slow": drains_for_5s, "quick": until_stopped}, stop=stop, drain=DRAIN)

    assert finished == ["slow"]
    assert looptime == 105


@pytest.mark.looptime
async def test_a_loop_that_is_late_is_cancelled_when_the_drain_time_is_over(looptime: Any) -> None:
    stop = asyncio.Event()
    stop.set()
    cancelled: list[bool] = []

    async def never_ends(stop: asyncio.Event) -> None:
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    await supervise({"late": never_ends}, stop=stop, drain=DRAIN)

    assert cancelled == [True]
    assert looptime == 20


@pytest.mark.looptime
async def test_a_loop_that_fails_takes_the_others_down(looptime: Any) -> None:
    cancelled: list[bool] = []

    async def other(stop: asyncio.Event) -> None:
        try:
            await stop.wait()
        finally:
            cancelled.append(not stop.is_set())

    async def fails(stop: asyncio.Event) -> None:
        await asyncio.sleep(3)
        raise UnavailableError("redis is away")

    with pytest.raises(ExceptionGroup) as caught:
        await supervise({"other": other, "fails": fails}, stop=asyncio.Event(), drain=DRAIN)

    assert caught.group_contains(UnavailableError, match="redis is away")
    assert cancelled == [True]
    assert looptime == 3


async def test_a_loop_that_returns_early_counts_as_failed() -> None:
    async def returns(stop: asyncio.Event) -> None:
        return None

    with pytest.raises(ExceptionGroup) as caught:
        await supervise({"other": until_stopped, "early": returns}, stop=asyncio.Event(), drain=DRAIN)

    assert caught.group_contains(RuntimeError, match="loop 'early' returned before it was asked to stop")


@pytest.mark.looptime
async def test_a_failure_while_draining_lets_the_others_finish_and_is_raised_at_the_end(looptime: Any) -> None:
    stop = asyncio.Event()
    stop.set()
    finished: list[str] = []

    async def fails(stop: asyncio.Event) -> None:
        raise UnavailableError("gone")

    async def drains(stop: asyncio.Event) -> None:
        await asyncio.sleep(5)
        finished.append("drained")

    with pytest.raises(ExceptionGroup) as caught:
        await supervise({"fails": fails, "drains": drains}, stop=stop, drain=DRAIN)

    assert caught.group_contains(UnavailableError)
    assert finished == ["drained"]


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_the_service_to_stop_and_it_exits_0(number: signal.Signals) -> None:
    async def main(stop: asyncio.Event) -> None:
        asyncio.get_running_loop().call_soon(send, number)
        async with asyncio.timeout(10):
            await stop.wait()

    assert run_service(main) == 0


def test_a_second_signal_cancels_a_service_that_does_not_stop() -> None:
    async def main(stop: asyncio.Event) -> None:
        asyncio.get_running_loop().call_soon(send, signal.SIGTERM)
        async with asyncio.timeout(10):
            await stop.wait()
            send(signal.SIGTERM)
            await asyncio.Event().wait()

    assert run_service(main) == 128 + signal.SIGTERM


def test_a_service_that_fails_exits_1_and_wrong_settings_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    async def fails(stop: asyncio.Event) -> None:
        raise UnavailableError("redis is away")

    async def misconfigured(stop: asyncio.Event) -> None:
        raise ExceptionGroup("wiring", [SettingsError(["--a: x; do y", "--b: x; do z"])])

    codes = (run_service(fails), run_service(misconfigured))

    assert codes == (1, 2)
    assert capsys.readouterr().err.splitlines() == ["--a: x; do y", "--b: x; do z"]


def test_the_service_runs_on_uvloop() -> None:
    seen: list[str] = []

    async def main(stop: asyncio.Event) -> None:
        seen.append(type(asyncio.get_running_loop()).__module__)

    assert run_service(main) == 0
    assert seen[0].startswith("uvloop")
