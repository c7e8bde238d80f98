"""Crashes in process: a failpoint that ends whoever reaches it, and connections over which nothing comes after that."""

import asyncio
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


@dataclass
class Fault:
    """A part of the world that does not answer while `down`.

    Args:
        error: makes what its callers see.
        answers_lost: the calls have their effect all the same.
        only: names of the calls that fail; empty: all.
    """

    error: Callable[[], Exception]
    answers_lost: bool = False
    only: frozenset[str] = frozenset()
    down: bool = False
    refused: int = 0

    def link(self, part: Any) -> Any:
        """The part as callers reach it."""
        return _Faulty(part, self)


class _Faulty:
    def __init__(self, part: Any, fault: Fault) -> None:
        self._part = part
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        found, fault = getattr(self._part, name), self._fault
        if not callable(found) or (fault.only and name not in fault.only):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            if not fault.down:
                return await found(*args, **kwargs)
            fault.refused += 1
            if fault.answers_lost:
                await found(*args, **kwargs)
            raise fault.error()

        return call


@dataclass
class Pause:
    """A process that stands still at a failpoint while the world goes on, as one that was stopped or starved.

    Nothing that it does reaches anything until `resume` is set; then it goes on where it was.
    """

    step: str
    when: When
    began: bool = False
    resume: asyncio.Event = field(default_factory=asyncio.Event)

    def failpoint(self, step: str, when: When) -> None:
        """For `Steps`."""
        if (step, when) == (self.step, self.when):
            self.began = True

    def link(self, part: Any) -> Any:
        """A connection of the process."""
        return _Paused(part, self)


class _Paused:
    def __init__(self, part: Any, pause: Pause) -> None:
        self._part = part
        self._pause = pause

    def __getattr__(self, name: str) -> Any:
        found, pause = getattr(self._part, name), self._pause
        if not callable(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            if pause.began:
                await pause.resume.wait()
            # Looked up anew: whether the call may be made is decided when it is made.
            answer = await getattr(self._part, name)(*args, **kwargs)
            if pause.began:
                await pause.resume.wait()
            return answer

        return call
