"""The tree of errors that loops and servers treat alike, and `describe`, the one line a person reads.

    SawhorseError            something of ours went wrong; says reason, retry, action
    ├── SettingsError        the settings make no sense: every problem at once
    ├── InvalidRequestError  a caller asked for something that makes no sense
    ├── UnavailableError     a service or server could not be reached
    ├── RemoteError          a service was reached and refused or failed
    └── QueueFullError       a bounded queue is full

`sawhorse_cloud` and `sawhorse_kube` have trees of their own, since they do not import this package. `Failure` states
what all of them share; `as_failure` finds it by shape, so one loop treats them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

_LONGEST_LINE = 600  # characters: fits an Event message (1,024) and a gRPC status with room for what wraps it


class Retry(StrEnum):
    """What the loop that caught an error does next."""

    NEVER = "never"  # repeating changes nothing until somebody changes something
    BACKOFF = "backoff"  # the same again, later
    ELSEWHERE = "elsewhere"  # not this again: try another offering, zone or replica


@runtime_checkable
class Failure(Protocol):
    """What an error says to the loop that handles it, whichever package it comes from."""

    @property
    def reason(self) -> str:
        """A stable CamelCase word: Event reason, condition reason, metric label."""

    @property
    def retry(self) -> str:
        """One of the words of `Retry`; each package has an equal enum of its own."""

    @property
    def action(self) -> str:
        """What a person can do about it, one sentence; empty when nothing."""


class SawhorseError(Exception):
    """The base of our errors. `action` says in one sentence what a person can do, or is empty."""

    reason: str = "Error"
    retry: Retry = Retry.BACKOFF

    def __init__(self, message: str, *, action: str = "") -> None:
        super().__init__(message)
        self.action = action


class SettingsError(SawhorseError):
    """The settings make no sense. `problems` has one line each: where, what, what to do."""

    reason = "InvalidSettings"
    retry = Retry.NEVER

    def __init__(self, problems: str | Sequence[str], *, action: str = "") -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("; ".join(self.problems), action=action)


class InvalidRequestError(SawhorseError):
    """A caller asked for something that makes no sense; the same request will never work."""

    reason = "InvalidRequest"
    retry = Retry.NEVER


class UnavailableError(SawhorseError):
    """A service or server could not be reached, or did not answer in time."""

    reason = "Unavailable"
    retry = Retry.BACKOFF


class RemoteError(SawhorseError):
    """A service was reached and answered with an error.

    `code` is the name of the gRPC status (e.g. "NOT_FOUND"); `reason`, `retry` and `action` are those the
    service sent, where it sent them.
    """

    reason = "RemoteError"

    def __init__(self, message: str, *, code: str, reason: str = "", retry: Retry, action: str = "") -> None:
        super().__init__(message, action=action)
        self.code = code
        self.retry = retry
        if reason:
            self.reason = reason


class QueueFullError(SawhorseError):
    """A bounded queue holds as many keys as it may."""

    reason = "QueueFull"
    retry = Retry.BACKOFF


def as_failure(exc: BaseException) -> Failure | None:
    """`exc` as a `Failure` when it has the shape of one and its retry word is known, else None."""
    # The word is checked too: urllib3 and others have attributes of these names with other meanings.
    if isinstance(exc, Failure) and isinstance(exc.reason, str) and exc.retry in set(Retry):
        return exc
    return None


def retry_of(exc: BaseException) -> Retry:
    """What to do next about `exc`. An error that does not say is worth another try, later."""
    failure = as_failure(exc)
    return Retry(failure.retry) if failure else Retry.BACKOFF


def reason_of(exc: BaseException) -> str:
    """The stable word for `exc`; "InternalError" for errors outside our trees, so that labels stay a closed set."""
    failure = as_failure(exc)
    return failure.reason if failure else "InternalError"


def describe(exc: BaseException) -> str:
    """One line for a log, an Event or a gRPC status: what went wrong and what to do, groups flattened, bounded."""
    return one_line(", and ".join(dict.fromkeys(_describe_one(leaf) for leaf in leaves(exc))))


def leaves(exc: BaseException) -> Iterator[BaseException]:
    """The errors inside a group, depth first; of a plain error, itself."""
    if isinstance(exc, BaseExceptionGroup):
        for inner in exc.exceptions:
            yield from leaves(inner)
    else:
        yield exc


def one_line(text: str) -> str:
    """`text` with its white space folded, cut at a length that fits an Event or a status."""
    folded = " ".join(text.split())
    return folded if len(folded) <= _LONGEST_LINE else folded[: _LONGEST_LINE - 1] + "…"


def _describe_one(exc: BaseException) -> str:
    message = str(exc).strip()
    failure = as_failure(exc)
    if failure is None:
        # A bare KeyError says only "'x'": the class name is what makes it readable.
        name = type(exc).__name__
        return f"{name}: {message}" if message else name
    if not message:
        message = failure.reason
    return f"{message.rstrip('.')}. {failure.action}" if failure.action else message
