"""The three Kubernetes that `Kube` must work with: in memory, embedded, and the real control plane where it is."""

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from sawhorse_kube.client import KubeClient, connect_kube
from sawhorse_kube.kinds import raw_kind
from sawhorse_sandbox.apiserver import start_embedded_kube
from sawhorse_sandbox.controlplane import ControlPlane, find_assets, start_control_plane
from sawhorse_testing.eventually import eventually

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
CRD = raw_kind("CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
NAMESPACE = raw_kind("Namespace", "", "v1", "namespaces", namespaced=False)


async def install_crds(kube: KubeClient) -> None:
    for file in sorted(CRDS.glob("*.yaml")):
        await kube.create(CRD, yaml.safe_load(file.read_text()))

    async def established() -> bool:
        found = (await kube.list(CRD)).objects
        return all(
            any(
                c["type"] == "Established" and c["status"] == "True"
                for c in (raw.get("status") or {}).get("conditions") or ()
            )
            for raw in found
        )

    await eventually(established, seconds=30)


async def prepare(kubeconfig: Path) -> None:
    async with connect_kube(kubeconfig=kubeconfig) as kube:
        await install_crds(kube)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    found = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))
    if found is None and os.environ.get("REQUIRE_REAL") == "1":
        pytest.fail("REQUIRE_REAL=1, but the real control plane's binaries are missing; run `make kube-assets`")
    if found is None:
        pytest.skip("the real column did not run: no control plane binaries; run `make kube-assets`")
    async with await start_control_plane(tmp_path_factory.mktemp("kube"), found) as plane:
        await prepare(plane.kubeconfig)
        yield plane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def embedded_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    async with await start_embedded_kube(tmp_path_factory.mktemp("embedded")) as embedded:
        await prepare(embedded.kubeconfig)
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
