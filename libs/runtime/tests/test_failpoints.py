"""Failpoints: off by default, and where they are on the process ends as in a crash."""

import signal
import subprocess
import sys

import pytest

from sawhorse_runtime.errors import SettingsError
from sawhorse_runtime.failpoints import Steps, failpoint_from

STEPS = ("token", "fleet")

PROGRAM = """
import sys
from sawhorse_runtime.failpoints import steps_or_exit

steps = steps_or_exit(("token", "fleet"), prog="a-service")
with steps.at("token"):
    print("token written", flush=True)
with steps.at("fleet"):
    print("fleet launched", flush=True)
"""


def run(**environ: str) -> "subprocess.CompletedProcess[str]":
    """A process that passes both steps."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False, env=environ
    )


def test_marks_tell_the_step_and_the_side() -> None:
    told: list[tuple[str, str]] = []
    steps = Steps(lambda step, when: told.append((step, when)))

    with steps.at("token"):
        told.append(("token", "within"))

    assert told == [("token", "before"), ("token", "within"), ("token", "after")]


def test_a_step_that_raises_has_not_ended() -> None:
    told: list[tuple[str, str]] = []
    steps = Steps(lambda step, when: told.append((step, when)))

    with pytest.raises(ValueError, match="no"), steps.at("fleet"):
        raise ValueError("no")

    assert told == [("fleet", "before")]


def test_without_a_failpoint_nothing_is_made_at_a_mark() -> None:
    steps = Steps()

    assert steps.at("token") is steps.at("fleet")


def test_a_failpoint_needs_the_word_that_this_is_a_test() -> None:
    named = {"SAWHORSE_FAILPOINT": "token:before"}

    assert failpoint_from(named, STEPS) is None
    assert failpoint_from({**named, "SAWHORSE_TESTING": "1"}, STEPS) is not None
    assert failpoint_from({"SAWHORSE_TESTING": "1"}, STEPS) is None


@pytest.mark.parametrize("text", ["tocken:before", "token", "token:during", ":after"])
def test_a_failpoint_that_is_none_is_told_with_the_steps_there_are(text: str) -> None:
    with pytest.raises(SettingsError, match="one of token, fleet"):
        failpoint_from({"SAWHORSE_FAILPOINT": text, "SAWHORSE_TESTING": "1"}, STEPS)


@pytest.mark.integration
def test_the_process_is_killed_at_the_failpoint_and_nowhere_else() -> None:
    without = run(SAWHORSE_FAILPOINT="token:after")
    killed = run(SAWHORSE_FAILPOINT="token:after", SAWHORSE_TESTING="1")
    wrong = run(SAWHORSE_FAILPOINT="tocken:after", SAWHORSE_TESTING="1")

    assert (without.returncode, without.stdout) == (0, "token written\nfleet launched\n")
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "token written\n")
    assert wrong.returncode == 2
    assert "a-service" in wrong.stderr
    assert "Traceback" not in wrong.stderr
