"""Decides about one message: seen before, foreign, late, or to be acted upon; then has the effects performed."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import structlog
from structlog.contextvars import bound_contextvars

from sawhorse_cloud.cloud import Instance
from sawhorse_interruption.cache import Cache
from sawhorse_interruption.effects import Applied, Doom, Effects
from sawhorse_interruption.held import Held, Outcome, Wait
from sawhorse_interruption.index import ClaimIndex
from sawhorse_interruption.policy import deadline_for, is_late
from sawhorse_interruption.precedence import Precedence
from sawhorse_interruption.steps import Step, Steps
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

DESCRIBE_SECONDS = 5.0

Describe = Callable[[str], Awaitable[Instance | None]]
"""An instance as the cloud has it now; None when it knows none of this id."""


class Handler:
    """Handles messages. A callable of type `held.Handle`.

    Args:
        cache: for marks of messages that were dealt with. They only save work: every effect finds out for itself that
            it is in place.
        describe: see `Describe`; None: a late message is handled as if the instance still ran.
        unknown_after: how old a message must be before an instance that no claim has is foreign. Younger ones may be
            about a machine whose id has not reached its claim yet.
        margin: see `policy.deadline_for`.
    """

    def __init__(
        self,
        effects: Effects,
        index: ClaimIndex,
        cache: Cache,
        clock: Clock,
        precedence: Precedence,
        *,
        unknown_after: timedelta,
        margin: timedelta,
        describe: Describe | None = None,
        steps: Steps | None = None,
    ) -> None:
        self._effects = effects
        self._index = index
        self._clock = clock
        self._unknown_after = unknown_after
        self._margin = margin
        self._cache = cache
        self._precedence = precedence
        self._describe = describe
        self._steps = steps if steps is not None else Steps()

    async def __call__(self, held: Held) -> Outcome | Wait:
        """See `held.Handle`. All instances are tried; one that cannot be handled yet keeps the whole message.

        Raises:
            KubeError: Kubernetes refuses or does not answer.
        """
        if await self._cache.seen(held.key):
            return Outcome.DUPLICATE
        found: list[Outcome] = []
        waits: list[Wait] = []
        failures: list[Exception] = []
        for instance_id in held.notice.instance_ids:
            with bound_contextvars(message_id=held.message.id, instance_id=instance_id):
                try:
                    outcome = await self._one(held, instance_id)
                except Exception as exc:
                    failures.append(exc)
                    continue
            if isinstance(outcome, Wait):
                waits.append(outcome)
            else:
                found.append(outcome)
        if failures:
            raise failures[0]
        if waits:
            return waits[0]
        ranked = (Outcome.ACTED, Outcome.DUPLICATE, Outcome.FOREIGN)
        return min(found, key=ranked.index, default=Outcome.FOREIGN)

    async def _one(self, held: Held, instance_id: str) -> Outcome | Wait:
        with self._steps.at(Step.RECEIVED):
            claim = await self._index.find(instance_id)
        now = self._clock.now()
        if claim is None:
            if now - held.happened < self._unknown_after:
                return Wait("no NodeClaim has this instance yet")
            log.info("message about an instance that no NodeClaim has")
            return Outcome.FOREIGN
        gone = is_late(held.response, held.happened, now) and not await self._still_runs(instance_id)
        doom = Doom(
            kind=held.notice.kind,
            response=held.response,
            instance_id=instance_id,
            happened=held.happened,
            deadline=self._deadline(held, now, gone=gone),
            received=held.received,
            gone=gone,
        )
        with self._precedence.effects():
            applied = await self._effects.apply(claim, doom)
        return Outcome.ACTED if applied is Applied.ACTED else Outcome.DUPLICATE

    def _deadline(self, held: Held, now: datetime, *, gone: bool) -> datetime | None:
        return deadline_for(held.response, held.happened, now, margin=self._margin, alive=not gone)

    async def _still_runs(self, instance_id: str) -> bool:
        """Whether an instance that should be gone still runs; one that cannot be asked about does."""
        if self._describe is None:
            return True
        try:
            async with asyncio.timeout(DESCRIBE_SECONDS):
                instance = await self._describe(instance_id)
        except Exception as exc:
            log.warning("cloud not asked about a late message", error=describe(exc))
            return True
        return instance is not None and not instance.state.is_gone
