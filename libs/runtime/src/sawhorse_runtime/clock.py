"""The clock: the one place that reads wall time, so that everything else can be given a time instead."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time as the shell sees it. Pure code takes `now` as an argument instead."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC. It may jump: for comparing with timestamps of Kubernetes and AWS."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment. It never goes back: for measuring how long something took."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that long; zero and less only yield to other tasks."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251  this is the Clock that the ban points to

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
