"""Lists: assembled from the stored JSON, in pages that stay consistent. Test double for the server's own."""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from sawhorse_sandbox.apiserver.errors import ApiError, bad_request, gone
from sawhorse_sandbox.apiserver.operations import Api, view_bytes
from sawhorse_sandbox.apiserver.resources import Resource
from sawhorse_sandbox.apiserver.selectors import Selection
from sawhorse_sandbox.apiserver.storage import Store, Stored, encode

SNAPSHOTS = 64  # open paged lists that are remembered; an older one gets 410, as with the real server's compaction


@dataclass(frozen=True, slots=True)
class _Snapshot:
    items: Sequence[Stored]
    revision: int


class Lister:
    """Answers lists. A paged list is served from one snapshot, so that its pages and its revision agree."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._snapshots: OrderedDict[str, _Snapshot] = OrderedDict()
        self._made = 0

    def page(
        self, resource: Resource, namespace: str | None, selection: Selection, *, limit: int = 0, token: str = ""
    ) -> bytes:
        """The JSON of one page; `limit` 0 means all.

        Raises:
            ApiError: 400 for a bad token, 410 for one that is no longer known.
        """
        if token:
            name, start = _parse(token)
            snapshot = self._snapshots.get(name)
            if snapshot is None:
                raise gone("The provided continue parameter is too old to display a consistent list result.")
        else:
            name, start = "", 0
            items = list(self._api.items(resource, namespace, selection))
            snapshot = _Snapshot(items, self._api.store.revision)
        end = start + limit if limit > 0 else len(snapshot.items)
        page = snapshot.items[start:end]
        metadata: dict[str, str | int] = {"resourceVersion": str(snapshot.revision)}
        remaining = len(snapshot.items) - end
        if remaining > 0:
            metadata["continue"] = _token(name or self._remember(snapshot), end)
            metadata["remainingItemCount"] = remaining
        elif name:
            self._snapshots.pop(name, None)
        return list_bytes(resource, metadata, page)

    def _remember(self, snapshot: _Snapshot) -> str:
        self._made += 1
        name = str(self._made)
        self._snapshots[name] = snapshot
        if len(self._snapshots) > SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return name


def list_bytes(resource: Resource, metadata: dict[str, str | int], items: Sequence[Stored]) -> bytes:
    head = encode({"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata})
    body = b",".join([view_bytes(resource, stored) for stored in items])
    return b"".join((head[:-1], b',"items":[', body, b"]}"))


def check_revision(store: Store, text: str) -> int:
    """A resourceVersion from a query: 0 when absent. Raises ApiError 400 when no number, 504 when from the future."""
    if not text:
        return 0
    if not text.isdigit():
        raise bad_request(f"invalid resource version {text!r}")
    if int(text) > store.revision:
        message = f"Too large resource version: {text}, current: {store.revision}"
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        raise ApiError(504, "Timeout", message, details={"causes": causes, "retryAfterSeconds": 1})
    return int(text)


def _token(name: str, start: int) -> str:
    return base64.urlsafe_b64encode(f"{name}:{start}".encode()).decode()


def _parse(token: str) -> tuple[str, int]:
    try:
        name, _, start = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
        return name, int(start)
    except ValueError as err:
        raise bad_request("continue key is not valid") from err
