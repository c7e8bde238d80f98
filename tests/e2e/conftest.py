"""Both columns of the sandbox as a parameter: the real control plane is the judge, the embedded one must not drift."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sawhorse_sandbox.controlplane import find_assets
from sawhorse_testing.crash_cluster import Cluster, crash_cluster, made_empty

BOTH_COLUMNS = [pytest.param("assets", marks=pytest.mark.real), pytest.param("embedded", marks=pytest.mark.embedded)]


@pytest.fixture(params=BOTH_COLUMNS)
def column(request: pytest.FixtureRequest) -> str:
    """Which Kubernetes the world runs on."""
    return str(request.param)


@pytest.fixture
def assets(column: str) -> Path | None:
    """The real control plane's binaries; absent ones fail the test that asked for them."""
    return _found() if column == "embedded" else _needed()


@pytest.fixture(scope="session")
def real_assets() -> Path:
    """The same for modules that run on the real control plane alone."""
    return _needed()


def _found() -> Path | None:
    return find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))


def _needed() -> Path:
    found = _found()
    if found is None:
        pytest.fail("the real control plane's binaries are absent; run `make kube-assets`")
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crash_world(tmp_path_factory: pytest.TempPathFactory, real_assets: Path) -> AsyncIterator[Cluster]:
    """One world of real processes for a module of crash stories."""
    async with crash_cluster(tmp_path_factory.mktemp("crash"), real_assets) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(crash_world: Cluster) -> AsyncIterator[Cluster]:
    """It for one story: empty before and after, all services running."""
    async with made_empty(crash_world) as cluster:
        yield cluster
