"""Acknowledging: deletions in batches, and the burial of messages that cannot be read.

A message that could not be deleted comes back and is found to be a repeat; one that could not be buried comes back and
is buried then. So both give up after some tries, and neither holds up anything else.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from sawhorse_cloud.cloud import Message, Queue
from sawhorse_interruption.cache import Cache
from sawhorse_interruption.instruments import Instruments
from sawhorse_interruption.messages import Malformed
from sawhorse_interruption.steps import Step, Steps
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

BATCH = 10  # SQS allows no more
BATCH_SECONDS = 0.2
DELETERS = 4
BURIERS = 4
WAITING_ACKS = 1000
WAITING_BURIALS = 256
TRIES = 4
PAUSE_SECONDS = 0.5
CALL_SECONDS = 10.0
REMEMBERED = 10_000
SHOWN = 200  # characters of a bad body in the log


@dataclass(frozen=True, slots=True)
class _Ack:
    message: Message
    key: str  # to remember once it is deleted; empty: nothing


class Acks:
    """Deletes messages, up to 10 at a time, none later than 200 ms after it was given (calls aside)."""

    def __init__(
        self,
        queue: Queue,
        cache: Cache,
        clock: Clock,
        instruments: Instruments,
        *,
        steps: Steps | None = None,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._instruments = instruments
        self._cache = cache
        self._steps = steps if steps is not None else Steps()
        self._waiting: asyncio.Queue[_Ack | None] = asyncio.Queue(WAITING_ACKS)

    async def add(self, message: Message, *, key: str = "") -> None:
        """Delete a message soon; waits while very many wait already.

        Args:
            key: what to remember once it is deleted, so that a repeat costs nothing; empty for nothing.
        """
        await self._waiting.put(_Ack(message, key))

    async def run(self) -> None:
        """Delete until `close`, and then what is left."""
        async with asyncio.TaskGroup() as group:
            for number in range(DELETERS):
                group.create_task(self._work(), name=f"delete-messages-{number}")

    async def close(self) -> None:
        """No more messages will be added; `run` returns when all are deleted."""
        for _ in range(DELETERS):
            await self._waiting.put(None)

    async def _work(self) -> None:
        closing = False
        while not closing:
            first = await self._waiting.get()
            if first is None:
                return
            batch = [first]
            try:
                async with asyncio.timeout(BATCH_SECONDS):
                    while len(batch) < BATCH and not closing:
                        more = await self._waiting.get()
                        closing = more is None
                        if more is not None:
                            batch.append(more)
            except TimeoutError:
                pass
            await self._delete(batch)

    async def _delete(self, batch: Sequence[_Ack]) -> None:
        with self._steps.at(Step.ACKED):
            left = list(batch)
            for attempt in range(TRIES):
                kept = await self._try([a.message for a in left])
                deleted = [a for a in left if a.message not in kept]
                left = [a for a in left if a.message in kept]
                self._instruments.deleted(len(deleted))
                for key in dict.fromkeys(a.key for a in deleted if a.key):
                    await self._cache.remember(key)
                if not left:
                    return
                await self._clock.sleep(PAUSE_SECONDS * 2**attempt)
            log.warning("messages not deleted, they will come again", count=len(left))

    async def _try(self, messages: Sequence[Message]) -> Sequence[Message]:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._queue.delete(messages)
        except Exception as exc:
            log.warning("messages not deleted, trying again", count=len(messages), error=describe(exc))
            return messages


class Burials:
    """Moves messages that cannot be read to the dead-letter queue, beside the good ones and never before them."""

    def __init__(self, queue: Queue, clock: Clock, instruments: Instruments) -> None:
        self._queue = queue
        self._clock = clock
        self._instruments = instruments
        self._waiting: asyncio.Queue[tuple[Message, Malformed] | None] = asyncio.Queue(WAITING_BURIALS)
        self._told: OrderedDict[str, None] = OrderedDict()

    def add(self, message: Message, malformed: Malformed) -> None:
        """Count, log once and bury a message; when very many wait it is left to come again."""
        if message.id not in self._told:
            self._told[message.id] = None
            while len(self._told) > REMEMBERED:
                self._told.popitem(last=False)
            self._instruments.malformed(malformed.why)
            log.warning(
                "message cannot be read, moved to the dead-letter queue",
                message_id=message.id,
                reason=malformed.why.value,
                detail=malformed.detail[:SHOWN],
                body=message.body[:SHOWN],
                length=len(message.body),
            )
        try:
            self._waiting.put_nowait((message, malformed))
        except asyncio.QueueFull:
            log.debug("too many unreadable messages, left for later", message_id=message.id)

    async def run(self) -> None:
        """Bury until `close`, and then what is left."""
        async with asyncio.TaskGroup() as group:
            for number in range(BURIERS):
                group.create_task(self._work(), name=f"bury-messages-{number}")

    async def close(self) -> None:
        """No more messages will be added; `run` returns when all are buried."""
        for _ in range(BURIERS):
            await self._waiting.put(None)

    async def _work(self) -> None:
        while (item := await self._waiting.get()) is not None:
            message, malformed = item
            for attempt in range(TRIES):
                try:
                    async with asyncio.timeout(CALL_SECONDS):
                        await self._queue.bury(message, f"{malformed.why}: {malformed.detail}")
                except Exception as exc:
                    log.warning("message not buried", message_id=message.id, error=describe(exc))
                    await self._clock.sleep(PAUSE_SECONDS * 2**attempt)
                else:
                    self._instruments.buried()
                    break
