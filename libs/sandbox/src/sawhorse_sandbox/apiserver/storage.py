"""The store: every object as a dict and its JSON, one revision counter, a bounded history per collection.

Test double for etcd and the watch cache. It knows no semantics of any kind: no defaults, finalizers or selectors.
Stored objects are never changed in place; whoever wants to change one takes `thaw(stored)`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sawhorse_sandbox.apiserver.errors import gone
from sawhorse_sandbox.apiserver.resources import Kind

Object = dict[str, Any]
Key = tuple[str, str]  # (namespace, "" for cluster-wide kinds; name)
Ref = tuple[Kind, Key]

HISTORY = 5_000  # changes kept per collection; an older watch gets 410

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Stored:
    """One state of one object. `obj` is shared: read only."""

    obj: Object
    raw: bytes  # the same as JSON
    revision: int

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one object. For DELETED, `stored` is the last state under the revision of the deletion."""

    op: str  # ADDED, MODIFIED or DELETED
    kind: Kind
    key: Key
    stored: Stored
    previous: Stored | None


def encode(obj: object) -> bytes:
    return _ENCODER.encode(obj)


def decode(raw: bytes) -> Any:
    """Raises msgspec.DecodeError when `raw` is not JSON."""
    return _DECODER.decode(raw)


def thaw(stored: Stored) -> Object:
    """A copy that may be changed."""
    copy: Object = _DECODER.decode(stored.raw)
    return copy


@dataclass(slots=True)
class Collection:
    """The objects of one kind, by namespace and name."""

    namespaces: dict[str, dict[str, Stored]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    forgotten: int = 0  # revision of the newest change that is no longer in `changes`
    waiters: set[asyncio.Event] = field(default_factory=set)

    def since(self, revision: int) -> list[Change]:
        """All changes after `revision`, oldest first. Raises ApiError 410 when they are no longer known."""
        if revision < self.forgotten:
            raise gone(f"too old resource version: {revision} ({self.forgotten})")
        return self.changes[bisect_right(self.changes, revision, key=lambda c: c.stored.revision) :]

    def remember(self, change: Change, limit: int) -> None:
        self.changes.append(change)
        if len(self.changes) > 2 * limit:
            self.forget(limit)
        for waiter in self.waiters:
            waiter.set()

    def forget(self, keep: int) -> None:
        drop = len(self.changes) - keep
        if drop > 0:
            self.forgotten = self.changes[drop - 1].stored.revision
            del self.changes[:drop]


class Store:
    """All collections. Every method is synchronous: a read and the write that follows it are one step of the loop."""

    def __init__(self, *, history: int = HISTORY) -> None:
        self.revision = 1
        self._history = history
        self._collections: dict[Kind, Collection] = {}
        self._by_uid: dict[str, Ref] = {}
        self._dependents: dict[str, dict[Ref, None]] = {}  # owner uid -> what names it as owner, in order of creation
        self._listeners: list[Callable[[Change], None]] = []

    def collection(self, kind: Kind) -> Collection:
        found = self._collections.get(kind)
        if found is None:
            found = self._collections[kind] = Collection(forgotten=0)
        return found

    def get(self, kind: Kind, key: Key) -> Stored | None:
        return self.collection(kind).namespaces.get(key[0], {}).get(key[1])

    def items(self, kind: Kind, namespace: str | None = None) -> Iterator[Stored]:
        """In order of namespace and name; None means all namespaces."""
        namespaces = self.collection(kind).namespaces
        for space in [namespace] if namespace is not None else sorted(namespaces):
            named = namespaces.get(space, {})
            for name in sorted(named):
                yield named[name]

    def put(self, kind: Kind, key: Key, obj: Object) -> Stored:
        """Write `obj`, which the store then owns, under a new revision."""
        previous = self.get(kind, key)
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        stored = Stored(obj, encode(obj), self.revision)
        self.collection(kind).namespaces.setdefault(key[0], {})[key[1]] = stored
        if previous is None:
            self._by_uid[stored.uid] = (kind, key)
        self._index_owners((kind, key), previous, stored)
        self._publish(Change("ADDED" if previous is None else "MODIFIED", kind, key, stored, previous))
        return stored

    def remove(self, kind: Kind, key: Key, final: Object | None = None) -> Stored:
        """Delete an object; `final` is its last state if not the stored one. Returns what watchers see."""
        collection = self.collection(kind)
        named = collection.namespaces[key[0]]
        previous = named.pop(key[1])
        if not named:
            del collection.namespaces[key[0]]
        self.revision += 1
        obj = final if final is not None else thaw(previous)
        obj["metadata"]["resourceVersion"] = str(self.revision)
        stored = Stored(obj, encode(obj), self.revision)
        self._by_uid.pop(previous.uid, None)
        self._index_owners((kind, key), previous, None)
        self._publish(Change("DELETED", kind, key, stored, previous))
        return stored

    def kinds(self) -> tuple[Kind, ...]:
        """The collections that hold anything."""
        return tuple(kind for kind, collection in self._collections.items() if collection.namespaces)

    def by_uid(self, uid: str) -> Ref | None:
        return self._by_uid.get(uid)

    def dependents(self, uid: str) -> list[Ref]:
        """What names the object of this uid among its ownerReferences."""
        return list(self._dependents.get(uid, ()))

    def dependents_of(self, uid: str, kind: Kind) -> list[Stored]:
        """The dependents of one kind, oldest first."""
        namespaces = self.collection(kind).namespaces
        refs = self._dependents.get(uid, ())
        return [namespaces[key[0]][key[1]] for its_kind, key in refs if its_kind == kind]

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` inside every write; it must be quick and must not write."""
        self._listeners.append(listener)

    def compact(self) -> None:
        """Forget all history: any watch that is not up to date gets 410. For tests of relisting."""
        for collection in self._collections.values():
            collection.forget(0)
            collection.forgotten = max(collection.forgotten, self.revision - 1)

    def wake_watchers(self) -> None:
        for collection in self._collections.values():
            for waiter in collection.waiters:
                waiter.set()

    def _publish(self, change: Change) -> None:
        self.collection(change.kind).remember(change, self._history)
        for listener in self._listeners:
            listener(change)

    def _index_owners(self, ref: Ref, before: Stored | None, after: Stored | None) -> None:
        old = _owner_uids(before)
        new = _owner_uids(after)
        if old == new:
            return
        for uid in old - new:
            held = self._dependents.get(uid, {})
            held.pop(ref, None)
            if not held:
                self._dependents.pop(uid, None)
        for uid in new - old:
            self._dependents.setdefault(uid, {})[ref] = None


def _owner_uids(stored: Stored | None) -> set[str]:
    if stored is None:
        return set()
    return {str(owner.get("uid")) for owner in stored.obj["metadata"].get("ownerReferences") or ()}
