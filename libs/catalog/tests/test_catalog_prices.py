"""Price lists and the built-in catalogue."""

from sawhorse_catalog.builtin import builtin_catalog
from sawhorse_catalog.prices import PriceBook, static_prices
from sawhorse_model.aws import CATEGORY
from sawhorse_model.instances import CapacityType


def test_the_shipped_list_gives_on_demand_prices_and_says_that_it_is_static() -> None:
    book = static_prices("us-east-1")

    assert book.price("m5.large", "us-east-1a", spot=False) == 0.096
    assert (book.static, book.currency, book.note) == (True, "USD", "")


def test_china_is_priced_in_yuan() -> None:
    assert static_prices("cn-north-1").currency == "CNY"
    assert static_prices("cn-northwest-1").currency == "CNY"


def test_a_region_without_a_list_gets_another_ones_and_the_note_says_whose() -> None:
    book = static_prices("eu-central-1")

    assert book.on_demand == static_prices("us-east-1").on_demand
    assert "eu-central-1" in book.note
    assert "us-east-1" in book.note


def test_before_spot_prices_are_known_spot_costs_what_on_demand_costs() -> None:
    book = static_prices("us-east-1")

    assert book.price("m5.large", "us-east-1a", spot=True) == 0.096


def test_once_spot_prices_are_known_a_zone_without_one_has_no_price() -> None:
    book = PriceBook(on_demand={"m5.large": 0.096}, spot={("m5.large", "us-east-1a"): 0.03})

    assert book.price("m5.large", "us-east-1a", spot=True) == 0.03
    assert book.price("m5.large", "us-east-1b", spot=True) is None
    assert book.price("m6.large", "us-east-1a", spot=False) is None


def test_the_built_in_catalogue_prices_spot_at_forty_percent_and_says_so() -> None:
    catalog = builtin_catalog()
    m5 = next(t for t in catalog.instance_types if t.name == "m5.large")

    prices = {o.capacity_type: o.price for o in m5.offerings}

    assert prices == {CapacityType.ON_DEMAND: 0.096, CapacityType.SPOT: 0.0384}
    assert "40%" in catalog.note


def test_the_built_in_catalogue_holds_only_types_that_have_a_price_and_a_zone() -> None:
    types = builtin_catalog().instance_types

    assert len(types) >= 1300
    assert all(t.offerings for t in types)
    assert sum(t.requirements.labels().get(CATEGORY, "") in {"c", "m", "r"} for t in types) > 700


def test_elsewhere_the_built_in_catalogue_assumes_three_zones_and_says_so() -> None:
    catalog = builtin_catalog("cn-north-1")

    assert set(catalog.zones) == {"cn-north-1a", "cn-north-1b", "cn-north-1c"}
    assert catalog.currency == "CNY"
    assert "cn-north-1a" in catalog.note
