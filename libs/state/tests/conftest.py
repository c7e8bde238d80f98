"""Fixtures: Redis 7 and Valkey for the session, and a state of its own for each test on each of them."""

import os
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sawhorse_state.connection import State
from sawhorse_testing.state import a_redis, a_state


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["redis-server", "valkey"])
async def redis_url(request: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    if request.param == "redis-server" and shutil.which("redis-server") is None:
        if os.environ.get("REQUIRE_REAL") == "1":
            pytest.fail("REQUIRE_REAL=1, but there is no redis-server; install it")
        pytest.skip("there is no redis-server here; the same tests run on Valkey")
    async with a_redis(tmp_path_factory.mktemp("redis"), request.param) as url:
        yield url


@pytest.fixture
async def state(redis_url: str) -> AsyncIterator[State]:
    async with a_state(redis_url) as made:
        yield made
