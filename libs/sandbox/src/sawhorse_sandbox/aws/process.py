"""Starts the sandbox's AWS as a process of its own, and talks to its control endpoint."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from sawhorse_sandbox.processes import Child, ChildError, start_child, stop_child, wait_until_ready

START_SECONDS = 20.0
STOP_SECONDS = 5.0
CONTROL_SECONDS = 10.0
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "sandbox", "AWS_SECRET_ACCESS_KEY": "sandbox", "AWS_EC2_METADATA_DISABLED": "true"}


class ControlError(Exception):
    """The control endpoint refused a request; the text is its reason."""


@dataclass(frozen=True, slots=True)
class AwsSandbox:
    """A running sandbox of AWS. As an async context manager it stops at the end of the block."""

    endpoint_url: str  # for all services, without a trailing slash
    region: str
    child: Child

    @property
    def pid(self) -> int:
        """Return the server's process id."""
        return self.child.pid

    @property
    def log(self) -> Path:
        """Return the file that the server writes its log to."""
        return self.child.log

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that lead an AWS SDK in another process to this sandbox."""
        return CREDENTIALS | {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }

    async def control(self, state: dict[str, Any]) -> dict[str, Any]:
        """Replace the named fields of the state (see `state.State`, in camelCase) and return the whole state.

        Raises:
            ControlError: an unknown field or a value that makes no sense; nothing was changed.
        """
        answer: dict[str, Any] = await self._request("POST", "/sandbox/state", state)
        return answer

    async def interrupt(
        self, instance_id: str, kind: str = "spot", *, reclaim_after: float | None = None
    ) -> dict[str, Any]:
        """Send a message about an instance as EC2 would; a spot instance is taken back `reclaim_after` seconds later.

        Args:
            kind: a key of `messages.KINDS`.
            reclaim_after: None is EC2's two minutes.
        Returns:
            {"message": what was sent, "queues": names, "known": whether the instance exists}
        """
        more = {} if reclaim_after is None else {"reclaimAfterSeconds": reclaim_after}
        asked = {"instanceId": instance_id, "kind": kind, **more}
        answer: dict[str, Any] = await self._request("POST", "/sandbox/interrupt", asked)
        return answer

    async def instances(self) -> list[dict[str, Any]]:
        """List all instances, the terminated too."""
        answer: list[dict[str, Any]] = await self._request("GET", "/sandbox/instances")
        return answer

    async def calls(self) -> dict[str, int]:
        """Return how often each API action was called since the start."""
        answer: dict[str, int] = await self._request("GET", "/sandbox/calls")
        return answer

    async def stop(self) -> None:
        """End the server; it is gone when this returns. May be repeated."""
        await stop_child(self.child, grace=STOP_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _request(self, method: str, path: str, body: Any = None) -> Any:
        timeout = aiohttp.ClientTimeout(total=CONTROL_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, self.endpoint_url + path, json=body) as response,
        ):
            answer = await response.json()
            if response.status != 200:
                raise ControlError(str(answer["error"]))
            return answer


async def start_aws(directory: Path, *, region: str = "us-east-1") -> AwsSandbox:
    """Start the server on a free loopback port; its log is `aws.log` in `directory`.

    Raises:
        ChildError: it was not ready within 20 s; quotes the end of the log.
    """
    ready = directory / "aws-ready.json"
    ready.unlink(missing_ok=True)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "sawhorse_sandbox.aws",
        "--port",
        "0",
        "--ready-file",
        ready,
        "--region",
        region,
    ]
    child = start_child("aws sandbox", command, log=directory / "aws.log", env={**os.environ, **CREDENTIALS})
    try:
        await wait_until_ready(child, lambda: asyncio.to_thread(ready.exists), timeout=START_SECONDS)
    except (ChildError, asyncio.CancelledError):
        await stop_child(child, grace=STOP_SECONDS)
        raise
    port = json.loads(ready.read_text())["port"]
    return AwsSandbox(endpoint_url=f"http://127.0.0.1:{port}", region=region, child=child)
