"""A real Redis for tests: one server for a session, a cluster name of its own for each test."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sawhorse_sandbox.redis import Kind, start_redis
from sawhorse_state.connection import State, connect_state


@asynccontextmanager
async def a_redis(directory: Path, prefer: Kind = "redis-server") -> AsyncIterator[str]:
    """Start a Redis for the block and yield its URL, password included. For a session-wide fixture."""
    async with await start_redis(directory, password=secrets.token_hex(8), prefer=prefer) as server:
        yield server.url


@asynccontextmanager
async def a_state(url: str) -> AsyncIterator[State]:
    """A state of a cluster that nobody else uses, so that tests may share one Redis."""
    async with connect_state(url, f"test-{secrets.token_hex(4)}") as state:
        yield state
