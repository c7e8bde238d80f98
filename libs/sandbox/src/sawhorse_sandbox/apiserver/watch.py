"""Watches: the changes from a revision on, filtered, with bookmarks and 410. Test double for the watch cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from sawhorse_sandbox.apiserver.errors import ApiError
from sawhorse_sandbox.apiserver.operations import Api, to_view, view_bytes
from sawhorse_sandbox.apiserver.resources import Resource
from sawhorse_sandbox.apiserver.selectors import Selection
from sawhorse_sandbox.apiserver.storage import Change, Stored, encode, thaw

BOOKMARK_EVERY = 5.0  # seconds; the real server sends one about every minute
LONGEST = 1800.0  # seconds, for a watch that sets no timeout
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What a client asks to watch. `start` 0 means: first everything that is there, as ADDED."""

    resource: Resource
    namespace: str | None
    selection: Selection
    start: int
    timeout: float  # seconds
    bookmarks: bool
    mark_initial_end: bool = False  # sendInitialEvents


async def stream(api: Api, request: WatchRequest, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """Chunks of whole lines, one event a line, until the timeout, `stopping`, or an ERROR event."""
    collection = api.store.collection(request.resource.storage)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.timeout
    next_bookmark = loop.time() + BOOKMARK_EVERY
    wake = asyncio.Event()
    collection.waiters.add(wake)
    try:
        seen = request.start
        if seen == 0:
            seen = api.store.revision
            initial = b"".join(_initial(api, request))
            if initial:
                yield initial
        while not stopping.is_set():
            wake.clear()
            try:
                changes = collection.since(seen)
            except ApiError as expired:
                yield _line(b"ERROR", encode(expired.status()))
                return
            # Up to date with this collection means up to date with the counter: nothing below it is still to come.
            seen = changes[-1].stored.revision if changes else api.store.revision
            lines = b"".join(line for change in changes if (line := _event(request, change)))
            if lines:
                yield lines
                continue
            now = loop.time()
            if now >= deadline:
                break
            if request.bookmarks and now >= next_bookmark:
                next_bookmark = now + BOOKMARK_EVERY
                yield _bookmark(request.resource, seen)
            await _wait(wake, min(deadline, next_bookmark if request.bookmarks else deadline) - loop.time())
        if request.bookmarks:
            yield _bookmark(request.resource, seen)
    finally:
        collection.waiters.discard(wake)


async def _wait(wake: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, 0)):
            await wake.wait()
    except TimeoutError:
        return


def _initial(api: Api, request: WatchRequest) -> Iterator[bytes]:
    for stored in api.items(request.resource, request.namespace, request.selection):
        yield _line(b"ADDED", view_bytes(request.resource, stored))
    if request.mark_initial_end:
        yield _bookmark(request.resource, api.store.revision, {INITIAL_EVENTS_END: "true"})


def _event(request: WatchRequest, change: Change) -> bytes | None:
    """The change as this watch sees it: an object that starts or stops to match is added or deleted."""
    if request.namespace is not None and change.key[0] != request.namespace:
        return None
    if request.selection.selects_all:
        return _line(change.op.encode(), view_bytes(request.resource, change.stored))
    before = change.previous is not None and _matches(request, change.previous)
    after = change.op != "DELETED" and _matches(request, change.stored)
    if after:
        return _line(b"MODIFIED" if before else b"ADDED", view_bytes(request.resource, change.stored))
    if not before or change.previous is None:
        return None
    # What leaves the selection is shown as it last matched, under the revision of the change.
    final = change.stored if change.op == "DELETED" else _restamped(change.previous, change.stored.revision)
    return _line(b"DELETED", view_bytes(request.resource, final))


def _matches(request: WatchRequest, stored: Stored) -> bool:
    return request.selection.matches(to_view(request.resource, stored.obj))


def _restamped(stored: Stored, revision: int) -> Stored:
    obj = thaw(stored)
    obj["metadata"]["resourceVersion"] = str(revision)
    return Stored(obj, encode(obj), revision)


def _line(kind: bytes, raw: bytes) -> bytes:
    return b'{"type":"' + kind + b'","object":' + raw + b"}\n"


def _bookmark(resource: Resource, revision: int, annotations: dict[str, str] | None = None) -> bytes:
    metadata: dict[str, object] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    return _line(b"BOOKMARK", encode({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}))
