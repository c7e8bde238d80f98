"""A mirror of one kind in memory: list, then watch, and list again after 410. It decides nothing."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from sawhorse_sandbox.kubelet.api import ApiError, KubeApi

log = structlog.get_logger(__name__)

_RETRY = 0.5  # seconds between attempts to reach the API server; it is on loopback


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an object's metadata that kubelets look at."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class Mirrored(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> Metadata:
        """Return the object's metadata."""
        ...


T = TypeVar("T", bound=Mirrored)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] = []


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    metadata: _ListMeta


def key_of(item: Mirrored) -> str:
    """Return `namespace/name`, or the name of an object without namespace."""
    meta = item.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class Reflector(Generic[T]):
    """All objects under one path, as last seen.

    `on_change(key, old, new)` is called for each difference, also for those that a new list shows; `new` is None when
    the object is gone. It must be quick and must not raise.
    """

    def __init__(
        self, api: KubeApi, path: str, kind: type[T], on_change: Callable[[str, T | None, T | None], None]
    ) -> None:
        self._api = api
        self._path = path
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._on_change = on_change
        self.items: dict[str, T] = {}
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled. Whatever the API server does is logged and tried again."""
        version: str | None = None
        while True:
            try:
                if version is None:
                    version = await self._list()
                    self.synced.set()
                version = await self._follow(version)
            except ApiError as err:
                if err.status == 410:
                    version = None
                    continue
                log.warning("list or watch failed", path=self._path, error=str(err))
                await asyncio.sleep(_RETRY)
            except msgspec.DecodeError as err:
                log.warning("list or watch cannot be read", path=self._path, error=str(err))
                version = None
                await asyncio.sleep(_RETRY)

    async def _list(self) -> str:
        answer = msgspec.json.decode(await self._api.request("GET", self._path), type=_List)
        found = {key_of(item): item for item in map(self._decode, answer.items) if item is not None}
        for key in self.items.keys() - found.keys():
            self._store(key, None)
        for key, item in found.items():
            if key not in self.items or self.items[key] != item:
                self._store(key, item)
        return answer.metadata.resource_version

    async def _follow(self, version: str) -> str | None:
        """Return the version to go on from, or None when a new list is needed."""
        async for line in self._api.watch(self._path, version):
            event = msgspec.json.decode(line, type=_Event)
            if event.type == "ERROR":
                log.debug("watch expired", path=self._path, error=bytes(event.object)[:300].decode(errors="replace"))
                return None
            version = msgspec.json.decode(event.object, type=_Versioned).metadata.resource_version
            if event.type == "BOOKMARK":
                continue
            item = self._decode(event.object)
            if item is not None:
                self._store(key_of(item), None if event.type == "DELETED" else item)
        return version

    def _decode(self, raw: msgspec.Raw) -> T | None:
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError as err:
            # One odd object must not hide the others.
            log.warning("object cannot be read", path=self._path, error=str(err))
            return None

    def _store(self, key: str, item: T | None) -> None:
        old = self.items.pop(key, None)
        if item is not None:
            self.items[key] = item
        self._on_change(key, old, item)
