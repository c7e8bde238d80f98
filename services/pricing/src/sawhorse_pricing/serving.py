"""What the service answers from: the current catalogue in memory, what is out of capacity, and resolved NodeClasses.

Everything here is read from memory. Resolving runs in a thread, so that a cold NodeClass stops nobody; two calls for
the same one share the work.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from sawhorse_catalog.aws import ResolveSettings, Unavailable, resolve, withhold
from sawhorse_catalog.snapshot import CatalogSnapshot
from sawhorse_catalog.wire import instance_type_to_message
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_model.requirements import Requirements
from sawhorse_pricing.instruments import Instruments
from sawhorse_proto.catalog.v1 import catalog_pb2
from sawhorse_runtime.errors import UnavailableError

log = structlog.get_logger(__name__)

MOST_CLASSES = 64  # kept resolved; each costs some MB


@dataclass(frozen=True, slots=True)
class Resolved:
    """The types of a NodeClass with their messages, in the same order. `version` changes with any of it."""

    version: str
    types: tuple[InstanceType, ...]
    messages: tuple[catalog_pb2.InstanceType, ...]
    index: Mapping[str, int]

    def message(self, name: str) -> catalog_pb2.InstanceType | None:
        """One type by name."""
        place = self.index.get(name)
        return None if place is None else self.messages[place]


@dataclass(slots=True)
class _Entry:
    """One NodeClass: resolved with everything in stock, and as it is now."""

    base: Resolved | None = None
    current: Resolved | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Catalogue:
    """The current catalogue. Belongs to one event loop."""

    def __init__(self, *, settings: ResolveSettings, instruments: Instruments) -> None:
        self._settings = settings
        self._instruments = instruments
        self._snapshot: CatalogSnapshot | None = None
        self._unavailable: Unavailable = frozenset()
        self._version = ""
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    @property
    def is_loaded(self) -> bool:
        """Whether there is a catalogue at all."""
        return self._snapshot is not None

    @property
    def snapshot(self) -> CatalogSnapshot | None:
        """What was fetched last."""
        return self._snapshot

    @property
    def version(self) -> str:
        """Names everything that answers depend on: content, what is out of capacity, settings.

        Equal on all replicas that know the same, so that "not modified" holds whichever of them answers.
        """
        return self._version

    def take(self, snapshot: CatalogSnapshot) -> None:
        """Serve this catalogue from now on. What was resolved stays when only its time is newer."""
        changed = self._snapshot is None or self._snapshot.version != snapshot.version
        self._snapshot = snapshot
        if changed:
            self._entries.clear()
            self._rename()
            log.info(
                "serving catalogue",
                version=snapshot.version,
                instance_types=len(snapshot.facts),
                static_prices=snapshot.prices.static,
            )
        self._instruments.instance_types.set(len(snapshot.facts))
        self._instruments.static_prices.set(snapshot.prices.static)

    def set_unavailable(self, unavailable: Unavailable) -> None:
        """What is out of capacity now."""
        if unavailable != self._unavailable:
            self._unavailable = unavailable
            self._rename()
        self._instruments.unavailable.set(len(unavailable))

    def info(self, version: str = "") -> catalog_pb2.CatalogInfo:
        """The head of every answer.

        Raises:
            UnavailableError: there is no catalogue yet.
        """
        snapshot = self._loaded()
        return catalog_pb2.CatalogInfo(
            version=version or self._version,
            currency=snapshot.prices.currency,
            fetched_at=snapshot.fetched_at,
            static_prices=snapshot.prices.static,
            instance_types=len(snapshot.facts),
        )

    def version_for(self, key: str) -> str:
        """The version of a NodeClass's answer; `key` names what resolution reads of it."""
        return _digest(self._version, key)

    async def resolve(self, node_class: EC2NodeClass | None, key: str) -> Resolved:
        """The types as a NodeClass sees them now; None: before any NodeClass.

        Args:
            key: names what resolution reads of the NodeClass; equal keys give equal answers. Empty for None.
        Raises:
            UnavailableError: there is no catalogue yet.
        """
        snapshot = self._loaded()
        entry = self._entry(key)
        async with entry.lock:
            if entry.base is None:
                entry.base = await asyncio.to_thread(self._resolve, snapshot, node_class)
            # Both may have moved on while the thread worked; an older base is answered under its own version.
            version, unavailable = _digest(self._version, key), self._unavailable
            if self._snapshot is None or self._snapshot.version != snapshot.version:
                version = _digest(snapshot.version, key)
            if entry.current is None or entry.current.version != version:
                entry.current = _withheld(entry.base, unavailable, version)
            return entry.current

    def _loaded(self) -> CatalogSnapshot:
        if self._snapshot is None:
            raise UnavailableError("the catalogue is not loaded yet", action="Wait until the first fetch is done.")
        return self._snapshot

    def _entry(self, key: str) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            while len(self._entries) > MOST_CLASSES:
                self._entries.popitem(last=False)
        self._entries.move_to_end(key)
        return entry

    def _resolve(self, snapshot: CatalogSnapshot, node_class: EC2NodeClass | None) -> Resolved:
        began = time.monotonic()
        resolution = resolve(
            snapshot.facts,
            node_class,
            snapshot.prices,
            region=snapshot.region,
            zones=snapshot.zones,
            settings=self._settings,
        )
        messages = tuple(instance_type_to_message(t) for t in resolution.instance_types)
        self._instruments.resolve_seconds.observe(time.monotonic() - began)
        index = {t.name: i for i, t in enumerate(resolution.instance_types)}
        return Resolved("", resolution.instance_types, messages, index)

    def _rename(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        settings = self._settings
        self._version = _digest(
            snapshot.version,
            repr((settings.vm_memory_overhead_percent, settings.reserved_enis, settings.require_subnets)),
            *(" ".join(offering) for offering in sorted(self._unavailable)),
        )


def filtered(types: Iterable[InstanceType], wanted: Requirements) -> Sequence[InstanceType]:
    """The types that `wanted` allows, with the offerings that it allows. All keys are compared strictly.

    With a wish about zone or capacity type, types without an offering left are dropped.
    """
    about_offerings = ZONE in wanted or CAPACITY_TYPE in wanted
    found: list[InstanceType] = []
    for kind in types:
        if not kind.requirements.is_compatible(wanted):
            continue
        if about_offerings:
            offerings = tuple(o for o in kind.offerings if o.allowed_by(wanted))
            if not offerings:
                continue
            kind = InstanceType(kind.name, kind.requirements, offerings, kind.capacity, kind.allocatable)
        found.append(kind)
    return found


def _withheld(base: Resolved, unavailable: Unavailable, version: str) -> Resolved:
    types = withhold(base.types, unavailable)
    messages = tuple(
        message if now is before else instance_type_to_message(now)
        for now, before, message in zip(types, base.types, base.messages, strict=True)
    )
    return Resolved(version, types, messages, base.index)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
