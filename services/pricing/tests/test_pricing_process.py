"""The process: its help and its exit codes, as a person at a shell sees them."""

import subprocess
import sys

import pytest

from sawhorse_pricing.settings import Settings
from sawhorse_runtime.options import settings_table

pytestmark = pytest.mark.integration


def run(*argv: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "sawhorse_pricing", *argv],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": ""},
    )


def test_help_lists_every_setting() -> None:
    done = run("--help")

    flags = [row.split("`")[1] for row in settings_table(Settings).splitlines()[2:]]
    assert done.returncode == 0
    assert flags
    assert [flag for flag in flags if flag not in done.stdout] == []


def test_missing_settings_are_named_on_stderr_and_exit_2() -> None:
    done = run()

    assert done.returncode == 2
    assert "--cluster-name" in done.stderr
    assert "--aws-region" in done.stderr
    assert "Traceback" not in done.stderr
