"""Snapshots: published whole, read back equal, and not believed when half is missing."""

import zlib
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawhorse_catalog.prices import PriceBook
from sawhorse_catalog.snapshot import (
    CatalogSnapshot,
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
    is_plausible,
    make_snapshot,
    why_implausible,
)
from sawhorse_testing.catalog import ZONES, common_facts, common_prices


def a_snapshot(*, types: int = 8, prices: PriceBook | None = None, fetched_at: float = 1000.0) -> CatalogSnapshot:
    return make_snapshot(
        common_facts()[:types],
        ZONES,
        prices or common_prices(),
        region="us-west-2",
        fetched_at=fetched_at,
        spot_fetched_at=fetched_at + 1,
    )


def test_a_snapshot_comes_back_from_its_bytes() -> None:
    snapshot = a_snapshot()

    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot


def test_the_version_names_the_content_and_not_the_time() -> None:
    assert a_snapshot(fetched_at=1.0).version == a_snapshot(fetched_at=2.0).version
    assert a_snapshot(types=7).version != a_snapshot().version
    assert a_snapshot(prices=replace(common_prices(), static=True)).version != a_snapshot().version


def test_the_order_of_a_fetch_changes_nothing() -> None:
    backwards = make_snapshot(
        tuple(reversed(common_facts())),
        dict(reversed(ZONES.items())),
        replace(common_prices(), spot=dict(reversed(common_prices().spot.items()))),
        region="us-west-2",
        fetched_at=1000.0,
    )

    assert backwards.version == a_snapshot().version


@given(st.binary(max_size=200))
def test_bytes_that_are_no_catalogue_are_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        decode_snapshot(data)


@given(st.binary(max_size=200))
def test_compressed_bytes_that_are_no_catalogue_are_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        decode_snapshot(zlib.compress(data))


def test_a_cut_catalogue_is_refused() -> None:
    data = encode_snapshot(a_snapshot())

    with pytest.raises(SnapshotError):
        decode_snapshot(data[:-10])


def test_another_format_is_refused_with_its_number() -> None:
    data = zlib.compress(zlib.decompress(encode_snapshot(a_snapshot())).replace(b'"format":1', b'"format":9'))

    with pytest.raises(SnapshotError, match="format 9"):
        decode_snapshot(data)


def test_an_empty_fetch_is_never_plausible() -> None:
    assert why_implausible(a_snapshot(types=0), None) == "the answer holds no instance types"
    assert not is_plausible(a_snapshot(prices=PriceBook()), None)


def test_a_first_fetch_with_something_in_it_is_plausible() -> None:
    assert is_plausible(a_snapshot(types=1), None)


def test_a_missing_page_is_not_plausible_and_a_few_withdrawn_types_are() -> None:
    facts = [msgspec.structs.replace(common_facts()[0], name=f"m9.{n}xlarge") for n in range(1000)]
    prices = PriceBook(on_demand={fact.name: 1.0 for fact in facts})
    before, cut, fewer = (
        make_snapshot(facts[missing:], ZONES, prices, region="us-west-2", fetched_at=0.0) for missing in (0, 100, 20)
    )

    assert why_implausible(cut, before) == "the answer holds 900 instance types, before there were 1000"
    assert is_plausible(fewer, before)


def test_less_than_half_of_before_is_not_plausible_and_half_is() -> None:
    assert not is_plausible(a_snapshot(types=3), a_snapshot())
    assert is_plausible(a_snapshot(types=4), a_snapshot())
