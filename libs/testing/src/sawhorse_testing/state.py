"""A real Redis for tests: one server for a session, a cluster name of its own for each test."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from sawhorse_sandbox.redis import start_redis
from sawhorse_state.connection import State, connect_state


@contextmanager
def a_redis(directory: Path) -> Iterator[str]:
    """Start a Redis for the block and yield its URL, password included. For a session-wide fixture."""
    server = asyncio.run(start_redis(directory, password=secrets.token_hex(8)))
    try:
        yield server.url
    finally:
        asyncio.run(server.stop())


@asynccontextmanager
async def a_state(url: str) -> AsyncIterator[State]:
    """A state of a cluster that nobody else uses, so that tests may share one Redis."""
    async with connect_state(url, f"test-{secrets.token_hex(4)}") as state:
        yield state
