"""A queue in memory that keeps the contract of `sawhorse_cloud.cloud.Queue`: at least once, visibility, dead letters.

Time is the loop's, so it works under a virtual clock. `connect` gives one consumer's handle; severing it is what a
crash of that consumer looks like from the queue: nothing more arrives from it, and what it held comes back in time.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sawhorse_cloud.cloud import Message
from sawhorse_cloud.errors import CloudError, CloudUnavailableError

MOST_PER_CALL = 10


@dataclass(slots=True)
class _Entry:
    id: str
    body: str
    sent: datetime
    visible_at: float = 0.0  # loop time
    receives: int = 0
    receipt: str = ""


@dataclass(frozen=True, slots=True)
class Buried:
    """A message in the dead-letter queue."""

    id: str
    body: str
    why: str


@dataclass
class FakeQueue:
    """The queue itself, for the test: what is in it, what came of it, and what fails.

    Args:
        origin: the wall-clock moment of loop time 0, for `Message.sent`.
        answers_after: seconds that each call takes.
    """

    origin: datetime = field(default_factory=lambda: datetime(2026, 11, 29, 10, 15, 30, tzinfo=UTC))
    answers_after: float = 0.0
    deleted: list[str] = field(default_factory=list)  # message ids, in order
    buried: list[Buried] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    refusing: dict[str, CloudError] = field(default_factory=dict)  # by method: every call fails with this
    keeping: set[str] = field(default_factory=set)  # ids whose deletion is answered with "not deleted"

    def __post_init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._numbers = itertools.count(1)
        self._arrived = asyncio.Event()

    def connect(self) -> "QueueHandle":
        """A consumer's connection."""
        return QueueHandle(self)

    def put(self, body: str, *, id: str = "") -> str:
        """Put a message on the queue; returns its id."""
        entry = _Entry(id or f"m{next(self._numbers)}", body, self.origin + timedelta(seconds=_now()))
        self._entries[entry.id] = entry
        self._wake()
        return entry.id

    @property
    def waiting(self) -> list[str]:
        """Ids that a receive would give now."""
        return [e.id for e in self._entries.values() if e.visible_at <= _now()]

    @property
    def in_flight(self) -> list[str]:
        """Ids that a consumer holds."""
        return [e.id for e in self._entries.values() if e.visible_at > _now()]

    def receives(self, id: str) -> int:
        """How often a message that is still there has been received."""
        return self._entries[id].receives

    async def take(self, most: int, wait: float, visibility: float) -> list[Message]:
        """As ReceiveMessage with long polling."""
        until = _now() + wait
        while not (found := self._visible(most)):
            changes = [e.visible_at for e in self._entries.values()]
            pause = min([until, *changes]) - _now()
            if until - _now() <= 0:
                return []
            self._arrived.clear()
            try:
                async with asyncio.timeout(max(pause, 0.001)):
                    await self._arrived.wait()
            except TimeoutError:
                continue
        return [self._hand_out(entry, visibility) for entry in found]

    def remove(self, message: Message) -> bool:
        """As one entry of DeleteMessageBatch: an old receipt deletes nothing, an unknown message is no error."""
        entry = self._entries.get(message.id)
        if message.id in self.keeping or (entry is not None and entry.receipt != message.receipt):
            return False
        if entry is not None:
            del self._entries[message.id]
            self.deleted.append(message.id)
        return True

    def show_after(self, message: Message, seconds: float) -> None:
        """As ChangeMessageVisibility."""
        entry = self._entries.get(message.id)
        if entry is None or entry.receipt != message.receipt:
            raise CloudError("ChangeMessageVisibility: the receipt is not valid", reason="ReceiptHandleIsInvalid")
        entry.visible_at = _now() + seconds
        self._wake()

    def _visible(self, most: int) -> list[_Entry]:
        return [e for e in self._entries.values() if e.visible_at <= _now()][:most]

    def _hand_out(self, entry: _Entry, visibility: float) -> Message:
        entry.receives += 1
        entry.receipt = f"{entry.id}-{entry.receives}"
        entry.visible_at = _now() + visibility
        return Message(entry.id, entry.receipt, entry.body, entry.sent, entry.receives)

    def _wake(self) -> None:
        self._arrived.set()


class QueueHandle:
    """One consumer's `Queue`."""

    def __init__(self, queue: FakeQueue) -> None:
        self._queue = queue
        self._severed = False

    def sever(self) -> None:
        """The consumer has crashed: every later call fails, and nothing that it does reaches the queue."""
        self._severed = True

    async def receive(
        self, *, most: int = 10, wait_seconds: int = 20, visibility_seconds: int = 30
    ) -> Sequence[Message]:
        """Long-poll for messages."""
        await self._call("receive")
        if not 1 <= most <= MOST_PER_CALL:
            raise CloudError(f"ReceiveMessage: between 1 and 10 messages may be asked for, not {most}")
        return await self._queue.take(most, wait_seconds, visibility_seconds)

    async def delete(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Acknowledge up to 10; returns those that were not deleted."""
        await self._call("delete")
        if len(messages) > MOST_PER_CALL:
            raise CloudError(f"DeleteMessageBatch: at most 10 messages a call, not {len(messages)}")
        return [m for m in messages if not self._queue.remove(m)]

    async def extend(self, message: Message, visibility_seconds: int) -> None:
        """Keep (or with 0 hand back) a message."""
        await self._call("extend")
        self._queue.show_after(message, visibility_seconds)

    async def bury(self, message: Message, why: str) -> None:
        """Move a message to the dead letters."""
        await self._call("bury")
        self._queue.buried.append(Buried(message.id, message.body, why))
        self._queue.remove(message)

    async def send(self, body: str) -> str:
        """Put a message on the queue; returns its id."""
        await self._call("send")
        return self._queue.put(body)

    async def _call(self, method: str) -> None:
        if self._severed:
            raise CloudUnavailableError(f"{method}: this connection is severed")
        self._queue.calls[method] += 1
        if self._queue.answers_after:
            await asyncio.sleep(self._queue.answers_after)
        if method in self._queue.refusing:
            raise self._queue.refusing[method]


def _now() -> float:
    return asyncio.get_running_loop().time()
