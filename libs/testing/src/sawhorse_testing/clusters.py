"""What tests need of a served Kubernetes: where the real one's binaries are, and our CRDs in it."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from sawhorse_kube.api import Kube
from sawhorse_kube.client import connect_kube
from sawhorse_kube.kinds import raw_kind
from sawhorse_sandbox.controlplane import find_assets
from sawhorse_testing.eventually import eventually

CRDS = Path(__file__).parents[4] / "deploy" / "crds"
CRD = raw_kind("CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)


def assets_or_skip() -> Path:
    """The folder of the real control plane's binaries; without it the test is skipped, or fails with REQUIRE_REAL=1."""
    found = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))  # noqa: TID251
    if found is None and os.environ.get("REQUIRE_REAL") == "1":  # noqa: TID251
        pytest.fail("REQUIRE_REAL=1, but the real control plane's binaries are missing; run `make kube-assets`")
    if found is None:
        pytest.skip("the real column did not run: no control plane binaries; run `make kube-assets`")
    return found


def crd_manifests() -> list[dict[str, Any]]:
    """Our CRDs as the chart ships them."""
    return [yaml.safe_load(file.read_text()) for file in sorted(CRDS.glob("*.yaml"))]


async def install_crds(kube: Kube) -> None:
    """Create our CRDs and wait until they are served."""
    for raw in crd_manifests():
        await kube.create(CRD, raw)

    async def established() -> bool:
        found = (await kube.list(CRD)).objects
        return all(any(c["type"] == "Established" and c["status"] == "True" for c in _conditions(raw)) for raw in found)

    await eventually(established, seconds=30)


async def prepare_cluster(kubeconfig: Path) -> None:
    """`install_crds` over a client of its own."""
    async with connect_kube(kubeconfig=kubeconfig) as kube:
        await install_crds(kube)


def _conditions(raw: dict[str, Any]) -> list[dict[str, str]]:
    return (raw.get("status") or {}).get("conditions") or []
