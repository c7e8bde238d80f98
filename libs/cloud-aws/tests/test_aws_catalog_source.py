"""The catalogue's source against the sandbox's AWS: complete or an error."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from sawhorse_catalog.builtin import builtin_facts
from sawhorse_catalog.prices import static_prices
from sawhorse_cloud.errors import CloudError, CloudUnavailableError, ThrottledError, UnauthorizedError
from sawhorse_cloud_aws.catalog_source import AwsCatalogSource, connect_catalog_source

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def source(aws_sandbox: Any) -> AsyncIterator[AwsCatalogSource]:
    async with connect_catalog_source(region="us-east-1", endpoint_url=aws_sandbox.endpoint_url) as connected:
        yield connected


async def test_every_type_comes_with_its_facts_and_zones(source: AwsCatalogSource) -> None:
    shipped = {f.name: f for f in builtin_facts()}

    found = await source.fetch_instance_types()

    offered = [f for f in found if f.zones]
    assert len({f.name for f in found}) == len(found)
    assert len(offered) > 700
    assert all(set(f.architectures) & {"x86_64", "arm64"} and "hvm" in f.virtualization for f in found)
    differing = [f.name for f in offered if msgspec.structs.asdict(f) != msgspec.structs.asdict(shipped[f.name])]
    assert differing == []


async def test_zones_come_with_their_ids(source: AwsCatalogSource) -> None:
    zones = await source.fetch_zones()

    assert zones["us-east-1a"].startswith("use1-az")
    assert len(set(zones.values())) == len(zones)


async def test_prices_are_complete_and_include_bare_metal(source: AwsCatalogSource) -> None:
    prices = await source.fetch_on_demand_prices()

    assert prices == static_prices("us-east-1").on_demand
    assert any(".metal" in name for name in prices)


async def test_spot_prices_differ_by_zone(source: AwsCatalogSource, world: Any) -> None:
    await world.aws.control({"spotPrices": {"m5.large/us-east-1a": 0.011, "m5.large/us-east-1b": 0.022}})

    prices = {(p.instance_type, p.zone): p.price for p in await source.fetch_spot_prices()}

    assert (prices["m5.large", "us-east-1a"], prices["m5.large", "us-east-1b"]) == (0.011, 0.022)
    assert len(prices) > 2000
    assert all(price > 0 for price in prices.values())


@pytest.mark.parametrize(
    ("action", "method"),
    [
        ("DescribeInstanceTypes", "fetch_instance_types"),
        ("DescribeInstanceTypeOfferings", "fetch_instance_types"),
        ("DescribeAvailabilityZones", "fetch_zones"),
        ("GetProducts", "fetch_on_demand_prices"),
        ("DescribeSpotPriceHistory", "fetch_spot_prices"),
    ],
)
async def test_a_call_that_fails_fails_the_whole(
    source: AwsCatalogSource, world: Any, action: str, method: str
) -> None:
    code = "ThrottlingException" if action == "GetProducts" else "RequestLimitExceeded"
    await world.fail(action, code, status=400 if action == "GetProducts" else 503, times=9)

    with pytest.raises(ThrottledError):
        await getattr(source, method)()


async def test_p07_prices_are_asked_elsewhere_where_policy_forbids_the_usual_region(
    source: AwsCatalogSource, world: Any
) -> None:
    await world.fail("GetProducts", "AccessDeniedException", times=2)
    before = (await world.aws.calls())["GetProducts"]

    prices = await source.fetch_on_demand_prices()

    assert "m5.large" in prices
    assert (await world.aws.calls())["GetProducts"] > before + 2


async def test_prices_that_are_forbidden_everywhere_are_told_so(source: AwsCatalogSource, world: Any) -> None:
    await world.fail("GetProducts", "AccessDeniedException", times=20)

    with pytest.raises(UnauthorizedError):
        await source.fetch_on_demand_prices()


async def test_p07_a_price_region_that_was_set_is_the_only_one_asked(aws_sandbox: Any, world: Any) -> None:
    await world.fail("GetProducts", "AccessDeniedException")

    async with connect_catalog_source(
        region="us-east-1", endpoint_url=aws_sandbox.endpoint_url, pricing_region="eu-central-1"
    ) as source:
        with pytest.raises(UnauthorizedError):
            await source.fetch_on_demand_prices()


async def test_a_region_without_a_pricing_api_says_so(aws_sandbox: Any) -> None:
    async with connect_catalog_source(region="us-gov-west-1", endpoint_url=aws_sandbox.endpoint_url) as source:
        with pytest.raises(CloudError) as caught:
            await source.fetch_on_demand_prices()

    assert caught.value.reason == "NoPricingApi"


async def test_nobody_there_is_unavailable() -> None:
    async with connect_catalog_source(region="us-east-1", endpoint_url="http://127.0.0.1:9") as source:
        with pytest.raises(CloudUnavailableError):
            await source.fetch_zones()
