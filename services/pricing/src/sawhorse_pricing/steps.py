"""The named steps of pricing, with a failpoint before and after each for the crash tests.

They are marked where pricing meets others, so that the code between knows nothing of them.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, cast

from sawhorse_pricing.fetch import Fetcher
from sawhorse_pricing.shared import Report, Shared
from sawhorse_runtime.failpoints import Steps


class Step(StrEnum):
    """In their order."""

    FETCHED = "fetched"  # the cloud told all types and prices, or all spot prices
    PUBLISHED = "published"  # the catalogue is whole in Redis, and current
    WOKEN = "woken"  # its readers know
    MARKED = "marked"  # offerings out of capacity are noted


class _Marked:
    """A part of the service whose calls are steps; all that is no step passes through."""

    def __init__(self, part: Any, steps: Steps) -> None:
        self._part = part
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


class _MarkedShared(_Marked):
    async def publish(self, name: str, blob: bytes) -> None:
        with self._steps.at(Step.PUBLISHED):
            await self._part.publish(name, blob)

    async def wake_readers(self, why: str) -> None:
        with self._steps.at(Step.WOKEN):
            await self._part.wake_readers(why)

    async def mark(self, reports: Sequence[Report]) -> None:
        with self._steps.at(Step.MARKED):
            await self._part.mark(reports)


class _MarkedFetcher(_Marked):
    async def fetch(self, *asked: Any) -> Any:
        with self._steps.at(Step.FETCHED):
            return await self._part.fetch(*asked)

    async def fetch_spot(self, *asked: Any) -> Any:
        with self._steps.at(Step.FETCHED):
            return await self._part.fetch_spot(*asked)


def mark_shared(shared: Shared, steps: Steps) -> Shared:
    """`shared` with its steps marked."""
    return cast(Shared, _MarkedShared(shared, steps))


def mark_fetcher(fetcher: Fetcher, steps: Steps) -> Fetcher:
    """`fetcher` with its steps marked."""
    return cast(Fetcher, _MarkedFetcher(fetcher, steps))
