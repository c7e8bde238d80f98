"""The mirror as its readers have it: a copy in memory that follows the stream of changes.

Start: note the last id of `changes`, load the hashes, follow from that id. Start again when entries were missed, the
epoch changed, or Redis was flushed. Not synced means: decide nothing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog

from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_state.codec import decode
from sawhorse_state.connection import State
from sawhorse_state.errors import StateError, StateFormatError
from sawhorse_state.mirror_keys import (
    CHANGES,
    COUNT,
    DELETE,
    EPOCH,
    HEAD,
    NEW_EPOCH,
    SYNCED,
    objects_key,
    synced_key,
)
from sawhorse_state.mirror_view import Callback, MirrorView
from sawhorse_state.mirror_writer import Change, MirrorWriter

__all__ = ["Change", "Mirror", "MirrorWriter"]

log = structlog.get_logger(__name__)

_BLOCK = timedelta(milliseconds=500)  # also how soon a flush is noticed when nothing changes
_READ = 1000  # entries at a time
_PAGE = 500  # objects decoded between two turns of other tasks
_RETRY = 0.2
_LONGEST_RETRY = 2.0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a reader is in the stream."""

    epoch: str
    id: str
    count: int


@dataclass(frozen=True, slots=True)
class _Entry:
    id: str
    kind: str
    key: str
    op: str
    version: str
    count: int


