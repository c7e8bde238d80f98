"""The consumer: receives from the queue, hands messages to the handler in order of urgency, keeps what has to wait.

Receivers stop while the handlers are busy, so that a message waits in the queue, where any replica can have it. What
cannot be acted on yet is parked beside the handlers: it is tried again with growing pauses, hidden from the others in
the queue, and takes no handler's place meanwhile.
"""

import asyncio
import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import structlog
from structlog.contextvars import bound_contextvars

from sawhorse_cloud.cloud import Message, Queue
from sawhorse_interruption.acks import Acks, Burials
from sawhorse_interruption.held import Handle, Held, Outcome, Wait
from sawhorse_interruption.instruments import Instruments
from sawhorse_interruption.messages import Malformed, parse
from sawhorse_interruption.policy import happened_at, respond
from sawhorse_interruption.steps import Step, Steps
from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import as_failure, describe

log = structlog.get_logger(__name__)

BATCH = 10  # SQS gives no more
HANDLE_SECONDS = 60.0
EXTEND_SECONDS = 10.0
EXTENDERS = 16
HAND_BACK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one consumer.

    Args:
        handlers: messages acted upon at the same time.
        parked: messages that wait here; more are left to the queue.
        visibility: how long the queue hides a message, again and again while it is in hand.
        wait: how long a receive waits.
        retention: how long the queue keeps a message; after that there is nothing left to hold.
        receive_timeout: a receive that takes longer, its wait aside, has failed.
    """

    receivers: int = 4
    handlers: int = 64
    parked: int = 1000
    visibility: timedelta = timedelta(seconds=30)
    wait: timedelta = timedelta(seconds=20)
    retention: timedelta = timedelta(seconds=900)
    receive_timeout: timedelta = timedelta(seconds=15)
    first_pause: timedelta = timedelta(milliseconds=500)
    longest_pause: timedelta = timedelta(seconds=5)


class Consumer:
    """One consumer over one connection to the queue; `run` may be called once."""

    def __init__(
        self,
        queue: Queue,
        handle: Handle,
        acks: Acks,
        burials: Burials,
        clock: Clock,
        instruments: Instruments,
        *,
        limits: Limits | None = None,
        steps: Steps | None = None,
    ) -> None:
        self._queue = queue
        self._steps = steps if steps is not None else Steps()
        self._handle = handle
        self._acks = acks
        self._burials = burials
        self._clock = clock
        self._instruments = instruments
        self._limits = limits if limits is not None else Limits()
        self._backoff = Backoff(self._limits.first_pause, maximum=self._limits.longest_pause)
        self._held: dict[str, Held] = {}  # by message id: everything in hand
        self._ready: list[tuple[tuple[int, float], int, Held]] = []  # a heap
        self._parked: dict[str, asyncio.TimerHandle] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._asked = 0  # messages that receivers have room reserved for
        self._numbers = itertools.count()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._stopping = False

    @property
    def handling(self) -> int:
        """Messages with a handler, or about to have one."""
        return len(self._running) + len(self._ready)

    @property
    def parked(self) -> int:
        """Messages that wait until they can be acted upon."""
        return len(self._parked)

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop`, then finish what handlers have begun, hand back the rest, and return.

        Cancel it to bound that: then what is unfinished comes back when its visibility ends.
        """
        async with asyncio.TaskGroup() as group:
            acker = group.create_task(self._acks.run(), name="acks")
            burier = group.create_task(self._burials.run(), name="burials")
            keeper = group.create_task(self._keep(), name="extend-visibility")
            dispatcher = group.create_task(self._dispatch(group), name="dispatch")
            with self._steps.at(Step.START):
                receivers = [
                    group.create_task(self._receive(), name=f"receive-{number}")
                    for number in range(self._limits.receivers)
                ]
            await stop.wait()
            self._steps.before(Step.HAND_OVER)
            self._stopping = True
            for task in (*receivers, dispatcher):
                # An empty long poll is given up. Were a message on its way, its visibility would bring it back.
                task.cancel()
            await asyncio.wait([*receivers, dispatcher])
            await self._hand_back([held for held in self._held.values() if held.message.id not in self._running])
            if self._running:
                await asyncio.wait(list(self._running.values()))
            keeper.cancel()
            await self._acks.close()
            await self._burials.close()
            await asyncio.wait([acker, burier])
        self._steps.after(Step.HAND_OVER)

    async def _receive(self) -> None:
        failures = Backoff(0.5, maximum=20.0)
        limit = (self._limits.wait + self._limits.receive_timeout).total_seconds()
        while True:
            most = await self._reserve()
            try:
                async with asyncio.timeout(limit):
                    messages = await self._queue.receive(
                        most=most,
                        wait_seconds=int(self._limits.wait.total_seconds()),
                        visibility_seconds=int(self._limits.visibility.total_seconds()),
                    )
            except Exception as exc:
                pause = failures.next("receive")
                log.warning("queue not readable", error=describe(exc), retry_seconds=round(pause, 1))
                messages = ()
            else:
                pause = 0.0
                failures.reset("receive")
            finally:
                self._asked -= most
                self._room.set()
            for message in messages:
                await self._take(message)
            if pause:
                await self._clock.sleep(pause)

    async def _reserve(self) -> int:
        """Wait for free handlers; how many messages may be received, 1 to 10."""
        while (free := self._limits.handlers - self.handling - self._asked) <= 0:
            self._room.clear()
            await self._room.wait()
        most = min(BATCH, free)
        self._asked += most
        return most

    async def _take(self, message: Message) -> None:
        """Sort a message that has just been received."""
        known = self._held.get(message.id)
        if known is not None:
            # Its visibility ended before it was extended. Only the new receipt can delete it.
            known.message = message
            known.hidden_until = self._clock.monotonic() + self._limits.visibility.total_seconds()
            return
        read = parse(message.body)
        if isinstance(read, Malformed):
            self._burials.add(message, read)
            return
        now = self._clock.now()
        self._instruments.received(read.kind)
        happened = happened_at(read, now)
        self._instruments.age.observe(max(0.0, (now - happened).total_seconds()))
        response = respond(read)
        if not response.acts:
            await self._acks.add(message)
            return
        held = Held(
            message=message,
            notice=read,
            response=response,
            happened=happened,
            received=self._clock.monotonic(),
            hidden_until=self._clock.monotonic() + self._limits.visibility.total_seconds(),
        )
        self._held[message.id] = held
        self._queue_up(held)

    def _queue_up(self, held: Held) -> None:
        heapq.heappush(self._ready, (held.order, next(self._numbers), held))
        self._measure()
        self._changed.set()

    async def _dispatch(self, group: asyncio.TaskGroup) -> None:
        while True:
            self._changed.clear()
            while self._ready and len(self._running) < self._limits.handlers:
                _, _, held = heapq.heappop(self._ready)
                task = group.create_task(self._work(held), name=f"handle:{held.message.id}")
                self._running[held.message.id] = task
            await self._changed.wait()

    async def _work(self, held: Held) -> None:
        try:
            with bound_contextvars(message_id=held.message.id):
                outcome = await self._handled(held)
                if isinstance(outcome, Wait):
                    await self._park(held, outcome)
                else:
                    await self._finish(held, outcome)
        finally:
            self._running.pop(held.message.id, None)
            self._measure()
            self._changed.set()
            self._room.set()

    async def _handled(self, held: Held) -> Outcome | Wait:
        try:
            async with asyncio.timeout(HANDLE_SECONDS):
                return await self._handle(held)
        except Exception as exc:
            # Ours explain themselves; the place in the code matters for the others only.
            unexpected = exc if as_failure(exc) is None and not isinstance(exc, TimeoutError) else None
            emit = log.warning if held.attempts == 0 else log.debug
            emit("message not handled, trying again", error=describe(exc), exc_info=unexpected)
            return Wait(describe(exc))

    async def _finish(self, held: Held, outcome: Outcome) -> None:
        match outcome:
            case Outcome.ACTED:
                self._instruments.acted(held.notice.kind)
            case Outcome.DUPLICATE:
                self._instruments.duplicate()
            case Outcome.FOREIGN:
                self._instruments.foreign()
        self._instruments.queue_duration.observe(max(0.0, (self._clock.now() - held.happened).total_seconds()))
        self._forget(held)
        await self._acks.add(held.message, key=held.key if outcome is not Outcome.FOREIGN else "")

    async def _park(self, held: Held, wait: Wait) -> None:
        """Keep a message for another try, or give it to the queue when there is no room or we are stopping."""
        held.attempts += 1
        pause = self._backoff.next(held.message.id)
        if self._clock.monotonic() - held.received > self._limits.retention.total_seconds():
            log.error("message let go unhandled, its retention has passed", why=wait.why, attempts=held.attempts)
            self._instruments.expired()
            self._forget(held)
        elif self._stopping:
            await self._hand_back([held])
        elif (left := self._least_urgent(held)) is not None:
            log.warning("too many messages wait, one left to the queue", left=left.message.id, why=wait.why)
            # Hidden for long: a message that is received too often ends in the dead-letter queue.
            await self._hand_back([left], seconds=int(self._limits.visibility.total_seconds()))
            if left is not held:
                self._park_for(held, pause)
        else:
            log.debug("message parked", why=wait.why, retry_seconds=round(pause, 1))
            self._park_for(held, pause)

    def _least_urgent(self, held: Held) -> Held | None:
        """Of the parked messages and this one the last in order, when there is no room for all; else None."""
        if len(self._parked) < self._limits.parked:
            return None
        return max((*(self._held[id] for id in self._parked), held), key=lambda each: each.order)

    def _park_for(self, held: Held, pause: float) -> None:
        loop = asyncio.get_running_loop()
        self._parked[held.message.id] = loop.call_later(pause, self._unpark, held)

    def _unpark(self, held: Held) -> None:
        if self._parked.pop(held.message.id, None) is not None and not self._stopping:
            self._queue_up(held)

    async def _keep(self) -> None:
        """Keep what is in hand hidden in the queue, so that a wait here never counts as another receive."""
        visibility = self._limits.visibility.total_seconds()
        while True:
            await self._clock.sleep(visibility / 6)
            now = self._clock.monotonic()
            due = [held for held in self._held.values() if held.hidden_until - now < visibility / 2]
            await self._extend(due, visibility)
            self._measure()

    async def _extend(self, due: Iterable[Held], seconds: float) -> None:
        slots = asyncio.Semaphore(EXTENDERS)

        async def extend(held: Held) -> None:
            async with slots:
                until = self._clock.monotonic() + seconds
                try:
                    async with asyncio.timeout(EXTEND_SECONDS):
                        await self._queue.extend(held.message, int(seconds))
                except Exception as exc:
                    log.debug("visibility not changed", message_id=held.message.id, error=describe(exc))
                else:
                    held.hidden_until = until

        async with asyncio.TaskGroup() as group:
            for held in due:
                group.create_task(extend(held), name=f"extend:{held.message.id}")

    async def _hand_back(self, unfinished: Iterable[Held], seconds: int = 0) -> None:
        """Give messages back to the queue, for any replica, after `seconds`."""
        given = list(unfinished)
        for held in given:
            self._forget(held)
        try:
            async with asyncio.timeout(HAND_BACK_SECONDS):
                await self._extend(given, seconds)
        except TimeoutError:
            log.warning("messages not handed back, they come back by themselves", count=len(given))

    def _forget(self, held: Held) -> None:
        self._held.pop(held.message.id, None)
        self._backoff.reset(held.message.id)
        timer = self._parked.pop(held.message.id, None)
        if timer is not None:
            timer.cancel()

    def _measure(self) -> None:
        self._instruments.handling.set(self.handling)
        self._instruments.parked.set(self.parked)
        oldest = min((held.received for held in self._held.values()), default=None)
        self._instruments.oldest.set(0.0 if oldest is None else self._clock.monotonic() - oldest)
