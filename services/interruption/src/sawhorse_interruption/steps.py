"""The named steps of an interruption, and the failpoints before and after each for the crash tests."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Literal

from sawhorse_runtime.errors import SettingsError

When = Literal["before", "after"]
Failpoint = Callable[["Step", When], None]


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


class Steps:
    """Marks where a step begins and ends."""

    def __init__(self, failpoint: Failpoint | None = None) -> None:
        self._failpoint = failpoint

    @contextmanager
    def at(self, step: Step) -> Iterator[None]:
        """The block is the step. It has not ended when it raises."""
        self.before(step)
        yield
        self.after(step)

    def before(self, step: Step) -> None:
        """The step begins."""
        if self._failpoint is not None:
            self._failpoint(step, "before")

    def after(self, step: Step) -> None:
        """The step has ended."""
        if self._failpoint is not None:
            self._failpoint(step, "after")


def failpoint_from(environ: Mapping[str, str]) -> Failpoint | None:
    """The failpoint that `SAWHORSE_FAILPOINT=<step>:before|after` names: there the process kills itself.

    None unless `SAWHORSE_TESTING=1`.

    Raises:
        SettingsError: it names no step.
    """
    text = environ.get("SAWHORSE_FAILPOINT", "")
    if environ.get("SAWHORSE_TESTING") != "1" or not text:
        return None
    name, _, when = text.partition(":")
    if name not in set(Step) or when not in ("before", "after"):
        raise SettingsError(
            f"SAWHORSE_FAILPOINT (environment): {text!r} is no failpoint; "
            f"write <step>:before or <step>:after, where <step> is one of {', '.join(Step)}"
        )

    def kill(step: Step, at: When) -> None:
        if (step, at) == (name, when):
            os.kill(os.getpid(), signal.SIGKILL)  # as a crash does: nothing is handed back

    return kill
