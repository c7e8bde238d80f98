"""Calls to a service whose help can be missed: bounded, never raising, and spared for a while after a failure."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

R = TypeVar("R")


class Breaker:
    """Guards one service.

    A service that hangs would cost every message its time limit, one call after the other; after a failure it is not
    called for a while, and the answer is the one for "no help".

    Args:
        name: of the service, for the log.
        seconds: the bound of a call.
        rest: seconds without calls after a failure.
    """

    def __init__(self, clock: Clock, name: str, *, seconds: float, rest: float) -> None:
        self._clock = clock
        self._name = name
        self._seconds = seconds
        self._rest = rest
        self._open_until = float("-inf")
        self._failing = False

    async def call(self, make: Callable[[], Awaitable[R]], otherwise: R) -> R:
        """The answer of `make()`, or `otherwise`."""
        if self._clock.monotonic() < self._open_until:
            return otherwise
        try:
            async with asyncio.timeout(self._seconds):
                answer = await make()
        except Exception as exc:
            self._open_until = self._clock.monotonic() + self._rest
            if not self._failing:
                log.warning("going on without a service", service=self._name, error=describe(exc))
            self._failing = True
            return otherwise
        if self._failing:
            log.info("service is back", service=self._name)
        self._failing = False
        return answer
