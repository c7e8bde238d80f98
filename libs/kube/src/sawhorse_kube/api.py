"""`Kube`: what services need from Kubernetes, and the data that goes over this seam. It performs nothing."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol

from sawhorse_kube.kinds import Kind
from sawhorse_model.manifests import Raw
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import Pod

WATCH_TIMEOUT = timedelta(minutes=5)


class PatchType(StrEnum):
    """How a patch body is read; the value is its content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class WatchType(StrEnum):
    """What a watch event says."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class Listing:
    """A full list at one moment. `unreadable` counts objects that `kind.parse` refused: they are left out."""

    objects: tuple[Any, ...]
    resource_version: str
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. `object` is None for a bookmark and for an object that `kind.parse` refused."""

    type: WatchType
    object: Any | None
    raw: Raw
    resource_version: str


@dataclass(frozen=True, slots=True)
class KubeEvent:
    """A Kubernetes Event to record: something a person may want to read beside the object."""

    kind: Kind
    meta: ObjectMeta  # of the object it is about
    type: str  # Normal or Warning
    reason: str
    message: str
    component: str = "karpenter"


class Kube(Protocol):
    """Kubernetes. Every call is bounded in time and raises errors of `sawhorse_kube.errors` only.

    Objects come back as `kind.parse` reads them; `_raw` methods give the API's JSON, `apiVersion` and `kind` filled in.
    """

    async def list(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        """All objects. One that cannot be read is left out, counted and logged: it must not hide the others."""
        ...

    async def list_raw(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        """The same, unread."""
        ...

    def watch(
        self, kind: Kind, *, resource_version: str, timeout: timedelta = WATCH_TIMEOUT
    ) -> AsyncIterator[WatchEvent]:
        """Changes in all namespaces after `resource_version`; ends when the server ends it, after `timeout` at most.

        The first event is a bookmark of `resource_version`: the server has accepted the watch.

        Raises:
            GoneError: the version is too old; list again and compare.
        """
        ...

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Any:
        """One object, live.

        Raises:
            NotFoundError: it does not exist.
        """
        ...

    async def get_raw(self, kind: Kind, name: str, namespace: str = "") -> Raw:
        """The same, unread."""
        ...

    async def create(self, kind: Kind, raw: Raw) -> Any:
        """Create an object; the namespace is that of its metadata.

        Raises:
            AlreadyExistsError: the name is taken.
        """
        ...

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
        """Change an object. `metadata.resourceVersion` in the body makes it an optimistic lock.

        Raises:
            ConflictError: it changed since.
        """
        ...

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
        """Ask for deletion; finalizers and grace may keep the object for a while.

        Raises:
            NotFoundError: it does not exist.
            ConflictError: it is not the one that `uid` or `resource_version` names.
        """
        ...

    async def evict(self, pod: Pod, *, grace_seconds: int | None = None) -> None:
        """Evict a pod by the Eviction API, with its uid as a precondition.

        Raises:
            EvictionBlockedError: a PodDisruptionBudget says no.
            NotFoundError, ConflictError: this pod is gone.
        """
        ...

    async def server_version(self) -> tuple[int, int]:
        """Major and minor version, e.g. (1, 36)."""
        ...

    async def record(self, event: KubeEvent) -> None:
        """Write an Event. See `sawhorse_kube.events.EventRecorder` for one that de-duplicates and never raises."""
        ...


def opened(resource_version: str) -> WatchEvent:
    """The first event of every watch."""
    raw = {"metadata": {"resourceVersion": resource_version}}
    return WatchEvent(WatchType.BOOKMARK, None, raw, resource_version)


def read_identity(kind: Kind, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The object with `apiVersion` and `kind` filled in: lists of built-in kinds leave both out of their items."""
    return {"apiVersion": kind.api_version, "kind": kind.name, **raw}
