"""On-demand and spot prices, and the Pricing service's GetProducts answer, from the shipped table of list prices.

Pure but for reading the table. Spot prices are made up: a stable share of the on-demand price for each type and zone.
"""

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from sawhorse_sandbox.aws.state import State

LOWEST_SPOT_SHARE = 0.25
HIGHEST_SPOT_SHARE = 0.60
FALLBACK_REGION = "us-east-1"  # for regions that the table lacks
PAGE = 100  # GetProducts gives no more at once
_PUBLISHED = "2026-07-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class PriceTable:
    """List prices per hour by region and instance type; USD, but CNY in the regions of China."""

    by_region: Mapping[str, Mapping[str, float]]

    def region(self, region: str) -> Mapping[str, float]:
        """Return the prices of a region, those of us-east-1 where the table has none."""
        return self.by_region.get(region) or self.by_region.get(FALLBACK_REGION, {})

    def on_demand(self, instance_type: str, region: str, state: State) -> float | None:
        """Return the price per hour, None when the type has none."""
        override = state.on_demand_prices.get(instance_type)
        return self.region(region).get(instance_type) if override is None else override

    def spot(self, instance_type: str, zone: str, region: str, state: State) -> float | None:
        """Return the price per hour in a zone, None when the type has no on-demand price either."""
        for key in (f"{instance_type}/{zone}", instance_type):
            if key in state.spot_prices:
                return state.spot_prices[key]
        price = self.on_demand(instance_type, region, state)
        return None if price is None else round(price * spot_share(instance_type, zone), 6)


def read_price_table() -> PriceTable:
    """Read the table that sawhorse_catalog ships."""
    file = resources.files("sawhorse_catalog") / "data" / "ec2-on-demand-prices.csv"
    by_region: dict[str, dict[str, float]] = {}
    with file.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            by_region.setdefault(row["region"], {})[row["instance_type"]] = float(row["price_per_hour"])
    return PriceTable(by_region)


def spot_share(instance_type: str, zone: str) -> float:
    """Return the share of the on-demand price that spot costs: the same in every process, 0.25 to 0.60."""
    digest = hashlib.sha256(f"{instance_type}/{zone}".encode()).digest()
    drawn = int.from_bytes(digest[:8]) / 2**64
    return LOWEST_SPOT_SHARE + drawn * (HIGHEST_SPOT_SHARE - LOWEST_SPOT_SHARE)


def products_page(table: PriceTable, state: State, request: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Return the answer to GetProducts.

    Args:
        request: the call's JSON: Filters (all TERM_MATCH), NextToken, MaxResults.
        region: where to look when no filter names a region.
    """
    wanted = {each["Field"]: each["Value"] for each in request.get("Filters", ())}
    asked_region = wanted.get("regionCode", region)
    known = {**table.region(asked_region), **state.on_demand_prices}
    found = [
        (attributes, known[name])
        for name in _candidates(known, wanted)
        if _matches(attributes := _attributes(name, asked_region), wanted)
    ]
    start = int(request.get("NextToken") or 0)
    end = start + min(int(request.get("MaxResults") or PAGE), PAGE)
    currency = "CNY" if asked_region.startswith("cn-") else "USD"
    page = [json.dumps(_product(attributes, price, currency)) for attributes, price in found[start:end]]
    more = {"NextToken": str(end)} if end < len(found) else {}
    return {"FormatVersion": "aws_v1", "PriceList": page, **more}


def _candidates(known: Mapping[str, float], wanted: Mapping[str, str]) -> Iterable[str]:
    name = wanted.get("instanceType")
    if name is None:
        return sorted(known)
    return [name] if name in known else []


def _attributes(instance_type: str, region: str) -> dict[str, str]:
    # Bare metal is listed under a family of its own, with dedicated tenancy.
    metal = ".metal" in instance_type
    return {
        "servicecode": "AmazonEC2",
        "instanceType": instance_type,
        "regionCode": region,
        "locationType": "AWS Region",
        "operatingSystem": "Linux",
        "tenancy": "Dedicated" if metal else "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "licenseModel": "No License required",
        "productFamily": "Compute Instance (bare metal)" if metal else "Compute Instance",
    }


def _matches(attributes: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(attributes.get(field) == value for field, value in wanted.items() if field.lower() != "servicecode")


def _product(attributes: dict[str, str], price: float, currency: str) -> dict[str, Any]:
    names = {key: value for key, value in attributes.items() if key != "productFamily"}
    digest = hashlib.sha256(f"{attributes['regionCode']}/{attributes['instanceType']}".encode()).hexdigest()
    sku, term = digest[:16].upper(), "JRTCKXETXF"
    dimension = {
        "rateCode": f"{sku}.{term}.6YS6EN2CT7",
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"{price:g} per On Demand Linux {attributes['instanceType']} Instance Hour",
        "appliesTo": [],
        "pricePerUnit": {currency: f"{price:.10f}"},
    }
    on_demand = {
        "sku": sku,
        "offerTermCode": term,
        "effectiveDate": _PUBLISHED,
        "termAttributes": {},
        "priceDimensions": {dimension["rateCode"]: dimension},
    }
    return {
        "product": {"productFamily": attributes["productFamily"], "sku": sku, "attributes": names},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {f"{sku}.{term}": on_demand}},
        "version": "20260701000000",
        "publicationDate": _PUBLISHED,
    }
