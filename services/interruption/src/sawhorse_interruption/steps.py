"""The named steps of an interruption, with a failpoint before and after each for the crash tests."""

from collections.abc import Mapping
from enum import StrEnum

from sawhorse_runtime import failpoints
from sawhorse_runtime.failpoints import Failpoint, Steps, When

__all__ = ["Failpoint", "Step", "Steps", "When", "failpoint_from"]


class Step(StrEnum):
    """In their order. What each leaves behind, and who goes on after a crash, is in the module that performs it."""

    RECEIVED = "received"
    MARKED = "marked"
    DEADLINE = "deadline"
    CORDONED = "cordoned"
    WOKEN = "woken"
    DELETED = "deleted"
    ACKED = "acked"
    EVICTING = "evicting"
    DRAINED = "drained"
    START = "start"  # the queue is read
    HAND_OVER = "hand-over"  # told to stop, and nothing is in hand any more


def failpoint_from(environ: Mapping[str, str]) -> Failpoint | None:
    """The failpoint that the environment names; see `sawhorse_runtime.failpoints`.

    Raises:
        SettingsError: it names no step.
    """
    return failpoints.failpoint_from(environ, Step)
