"""A whole catalogue as one value: facts, zones and prices of one fetch, and its bytes for publishing.

A snapshot is published and read whole, so that types and prices never come from two fetches.
"""

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from sawhorse_catalog.facts import InstanceFacts
from sawhorse_catalog.prices import PriceBook

_FORMAT = 1
_LARGEST = 256 * 2**20  # bytes of JSON; real catalogues are near 2 MB, and a bad blob must not fill the memory


class SnapshotError(ValueError):
    """The bytes are not a catalogue that this version can read."""


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """One complete fetch.

    `zones`: zone name → zone id. `fetched_at` and `spot_fetched_at`: unix seconds of the last complete fetch, and of
    the last one of spot prices (0: never). `version` names the content alone: a fetch that found nothing new has the
    version of the one before.
    """

    region: str
    facts: tuple[InstanceFacts, ...]
    zones: Mapping[str, str]
    prices: PriceBook
    fetched_at: float
    version: str
    spot_fetched_at: float = 0.0


class _Prices(msgspec.Struct, frozen=True, rename="camel"):
    on_demand: dict[str, float]
    spot: dict[str, dict[str, float]]  # type → zone → price
    currency: str
    static: bool
    spot_share: float | None
    note: str


class _Content(msgspec.Struct, frozen=True, rename="camel"):
    region: str
    facts: tuple[InstanceFacts, ...]
    zones: dict[str, str]
    prices: _Prices


class _Blob(msgspec.Struct, frozen=True, rename="camel"):
    format: int
    fetched_at: float
    spot_fetched_at: float
    version: str
    content: msgspec.Raw


def make_snapshot(
    facts: Iterable[InstanceFacts],
    zones: Mapping[str, str],
    prices: PriceBook,
    *,
    region: str,
    fetched_at: float,
    spot_fetched_at: float = 0.0,
) -> CatalogSnapshot:
    """Put a snapshot together; the types are sorted by name, so that equal fetches are equal."""
    ordered = tuple(sorted(facts, key=lambda f: f.name))
    content = _encode_content(ordered, zones, prices, region)
    return CatalogSnapshot(region, ordered, dict(zones), prices, fetched_at, _version(content), spot_fetched_at)


def encode_snapshot(snapshot: CatalogSnapshot) -> bytes:
    """The bytes of `catalog:<version>`: JSON, compressed (a tenth of the size)."""
    content = _encode_content(snapshot.facts, snapshot.zones, snapshot.prices, snapshot.region)
    blob = _Blob(_FORMAT, snapshot.fetched_at, snapshot.spot_fetched_at, snapshot.version, msgspec.Raw(content))
    return zlib.compress(msgspec.json.encode(blob), level=1)


def decode_snapshot(data: bytes) -> CatalogSnapshot:
    """Read the bytes back.

    Raises:
        SnapshotError: they are damaged, or of another version of the format.
    """
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(data, _LARGEST)
        if not inflate.eof:
            raise SnapshotError("the catalogue is cut short or larger than any real one")
        blob = msgspec.json.decode(text, type=_Blob)
        if blob.format != _FORMAT:
            raise SnapshotError(f"the catalogue has format {blob.format}, this version reads {_FORMAT}")
        content = msgspec.json.decode(blob.content, type=_Content)
    except (zlib.error, msgspec.DecodeError) as error:
        raise SnapshotError(f"the catalogue is damaged: {error}") from error
    prices = content.prices
    book = PriceBook(
        on_demand=prices.on_demand,
        spot={(kind, zone): price for kind, zones in prices.spot.items() for zone, price in zones.items()},
        currency=prices.currency,
        static=prices.static,
        spot_share=prices.spot_share,
        note=prices.note,
    )
    return CatalogSnapshot(
        content.region, content.facts, content.zones, book, blob.fetched_at, blob.version, blob.spot_fetched_at
    )


def with_retired(facts: Iterable[InstanceFacts], last: CatalogSnapshot | None) -> tuple[InstanceFacts, ...]:
    """A fetch's types, and those of before that it no longer lists: nodes of them may still run, and need a price."""
    now = tuple(facts)
    names = {fact.name for fact in now}
    gone = [fact for fact in (last.facts if last is not None else ()) if fact.name not in names]
    return (*now, *(msgspec.structs.replace(fact, retired=True) for fact in gone))


_FEW = 20


def why_implausible(new: CatalogSnapshot, old: CatalogSnapshot | None) -> str:
    """Why a fetch looks incomplete: nothing in it, or much less than before. Empty when it looks fine.

    Clouds withdraw a handful of types at a time; a page that was cut off looks like a hundred of them. The caller takes
    a second look before it believes such an answer.
    """
    counts = [
        ("instance types", _listed(new), _listed(old) if old else 0),
        ("zones", len(new.zones), len(old.zones) if old else 0),
        ("offered zones of types", _places(new), _places(old) if old else 0),
        ("on-demand prices", len(new.prices.on_demand), len(old.prices.on_demand) if old else 0),
    ]
    for what, now, before in counts:
        if now == 0:
            return f"the answer holds no {what}"
        if now * 2 < before or before - now > max(_FEW, before // 20):
            return f"the answer holds {now} {what}, before there were {before}"
    return ""


def is_plausible(new: CatalogSnapshot, old: CatalogSnapshot | None) -> bool:
    """Whether a fetch looks complete; see `why_implausible`."""
    return not why_implausible(new, old)


def _places(snapshot: CatalogSnapshot) -> int:
    return sum(len(f.zones) for f in snapshot.facts if not f.retired)


def _listed(snapshot: CatalogSnapshot) -> int:
    return sum(not f.retired for f in snapshot.facts)


def _encode_content(
    facts: tuple[InstanceFacts, ...], zones: Mapping[str, str], prices: PriceBook, region: str
) -> bytes:
    spot: dict[str, dict[str, float]] = {}
    for (kind, zone), price in prices.spot.items():
        spot.setdefault(kind, {})[zone] = price
    book = _Prices(dict(prices.on_demand), spot, prices.currency, prices.static, prices.spot_share, prices.note)
    return msgspec.json.encode(_Content(region, facts, dict(zones), book), order="deterministic")


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
