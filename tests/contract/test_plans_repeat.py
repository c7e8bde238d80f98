"""Effort is counted in units of work, so a plan does not depend on the process that makes it or on how busy it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["constrained-spot", "openb-ondemand", "mixed"])
def test_processes_that_plan_at_once_and_hash_differently_make_the_same_plan(name: str) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, BENCH / "fingerprint.py", name],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2", "3")
    ]

    printed = [process.communicate(timeout=100)[0].strip() for process in started]

    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(printed[0]) == 64
    assert printed == [printed[0]] * 3
