"""The CatalogSource protocol over EC2 and the Pricing API."""

import json
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from sawhorse_catalog.account import AccountFacts
from sawhorse_catalog.facts import (
    Accelerator,
    Ebs,
    Gpu,
    InstanceFacts,
    InstanceStorage,
    Network,
    NetworkCard,
    Neuron,
)
from sawhorse_cloud.cloud import SpotPrice
from sawhorse_cloud.errors import CloudError, UnauthorizedError
from sawhorse_cloud_aws.account import fetch_groups, fetch_reservations
from sawhorse_cloud_aws.calls import call, client, pages

PRODUCTS = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]
_SHARED = {"tenancy": "Shared", "productFamily": "Compute Instance"}
_METAL = {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"}


_PRICING_HOMES = {"ap": "ap-south-1", "cn": "cn-northwest-1", "eu": "eu-central-1"}
# Partitions without a Pricing API of their own: the shipped list has to do.
_NO_PRICING = ("us-gov-", "us-iso", "eu-isoe-")
PricingClient = Callable[[str], AbstractAsyncContextManager[Any]]


def pricing_regions(region: str) -> tuple[str, ...]:
    """The regions whose Pricing API can answer for a region, the usual one first; none where there is no such API."""
    if region.startswith(_NO_PRICING):
        return ()
    home = _PRICING_HOMES.get(region.partition("-")[0], "us-east-1")
    if region.startswith("cn-"):
        return (home,)
    return (home, *(r for r in ("us-east-1", "eu-central-1", "ap-south-1") if r != home))


def facts_from_description(raw: Mapping[str, Any], zones: Sequence[str]) -> InstanceFacts:
    """One entry of DescribeInstanceTypes as facts. Absent parts are absent facts."""
    network = raw.get("NetworkInfo") or {}
    processor = raw.get("ProcessorInfo") or {}
    cpu = raw.get("VCpuInfo") or {}
    ebs = raw.get("EbsInfo") or {}
    storage = raw.get("InstanceStorageInfo")
    return InstanceFacts(
        name=raw["InstanceType"],
        architectures=tuple(processor.get("SupportedArchitectures") or ()),
        vcpus=int(cpu.get("DefaultVCpus", 0)),
        memory_mib=int((raw.get("MemoryInfo") or {}).get("SizeInMiB", 0)),
        network=Network(
            max_interfaces=int(network.get("MaximumNetworkInterfaces", 0)),
            ipv4_per_interface=int(network.get("Ipv4AddressesPerInterface", 0)),
            ipv6=bool(network.get("Ipv6Supported")),
            ena=network.get("EnaSupport", "unsupported"),
            encryption_in_transit=bool(network.get("EncryptionInTransitSupported")),
            default_card=int(network.get("DefaultNetworkCardIndex", 0)),
            cards=tuple(
                NetworkCard(
                    index=int(c.get("NetworkCardIndex", 0)),
                    max_interfaces=int(c.get("MaximumNetworkInterfaces", 0)),
                    baseline_gbps=c.get("BaselineBandwidthInGbps"),
                    peak_gbps=c.get("PeakBandwidthInGbps"),
                )
                for c in network.get("NetworkCards") or ()
            ),
            efa_max_interfaces=int((network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0)),
        ),
        current_generation=bool(raw.get("CurrentGeneration", True)),
        usage_classes=tuple(raw.get("SupportedUsageClasses") or ()),
        virtualization=tuple(raw.get("SupportedVirtualizationTypes") or ()),
        bare_metal=bool(raw.get("BareMetal")),
        hypervisor=raw.get("Hypervisor") or None,
        cpu_manufacturer=processor.get("Manufacturer", ""),
        clock_ghz=processor.get("SustainedClockSpeedInGhz"),
        processor_features=tuple(processor.get("SupportedFeatures") or ()),
        cores=cpu.get("DefaultCores"),
        threads_per_core=cpu.get("DefaultThreadsPerCore"),
        valid_cores=tuple(cpu.get("ValidCores") or ()),
        valid_threads_per_core=tuple(cpu.get("ValidThreadsPerCore") or ()),
        ebs=Ebs(
            optimized=ebs.get("EbsOptimizedSupport", "unsupported"),
            max_mbps=(ebs.get("EbsOptimizedInfo") or {}).get("MaximumBandwidthInMbps"),
            max_attachments=ebs.get("MaximumEbsAttachments"),
            attachment_limit=ebs.get("AttachmentLimitType"),
        ),
        nitro_enclaves=raw.get("NitroEnclavesSupport", "unsupported"),
        placement_strategies=tuple((raw.get("PlacementGroupInfo") or {}).get("SupportedStrategies") or ()),
        instance_storage=InstanceStorage(
            total_gb=int(storage.get("TotalSizeInGB", 0)), nvme=storage.get("NvmeSupport", "unsupported")
        )
        if storage
        else None,
        gpus=tuple(
            Gpu(
                name=g.get("Name", ""),
                manufacturer=g.get("Manufacturer", ""),
                count=int(g.get("Count", 0)),
                memory_mib=int((g.get("MemoryInfo") or {}).get("SizeInMiB", 0)),
            )
            for g in (raw.get("GpuInfo") or {}).get("Gpus") or ()
        ),
        inference_accelerators=tuple(
            Accelerator(name=a.get("Name", ""), manufacturer=a.get("Manufacturer", ""), count=int(a.get("Count", 0)))
            for a in (raw.get("InferenceAcceleratorInfo") or {}).get("Accelerators") or ()
        ),
        neuron=tuple(
            Neuron(
                name=n.get("Name", ""),
                count=int(n.get("Count", 0)),
                cores_per_device=int((n.get("CoreInfo") or {}).get("Count", 0)),
                memory_mib=int((n.get("MemoryInfo") or {}).get("SizeInMiB", 0)),
            )
            for n in (raw.get("NeuronInfo") or {}).get("NeuronDevices") or ()
        ),
        zones=tuple(sorted(zones)),
    )


def price_from_product(text: str) -> tuple[str, float] | None:
    """Type and hourly price of one entry of GetProducts; None where it carries no usable price (0, no amount)."""
    try:
        product = json.loads(text)
        name = product["product"]["attributes"]["instanceType"]
        terms = product.get("terms", {}).get("OnDemand", {}).values()
        amounts = [
            amount
            for term in terms
            for dimension in term.get("priceDimensions", {}).values()
            for amount in dimension.get("pricePerUnit", {}).values()  # one currency: USD, or CNY in China
        ]
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
    for amount in amounts:
        try:
            price = float(amount)
        except (ValueError, TypeError):
            continue
        if math.isfinite(price) and price > 0 and name:
            return str(name), price
    return None


async def describe_types(ec2: Any, region: str) -> list[InstanceFacts]:
    """All hvm types of x86_64 and arm64 in a region, with the zones that offer them. `ec2` is an SDK client."""
    offered = await pages(
        "DescribeInstanceTypeOfferings",
        ec2,
        "describe_instance_type_offerings",
        "InstanceTypeOfferings",
        LocationType="availability-zone",
        PaginationConfig={"PageSize": 1000},
    )
    zones: dict[str, list[str]] = defaultdict(list)
    for entry in offered:
        zones[entry["InstanceType"]].append(entry["Location"])
    described = await pages(
        "DescribeInstanceTypes",
        ec2,
        "describe_instance_types",
        "InstanceTypes",
        Filters=[
            {"Name": "supported-virtualization-type", "Values": ["hvm"]},
            {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
        ],
        PaginationConfig={"PageSize": 100},
    )
    if not described or not zones:
        raise CloudError(f"DescribeInstanceTypes: no type in {region}", reason="EmptyAnswer")
    return [facts_from_description(raw, zones.get(raw["InstanceType"], ())) for raw in described]


class AwsCatalogSource:
    """See CatalogSource.

    Args:
        ec2: an SDK client.
        pricing: gives a client of the Pricing API in a region.
        pricing_regions: where to ask for prices, in order; the next is tried where policy forbids one.
    """

    def __init__(self, *, ec2: Any, pricing: PricingClient, region: str, pricing_regions: Sequence[str]) -> None:
        self._ec2 = ec2
        self._pricing = pricing
        self._region = region
        self._pricing_regions = tuple(pricing_regions)

    async def fetch_instance_types(self) -> Sequence[InstanceFacts]:
        """All hvm types of x86_64 and arm64, with the zones that offer them."""
        return await describe_types(self._ec2, self._region)

    async def fetch_zones(self) -> Mapping[str, str]:
        """Zone name → zone id."""
        answer = await call("DescribeAvailabilityZones", self._ec2.describe_availability_zones)
        zones = {z["ZoneName"]: z.get("ZoneId", "") for z in answer.get("AvailabilityZones", ())}
        if not zones:
            raise CloudError(f"DescribeAvailabilityZones: no zone in {self._region}", reason="EmptyAnswer")
        return zones

    async def fetch_on_demand_prices(self) -> Mapping[str, float]:
        """Linux on-demand list prices, shared tenancy and bare metal."""
        refusal: CloudError | None = None
        for home in self._pricing_regions:
            try:
                async with self._pricing(home) as pricing:
                    return await self._prices_from(pricing)
            except UnauthorizedError as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        raise CloudError(f"no Pricing API serves {self._region}", reason="NoPricingApi")

    async def _prices_from(self, pricing: Any) -> dict[str, float]:
        prices: dict[str, float] = {}
        for variant in (_SHARED, _METAL):
            fields = {
                "regionCode": self._region,
                "preInstalledSw": "NA",
                "operatingSystem": "Linux",
                "capacitystatus": "Used",
                "marketoption": "OnDemand",
                **variant,
            }
            texts = await pages(
                "GetProducts",
                pricing,
                "get_products",
                "PriceList",
                ServiceCode="AmazonEC2",
                Filters=[{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in fields.items()],
            )
            found = dict(price for price in map(price_from_product, texts) if price is not None)
            if not found:
                # Half an answer would make the other half look unsold.
                kind = variant["productFamily"]
                raise CloudError(f"GetProducts: no on-demand price of a {kind} in {self._region}", reason="NoPrices")
            prices |= found
        return prices

    async def fetch_spot_prices(self) -> Sequence[SpotPrice]:
        """The newest price per type and zone."""
        history = await pages(
            "DescribeSpotPriceHistory",
            self._ec2,
            "describe_spot_price_history",
            "SpotPriceHistory",
            ProductDescriptions=PRODUCTS,
            StartTime=datetime.now(UTC),  # noqa: TID251  # "from now" means the newest prices; no decision hangs on it
        )
        newest: dict[tuple[str, str], tuple[datetime, float]] = {}
        for entry in history:
            key = (entry["InstanceType"], entry.get("AvailabilityZone", ""))
            when, price = entry["Timestamp"], _amount(entry.get("SpotPrice"))
            if key[1] and price > 0 and (key not in newest or newest[key][0] < when):
                newest[key] = (when, price)
        return [SpotPrice(name, zone, price) for (name, zone), (_, price) in sorted(newest.items())]

    async def fetch_account(self) -> AccountFacts:
        """Active capacity reservations and usable placement groups."""
        now = datetime.now(UTC)  # noqa: TID251  # decides only which blocks are about to end
        reservations = await fetch_reservations(self._ec2, now)
        return AccountFacts(tuple(reservations), tuple(await fetch_groups(self._ec2)))


def _amount(text: object) -> float:
    """A price, 0 where it is none."""
    try:
        value = float(str(text))
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


@asynccontextmanager
async def connect_catalog_source(
    *, region: str, endpoint_url: str = "", pricing_endpoint_url: str = "", pricing_region: str = ""
) -> AsyncIterator[AwsCatalogSource]:
    """A CatalogSource for a region.

    Args:
        endpoint_url: empty for AWS's own; likewise `pricing_endpoint_url`.
        pricing_region: where to ask for prices, and nowhere else; empty tries the regions that have the API.
    """

    def pricing(home: str) -> AbstractAsyncContextManager[Any]:
        return client("pricing", region=home, endpoint_url=pricing_endpoint_url or endpoint_url)

    async with client("ec2", region=region, endpoint_url=endpoint_url) as ec2:
        homes = (pricing_region,) if pricing_region else pricing_regions(region)
        yield AwsCatalogSource(ec2=ec2, pricing=pricing, region=region, pricing_regions=homes)
