"""One fetch: complete or not at all, and prices that fail never lose the types."""

import pytest

from sawhorse_catalog.prices import static_prices
from sawhorse_catalog.snapshot import CatalogSnapshot
from sawhorse_cloud.cloud import SpotPrice
from sawhorse_cloud.errors import CloudUnavailableError, ThrottledError
from sawhorse_pricing.fetch import Fetcher
from sawhorse_pricing.instruments import Instruments
from sawhorse_runtime.metrics import Metrics
from sawhorse_testing.catalog import common_facts, common_prices
from sawhorse_testing.catalog_source import FakeCatalogSource


def a_fetcher(
    source: FakeCatalogSource, *, region: str = "us-west-2", ask_prices: bool = True, metrics: Metrics | None = None
) -> Fetcher:
    return Fetcher(source, region=region, ask_prices=ask_prices, instruments=Instruments(metrics or Metrics()))


async def a_snapshot(source: FakeCatalogSource | None = None, *, now: float = 100.0) -> CatalogSnapshot:
    return await a_fetcher(source or FakeCatalogSource()).fetch(None, now)


def fallbacks(metrics: Metrics, prices: str) -> float | None:
    return metrics.registry.get_sample_value("sawhorse_catalog_price_fallbacks_total", {"prices": prices})


async def test_a_fetch_holds_what_the_cloud_lists_and_its_time() -> None:
    snapshot = await a_snapshot(now=100.0)

    assert {f.name for f in snapshot.facts} == {f.name for f in common_facts()}
    assert snapshot.prices.on_demand == common_prices().on_demand
    assert snapshot.prices.spot == common_prices().spot
    assert (snapshot.prices.static, snapshot.prices.spot_share) == (False, None)
    assert (snapshot.fetched_at, snapshot.spot_fetched_at) == (100.0, 100.0)


@pytest.mark.parametrize("method", ["fetch_instance_types", "fetch_zones"])
async def test_without_types_or_zones_there_is_no_catalogue(method: str) -> None:
    source = FakeCatalogSource(errors={method: [ThrottledError("slow down")]})

    with pytest.raises(ExceptionGroup) as caught:
        await a_snapshot(source)

    assert caught.group_contains(ThrottledError)


async def test_without_the_pricing_api_the_shipped_list_serves_and_metric_and_snapshot_say_so() -> None:
    metrics = Metrics()
    source = FakeCatalogSource(errors={"fetch_on_demand_prices": [CloudUnavailableError("no route")]})

    snapshot = await a_fetcher(source, region="us-east-1", metrics=metrics).fetch(None, 1.0)

    assert snapshot.prices.on_demand == static_prices("us-east-1").on_demand
    assert snapshot.prices.static
    assert fallbacks(metrics, "on-demand") == 1


async def test_once_real_prices_were_there_a_failed_call_keeps_them() -> None:
    last = await a_snapshot()
    source = FakeCatalogSource(errors={"fetch_on_demand_prices": [CloudUnavailableError("no route")]})

    snapshot = await a_fetcher(source).fetch(last, 200.0)

    assert snapshot.prices.on_demand == common_prices().on_demand
    assert not snapshot.prices.static


async def test_new_prices_are_merged_over_old_ones() -> None:
    last = await a_snapshot()
    source = FakeCatalogSource(on_demand={"m6i.large": 0.5}, spot=[SpotPrice("m6i.large", "us-west-2a", 0.3)])

    prices = (await a_fetcher(source).fetch(last, 200.0)).prices

    assert prices.on_demand == {**common_prices().on_demand, "m6i.large": 0.5}
    assert prices.spot == {**common_prices().spot, ("m6i.large", "us-west-2a"): 0.3}


async def test_another_regions_list_is_never_mixed_with_real_prices() -> None:
    source = FakeCatalogSource(on_demand={"m6i.large": 0.5})

    prices = (await a_fetcher(source, region="eu-west-1").fetch(None, 1.0)).prices

    assert prices.on_demand == {"m6i.large": 0.5}
    assert (prices.note, prices.static) == ("", False)


async def test_prices_that_make_no_sense_are_left_out() -> None:
    source = FakeCatalogSource(on_demand={"a": float("nan"), "b": 0.0, "c": -1.0, "d": 2.0})

    prices = (await a_fetcher(source, region="eu-west-1").fetch(None, 1.0)).prices

    assert prices.on_demand == {"d": 2.0}


async def test_an_isolated_network_never_calls_the_pricing_api() -> None:
    source = FakeCatalogSource()

    snapshot = await a_fetcher(source, ask_prices=False).fetch(None, 1.0)

    assert "fetch_on_demand_prices" not in source.calls
    assert snapshot.prices.static


async def test_before_the_first_spot_prices_spot_costs_what_on_demand_costs() -> None:
    source = FakeCatalogSource(errors={"fetch_spot_prices": [ThrottledError("slow down")]})

    snapshot = await a_snapshot(source)

    assert snapshot.prices.price("m6i.large", "us-west-2a", spot=True) == 0.096
    assert snapshot.spot_fetched_at == 0.0


async def test_fresh_spot_prices_change_only_themselves() -> None:
    last = await a_snapshot(now=100.0)
    source = FakeCatalogSource(spot=[SpotPrice("m6i.large", "us-west-2a", 0.3)])

    fresh = await a_fetcher(source).fetch_spot(last, 500.0)

    assert fresh is not None
    assert source.calls == ["fetch_spot_prices"]
    assert fresh.prices.price("m6i.large", "us-west-2a", spot=True) == 0.3
    assert (fresh.facts, fresh.fetched_at, fresh.spot_fetched_at) == (last.facts, 100.0, 500.0)


async def test_an_empty_answer_for_spot_prices_counts_as_failed() -> None:
    metrics = Metrics()
    last = await a_snapshot()

    fresh = await a_fetcher(FakeCatalogSource(spot=[]), metrics=metrics).fetch_spot(last, 500.0)

    assert fresh is None
    assert fallbacks(metrics, "spot") == 1
