"""Builders for instance types and offerings, and the common fixture of types that many cases use."""

from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from sawhorse_catalog.aws import resolve
from sawhorse_catalog.builtin import builtin_facts
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_catalog.file_types import FileEntry, resolve_entries
from sawhorse_catalog.prices import PriceBook
from sawhorse_model.aws import GROUP, KIND, EC2NodeClass, parse_ec2_node_class
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.resources import CPU, MEMORY, PODS, parse_resources

REGION = "us-west-2"
ZONES = {"us-west-2a": "usw2-az1", "us-west-2b": "usw2-az2", "us-west-2c": "usw2-az3"}

# On-demand and spot price per hour, and the letters of the zones that have the type.
_COMMON: Mapping[str, tuple[float, float, str]] = {
    "m6i.large": (0.096, 0.040, "abc"),
    "m6i.xlarge": (0.192, 0.080, "abc"),
    "m6i.4xlarge": (0.768, 0.320, "abc"),
    "c6i.xlarge": (0.170, 0.070, "ab"),
    "r6i.xlarge": (0.252, 0.100, "abc"),
    "m7g.large": (0.082, 0.035, "abc"),
    "m8i.large": (0.105, 0.045, "ab"),
    "g5.xlarge": (1.006, 0.400, "a"),
}


def an_offering(
    zone: str = "us-west-2a",
    capacity_type: CapacityType | str = CapacityType.SPOT,
    price: float = 0.10,
    *,
    available: bool = True,
    zone_id: str = "",
    reservation_id: str = "",
    reservation_count: int = 0,
) -> Offering:
    """A valid spot offering; say only what the test is about."""
    return Offering(zone, CapacityType(capacity_type), price, available, zone_id, reservation_id, reservation_count)


def an_instance_type(
    name: str = "m5.large",
    *,
    cpu: str = "2",
    memory: str = "8Gi",
    pods: str = "110",
    architecture: str = "amd64",
    operating_systems: Sequence[str] = ("linux",),
    price: float = 0.10,
    spot_price: float | None = None,
    zones: Sequence[str] = tuple(ZONES),
    offerings: Sequence[Offering] | None = None,
    labels: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
) -> InstanceType:
    """An instance type whose allocatable is exactly what is given, on demand in three zones.

    Args:
        cpu, memory, pods, extra: quantities; `extra` are further resources such as `nvidia.com/gpu`. Capacity is the
            same as allocatable: no overhead to reckon with.
        price: of the on-demand offerings, one per zone of `zones`.
        spot_price: adds spot offerings in the same zones.
        offerings: replaces all of them.
        labels: beside or instead of those that follow from the name and the figures.
    """
    if offerings is None:
        prices = {CapacityType.ON_DEMAND: price}
        if spot_price is not None:
            prices[CapacityType.SPOT] = spot_price
        offerings = [an_offering(z, kind, p, zone_id=ZONES.get(z, "")) for z in zones for kind, p in prices.items()]
    has = parse_resources({CPU: cpu, MEMORY: memory, PODS: pods, **(extra or {})})
    entry = FileEntry(
        name=name,
        architecture=architecture,
        operating_systems=tuple(operating_systems),
        offerings=tuple(offerings),
        allocatable=has,
        labels=labels,
    )
    return resolve_entries([entry], None).instance_types[0]


@cache
def common_facts() -> tuple[InstanceFacts, ...]:
    """The raw facts of the common fixture: real types, in the zones us-west-2a to c."""
    known = {facts.name: facts for facts in builtin_facts()}
    return tuple(
        msgspec.structs.replace(known[name], zones=tuple(REGION + letter for letter in letters))
        for name, (_, _, letters) in _COMMON.items()
    )


@cache
def common_prices() -> PriceBook:
    """The prices of the common fixture, the same in every zone that has the type."""
    return PriceBook(
        on_demand={name: price for name, (price, _, _) in _COMMON.items()},
        spot={(name, REGION + z): spot for name, (_, spot, letters) in _COMMON.items() for z in letters},
    )


@cache
def common_fixture() -> tuple[InstanceType, ...]:
    """The common fixture under a NodeClass with defaults: eight types in us-west-2a to c, on demand and as spot."""
    return resolve(common_facts(), None, common_prices(), region=REGION, zones=ZONES).instance_types


def an_ec2_node_class(
    spec: Mapping[str, object] | None = None, *, zones: Mapping[str, str] | None = None, name: str = "default"
) -> EC2NodeClass:
    """An EC2NodeClass with the alias al2023@latest and what `spec` adds.

    `zones` gives it a resolved subnet in each (zone → zone id); without, its status knows no subnet.
    """
    subnets = [{"id": f"subnet-{z}", "zone": z, "zoneID": i} for z, i in (zones or {}).items()]
    return parse_ec2_node_class(
        NodeClass(
            meta=ObjectMeta(name=name),
            group=GROUP,
            kind=KIND,
            spec={"amiSelectorTerms": [{"alias": "al2023@latest"}], **(spec or {})},
            status={"subnets": subnets} if subnets else {},
        )
    )


def an_ec2_type(name: str = "m5.large", **changes: object) -> InstanceFacts:
    """The shipped facts of a real type, with changes."""
    known = next(f for f in builtin_facts() if f.name == name)
    return msgspec.structs.replace(known, **changes)
