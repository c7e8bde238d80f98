"""What the service answers from: the current catalogue in memory, what is out of capacity, and resolved NodeClasses.

Everything here is read from memory. Resolving runs in a thread, so that a cold NodeClass stops nobody; two calls for
the same one share the work.
"""

import asyncio
import contextlib
import hashlib
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import structlog

from sawhorse_catalog.account import AccountFacts
from sawhorse_catalog.aws import ResolveSettings, Unavailable, count_free, resolve, withhold
from sawhorse_catalog.aws.node_class import placement_selector, reservations_of
from sawhorse_catalog.measured import Measured, memory_for
from sawhorse_catalog.snapshot import CatalogSnapshot
from sawhorse_catalog.wire import instance_type_to_message
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_model.requirements import Requirements
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.scopes import Reach, ScopedMark, full_reservations, reach_of, withheld
from sawhorse_proto.catalog.v1 import catalog_pb2
from sawhorse_runtime.errors import UnavailableError

log = structlog.get_logger(__name__)

MOST_CLASSES = 64  # kept resolved; each costs some MB
MOST_ANSWERS = 256  # to filters, of each
_BODY = object()


@dataclass(frozen=True, slots=True)
class Resolved:
    """The types of a NodeClass with their messages, in the same order. `version` changes with any of it.

    `excluded`: why the NodeClass cannot use a type. `measured`: types whose memory a node has reported.
    """

    version: str
    types: tuple[InstanceType, ...]
    messages: tuple[catalog_pb2.InstanceType, ...]
    index: Mapping[str, int]
    excluded: Mapping[str, str] = field(default_factory=dict)
    measured: tuple[str, ...] = ()
    _kept: dict[Any, Any] = field(default_factory=dict)

    def message(self, name: str) -> catalog_pb2.InstanceType | None:
        """One type by name."""
        place = self.index.get(name)
        return None if place is None else self.messages[place]

    @property
    def body(self) -> bytes:
        """`instance_types` of a ListInstanceTypesResponse or ResolveResponse (one number in both), written once.

        Protobuf messages may be joined: what comes before it is the head of the answer.
        """
        if _BODY not in self._kept:
            self._kept[_BODY] = catalog_pb2.ListInstanceTypesResponse(instance_types=self.messages).SerializeToString()
        found: bytes = self._kept[_BODY]
        return found

    def matching(self, wanted: Requirements, max_price: float, question: bytes) -> tuple[catalog_pb2.InstanceType, ...]:
        """Messages of the types that pass a filter, in order of name; the last questions' answers are kept.

        Args:
            max_price: 0 for any.
            question: names the filter.
        """
        found: tuple[catalog_pb2.InstanceType, ...] | None = self._kept.get(question)
        if found is None:
            kept = filtered(self.types, wanted, max_price=max_price)
            found = tuple(self._as_message(kind) for kind in sorted(kept, key=lambda kind: kind.name))
            while len(self._kept) >= MOST_ANSWERS:
                del self._kept[next(iter(self._kept))]
            self._kept[question] = found
        return found

    def _as_message(self, kind: InstanceType) -> catalog_pb2.InstanceType:
        place = self.index[kind.name]
        return self.messages[place] if self.types[place] is kind else instance_type_to_message(kind)


