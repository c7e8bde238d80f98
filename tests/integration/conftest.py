"""The chart, rendered by the helm that its Go module builds."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
REQUIRED = {
    "settings.clusterName": "sandbox",
    "settings.awsRegion": "us-east-1",
    "settings.interruptionQueue": "sandbox",
}
HELM_SECONDS = 60

Helm = Callable[..., subprocess.CompletedProcess[str]]
Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Runs helm with arguments; its absence fails the test that asked for it."""
    version = re.search(r"helm\.sh/helm/v4 (v\S+)", (ROOT / "tests/kube/helm/go.mod").read_text())
    assert version is not None
    cache = Path(os.environ.get("SAWHORSE_CACHE") or Path.home() / ".cache/sawhorse")
    built = cache / "helm" / version[1] / "helm"
    program = str(built) if built.exists() else shutil.which("helm")
    if program is None:
        pytest.fail("helm is absent; run `make helm`")
    home = str(tmp_path_factory.mktemp("helm"))
    homes = {"HELM_CACHE_HOME": home, "HELM_CONFIG_HOME": home, "HELM_DATA_HOME": home}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            timeout=HELM_SECONDS,
            check=False,
            env={**os.environ, **homes},
        )

    return run


@pytest.fixture(scope="session")
def render(helm: Helm) -> Render:
    """Renders the chart with values by path; returns the documents, CRDs first."""

    def run(release: str = "sawhorse", namespace: str = "sawhorse", **values: Any) -> list[dict[str, Any]]:
        chosen = {**REQUIRED, **values.pop("values", {})}
        words = [word for path, value in chosen.items() for word in ("--set", f"{path}={value}")]
        done = helm("template", release, str(CHART), "--namespace", namespace, "--include-crds", *words)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return run