class Mirror:
    """Objects of some kinds, kept up to date while `run` runs. Belongs to one event loop.

    `version` grows with each visible change; `synced` tells whether every kind is complete and fresh.
    """

    def __init__(self, state: State, kinds: Sequence[str]) -> None:
        self._state = state
        self._view = MirrorView(kinds)
        self._missing: set[str] = set(self._view.kinds)  # kinds whose full list is not in
        self._following = False
        self._changed = asyncio.Event()
        self._why = "not loaded yet"

    @property
    def synced(self) -> bool:
        """Whether every kind is complete and the stream is being followed."""
        return self._following and not self._missing

    @property
    def missing(self) -> str:
        """What keeps it from being synced, for a person; empty when it is."""
        if not self._following:
            return self._why
        return f"no full list yet of {', '.join(sorted(self._missing))}" if self._missing else ""

    @property
    def version(self) -> int:
        """Grows with each visible change."""
        return self._view.version

    async def wait_synced(self, timeout: timedelta) -> bool:
        """Wait until it is synced; whether it was in time."""
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                while not self.synced:
                    await self._changed.wait()
        except TimeoutError:
            return self.synced
        return True

    def all(self, kind: str) -> Mapping[str, Any]:
        """A live, read-only view: `namespace/name` or `name` -> object. Do not iterate over it across an await."""
        return self._view.all(kind)

    def get(self, kind: str, key: str) -> Any | None:
        """One object, or None."""
        return self._view.get(kind, key)

    def pods_on(self, node_name: str) -> Sequence[Pod]:
        """The pods bound to a node, ended ones included."""
        return self._view.pods_on(node_name)

    def claim_by_provider_id(self, provider_id: str) -> NodeClaim | None:
        """The claim of an instance, or None."""
        return self._view.claim_by_provider_id(provider_id)

    def node_by_provider_id(self, provider_id: str) -> Node | None:
        """The node of an instance, or None."""
        return self._view.node_by_provider_id(provider_id)

    def subscribe(self, callback: Callback) -> None:
        """Call `callback(kind, key, op)` at each later change, op "set" or "del". It must not block."""
        self._view.subscribe(callback)

    def note_own(self, kind: str, obj: Any) -> None:
        """Show an own write, as Kubernetes answered it, until the mirror is as new, however long no watcher runs."""
        self._view.note_own(kind, obj, asyncio.get_running_loop().time())

    async def run(self, stop: asyncio.Event) -> None:
        """Load and follow until `stop` is set. Redis may come and go: the copy stays, unsynced, until it is back."""
        pause = _RETRY
        place: _Place | None = None
        while not stop.is_set():
            try:
                if place is None:
                    place = await self._load()
                if place is not None:
                    self._set_following(True)
                    pause = _RETRY
                    place = await self._follow(place, stop)
                    continue
            except StateError as err:
                if self._following or self._why != str(err):
                    log.warning("mirror out of reach", error=str(err))
                self._set_following(False, str(err))
            self._view.expire(asyncio.get_running_loop().time())
            await _wait(stop, pause)
            pause = min(pause * 2, _LONGEST_RETRY)
        self._set_following(False, "stopped")

    async def _load(self) -> _Place | None:
        """Take everything anew; None while no writer has begun."""
        epoch, id_, count, marks = await self._state.eval(
            "read the mirror",
            HEAD,
            [EPOCH, CHANGES, COUNT, *(synced_key(k) for k in self._view.kinds)],
            [],
        )
        if not epoch:
            self._set_following(False, "no watcher has written the mirror yet")
            return None
        loaded: dict[str, dict[str, Any]] = {}
        for kind in self._view.kinds:
            loaded[kind] = await self._load_kind(kind)
        now = asyncio.get_running_loop().time()
        for kind, objects in loaded.items():
            self._view.replace(kind, objects, now)
        listed = dict(zip(self._view.kinds, (mark.decode() for mark in marks), strict=True))
        self._missing = {kind for kind, mark in listed.items() if not mark}
        for kind in listed.keys() - self._missing:
            self._view.listed(kind, _number(listed[kind]), now)
        log.info("mirror loaded", epoch=int(epoch), objects=sum(map(len, loaded.values())))
        return _Place(epoch.decode(), id_.decode(), int(count))

    async def _load_kind(self, kind: str) -> dict[str, Any]:
        objects: dict[str, Any] = {}
        cursor = 0
        key = self._state.key(objects_key(kind))
        while True:
            # In pages: one HGETALL of a large kind would keep Redis and this loop busy for everybody else.
            cursor, page = await self._state.do(
                "read the mirror", self._state.redis.hscan(key, cursor=cursor, count=_PAGE)
            )
            for field, value in page.items():
                obj = self._decode(kind, field.decode(), value)
                if obj is not None:
                    objects[field.decode()] = obj
            await asyncio.sleep(0)
            if not int(cursor):
                return objects

    async def _follow(self, place: _Place, stop: asyncio.Event) -> _Place | None:
        """Apply changes until something is missed (then None: load again) or `stop` is set."""
        redis = self._state.redis
        stream = self._state.key(CHANGES)
        while not stop.is_set():
            answer = await self._state.wait_blocked(
                "follow the mirror",
                redis.xread({stream: place.id}, count=_READ, block=int(_BLOCK.total_seconds() * 1000)),
                _BLOCK,
            )
            self._view.expire(asyncio.get_running_loop().time())
            entries = [_entry(id_, fields) for id_, fields in (answer[0][1] if answer else ())]
            if not entries:
                current = await self._state.do("check the mirror", redis.get(self._state.key(EPOCH)))
                if (current or b"").decode() != place.epoch:
                    self._set_following(False, "the mirror was flushed or is being rewritten")
                    return None
                continue
            if entries[0].count != place.count + 1:
                log.warning("mirror changes were missed", expected=place.count + 1, found=entries[0].count)
                self._set_following(False, "changes were missed")
                return None
            if any(e.op == NEW_EPOCH for e in entries):
                self._set_following(False, "a new watcher is writing the mirror")
                return None
            await self._apply(entries)
            place = _Place(place.epoch, entries[-1].id, entries[-1].count)
            self._notify()
        return place

    async def _apply(self, entries: Sequence[_Entry]) -> None:
        wanted: dict[str, dict[str, _Entry]] = {}
        listed: dict[str, int] = {}
        for entry in entries:
            if entry.kind not in self._view.kinds:
                continue
            if entry.op == SYNCED:
                listed[entry.kind] = _number(entry.version)
            else:
                wanted.setdefault(entry.kind, {})[entry.key] = entry  # the last of a key is enough
        for kind, by_key in wanted.items():
            keys = [key for key, entry in by_key.items() if entry.op != DELETE]
            values = await self._values(kind, keys) if keys else {}
            now = asyncio.get_running_loop().time()
            for key, entry in by_key.items():
                if entry.op == DELETE:
                    self._view.delete(kind, key, _number(entry.version))
                elif (obj := values.get(key)) is not None:
                    self._view.set(kind, key, obj, now)
                # else: deleted since; its entry follows in the stream.
            self._view.reached(kind, max(_number(entry.version) for entry in by_key.values()), now)
        for kind, version in listed.items():
            self._view.listed(kind, version, asyncio.get_running_loop().time())
            self._missing.discard(kind)

    async def _values(self, kind: str, keys: Sequence[str]) -> dict[str, Any]:
        raw = await self._state.do(
            "read the mirror", self._state.redis.hmget(self._state.key(objects_key(kind)), list(keys))
        )
        return {key: self._decode(kind, key, value) for key, value in zip(keys, raw, strict=True) if value is not None}

    def _decode(self, kind: str, key: str, value: bytes) -> Any | None:
        try:
            return decode(kind, value)
        except StateFormatError as err:
            log.error("mirrored object cannot be read", kind=kind, key=key, error=str(err))
            return None

    def _set_following(self, following: bool, why: str = "") -> None:
        self._why = why
        if following != self._following:
            self._following = following
            log.info("mirror followed" if following else "mirror not followed", why=why)
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _entry(id_: bytes, fields: Mapping[bytes, bytes]) -> _Entry:
    text = {name.decode(): value.decode() for name, value in fields.items()}
    return _Entry(id_.decode(), text["kind"], text["key"], text["op"], text["rv"], int(text["n"]))


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