@dataclass(slots=True)
class _Entry:
    """One NodeClass: resolved with everything in stock, and as it is now; the marks that were looked at for it last."""

    base: Resolved | None = None
    current: Resolved | None = None
    reach: Reach = field(default_factory=Reach)
    marks: frozenset[ScopedMark] = frozenset()
    limited: Unavailable = frozenset()  # what the marks take from it
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Catalogue:
    """The current catalogue. Belongs to one event loop."""

    def __init__(self, *, settings: ResolveSettings, instruments: Instruments) -> None:
        self._settings = settings
        self._instruments = instruments
        self._snapshot: CatalogSnapshot | None = None
        self._unavailable: Unavailable = frozenset()
        self._scoped: frozenset[ScopedMark] = frozenset()
        self._account = AccountFacts()
        self._measured: Measured = {}
        self._version = ""
        self._core = ""  # the same without marks that concern only some
        self._moved = asyncio.Event()  # set, and replaced, when the version moves on
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

    def set_unavailable(self, unavailable: Unavailable, scoped: frozenset[ScopedMark] = frozenset()) -> None:
        """What is out of capacity now: to everybody, and to those whom a scope names."""
        if (unavailable, scoped) != (self._unavailable, self._scoped):
            self._unavailable, self._scoped = unavailable, scoped
            self._rename()
        self._instruments.unavailable.set(len(unavailable) + len(scoped))

    def set_account(self, account: AccountFacts) -> None:
        """The account's reservations, with what is free of them now, and its placement groups."""
        if account == self._account:
            return
        if account.placement_groups != self._account.placement_groups:
            self._entries.clear()  # they decide which types fit; what is free is counted in later
        self._account = account
        self._rename()

    def set_measured(self, measured: Measured) -> None:
        """What nodes reported about their memory."""
        if measured != self._measured:
            self._measured = dict(measured)
            self._entries.clear()
            self._rename()
        self._instruments.measured.set(len(measured))

    async def wait_beyond(self, version: str, longest: timedelta) -> None:
        """Return when the version is another one, or after `longest`."""
        moved = self._moved
        if self.is_loaded and self._version != version:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest.total_seconds()):
                await moved.wait()

    def wake_waiting(self) -> None:
        """Make all that `wait_beyond` return."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

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
        """The version of a NodeClass's answer; `key` names what resolution reads of it.

        A mark that does not concern the NodeClass does not change it. Empty where that is not known yet.
        """
        entry = self._entries.get(key)
        if self._scoped and (entry is None or entry.base is None):
            return ""
        return self._class_version(key, self._limited(entry) if entry is not None else frozenset())

    def _class_version(self, key: str, limited: Unavailable) -> str:
        full = full_reservations(self._scoped)
        return _digest(self._core, key, *(" ".join(offering) for offering in sorted(limited)), *sorted(full))

    def _limited(self, entry: _Entry) -> Unavailable:
        """What the marks of now take from a NodeClass; looked at once for each change of the marks."""
        if entry.base is not None and entry.marks is not self._scoped:
            entry.limited = withheld(self._scoped, entry.reach, entry.base.types)
            entry.marks = self._scoped
        return entry.limited

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
                group = self._account.group_of(placement_selector(node_class)) if node_class is not None else None
                entry.base = await asyncio.to_thread(self._resolve, snapshot, node_class)
                entry.reach, entry.marks = reach_of(node_class, group), frozenset()
            # Both may have moved on while the thread worked; an older base is answered under its own version.
            limited, unavailable = self._limited(entry), self._unavailable
            version = self._class_version(key, limited)
            free = {**self._account.free, **dict.fromkeys(full_reservations(self._scoped), 0)}
            if self._snapshot is None or self._snapshot.version != snapshot.version:
                version = _digest(snapshot.version, key)
            if entry.current is None or entry.current.version != version:
                # A full subnet takes an offering from nearly every type: too much work for the loop.
                entry.current = await asyncio.to_thread(_withheld, entry.base, unavailable | limited, free, version)
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
        group, memory, stocked = None, dict[str, int](), dict[str, int]()
        if node_class is not None:
            group = self._account.group_of(placement_selector(node_class))
            memory = memory_for(node_class.node_class.spec, (ami.id for ami in node_class.amis), self._measured)
            # Everything in stock here: what is really free changes by the minute, and is counted in each time.
            stocked = {r.id: 1 for r in reservations_of(node_class)}
        resolution = resolve(
            snapshot.facts,
            node_class,
            snapshot.prices,
            region=snapshot.region,
            zones=snapshot.zones,
            settings=self._settings,
            measured_memory=memory,
            placement_group=group,
            free=stocked,
        )
        messages = tuple(instance_type_to_message(t) for t in resolution.instance_types)
        self._instruments.resolve_seconds.observe(time.monotonic() - began)
        index = {t.name: i for i, t in enumerate(resolution.instance_types)}
        return Resolved(
            "",
            resolution.instance_types,
            messages,
            index,
            resolution.excluded,
            tuple(sorted(memory.keys() & index.keys())),
        )

    def _rename(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        settings = self._settings
        self._core = _digest(
            snapshot.version,
            repr(
                (
                    settings.vm_memory_overhead_percent,
                    settings.reserved_enis,
                    settings.require_subnets,
                    settings.prefix_delegation,
                )
            ),
            self._account.version,
            repr(sorted(self._measured.items())),
            *(" ".join(offering) for offering in sorted(self._unavailable)),
        )
        self._version = _digest(self._core, *(" ".join(mark) for mark in sorted(self._scoped)))
        self.wake_waiting()


def filtered(types: Iterable[InstanceType], wanted: Requirements, *, max_price: float = 0.0) -> Sequence[InstanceType]:
    """The types that `wanted` allows, with the offerings that it allows. All keys are compared strictly.

    With a wish about zone, capacity type or price, types without an offering left are dropped.

    Args:
        max_price: of an offering, which must then be available; 0 for any.
    """
    about_offerings = ZONE in wanted or CAPACITY_TYPE in wanted or max_price > 0
    found: list[InstanceType] = []
    for kind in types:
        if not kind.requirements.is_compatible(wanted):
            continue
        if about_offerings:
            offerings = tuple(
                o
                for o in kind.offerings
                if (not max_price or (o.available and o.price <= max_price)) and o.allowed_by(wanted)
            )
            if not offerings:
                continue
            kind = InstanceType(kind.name, kind.requirements, offerings, kind.capacity, kind.allocatable)
        found.append(kind)
    return found


def _withheld(base: Resolved, unavailable: Unavailable, free: Mapping[str, int], version: str) -> Resolved:
    types = withhold(count_free(base.types, free), unavailable)
    messages = tuple(
        message if now is before else _with_offerings(message, now)
        for now, before, message in zip(types, base.types, base.messages, strict=True)
    )
    resolved = Resolved(version, types, messages, base.index, base.excluded, base.measured)
    _ = resolved.body  # written here, off the loop; kept for all who ask
    return resolved


def _with_offerings(message: catalog_pb2.InstanceType, kind: InstanceType) -> catalog_pb2.InstanceType:
    """The message of a type of which only what is to be had has changed: a tenth of the work of writing it anew."""
    written = catalog_pb2.InstanceType()
    written.CopyFrom(message)
    for told, offering in zip(written.offerings, kind.offerings, strict=True):
        told.available = offering.available
        told.reservation_count = offering.reservation_count
    return written


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
