"""One fetch from the cloud: types, zones and prices as one snapshot, complete or not at all.

A failed call for prices does not lose the types: the last known prices stay, or the shipped list stands in, with a
warning and a metric. A failed call for types or zones fails the whole.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import structlog

from sawhorse_catalog.facts import InstanceFacts
from sawhorse_catalog.prices import PriceBook, currency_of, static_prices
from sawhorse_catalog.snapshot import CatalogSnapshot, make_snapshot, with_retired
from sawhorse_cloud.cloud import CatalogSource, SpotPrice
from sawhorse_cloud.errors import CloudError
from sawhorse_pricing.instruments import Instruments
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

K = TypeVar("K")


class Fetcher:
    """Fetches from one region.

    Args:
        ask_prices: False where the Pricing API cannot be reached; the shipped list serves.
    """

    def __init__(self, source: CatalogSource, *, region: str, ask_prices: bool, instruments: Instruments) -> None:
        self._source = source
        self._region = region
        self._ask_prices = ask_prices
        self._instruments = instruments

    async def fetch(self, last: CatalogSnapshot | None, now: float) -> CatalogSnapshot:
        """Everything.

        Args:
            last: what was known; prices are merged over it.
            now: unix seconds.
        Raises:
            CloudError: types or zones could not be fetched completely (inside an ExceptionGroup).
        """
        known = last.prices if last is not None else static_prices(self._region)
        async with asyncio.TaskGroup() as group:
            types = group.create_task(self._source.fetch_instance_types(), name="fetch-types")
            zones = group.create_task(self._source.fetch_zones(), name="fetch-zones")
            on_demand = group.create_task(self._on_demand(known), name="fetch-on-demand-prices")
            spot = group.create_task(self._spot(), name="fetch-spot-prices")
        prices = _with_spot(on_demand.result(), spot.result())
        never = last.spot_fetched_at if last is not None else 0.0
        listed = with_retired(types.result(), last)
        return self._snapshot(listed, zones.result(), prices, now, now if spot.result() else never)

    async def fetch_spot(self, last: CatalogSnapshot, now: float) -> CatalogSnapshot | None:
        """The last snapshot with fresh spot prices; None when they could not be fetched."""
        spot = await self._spot()
        if not spot:
            return None
        return self._snapshot(last.facts, last.zones, _with_spot(last.prices, spot), last.fetched_at, now)

    def _snapshot(
        self,
        facts: Sequence[InstanceFacts],
        zones: Mapping[str, str],
        prices: PriceBook,
        fetched_at: float,
        spot_fetched_at: float,
    ) -> CatalogSnapshot:
        return make_snapshot(
            facts, zones, prices, region=self._region, fetched_at=fetched_at, spot_fetched_at=spot_fetched_at
        )

    async def _on_demand(self, known: PriceBook) -> PriceBook:
        if not self._ask_prices:
            return known
        try:
            found = _sane(await self._source.fetch_on_demand_prices())
        except CloudError as error:
            return self._keep(known, describe(error))
        if not found:
            return self._keep(known, "the answer holds no price")
        # Another region's list is a stand-in for all or nothing: never mixed with real prices.
        base = {} if known.static and known.note else known.on_demand
        return replace(known, on_demand={**base, **found}, currency=currency_of(self._region), static=False, note="")

    def _keep(self, known: PriceBook, why: str) -> PriceBook:
        self._instruments.price_fallbacks.labels("on-demand").inc()
        log.warning(
            "on-demand prices not fetched, keeping others",
            error=why,
            static_prices=known.static,
            note=known.note,
            prices=len(known.on_demand),
        )
        return known

    async def _spot(self) -> Mapping[tuple[str, str], float]:
        """Empty when they could not be fetched."""
        try:
            listed: Sequence[SpotPrice] = await self._source.fetch_spot_prices()
        except CloudError as error:
            why = describe(error)
        else:
            found = _sane({(s.instance_type, s.zone): s.price for s in listed})
            if found:
                return found
            why = "the answer holds no price"
        self._instruments.price_fallbacks.labels("spot").inc()
        log.warning("spot prices not fetched, keeping the last", error=why)
        return {}


def _with_spot(prices: PriceBook, spot: Mapping[tuple[str, str], float]) -> PriceBook:
    if not spot:
        return prices
    # From now on a zone without a price has none: no share of the on-demand price is assumed any more.
    return replace(prices, spot={**prices.spot, **spot}, spot_share=None)


def _sane(prices: Mapping[K, float]) -> dict[K, float]:
    return {key: price for key, price in prices.items() if math.isfinite(price) and price > 0}
