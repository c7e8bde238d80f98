"""The demo's story as a test, on the real control plane and on the embedded one."""

import io
import json
from pathlib import Path

import pytest

from sawhorse_console.demo.command import DemoOptions, run_demo

pytestmark = [pytest.mark.e2e, pytest.mark.alone]


async def test_pending_pods_get_nodes_and_survive_a_spot_interruption(
    column: str, assets: Path | None, tmp_path: Path
) -> None:
    """Pending pods become running ones on spot nodes; a warned node is replaced and drained in time; nothing leaks."""
    stdout, stderr = io.StringIO(), io.StringIO()
    options = DemoOptions(as_json=True, column=column, assets=assets, directory=tmp_path)

    code = await run_demo(options, stdout=stdout, stderr=stderr)

    report = json.loads(stdout.getvalue().splitlines()[-1])
    told = stderr.getvalue()
    assert code == 0, f"{report.get('error')}\n{told}"
    assert report["ok"] is True
    assert (report["pods"], report["podsRunning"]) == (80, 80)
    assert report["instanceTypesInCatalog"] >= 700
    assert report["leakedInstances"] == 0
    assert report["pricePerHour"] > 0
    assert sum(node["pods"] for node in report["nodes"]) == 80
    assert all(node["pricePerHour"] > 0 for node in report["nodes"])
    interruption = report["interruption"]
    assert interruption["podsRunningAfter"] == 80
    assert interruption["secondsToCordon"] <= 2
    assert interruption["secondsToReplacementOrdered"] <= 3
    assert interruption["secondsToReplacementReady"] is not None
    assert interruption["secondsToTerminated"] is not None
    assert report["seconds"]["total"] < 90
