"""The built-in catalogue: real EC2 types and list prices, so that offline commands need no file and no account."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import msgspec

from sawhorse_catalog.aws.offerings import Unavailable
from sawhorse_catalog.aws.resolve import Resolution, ResolveSettings, resolve
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_catalog.prices import DEFAULT_REGION, PriceBook, static_prices
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.instances import InstanceType

SPOT_SHARE = 0.4
_ASSUMED_ZONES = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class BuiltinCatalog:
    """Facts and prices of a region. `note` says what is assumed; print it beside any price."""

    region: str
    facts: tuple[InstanceFacts, ...]
    prices: PriceBook
    zones: Mapping[str, str]  # zone → zone id; ids differ between accounts, so they are empty
    note: str

    @property
    def currency(self) -> str:
        """ISO 4217."""
        return self.prices.currency

    @property
    def instance_types(self) -> tuple[InstanceType, ...]:
        """The types under a NodeClass with defaults."""
        return self.resolve(None).instance_types

    def resolve(
        self,
        node_class: EC2NodeClass | None,
        *,
        settings: ResolveSettings | None = None,
        unavailable: Unavailable = frozenset(),
    ) -> Resolution:
        """The types as a NodeClass sees them."""
        return resolve(
            self.facts,
            node_class,
            self.prices,
            region=self.region,
            zones=self.zones,
            unavailable=unavailable,
            settings=settings,
        )


@cache
def builtin_facts() -> tuple[InstanceFacts, ...]:
    """All types that are shipped; `zones` are those of us-east-1, empty for types that are not offered there."""
    data = files("sawhorse_catalog").joinpath("data/ec2-instance-types.jsonl").read_bytes()
    return tuple(msgspec.json.Decoder(InstanceFacts).decode_lines(data))


@cache
def builtin_catalog(region: str = DEFAULT_REGION) -> BuiltinCatalog:
    """The catalogue of a region: types with a list price, spot assumed at 40 % of on-demand.

    Zones are known for us-east-1; elsewhere every type that has a price is assumed in three zones.
    """
    listed = static_prices(region)
    prices = replace(listed, spot_share=SPOT_SHARE)
    priced = [f for f in builtin_facts() if f.name in prices.on_demand]
    notes = [f"on-demand prices are list prices, spot is assumed at {SPOT_SHARE:.0%} of them"]
    if region == DEFAULT_REGION:
        facts = tuple(f for f in priced if f.zones)
    else:
        zones = tuple(region + letter for letter in _ASSUMED_ZONES)
        facts = tuple(msgspec.structs.replace(f, zones=zones) for f in priced)
        notes.append(f"every type is assumed in {', '.join(zones)}")
    if listed.note:
        notes.append(listed.note)
    names = sorted({zone for f in facts for zone in f.zones})
    return BuiltinCatalog(region, facts, prices, dict.fromkeys(names, ""), "; ".join(notes))
