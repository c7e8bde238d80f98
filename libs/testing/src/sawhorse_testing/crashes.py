"""Crashes in process: a failpoint that ends whoever reaches it, and connections over which nothing comes after that."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

When = Literal["before", "after"]


class Crashed(BaseException):
    """A process that dies: not an Exception, so that no handler of errors survives it."""


@dataclass
class Crash:
    """One process that may die.

    Its memory is gone when the test drops it; `link` sees to it that what still runs in it reaches nothing.

    Args:
        step, when: where it dies; empty: nowhere.
        nth: at which passage.
        at_call: it dies with this call over a link, counted from 1, in the manner of `when`: "after" means that the
            call had its effect and its answer is lost. 0: with none.
        armed: it does not die before this is True.
    """

    step: str = ""
    when: When = "before"
    nth: int = 1
    at_call: int = 0
    armed: bool = True
    happened: bool = False
    reached: list[tuple[str, When]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def failpoint(self, step: str, when: When) -> None:
        """For `Steps`."""
        if self.happened:
            raise Crashed
        if not self.armed:
            return
        self.reached.append((step, when))
        if (step, when) == (self.step, self.when) and self.reached.count((step, when)) == self.nth:
            self.die()

    def die(self) -> None:
        """The process dies here."""
        self.happened = True
        raise Crashed

    def link(self, part: Any) -> Any:
        """A connection of the process to a part of the world that outlives it."""
        return _Link(part, self)


class _Link:
    """Passes calls on as long as its process lives. Everything that is called through it is a coroutine function."""

    def __init__(self, part: Any, crash: Crash) -> None:
        self._part = part
        self._crash = crash

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        return _linked(found, name, self._crash) if callable(found) else found


def _linked(method: Callable[..., Any], name: str, crash: Crash) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        if crash.happened:
            raise Crashed
        chosen = False
        if crash.armed:
            crash.calls.append(name)
            chosen = len(crash.calls) == crash.at_call
        if chosen and crash.when == "before":
            crash.die()
        answer = await method(*args, **kwargs)
        if crash.happened:
            raise Crashed  # the answer finds nobody
        if chosen:
            crash.die()
        return answer

    return call
