"""The three Kubernetes that `Kube` must work with: in memory, embedded, and the real control plane where it is."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sawhorse_kube.client import KubeClient, connect_kube
from sawhorse_kube.kinds import raw_kind
from sawhorse_sandbox.apiserver import start_embedded_kube
from sawhorse_sandbox.controlplane import ControlPlane, start_control_plane
from sawhorse_testing.clusters import assets_or_skip, prepare_cluster

NAMESPACE = raw_kind("Namespace", "", "v1", "namespaces", namespaced=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    async with await start_control_plane(tmp_path_factory.mktemp("kube"), assets_or_skip()) as plane:
        await prepare_cluster(plane.kubeconfig)
        yield plane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def embedded_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    async with await start_embedded_kube(tmp_path_factory.mktemp("embedded")) as embedded:
        await prepare_cluster(embedded.kubeconfig)
        yield embedded.kubeconfig


@pytest.fixture
async def real_kube(real_plane: ControlPlane) -> AsyncIterator[KubeClient]:
    async with connect_kube(kubeconfig=real_plane.kubeconfig) as kube:
        yield kube


@pytest.fixture
async def embedded_kube(embedded_kubeconfig: Path) -> AsyncIterator[KubeClient]:
    async with connect_kube(kubeconfig=embedded_kubeconfig) as kube:
        yield kube


async def a_namespace(kube: KubeClient) -> str:
    name = f"test-{secrets.token_hex(4)}"
    await kube.create(NAMESPACE, {"metadata": {"name": name}})
    return name


@pytest.fixture
async def real_namespace(real_kube: KubeClient) -> str:
    return await a_namespace(real_kube)


@pytest.fixture
async def embedded_namespace(embedded_kube: KubeClient) -> str:
    return await a_namespace(embedded_kube)
