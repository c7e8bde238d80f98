"""A message in hand, and what a look at it can lead to."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sawhorse_cloud.cloud import Message
from sawhorse_interruption.messages import Notice
from sawhorse_interruption.policy import Response


class Outcome(StrEnum):
    """How a message was dealt with; then it is acknowledged."""

    ACTED = "acted"
    DUPLICATE = "duplicate"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done about the message yet. `why` is for a log line."""

    why: str


@dataclass(slots=True, eq=False)
class Held:
    """A readable message that leads to something, from its receipt to its acknowledgement.

    Args:
        message: with its newest receipt.
        happened: when what it tells happened; never after it was received.
        received: monotonic seconds of its first receipt here.
        hidden_until: monotonic seconds until which the queue gives it to nobody else.
    """

    message: Message
    notice: Notice
    response: Response
    happened: datetime
    received: float
    hidden_until: float
    attempts: int = 0

    @property
    def key(self) -> str:
        """What a repeat of the same event has in common with it."""
        return self.notice.envelope_id or self.message.id

    @property
    def order(self) -> tuple[int, float]:
        """Sort key: what is most urgent first, then what happened first."""
        return (self.response.urgency, self.happened.timestamp())


Handle = Callable[[Held], Awaitable[Outcome | Wait]]
"""Does what a message asks for. It may be repeated; what it raises means the same as Wait."""
