"""Child processes end when told to, also the stubborn ones and those whose parent was killed."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from sawhorse_sandbox.processes import (
    Child,
    ChildError,
    free_ports,
    kill_child,
    log_tail,
    start_child,
    stop_child,
    stop_in_reverse,
    wait_until_ready,
)

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)
PARENT = """
import pathlib, sys, time
from sawhorse_sandbox.processes import start_child
child = start_child("sleeper", ["/bin/sleep", "60"], log=pathlib.Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(60)
"""


def says(log: Path, words: str) -> bool:
    return words in log.read_text()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def start_stubborn_child(log: Path) -> Child:
    """Return once it ignores SIGTERM."""
    child = start_child("stubborn", [sys.executable, "-c", STUBBORN], log=log)

    async def deaf() -> bool:
        return says(log, "deaf")

    await wait_until_ready(child, deaf, timeout=20)
    return child


async def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    child = await start_stubborn_child(tmp_path / "log")

    await stop_child(child, grace=0.2)

    assert child.process.returncode == -signal.SIGKILL


async def test_a_child_that_obeys_is_not_killed_and_stopping_may_be_repeated(tmp_path: Path) -> None:
    child = start_child("sleeper", ["/bin/sleep", "60"], log=tmp_path / "log")

    await stop_child(child, grace=20)
    await stop_child(child, grace=20)

    assert child.process.returncode == -signal.SIGTERM


async def test_children_are_gone_even_when_the_stop_is_cancelled(tmp_path: Path) -> None:
    children = [await start_stubborn_child(tmp_path / f"{number}.log") for number in range(2)]

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await stop_in_reverse(children, grace=60)

    assert [child.is_running() for child in children] == [False, False]


async def test_a_child_does_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    parent = start_child("parent", [sys.executable, "-c", PARENT, str(tmp_path / "grandchild")], log=tmp_path / "log")

    async def has_started() -> bool:
        return says(tmp_path / "log", "\n")

    await wait_until_ready(parent, has_started, timeout=20)
    grandchild = int((tmp_path / "log").read_text())

    os.kill(parent.pid, signal.SIGKILL)
    kill_child(parent)

    async with asyncio.timeout(10):
        while is_alive(grandchild):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert not is_alive(grandchild)


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ChildError, match="ghost: /no/such/program is not a program"):
        start_child("ghost", ["/no/such/program"], log=tmp_path / "log")


def test_the_tail_of_a_log_is_its_last_lines_and_of_no_log_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"line {number}\n" for number in range(100)))

    assert log_tail(tmp_path / "log", lines=2).endswith("\n  line 98\n  line 99")
    assert log_tail(tmp_path / "absent") == ""


def test_free_ports_are_all_different() -> None:
    assert len(set(free_ports(20))) == 20
