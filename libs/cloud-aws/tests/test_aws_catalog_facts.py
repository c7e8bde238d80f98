"""Instance types and prices as AWS describes them, as facts."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from sawhorse_catalog.builtin import builtin_facts
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.catalog_source import (
    AwsCatalogSource,
    facts_from_description,
    price_from_product,
    pricing_regions,
)


def described() -> dict[str, InstanceFacts]:
    zones: dict[str, list[str]] = {}
    for row in INSTANCE_TYPE_OFFERINGS["availability-zone"]["us-east-1"]:
        zones.setdefault(row["InstanceType"], []).append(row["Location"])
    return {name: facts_from_description(raw, zones.get(name, ())) for name, raw in INSTANCE_TYPES.items()}


def test_a_described_type_is_what_the_shipped_table_says_of_it() -> None:
    found = described()
    shipped = {f.name: f for f in builtin_facts()}

    differing: dict[str, list[str]] = {}
    for name in sorted(found.keys() & shipped.keys()):
        ours, theirs = msgspec.structs.asdict(found[name]), msgspec.structs.asdict(shipped[name])
        for field in ours:
            if ours[field] != theirs[field]:
                differing.setdefault(field, []).append(f"{name}: {ours[field]} / {theirs[field]}")

    assert len(found.keys() & shipped.keys()) > 700
    assert {field: (len(rows), rows[:3]) for field, rows in differing.items()} == {}


def test_a_description_of_next_to_nothing_is_facts_of_next_to_nothing() -> None:
    facts = facts_from_description({"InstanceType": "x1.large"}, ["b", "a"])

    assert (facts.name, facts.vcpus, facts.zones, facts.hypervisor) == ("x1.large", 0, ("a", "b"), None)
    assert facts.instance_storage is None


def a_product(price: str, currency: str = "USD", **attributes: str) -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": {currency: price}}
    product: dict[str, Any] = {
        "product": {"attributes": {"instanceType": "m6i.large", **attributes}},
        "terms": {"OnDemand": {"t": {"priceDimensions": {"d": dimension}}}},
    }
    return json.dumps(product)


def test_a_price_is_read_in_dollars() -> None:
    assert price_from_product(a_product("0.0960000000")) == ("m6i.large", 0.096)


def test_p05_a_price_is_read_in_the_currency_of_china() -> None:
    assert price_from_product(a_product("0.7210000000", "CNY")) == ("m6i.large", 0.721)


@pytest.mark.parametrize("price", ["0.0000000000", "-1", "free", "NaN", "Infinity", ""])
def test_what_is_no_usable_price_is_none(price: str) -> None:
    assert price_from_product(a_product(price)) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"product": {"attributes": {}}}', '{"product": 1}'])
def test_an_entry_that_makes_no_sense_is_no_price(text: str) -> None:
    assert price_from_product(text) is None


@pytest.mark.parametrize(
    ("region", "first", "more"),
    [
        ("us-west-2", "us-east-1", True),
        ("ap-northeast-1", "ap-south-1", True),
        ("eu-west-1", "eu-central-1", True),
        ("sa-east-1", "us-east-1", True),
        ("cn-north-1", "cn-northwest-1", False),
    ],
)
def test_prices_are_asked_where_the_region_is_served_and_then_elsewhere(region: str, first: str, more: bool) -> None:
    regions = pricing_regions(region)

    assert regions[0] == first
    assert (len(regions) > 1) is more
    assert len(set(regions)) == len(regions)


def test_partitions_without_a_pricing_api_have_nowhere_to_ask() -> None:
    assert pricing_regions("us-gov-west-1") == ()
    assert pricing_regions("us-isob-east-1") == ()


class Answering:
    """An SDK client whose paginated answers follow from method and arguments."""

    def __init__(self, answer: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        self._answer = answer
        self._method = ""

    def get_paginator(self, method: str) -> "Answering":
        self._method = method
        return self

    async def paginate(self, **arguments: Any) -> AsyncIterator[dict[str, Any]]:
        yield self._answer(self._method, arguments)


def a_source(answer: Callable[[str, dict[str, Any]], dict[str, Any]]) -> AwsCatalogSource:
    @asynccontextmanager
    async def pricing(region: str) -> AsyncIterator[Any]:
        yield Answering(answer)

    return AwsCatalogSource(ec2=Answering(answer), pricing=pricing, region="us-west-2", pricing_regions=["us-east-1"])


@pytest.mark.parametrize("missing", ["describe_instance_types", "describe_instance_type_offerings"])
async def test_an_empty_answer_is_an_error_and_no_catalogue_without_types(missing: str) -> None:
    def answer(method: str, _: dict[str, Any]) -> dict[str, Any]:
        if method == missing:
            return {}
        row = {"InstanceType": "m5.large", "Location": "us-west-2a"}
        return {"InstanceTypes": [row], "InstanceTypeOfferings": [row]}

    with pytest.raises(CloudError) as caught:
        await a_source(answer).fetch_instance_types()

    assert caught.value.reason == "EmptyAnswer"


async def test_prices_of_one_kind_only_are_an_error() -> None:
    def answer(_: str, arguments: dict[str, Any]) -> dict[str, Any]:
        shared = {"Type": "TERM_MATCH", "Field": "tenancy", "Value": "Shared"} in arguments["Filters"]
        return {"PriceList": [a_product("0.1")] if shared else []}

    with pytest.raises(CloudError, match="bare metal") as caught:
        await a_source(answer).fetch_on_demand_prices()

    assert caught.value.reason == "NoPrices"


async def test_of_several_spot_prices_the_newest_counts_and_nonsense_does_not() -> None:
    now = datetime(2026, 11, 29, tzinfo=UTC)
    rows = [("0.03", 1), ("0.05", 0), ("0.04", 2), ("cheap", -1)]  # price, hours ago

    def answer(*_: Any) -> dict[str, Any]:
        where = {"InstanceType": "m5.large", "AvailabilityZone": "us-west-2a"}
        return {
            "SpotPriceHistory": [
                {**where, "SpotPrice": price, "Timestamp": now - timedelta(hours=hours)} for price, hours in rows
            ]
        }

    (found,) = await a_source(answer).fetch_spot_prices()

    assert (found.instance_type, found.zone, found.price) == ("m5.large", "us-west-2a", 0.05)
