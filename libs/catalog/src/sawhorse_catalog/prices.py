"""Prices per hour: what a region's types cost on demand, and in each zone as spot; and the shipped list."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices of one region, per hour, in `currency`.

    `static` is true while on-demand prices come from the shipped list. A spot price that is not listed is not known,
    unless `spot_share` says which share of the on-demand price to assume. `note` says what a reader should know
    about the prices, or is empty.
    """

    on_demand: Mapping[str, float] = field(default_factory=dict)
    spot: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (type, zone)
    currency: str = "USD"
    static: bool = False
    spot_share: float | None = None
    note: str = ""

    def price(self, instance_type: str, zone: str, *, spot: bool) -> float | None:
        """The price of an offering; None where it is not known."""
        if not spot:
            return self.on_demand.get(instance_type)
        listed = self.spot.get((instance_type, zone))
        if listed is not None or self.spot_share is None:
            return listed
        whole = self.on_demand.get(instance_type)
        return None if whole is None else round(whole * self.spot_share, 6)


def currency_of(region: str) -> str:
    """The currency that AWS bills a region in."""
    return "CNY" if region.startswith("cn-") else "USD"


def static_prices(region: str) -> PriceBook:
    """The shipped on-demand list of a region; where there is none, another region's, and `note` says so.

    Spot prices are the on-demand ones (`spot_share` 1), as long as nothing better is known.
    """
    table = _price_table()
    listed = region if region in table else _nearest(region)
    note = "" if listed == region else f"no price list of {region} is shipped; prices are those of {listed}"
    return PriceBook(table[listed], {}, currency_of(listed), static=True, spot_share=1.0, note=note)


def _nearest(region: str) -> str:
    if region.startswith("cn-"):
        return "cn-north-1"
    return "us-gov-west-1" if region.startswith("us-gov-") else DEFAULT_REGION


@cache
def _price_table() -> Mapping[str, Mapping[str, float]]:
    text = files("sawhorse_catalog").joinpath("data/ec2-on-demand-prices.csv").read_text(encoding="utf-8")
    table: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(text.splitlines()):
        table.setdefault(row["region"], {})[row["instance_type"]] = float(row["price_per_hour"])
    return table
