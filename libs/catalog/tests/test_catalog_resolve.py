"""Resolution as a whole: offerings, zones, what is out of capacity, and that no type spoils the rest."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawhorse_catalog.aws import Resolution, ResolveSettings, resolve, withhold
from sawhorse_catalog.builtin import builtin_catalog, builtin_facts
from sawhorse_catalog.prices import PriceBook
from sawhorse_model import labels
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.instances import CapacityType
from sawhorse_model.requirements import Operator
from sawhorse_testing.catalog import ZONES, an_ec2_node_class, an_ec2_type, common_facts, common_fixture, common_prices


def resolved(
    node_class: EC2NodeClass | None = None,
    unavailable: frozenset[tuple[str, str, str]] = frozenset(),
    settings: ResolveSettings | None = None,
    prices: PriceBook | None = None,
) -> Resolution:
    return resolve(
        common_facts(),
        node_class,
        common_prices() if prices is None else prices,
        region="us-west-2",
        zones=ZONES,
        unavailable=unavailable,
        settings=settings,
    )


def available(resolution: Resolution) -> set[tuple[str, str, str]]:
    return {
        (o.capacity_type.value, t.name, o.zone) for t in resolution.instance_types for o in t.offerings if o.available
    }


def test_all_shipped_types_resolve_without_an_error() -> None:
    prices = PriceBook(on_demand=dict.fromkeys((f.name for f in builtin_facts()), 1.0), spot_share=0.4)

    resolution = resolve(builtin_facts(), None, prices, region="us-east-1", zones={})

    assert len(resolution.instance_types) == len(builtin_facts()) == 1395
    assert {name for name, why in resolution.excluded.items() if "no sense" in why} == set()


def test_every_zone_that_has_the_type_offers_each_capacity_type_with_its_price_and_zone_id() -> None:
    m8i = next(t for t in common_fixture() if t.name == "m8i.large")

    assert [(o.zone, o.capacity_type, o.price, o.zone_id) for o in m8i.offerings] == [
        ("us-west-2a", CapacityType.ON_DEMAND, 0.105, "usw2-az1"),
        ("us-west-2a", CapacityType.SPOT, 0.045, "usw2-az1"),
        ("us-west-2b", CapacityType.ON_DEMAND, 0.105, "usw2-az2"),
        ("us-west-2b", CapacityType.SPOT, 0.045, "usw2-az2"),
    ]


def test_without_a_node_class_or_resolved_subnets_every_zone_counts() -> None:
    assert available(resolved(an_ec2_node_class())) == available(resolved()) != set()


def test_live_a_node_class_without_subnets_has_no_zone_at_all() -> None:
    live = resolved(an_ec2_node_class(), settings=ResolveSettings(require_subnets=True))

    assert available(live) == set()
    assert live.instance_types[0].requirements[labels.ZONE].operator is Operator.DOES_NOT_EXIST


def test_offerings_of_a_zone_without_a_subnet_are_listed_and_not_available() -> None:
    one = resolved(an_ec2_node_class(zones={"us-west-2b": "usw2-az2"}))

    assert {zone for _, _, zone in available(one)} == {"us-west-2b"}
    assert {o.zone for t in one.instance_types for o in t.offerings} == set(ZONES)


def test_an_offering_out_of_capacity_is_not_available_and_its_neighbours_are() -> None:
    gone = ("spot", "m6i.large", "us-west-2a")

    found = resolved(unavailable=frozenset({gone}))

    assert available(resolved()) - available(found) == {gone}


def test_withholding_offerings_afterwards_is_the_same_as_resolving_without_them() -> None:
    gone = frozenset(
        {("spot", "m6i.large", "us-west-2a"), ("on-demand", "g5.xlarge", "us-west-2a"), ("spot", "x", "y")}
    )

    assert withhold(resolved().instance_types, gone) == resolved(unavailable=gone).instance_types


def test_an_offering_without_a_known_price_is_left_out() -> None:
    prices = PriceBook(on_demand={"m6i.large": 0.096}, spot={("m6i.large", "us-west-2a"): 0.04})

    found = resolved(prices=prices)

    assert {key for key in available(found) if key[0] == "spot"} == {("spot", "m6i.large", "us-west-2a")}
    assert {t.name for t in found.instance_types if not t.offerings} == {f.name for f in common_facts()} - {"m6i.large"}


def test_one_type_whose_facts_make_no_sense_is_named_and_the_others_resolve() -> None:
    odd = msgspec.structs.replace(an_ec2_type("m5.large"), memory_mib="much")  # type: ignore[arg-type]

    found = resolve([odd, an_ec2_type("m5.xlarge")], None, common_prices(), region="us-west-2", zones=ZONES)

    assert [t.name for t in found.instance_types] == ["m5.xlarge"]
    assert "no sense" in found.excluded["m5.large"]


def test_only_spot_and_on_demand_are_bought_here() -> None:
    p4d = resolve([an_ec2_type("p4d.24xlarge")], None, PriceBook(), region="us-east-1", zones={}).instance_types[0]

    assert p4d.requirements[labels.CAPACITY_TYPE].values == {"on-demand", "spot"}


def test_equal_inputs_resolve_equally() -> None:
    assert resolved() == resolved()


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-3", "cn-north-1"])
def test_no_resolved_type_of_the_built_in_catalogue_has_more_allocatable_than_capacity(region: str) -> None:
    types = builtin_catalog(region).instance_types

    assert types
    assert all(t.allocatable[name] <= t.capacity[name] for t in types for name in t.allocatable)


@given(
    overhead=st.decimals(min_value=0, max_value="0.9", places=3),
    enis=st.integers(0, 20),
    pods=st.none() | st.integers(0, 1000),
    per_core=st.none() | st.integers(0, 50),
    name=st.sampled_from([f.name for f in common_facts()]),
)
def test_no_setting_makes_a_type_larger_than_the_machine(
    overhead: object, enis: int, pods: int | None, per_core: int | None, name: str
) -> None:
    kubelet = {k: v for k, v in (("maxPods", pods), ("podsPerCore", per_core)) if v is not None}
    facts = next(f for f in common_facts() if f.name == name)
    settings = ResolveSettings(float(str(overhead)), enis)

    (found,) = resolve(
        [facts],
        an_ec2_node_class({"kubelet": kubelet}),
        common_prices(),
        region="us-west-2",
        zones=ZONES,
        settings=settings,
    ).instance_types

    assert found.capacity["memory"] <= facts.memory_mib * 2**20
    assert found.capacity.get("pods", 0) <= (pods if pods is not None else 15 * 50)
    assert all(found.allocatable[k] <= v for k, v in found.capacity.items())
    assert all(v > 0 for v in found.capacity.values())
