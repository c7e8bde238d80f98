"""Fixtures: a real Redis, a state of its own for each test, and the real control plane where it is."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sawhorse_sandbox.controlplane import ControlPlane, start_control_plane
from sawhorse_state.connection import State
from sawhorse_testing.clusters import assets_or_skip, prepare_cluster
from sawhorse_testing.state import a_redis, a_state


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def redis_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with a_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
async def state(redis_url: str) -> AsyncIterator[State]:
    async with a_state(redis_url) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    async with await start_control_plane(tmp_path_factory.mktemp("kube"), assets_or_skip()) as plane:
        await prepare_cluster(plane.kubeconfig)
        yield plane
