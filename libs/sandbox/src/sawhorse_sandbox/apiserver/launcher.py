"""Starts the embedded Kubernetes as a process of its own, and stops it. Test double for a cluster."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from sawhorse_sandbox.apiserver.kubeconfig import read_kubeconfig
from sawhorse_sandbox.processes import Child, start_child, stop_child, wait_until_ready

START_TIMEOUT = 30.0  # seconds
STOP_GRACE = 5.0  # seconds, then the process is killed
_POLL = 0.02


class _Ready(msgspec.Struct):
    port: int
    pid: int
    kubeconfig: str


@dataclass(frozen=True, slots=True)
class EmbeddedKube:
    """A running embedded Kubernetes. As an async context manager it stops itself at the end."""

    kubeconfig: Path
    url: str
    token: str
    child: Child

    @property
    def pid(self) -> int:
        """The process id."""
        return self.child.pid

    async def stop(self) -> None:
        """End the process and wait for it. May be repeated."""
        await stop_child(self.child, grace=STOP_GRACE)

    async def __aenter__(self) -> Self:
        """Return itself: it runs already."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()


async def start_embedded_kube(directory: Path, *, timeout: float = START_TIMEOUT) -> EmbeddedKube:
    """Start API server, scheduler and controllers in one process; return once the server answers.

    Args:
        directory: holds kubeconfig, log and ready file; made if missing.
        timeout: seconds until a start counts as failed.

    Raises:
        ChildError: it ended early or did not answer in time; the text ends with its log.
    """
    ready_file = _prepare(directory)
    command: list[str | Path] = [sys.executable, "-m", "sawhorse_sandbox.apiserver"]
    command += ["--port", "0", "--directory", directory, "--ready-file", ready_file]
    child = start_child("embedded kubernetes", command, log=directory / "kube.log")

    async def answers() -> bool:
        return ready_file.exists()

    try:
        await wait_until_ready(child, answers, timeout=timeout, interval=_POLL)
        ready = msgspec.json.decode(ready_file.read_bytes(), type=_Ready)
    except BaseException:
        await stop_child(child, grace=STOP_GRACE)
        raise
    kubeconfig = Path(ready.kubeconfig)
    url, token = read_kubeconfig(kubeconfig)
    return EmbeddedKube(kubeconfig, url, token, child)


def _prepare(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    ready_file = directory / "kube-ready.json"
    ready_file.unlink(missing_ok=True)  # of an earlier start
    return ready_file
