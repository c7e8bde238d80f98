"""Both columns of the sandbox as a parameter: the real control plane is the judge, the embedded one must not drift."""

import os
from pathlib import Path

import pytest

from sawhorse_sandbox.controlplane import find_assets

BOTH_COLUMNS = [pytest.param("assets", marks=pytest.mark.real), pytest.param("embedded", marks=pytest.mark.embedded)]


@pytest.fixture(params=BOTH_COLUMNS)
def column(request: pytest.FixtureRequest) -> str:
    """Which Kubernetes the world runs on."""
    return str(request.param)


@pytest.fixture
def assets(column: str) -> Path | None:
    """The real control plane's binaries; absent ones fail the test that asked for them."""
    found = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))
    if column == "assets" and found is None:
        pytest.fail("the real control plane's binaries are absent; run `make kube-assets`")
    return found


@pytest.fixture(scope="session")
def real_assets() -> Path:
    """The same for modules that run on the real control plane alone."""
    found = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))
    if found is None:
        pytest.fail("the real control plane's binaries are absent; run `make kube-assets`")
    return found
