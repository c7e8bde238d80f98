"""Child processes of the sandbox: started with a log file, waited for with a bound, ended by pid.

It knows nothing of what it starts. A child lives in its own session, so that Ctrl-C in a terminal reaches only its
parent, which ends its children in order; and the kernel ends it when the parent dies without doing so (Linux).
The handles do not belong to an event loop: a child started in one may be ended in another.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Probe = Callable[[], Awaitable[bool]]

# Runs between fork and the real program. `preexec_fn` would do the same, but is unsafe in a process with threads.
# PR_SET_PDEATHSIG is 1; the parent may have died before it took effect, hence the second look.
_TIE_TO_PARENT = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM)\n"
    "os.getppid() == int(sys.argv[1]) or sys.exit(1)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


class ChildError(Exception):
    """A child process did not start, did not become ready in time, or died. The text names it and quotes its log."""


@dataclass(frozen=True, slots=True)
class Child:
    """A started process and where it writes."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path  # stdout and stderr together

    @property
    def pid(self) -> int:
        """Return the process id; that of the program itself, not of a shell."""
        return self.process.pid

    def is_running(self) -> bool:
        """Return False once the process ended; reaps it."""
        return self.process.poll() is None


def start_child(name: str, command: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None) -> Child:
    """Start `command` with its output in the file `log` (appended) and no input.

    Args:
        env: the whole environment of the child; None hands ours on.
    Raises:
        ChildError: the program or the log file cannot be opened.
    """
    arguments = [str(part) for part in command]
    if sys.platform == "linux":
        arguments = [sys.executable, "-I", "-S", "-c", _TIE_TO_PARENT, str(os.getpid()), *arguments]
    if not os.access(command[0], os.X_OK):
        raise ChildError(f"{name}: {command[0]} is not a program that can be run")
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
    except OSError as err:
        raise ChildError(f"{name}: cannot be started: {err}") from err
    return Child(name=name, process=process, log=log)


async def wait_until_ready(child: Child, probe: Probe, *, timeout: float, interval: float = 0.05) -> None:
    """Return once `probe` answers True; a probe that raises OSError or TimeoutError counts as not yet.

    Raises:
        ChildError: the child ended, or `timeout` seconds passed.
    """
    try:
        async with asyncio.timeout(timeout):
            while True:
                if not child.is_running():
                    raise ChildError(
                        f"{child.name} ended with {_ending(child)} before it was ready{log_tail(child.log)}"
                    )
                if await _answers(probe):
                    return
                await asyncio.sleep(interval)
    except TimeoutError as err:
        raise ChildError(f"{child.name} was not ready after {timeout:g} s{log_tail(child.log)}") from err


async def stop_child(child: Child, *, grace: float) -> None:
    """Send SIGTERM, wait up to `grace` seconds, then SIGKILL; returns when the process is gone. May be repeated."""
    try:
        if child.is_running():
            child.process.terminate()
        deadline = asyncio.get_running_loop().time() + grace
        # The handle belongs to no loop, so there is no event to wait for.
        while child.is_running() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    finally:
        # Also on cancellation: a process must never outlive whoever was asked to end it.
        kill_child(child)


def kill_child(child: Child) -> None:
    """End the process at once with SIGKILL and reap it. May be repeated."""
    if child.is_running():
        child.process.kill()
        child.process.wait(timeout=10)


async def stop_in_reverse(children: Sequence[Child], *, grace: float) -> None:
    """Stop the last started first, each bounded by `grace`; every process is gone afterwards, even on cancellation."""
    try:
        for child in reversed(children):
            await stop_child(child, grace=grace)
    finally:
        for child in reversed(children):
            kill_child(child)


def log_tail(log: Path, lines: int = 15) -> str:
    """Return the end of a log, indented, to follow a one-line error; empty when there is nothing to show."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16_384))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    last = [line[:400] for line in text.splitlines() if line.strip()][-lines:]
    return "".join([f"; the end of {log}:", *(f"\n  {line}" for line in last)]) if last else ""


def free_ports(count: int) -> tuple[int, ...]:
    """Return loopback ports that were free a moment ago, all different.

    Another process may take one before its user binds it: callers start again with new ones when that happens.
    """
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return tuple(each.getsockname()[1] for each in sockets)
    finally:
        for each in sockets:
            each.close()


async def _answers(probe: Probe) -> bool:
    try:
        return await probe()
    except (OSError, TimeoutError):
        return False


def _ending(child: Child) -> str:
    code = child.process.returncode
    return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
