"""Catalogue files: `{"apiVersion": "sawhorse.dev/v1", "kind": "Catalog", …}` to instance types.

Every problem is one line: which object, which field, what is wrong, what to do.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sawhorse_catalog.aws.resolve import Resolution, ResolveSettings
from sawhorse_catalog.facts import Gpu
from sawhorse_catalog.file_types import FileEntry, resolve_entries
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.manifests import ManifestError, fields
from sawhorse_model.manifests.fields import Raw
from sawhorse_model.resources import CPU, MEMORY

API_VERSION = "sawhorse.dev/v1"
KIND = "Catalog"
_LONGEST = 256 * 2**20  # bytes
_TOP = frozenset({"apiVersion", "kind", "currency", "instanceTypes", "metadata"})
_TYPE = frozenset(
    {
        "name", "architecture", "operatingSystems", "vcpus", "memoryMiB", "capacity", "allocatable", "labels",
        "supportedFeatures", "validCores", "gpus", "offerings",
    },
)  # fmt: skip
_OFFERING = frozenset({"zone", "zoneId", "capacityType", "price", "available", "reservationId", "reservationCount"})
_GPU = frozenset({"name", "manufacturer", "count", "memoryMiB"})
_ARCHITECTURES = ("amd64", "arm64")
_SYSTEMS = ("linux", "windows")


class CatalogError(ValueError):
    """A catalogue file cannot be used. `path` is the field, `problem` what is wrong and what to do."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """A catalogue file that was read.

    `instance_types` are those of a NodeClass with defaults; `resolve` gives those of another. `warnings` name fields
    that are not part of the format, one line each.
    """

    currency: str
    instance_types: tuple[InstanceType, ...]
    entries: tuple[FileEntry, ...] = ()
    warnings: tuple[str, ...] = ()

    def resolve(self, node_class: EC2NodeClass | None, *, settings: ResolveSettings | None = None) -> Resolution:
        """The types as a NodeClass sees them. Given `allocatable` stays as it is."""
        if node_class is None and settings is None:
            return Resolution(self.instance_types)
        return resolve_entries(self.entries, node_class, settings)


def parse_catalog_file(data: bytes) -> CatalogFile:
    """Read a catalogue file.

    Raises:
        CatalogError: the first problem found.
    """
    raw = _decode(data)
    warnings = [*_unknown(raw, _TOP, "")]
    try:
        _check_head(raw)
        currency = fields.text(raw, "currency", "") or "USD"
        entries = tuple(
            _entry(item, f"instanceTypes[{i}]", warnings)
            for i, item in enumerate(fields.items(raw, "instanceTypes", ""))
        )
    except ManifestError as error:
        raise CatalogError(error.field, error.problem) from error
    if not entries:
        raise CatalogError("instanceTypes", "the catalogue is empty; list at least one instance type")
    _check_names(entries)
    return CatalogFile(currency, resolve_entries(entries, None).instance_types, entries, tuple(warnings))


def _decode(data: bytes) -> Raw:
    if len(data) > _LONGEST:
        raise CatalogError("", f"the file has {len(data)} bytes, more than any catalogue; is it the right file?")
    try:
        # The standard reader accepts NaN, so that it can be refused with the name of its field.
        raw = json.loads(data)
    except RecursionError:
        raise CatalogError("", "the file nests too deeply to be a catalogue; is it the right file?") from None
    except ValueError as error:
        raise CatalogError("", f"the file is not JSON ({error}); write the catalogue as one JSON object") from error
    if not isinstance(raw, Mapping):
        raise CatalogError("", "the file holds no JSON object; write the catalogue as one JSON object")
    return raw


def _check_head(raw: Raw) -> None:
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        found = fields.text(raw, key, "")
        if found != expected:
            raise ManifestError(key, f"{found!r} is not {expected!r}; is this a catalogue file?")


def _check_names(entries: Sequence[FileEntry]) -> None:
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if entry.name in first:
            raise CatalogError(
                f"instanceTypes[{index}].name",
                f"{entry.name!r} is listed already at instanceTypes[{first[entry.name]}]; keep one",
            )
        first[entry.name] = index


def _entry(raw: Raw, place: str, warnings: list[str]) -> FileEntry:
    name = fields.text(raw, "name", place)
    if not name:
        raise ManifestError(f"{place}.name", "is missing; give the instance type a name")
    path = f"{place} ({name})"
    warnings.extend(_unknown(raw, _TYPE, path))
    entry = FileEntry(
        name=name,
        architecture=_one_of(fields.text(raw, "architecture", path, "amd64"), _ARCHITECTURES, f"{path}.architecture"),
        operating_systems=tuple(
            _one_of(word, _SYSTEMS, f"{path}.operatingSystems[{i}]")
            for i, word in enumerate(fields.texts(raw, "operatingSystems", path) or ("linux",))
        ),
        offerings=_offerings(raw, path, warnings),
        vcpus=_optional_count(raw, "vcpus", path),
        memory_mib=_optional_count(raw, "memoryMiB", path),
        capacity=_optional_resources(raw, "capacity", path),
        allocatable=_optional_resources(raw, "allocatable", path),
        labels=fields.string_map(raw, "labels", path),
        features=fields.texts(raw, "supportedFeatures", path),
        valid_cores=_counts(raw, "validCores", path),
        gpus=tuple(_gpu(g, f"{path}.gpus[{i}]", warnings) for i, g in enumerate(fields.items(raw, "gpus", path))),
    )
    _check_size(entry, path)
    return entry


def _check_size(entry: FileEntry, path: str) -> None:
    if entry.allocatable is not None:
        return
    sizes = ((CPU, entry.vcpus, "vcpus"), (MEMORY, entry.memory_mib, "memoryMiB"))
    for resource, figure, key in sizes:
        if figure is None and resource not in (entry.capacity or {}):
            raise ManifestError(path, f"its {resource} is not given; set {key}, capacity.{resource} or allocatable")


def _offerings(raw: Raw, path: str, warnings: list[str]) -> tuple[Offering, ...]:
    found: dict[tuple[str, str, str], Offering] = {}
    for index, item in enumerate(fields.items(raw, "offerings", path)):
        place = f"{path}.offerings[{index}]"
        warnings.extend(_unknown(item, _OFFERING, place))
        offering = _offering(item, place)
        if offering.capacity_type is CapacityType.RESERVED and offering.available:
            if not (offering.reservation_id and offering.reservation_count):
                warnings.append(f"{place}: has no reservationId or no reservationCount; nothing is planned into it")
        key = (offering.zone, offering.capacity_type.value, offering.reservation_id)
        if key in found:
            raise ManifestError(place, f"{key[1]} in {key[0]} is listed twice; keep one")
        found[key] = offering
    return tuple(found.values())


def _offering(raw: Raw, path: str) -> Offering:
    zone = fields.text(raw, "zone", path)
    if not zone:
        raise ManifestError(f"{path}.zone", "is missing; name the zone")
    word = fields.text(raw, "capacityType", path)
    return Offering(
        zone=zone,
        capacity_type=CapacityType(_one_of(word, tuple(CapacityType), f"{path}.capacityType")),
        price=_price(raw, path),
        available=_boolean(raw, "available", path, default=True),
        zone_id=fields.text(raw, "zoneId", path),
        reservation_id=fields.text(raw, "reservationId", path),
        reservation_count=fields.integer(raw, "reservationCount", path, low=0, high=2**31 - 1),
    )


def _price(raw: Raw, path: str) -> float:
    value = raw.get("price")
    if value is None:
        raise ManifestError(f"{path}.price", "is missing; give the price per hour")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ManifestError(f"{path}.price", f"{value!r} is not a number; give the price per hour")
    try:
        price = float(value)
    except OverflowError:
        price = math.inf
    if not math.isfinite(price):
        raise ManifestError(f"{path}.price", f"{price} is not a price; give a number of zero or more per hour")
    if price < 0:
        raise ManifestError(f"{path}.price", f"{price} is negative; give a number of zero or more per hour")
    return price


def _gpu(raw: Raw, path: str, warnings: list[str]) -> Gpu:
    warnings.extend(_unknown(raw, _GPU, path))
    return Gpu(
        name=fields.text(raw, "name", path),
        manufacturer=fields.text(raw, "manufacturer", path),
        count=fields.integer(raw, "count", path, 1, low=1, high=2**31 - 1),
        memory_mib=fields.integer(raw, "memoryMiB", path, low=0),
    )


def _optional_resources(raw: Raw, key: str, path: str) -> dict[str, int] | None:
    return fields.resources(raw, key, path) if raw.get(key) is not None else None


def _optional_count(raw: Raw, key: str, path: str) -> int | None:
    return fields.integer(raw, key, path, low=1, high=2**31 - 1) if raw.get(key) is not None else None


def _counts(raw: Raw, key: str, path: str) -> tuple[int, ...]:
    value = raw.get(key)
    if value is None:
        return ()
    where = f"{path}.{key}"
    if not isinstance(value, list):
        raise ManifestError(where, "must be a list of whole numbers")
    for index, item in enumerate(value):
        if isinstance(item, bool) or not isinstance(item, int) or item < 1:
            raise ManifestError(f"{where}[{index}]", f"{item!r} is not a whole number of one or more")
    return tuple(value)


def _boolean(raw: Raw, key: str, path: str, *, default: bool) -> bool:
    value: Any = raw.get(key, default)
    if not isinstance(value, bool):
        raise ManifestError(f"{path}.{key}", f"{value!r} is neither true nor false; write true or false")
    return value


def _one_of(word: str, allowed: Sequence[str], path: str) -> str:
    if word not in allowed:
        raise ManifestError(path, f"{word!r} is not known; use one of {', '.join(allowed)}")
    return word


def _unknown(raw: Raw, known: frozenset[str], path: str) -> list[str]:
    return [
        f"{path}.{key}: is not a field of a catalogue file; it is ignored".lstrip(".")
        for key in raw
        if key not in known
    ]
