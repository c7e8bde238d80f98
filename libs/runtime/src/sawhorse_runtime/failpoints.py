"""Failpoints: where a process may be told to die, just before or just after a named step, so that tests can see what
a crash there leaves behind.

A service lists its steps in a StrEnum and marks them with `Steps`. Off, which is the rule, a mark costs one comparison.
On in a process, by `SAWHORSE_FAILPOINT=<step>:before|after` and only together with `SAWHORSE_TESTING=1`, the process
ends itself with SIGKILL. A test in the same process hands `Steps` its own failpoint, which raises a BaseException.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Literal

from sawhorse_runtime.errors import SettingsError
from sawhorse_runtime.settings import exit_with

When = Literal["before", "after"]
Failpoint = Callable[[str, When], None]
"""Called with the step and the side of it that was reached; to crash, it does not return."""

_OFF: Final = nullcontext()


class Steps:
    """Marks where a step begins and ends.

    Args:
        failpoint: told of every mark; None switches all of it off.
    """

    __slots__ = ("_failpoint",)

    def __init__(self, failpoint: Failpoint | None = None) -> None:
        self._failpoint = failpoint

    def at(self, step: str) -> AbstractContextManager[None]:
        """The block is the step. It has not ended when it raises."""
        return _OFF if self._failpoint is None else self._marked(step)

    def before(self, step: str) -> None:
        """The step begins."""
        if self._failpoint is not None:
            self._failpoint(step, "before")

    def after(self, step: str) -> None:
        """The step has ended."""
        if self._failpoint is not None:
            self._failpoint(step, "after")

    @contextmanager
    def _marked(self, step: str) -> Iterator[None]:
        self.before(step)
        yield
        self.after(step)


def failpoint_from(environ: Mapping[str, str], steps: Iterable[str]) -> Failpoint | None:
    """The failpoint that `SAWHORSE_FAILPOINT=<step>:before|after` names: there the process kills itself.

    None unless `SAWHORSE_TESTING=1`.

    Args:
        steps: those of the service.
    Raises:
        SettingsError: it names no step.
    """
    text = environ.get("SAWHORSE_FAILPOINT", "")
    if environ.get("SAWHORSE_TESTING") != "1" or not text:
        return None
    known = [str(step) for step in steps]
    name, _, when = text.partition(":")
    if name not in known or when not in ("before", "after"):
        raise SettingsError(
            f"SAWHORSE_FAILPOINT (environment): {text!r} is no failpoint; "
            f"write <step>:before or <step>:after, where <step> is one of {', '.join(known)}"
        )

    def kill(step: str, at: When) -> None:
        if (step, at) == (name, when):
            os.kill(os.getpid(), signal.SIGKILL)  # as a crash does: nothing is handed back

    return kill


def steps_or_exit(steps: Iterable[str], *, prog: str) -> Steps:
    """The marks of this process; for a service's `main`.

    Raises:
        SystemExit: 2, with one line on stderr, when the environment names a failpoint that is none.
    """
    try:
        # Not a setting: only crash tests set it, and only they may.
        return Steps(failpoint_from(os.environ, steps))  # noqa: TID251
    except SettingsError as err:
        exit_with(err, prog=prog)
