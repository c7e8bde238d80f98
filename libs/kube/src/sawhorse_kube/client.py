"""`Kube` over HTTP, and `connect_kube`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from sawhorse_kube.api import (
    WATCH_TIMEOUT,
    Kube,
    KubeEvent,
    Listing,
    PatchType,
    WatchEvent,
    WatchType,
    opened,
    read_identity,
)
from sawhorse_kube.config import load_access
from sawhorse_kube.errors import GoneError, KubeUnavailableError
from sawhorse_kube.events import event_to_raw
from sawhorse_kube.kinds import EVENT, POD, Kind
from sawhorse_kube.transport import Transport, collector_paused
from sawhorse_kube.watching import LineSplitter, parse_or_none, read_event
from sawhorse_model.manifests import Raw
from sawhorse_model.pod import Pod

__all__ = [
    "Kube",
    "KubeClient",
    "KubeEvent",
    "Listing",
    "PatchType",
    "WatchEvent",
    "WatchType",
    "connect_kube",
]

_PAGE = 1000  # objects a page: a few MB to decode, so that other tasks get their turn between pages
_SLICE = 100  # objects read into the model between two turns of other tasks
_LIST_SECONDS = 60.0  # a page of pods takes a busy server longer than any other answer
_IDLE = timedelta(seconds=150)  # bookmarks come about once a minute; two missed ones mean a dead connection


class KubeClient:
    """`Kube` over one API server. Made by `connect_kube`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        """See `Kube.list`."""
        objects: list[Any] = []
        unreadable = 0

        async def take(page: Sequence[Raw]) -> None:
            nonlocal unreadable
            for start in range(0, len(page), _SLICE):
                with collector_paused():
                    parsed = [parse_or_none(kind, raw) for raw in page[start : start + _SLICE]]
                readable = [obj for obj in parsed if obj is not None]
                objects.extend(readable)
                unreadable += len(parsed) - len(readable)
                await asyncio.sleep(0)

        def forget() -> None:
            nonlocal unreadable
            objects.clear()
            unreadable = 0

        version = await self._all_pages(kind, namespace, label_selector, field_selector, take, forget)
        return Listing(tuple(objects), version, unreadable)

    async def list_raw(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        """See `Kube.list_raw`."""
        items: list[Raw] = []

        async def take(page: Sequence[Raw]) -> None:
            items.extend(page)

        version = await self._all_pages(kind, namespace, label_selector, field_selector, take, items.clear)
        return Listing(tuple(items), version)

    async def _all_pages(
        self,
        kind: Kind,
        namespace: str,
        label_selector: str,
        field_selector: str,
        take: Callable[[Sequence[Raw]], Awaitable[None]],
        forget: Callable[[], None],
    ) -> str:
        """Hand each page to `take`, so that never more than one is held unread; returns the list's version."""
        params = _selectors(label_selector, field_selector)
        try:
            return await self._pages(kind, namespace, {**params, "limit": str(_PAGE)}, take)
        except GoneError:
            # The snapshot behind the pages was compacted meanwhile: take the list in one piece.
            forget()
            return await self._pages(kind, namespace, params, take)

    async def _pages(
        self,
        kind: Kind,
        namespace: str,
        params: Mapping[str, str],
        take: Callable[[Sequence[Raw]], Awaitable[None]],
    ) -> str:
        more = dict(params)
        while True:
            page = await self._transport.request(
                "GET",
                kind.path(namespace=namespace),
                what=f"list {kind.plural}",
                params=more,
                timeout=_LIST_SECONDS,
            )
            await take([read_identity(kind, each) for each in page.get("items") or ()])
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return str(metadata.get("resourceVersion", ""))
            more["continue"] = str(metadata["continue"])

    async def watch(
        self, kind: Kind, *, resource_version: str, timeout: timedelta = WATCH_TIMEOUT
    ) -> AsyncIterator[WatchEvent]:
        """See `Kube.watch`."""
        what = f"watch {kind.plural}"
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, int(timeout.total_seconds()))),
        }
        response = await self._transport.open_stream(kind.path(), what=what, params=params, idle=_IDLE)
        splitter = LineSplitter()
        try:
            yield opened(resource_version)
            while True:
                try:
                    chunk = await response.content.readany()
                except TimeoutError:
                    return  # silent for too long: the caller opens it anew where it was
                except (aiohttp.ClientError, OSError) as err:
                    raise KubeUnavailableError(f"{what}: {err or type(err).__name__}") from err
                if not chunk:
                    return
                for line in splitter.feed(chunk):
                    yield read_event(kind, line)
        finally:
            response.close()

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Any:
        """See `Kube.get`."""
        return kind.parse(await self.get_raw(kind, name, namespace))

    async def get_raw(self, kind: Kind, name: str, namespace: str = "") -> Raw:
        """See `Kube.get_raw`."""
        return await self._transport.request(
            "GET", kind.path(name, namespace), what=f"get {kind.name} {_named(name, namespace)}"
        )

    async def create(self, kind: Kind, raw: Raw) -> Any:
        """See `Kube.create`."""
        metadata = raw.get("metadata") or {}
        namespace = str(metadata.get("namespace") or ("default" if kind.namespaced else ""))
        name = str(metadata.get("name") or metadata.get("generateName") or "")
        made = await self._transport.request(
            "POST",
            kind.path(namespace=namespace),
            what=f"create {kind.name} {_named(name, namespace)}",
            body=read_identity(kind, raw),
        )
        return kind.parse(made)

    async def patch(
        self,
        kind: Kind,
        name: str,
        body: Raw | Sequence[Raw],
        *,
        namespace: str = "",
        subresource: str = "",
        patch_type: PatchType = PatchType.MERGE,
        manager: str = "",
    ) -> Any:
        """See `Kube.patch`."""
        params = {"fieldManager": manager} if manager else {}
        if patch_type is PatchType.APPLY:
            params["force"] = "true"
        changed = await self._transport.request(
            "PATCH",
            kind.path(name, namespace, subresource),
            what=f"patch {kind.name} {_named(name, namespace)}",
            params=params,
            body=body,
            content_type=patch_type.value,
        )
        return kind.parse(changed)

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """See `Kube.delete`."""
        await self._transport.request(
            "DELETE",
            kind.path(name, namespace),
            what=f"delete {kind.name} {_named(name, namespace)}",
            body=delete_options(uid=uid, resource_version=resource_version, grace_seconds=grace_seconds),
        )

    async def evict(self, pod: Pod, *, grace_seconds: int | None = None) -> None:
        """See `Kube.evict`."""
        meta = pod.meta
        await self._transport.request(
            "POST",
            POD.path(meta.name, meta.namespace, "eviction"),
            what=f"evict Pod {_named(meta.name, meta.namespace)}",
            body={
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": meta.name, "namespace": meta.namespace},
                "deleteOptions": delete_options(uid=meta.uid, grace_seconds=grace_seconds),
            },
            eviction=True,
        )

    async def server_version(self) -> tuple[int, int]:
        """See `Kube.server_version`."""
        answer = await self._transport.request("GET", "/version", what="get /version")
        try:
            # Managed clusters report minors such as "33+".
            return int(str(answer["major"])), int(str(answer["minor"]).rstrip("+"))
        except (KeyError, ValueError) as err:
            raise KubeUnavailableError(f"get /version: no version in {answer!r}") from err

    async def record(self, event: KubeEvent) -> None:
        """See `Kube.record`."""
        now = datetime.now(UTC)  # noqa: TID251  only a label of the Event; nothing is decided by it
        raw = event_to_raw(event, now)
        await self._transport.request(
            "POST",
            EVENT.path(namespace=raw["metadata"]["namespace"]),
            what=f"create Event for {event.kind.name} {event.meta.key}",
            body=raw,
        )


def delete_options(*, uid: str = "", resource_version: str = "", grace_seconds: int | None = None) -> dict[str, Any]:
    """The body of a deletion or an eviction."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options


@asynccontextmanager
async def connect_kube(
    *,
    kubeconfig: Path | None,
    qps: float = 200,
    burst: int = 300,
    request_timeout: timedelta = timedelta(seconds=15),
) -> AsyncIterator[KubeClient]:
    """A client for the block. It connects at the first request.

    Args:
        kubeconfig: its current context counts; None takes the service account that is mounted into a pod.
        qps, burst: requests a second, and how many at once after a pause.
        request_timeout: for each request; page of a list: 60 s.
    Raises:
        KubeConfigError: the file or the service account cannot be used.
    """
    access = await load_access(kubeconfig)
    transport = Transport(access, qps=qps, burst=burst, timeout=request_timeout)
    try:
        yield KubeClient(transport)
    finally:
        await transport.close()


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    given = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in given.items() if value}


def _named(name: str, namespace: str) -> str:
    return f'"{namespace}/{name}"' if namespace else f'"{name}"'
