"""Fixtures: a real Redis for the session, and a state of its own for each test."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sawhorse_state.connection import State
from sawhorse_testing.state import a_redis, a_state


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def redis_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with a_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
async def state(redis_url: str) -> AsyncIterator[State]:
    async with a_state(redis_url) as made:
        yield made
