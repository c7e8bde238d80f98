"""Kubernetes quantities are exact."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawhorse_model.quantity import QuantityError, format_bytes, format_milli, milli, parse_quantity, whole
from sawhorse_model.resources import add, fits, format_resources, largest, parse_resources, scale, subtract


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("250m", Fraction(1, 4)),
        ("1.5Gi", 3 * 2**29),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("2e3", 2000),
        ("1E-3", Fraction(1, 1000)),
        ("1E", 10**18),
        ("100n", Fraction(1, 10**7)),
        ("+3k", 3000),
        ("-1", -1),
        (2, 2),
        (0.1, Fraction(1, 10)),
    ],
)
def test_a_quantity_is_read_exactly(text: str | int | float, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "abc", "1 Gi", "1gi", "1.2.3", "--1", "1e999", "1e", "0x10", "NaN", True, None])
def test_what_is_not_a_quantity_is_refused(text: object) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)  # type: ignore[arg-type]


def test_fractions_of_a_unit_round_up() -> None:
    assert milli("100u") == 1
    assert whole("1500m") == 2
    assert milli("0.0001") == 1


@given(st.integers(0, 2**62))
def test_formatted_bytes_read_back_the_same(value: int) -> None:
    assert whole(format_bytes(value)) == value


@given(st.integers(0, 2**50))
def test_formatted_millicores_read_back_the_same(value: int) -> None:
    assert milli(format_milli(value)) == value


resource_maps = st.dictionaries(st.sampled_from(("cpu", "memory", "pods")), st.integers(0, 2**40))


@given(resource_maps, resource_maps)
def test_adding_then_subtracting_gives_the_first_back(left: dict[str, int], right: dict[str, int]) -> None:
    rest = subtract(add(left, right), right)

    assert all(rest.get(name, 0) == left.get(name, 0) for name in ("cpu", "memory", "pods"))


@given(resource_maps, resource_maps)
def test_the_largest_of_two_maps_covers_both(left: dict[str, int], right: dict[str, int]) -> None:
    cover = largest([left, right])

    assert fits(left, cover)
    assert fits(right, cover)


def test_a_resource_that_is_not_there_is_zero() -> None:
    assert not fits({"nvidia.com/gpu": 1}, {"cpu": 1000})
    assert fits({"nvidia.com/gpu": 0}, {"cpu": 1000})


def test_cpu_is_kept_in_millicores_and_memory_in_bytes() -> None:
    read = parse_resources({"cpu": "1500m", "memory": "1Gi", "pods": "110"})

    assert read == {"cpu": 1500, "memory": 2**30, "pods": 110}
    assert format_resources(scale(read, 2)) == {"cpu": "3", "memory": "2Gi", "pods": "220"}
