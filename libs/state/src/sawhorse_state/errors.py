"""What can go wrong with Redis, in our words.

StateError
├── StateUnavailableError  no answer, or Redis refuses: the cache is out of reach for now
├── DeposedError           another writer with a later epoch owns the mirror
├── FlushedError           the mirror's epoch vanished: Redis was flushed, write everything again
└── StateFormatError       a value is not what this version writes
"""

from enum import StrEnum


class Retry(StrEnum):
    """What a loop does next. Same words as sawhorse_runtime.errors.Retry."""

    NEVER = "never"
    BACKOFF = "backoff"
    ELSEWHERE = "elsewhere"


class StateError(Exception):
    """Base of all. `action` tells a person what helps; empty when waiting does."""

    reason = "StateError"
    retry = Retry.BACKOFF

    def __init__(self, message: str, *, action: str = "") -> None:
        super().__init__(message)
        self.action = action


class StateUnavailableError(StateError):
    """Redis could not be reached, did not answer in time, or refused."""

    reason = "StateUnavailable"


class DeposedError(StateError):
    """A later leader owns the mirror: stop writing. `epoch` is its epoch."""

    reason = "Deposed"
    retry = Retry.NEVER

    def __init__(self, message: str, *, epoch: int) -> None:
        super().__init__(message)
        self.epoch = epoch


class FlushedError(StateError):
    """The mirror's epoch is gone: Redis was flushed or replaced. Begin again with full lists."""

    reason = "Flushed"


class StateFormatError(StateError):
    """A stored value cannot be read: another version wrote it."""

    reason = "StateFormat"
