"""Looking up capacity reservations and placement groups, once a minute for all replicas together."""

import asyncio
from datetime import timedelta

import structlog

from sawhorse_catalog.account import AccountFacts, encode_account
from sawhorse_cloud.cloud import CatalogSource
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.refresh import pause
from sawhorse_pricing.shared import Shared
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

LOOK = timedelta(seconds=2)
FETCH_SECONDS = 60.0
# Old counts of free instances are still a better guess than none; a launch that they mislead is told so by EC2.
KEPT = timedelta(hours=24)


class AccountWatch:
    """Fetches and publishes; every replica follows what is published, as it does with the catalogue.

    A look-up that fails leaves the last facts. It is logged once, until it works again: an account without permission
    for it works all the same, only without reservations and placement groups.
    """

    def __init__(self, source: CatalogSource, *, shared: Shared, interval: timedelta, instruments: Instruments) -> None:
        self._source = source
        self._shared = shared
        self._interval = interval
        self._instruments = instruments
        self._published = b""
        self._failing = False

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop`."""
        while not stop.is_set():
            await self.look()
            await pause(stop, min(LOOK, self._interval).total_seconds())

    async def look(self) -> None:
        """Look up, if it is this replica's turn."""
        try:
            if not await self._shared.take_turn("account", self._interval):
                return
            async with asyncio.timeout(FETCH_SECONDS):
                found = await self._source.fetch_account()
            await self._publish(found)
        except Exception as error:
            self._instruments.account_refreshes.labels("failed").inc()
            level = log.debug if self._failing else log.warning
            level("reservations and placement groups not looked up, keeping the last", error=describe(error))
            self._failing = True
            return
        self._instruments.account_refreshes.labels("done").inc()
        self._failing = False

    async def _publish(self, found: AccountFacts) -> None:
        blob = encode_account(found)
        await self._shared.publish_account(blob, KEPT)
        if blob != self._published:
            self._published = blob
            await self._shared.wake_readers("account-changed")
