"""Starts the embedded Kubernetes as a process of its own, and stops it. Test double for a cluster."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from sawhorse_sandbox.apiserver.kubeconfig import read_kubeconfig

START_TIMEOUT = 30.0  # seconds
STOP_TIMEOUT = 5.0  # seconds, then the process is killed
_POLL = 0.02
_TAIL_LINES = 20


class EmbeddedKubeError(RuntimeError):
    """The embedded Kubernetes did not start; the message ends with what it logged."""


class _Ready(msgspec.Struct):
    port: int
    pid: int
    kubeconfig: str


@dataclass(slots=True)
class EmbeddedKube:
    """A running embedded Kubernetes. An async context manager that stops it."""

    kubeconfig: Path
    url: str
    token: str
    pid: int
    log: Path
    process: asyncio.subprocess.Process

    async def stop(self) -> None:
        """End the process and wait for it. May be repeated."""
        await _end(self.process)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


async def start_embedded_kube(directory: Path, *, timeout: float = START_TIMEOUT) -> EmbeddedKube:
    """Start API server, scheduler and controllers in one process; return once the server answers.

    Args:
        directory: holds kubeconfig, log and ready file; made if missing.
        timeout: seconds until a start counts as failed.

    Raises:
        EmbeddedKubeError: it ended early or did not answer in time.
    """
    ready_file, log = _prepare(directory)
    command = [sys.executable, "-m", "sawhorse_sandbox.apiserver", "--port", "0"]
    command += ["--directory", str(directory), "--ready-file", str(ready_file)]
    with open(log, "ab") as output:  # noqa: ASYNC230 - opened once, for the child
        # A session of its own: Ctrl-C in a terminal must reach our starter only, which stops the parts in order.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        ready = await _wait_ready(process, ready_file, log, timeout)
    except BaseException:
        await _end(process)
        raise
    kubeconfig = Path(ready.kubeconfig)
    url, token = read_kubeconfig(kubeconfig)
    return EmbeddedKube(kubeconfig, url, token, ready.pid, log, process)


def _prepare(directory: Path) -> tuple[Path, Path]:
    directory.mkdir(parents=True, exist_ok=True)
    ready_file = directory / "kube-ready.json"
    ready_file.unlink(missing_ok=True)  # of an earlier start
    return ready_file, directory / "kube.log"


def _read_ready(ready_file: Path) -> _Ready | None:
    try:
        return msgspec.json.decode(ready_file.read_bytes(), type=_Ready)
    except FileNotFoundError:
        return None


async def _wait_ready(process: asyncio.subprocess.Process, ready_file: Path, log: Path, timeout: float) -> _Ready:
    try:
        async with asyncio.timeout(timeout):
            while True:
                if (ready := _read_ready(ready_file)) is not None:
                    return ready
                if process.returncode is not None:
                    raise EmbeddedKubeError(
                        f"embedded kubernetes ended with code {process.returncode} while starting:\n{_tail(log)}"
                    )
                await asyncio.sleep(_POLL)
    except TimeoutError as err:
        raise EmbeddedKubeError(f"embedded kubernetes did not answer within {timeout:g} s:\n{_tail(log)}") from err


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-_TAIL_LINES:]) or "(nothing was logged)"


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
