"""On-demand, spot and Pricing-service prices of the sandbox."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawhorse_sandbox.aws.prices import PriceTable, products_page, read_price_table, spot_share
from sawhorse_sandbox.aws.state import State

TABLE = PriceTable(
    {
        "us-east-1": {"m5.large": 0.096, "c5.large": 0.085, "m5.metal": 4.608},
        "cn-north-1": {"m5.large": 0.7},
    }
)


def products(table: PriceTable = TABLE, state: State | None = None, **request: Any) -> dict[str, Any]:
    return products_page(table, state or State(), request, "us-east-1")


def names(answer: dict[str, Any]) -> list[str]:
    return [json.loads(text)["product"]["attributes"]["instanceType"] for text in answer["PriceList"]]


def term(field: str, value: str) -> dict[str, str]:
    return {"Type": "TERM_MATCH", "Field": field, "Value": value}


def test_the_shipped_table_has_prices_for_hundreds_of_types() -> None:
    prices = read_price_table().region("us-east-1")

    assert len(prices) > 700
    assert all(price > 0 for price in prices.values())


def test_a_region_that_the_table_lacks_has_the_prices_of_us_east_1() -> None:
    assert TABLE.on_demand("m5.large", "eu-west-1", State()) == 0.096


def test_a_type_without_an_on_demand_price_has_no_spot_price() -> None:
    assert TABLE.spot("zz9.large", "us-east-1a", "us-east-1", State()) is None


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_spot_share_is_between_a_quarter_and_three_fifths(instance_type: str, zone: str) -> None:
    share = spot_share(instance_type, zone)

    assert 0.25 <= share <= 0.60


def test_a_spot_share_is_the_same_in_every_process_and_differs_between_zones() -> None:
    shares = [round(spot_share("m5.large", zone), 6) for zone in ("us-east-1a", "us-east-1b")]

    assert shares == [0.467043, 0.282111]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"m5.large": 0.03}, 0.03),
        ({"m5.large": 0.03, "m5.large/us-east-1a": 0.02}, 0.02),
        ({"m5.large/us-east-1b": 0.02, "m5.large": 0.05}, 0.05),
    ],
)
def test_a_spot_price_is_overridden_for_a_zone_before_the_whole_type(
    overrides: dict[str, float], expected: float
) -> None:
    assert TABLE.spot("m5.large", "us-east-1a", "us-east-1", State(spot_prices=overrides)) == expected


def test_an_on_demand_override_reaches_the_pricing_service() -> None:
    answer = products(state=State(on_demand_prices={"m5.large": 1.5}), Filters=[term("instanceType", "m5.large")])

    terms = json.loads(answer["PriceList"][0])["terms"]["OnDemand"]
    (offer,) = terms.values()
    (dimension,) = offer["priceDimensions"].values()
    assert dimension["pricePerUnit"] == {"USD": "1.5000000000"}


def test_filters_of_the_pricing_service_are_honoured_together() -> None:
    shared = [term("tenancy", "Shared"), term("productFamily", "Compute Instance")]
    metal = [term("tenancy", "Dedicated"), term("productFamily", "Compute Instance (bare metal)")]

    assert names(products(Filters=shared)) == ["c5.large", "m5.large"]
    assert names(products(Filters=metal)) == ["m5.metal"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("operatingSystem", "Windows"),
        ("preInstalledSw", "SQL Std"),
        ("capacitystatus", "UnusedCapacityReservation"),
        ("instanceType", "zz9.large"),
        ("noSuchField", "x"),
    ],
)
def test_a_filter_that_nothing_meets_gives_an_empty_list(field: str, value: str) -> None:
    assert products(Filters=[term(field, value)])["PriceList"] == []


def test_prices_of_china_are_in_yuan() -> None:
    answer = products(Filters=[term("regionCode", "cn-north-1")])

    assert '"CNY": "0.7000000000"' in answer["PriceList"][0]


def test_pages_of_the_pricing_service_hold_every_product_once() -> None:
    first = products(MaxResults=2)
    second = products(MaxResults=2, NextToken=first["NextToken"])

    assert names(first) + names(second) == ["c5.large", "m5.large", "m5.metal"]
    assert "NextToken" not in second
