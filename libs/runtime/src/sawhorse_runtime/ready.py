"""The ready file: tells whoever started the process that it is ready, and on which ports."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from sawhorse_runtime.errors import SettingsError
from sawhorse_runtime.health import Ports, Readiness
from sawhorse_runtime.supervise import Loop


def write_ready_file(path: str, *, grpc: int | None, ports: Ports) -> None:
    """Write `{"pid", "grpc", "metrics", "health"}` to `path` at once or not at all; "" writes nothing.

    Args:
        grpc: the port of the gRPC server, None (null in the file) for a service without one.
    Raises:
        SettingsError: it cannot be written.
    """
    if not path:
        return
    target = Path(path)
    content = {"pid": os.getpid(), "grpc": grpc, "metrics": ports.metrics, "health": ports.health}
    # Beside the target, so that the rename stays on one file system and a reader never sees half of it.
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
        partial.replace(target)
    except OSError as err:
        partial.unlink(missing_ok=True)
        raise SettingsError(f"--ready-file: {path} cannot be written ({err.strerror}); choose another path") from err


def announce_ready(path: str, readiness: Readiness, *, grpc: int | None, ports: Ports) -> Loop:
    """A loop for `supervise` that writes the ready file when all checks first pass, and removes it at the end."""

    async def write_when_ready() -> None:
        await readiness.wait_ready()
        write_ready_file(path, grpc=grpc, ports=ports)

    async def loop(stop: asyncio.Event) -> None:
        # One left by a killed predecessor would name ports that nobody listens on.
        remove_ready_file(path)
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(write_when_ready(), name="write-ready-file")
                await stop.wait()
                writer.cancel()
        finally:
            remove_ready_file(path)

    return loop


def remove_ready_file(path: str) -> None:
    """Remove it if it is there; "" removes nothing."""
    if path:
        Path(path).unlink(missing_ok=True)
