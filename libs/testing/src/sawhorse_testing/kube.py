"""FakeKube: Kubernetes in memory behind the `Kube` seam, with the rules that our code relies on.

It keeps resourceVersions, conflicts, preconditions, generations, finalizers, graceful pod deletion, the status
subresource, the patch kinds we use, and watches that resume and fall behind. The contract suite (`kube_contract`) holds
it to what a real API server does. It schedules nothing, validates no schema and collects no garbage.
"""

import asyncio
import copy
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sawhorse_kube.api import WATCH_TIMEOUT, KubeEvent, Listing, PatchType, WatchEvent, WatchType, opened, read_identity
from sawhorse_kube.errors import (
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    GoneError,
    InvalidError,
    NotFoundError,
)
from sawhorse_kube.kinds import POD, Kind
from sawhorse_kube.watching import parse_or_none
from sawhorse_model.manifests import Raw, format_time
from sawhorse_model.pod import Pod
from sawhorse_testing.kube_patch import fields_match, json_patch, labels_match, merge

Object = dict[str, Any]

_NO_STATUS = frozenset({"Lease", "Event", "PriorityClass", "StorageClass", "CSINode"})
_STATUS_AT_BIRTH = frozenset({"Node"})  # a kubelet registers with its status; all others start without
_NO_GENERATION = frozenset({"Node", "Namespace", "Service", "Lease", "Event", "PersistentVolume"})


@dataclass(frozen=True, slots=True)
class Call:
    """One call that was made, for tests that count them."""

    verb: str
    kind: str
    key: str


@dataclass(slots=True)
class _Fault:
    verb: str
    kind: str
    error: Exception
    times: int


class FakeKube:
    """`Kube` in memory. Seed it with `put`, script it with `fail`, `block_evictions`, `break_watches`, `compact`.

    Args:
        now: the wall clock of timestamps; the real one unless given.
        version: what `server_version` answers.
        pods_end_at_once: bound pods vanish when deleted, as if their kubelet had ended them; else they stay deleting
            until `end_pod`.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime] | None = None,
        version: tuple[int, int] = (1, 36),
        pods_end_at_once: bool = False,
    ) -> None:
        self._now = now if now is not None else lambda: datetime.now(UTC)  # noqa: TID251  a fake's default clock
        self._version = version
        self._pods_end_at_once = pods_end_at_once
        self._objects: dict[str, dict[str, Object]] = defaultdict(dict)
        self._kinds: dict[str, Kind] = {}
        self._history: dict[str, deque[tuple[int, WatchType, Object]]] = defaultdict(deque)
        self._compacted = 0
        self._count = 0
        self._uids = 0
        self._changed = asyncio.Event()
        self._generation = 0  # of watches: `break_watches` ends all older ones
        self._faults: list[_Fault] = []
        self._blocked: Callable[[Pod], bool] = lambda pod: False
        self.missing_kinds: set[str] = set()  # kinds without a CRD: every call answers NotFound
        self.events: list[KubeEvent] = []
        self.calls: list[Call] = []

    # What tests do to the world.

    def put(self, kind: Kind, raw: Raw) -> Any:
        """Create or replace an object whole, status included, as another client would; returns it parsed."""
        made = copy.deepcopy(dict(read_identity(kind, raw)))
        key = self._key(kind, made)
        old = self._objects[kind.name].get(key)
        if old is None:
            self._identify(kind, made)
            return self._store(kind, key, made, WatchType.ADDED)
        made["metadata"] = {**old["metadata"], **made["metadata"]}
        return self._store(kind, key, made, WatchType.MODIFIED)

    def remove(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Let an object vanish, finalizers or not."""
        self._drop(kind, f"{namespace}/{name}" if namespace else name)

    def end_pod(self, name: str, namespace: str = "default") -> None:
        """What a kubelet does once the containers of a deleting pod have ended."""
        self._drop(POD, f"{namespace}/{name}")

    def raw(self, kind: Kind, name: str, namespace: str = "") -> Raw:
        """An object as stored, without a call being counted.

        Raises:
            KeyError: it does not exist.
        """
        return copy.deepcopy(self._objects[kind.name][f"{namespace}/{name}" if namespace else name])

    def names(self, kind: Kind) -> list[str]:
        """The keys of a kind, sorted."""
        return sorted(self._objects[kind.name])

    def fail(self, verb: str, error: Exception, *, kind: str = "", times: int = 1) -> None:
        """Let the next `times` calls of a verb (list, watch, get, create, patch, delete, evict, record) raise."""
        self._faults.append(_Fault(verb, kind, error, times))

    def block_evictions(self, blocked: Callable[[Pod], bool]) -> None:
        """Answer evictions of these pods as a PodDisruptionBudget that is used up does."""
        self._blocked = blocked

    def break_watches(self) -> None:
        """End all open watches, as a server does now and then."""
        self._generation += 1
        self._notify()

    def compact(self) -> None:
        """Forget history: watches from before now answer GoneError, open ones that lag included."""
        self._compacted = self._count
        self._history.clear()
        self._notify()

    def called(self, verb: str, kind: str = "") -> list[str]:
        """The keys of the calls of a verb, in order."""
        return [c.key for c in self.calls if c.verb == verb and kind in ("", c.kind)]

    # The seam.

    async def list(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        raw = await self.list_raw(
            kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector
        )
        parsed = [parse_or_none(kind, each) for each in raw.objects]
        readable = tuple(each for each in parsed if each is not None)
        return Listing(readable, raw.resource_version, len(parsed) - len(readable))

    async def list_raw(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        await self._call("list", kind, namespace)
        found = [
            copy.deepcopy(each)
            for _, each in sorted(self._objects[kind.name].items())
            if (not namespace or each["metadata"].get("namespace") == namespace)
            and labels_match(label_selector, each["metadata"].get("labels") or {})
            and fields_match(field_selector, each)
        ]
        return Listing(tuple(found), str(self._count))

    async def watch(
        self, kind: Kind, *, resource_version: str, timeout: timedelta = WATCH_TIMEOUT
    ) -> AsyncIterator[WatchEvent]:
        await self._call("watch", kind, resource_version)
        seen = int(resource_version or 0)
        generation = self._generation
        deadline = asyncio.get_running_loop().time() + timeout.total_seconds()
        if seen >= self._compacted:
            yield opened(resource_version)
        while generation == self._generation:
            if seen < self._compacted:
                raise GoneError(f"watch {kind.plural}: too old resource version: {seen}", status=410)
            changed = self._changed
            for version, type_, stored in [h for h in self._history[kind.name] if h[0] > seen]:
                seen = version
                raw = copy.deepcopy(stored)
                yield WatchEvent(type_, parse_or_none(kind, raw), raw, str(version))
            if generation != self._generation:
                return
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                break
        if generation == self._generation and seen < self._count:
            # As a real server's bookmark: without it a quiet kind would fall behind.
            bookmark = {"metadata": {"resourceVersion": str(self._count)}}
            yield WatchEvent(WatchType.BOOKMARK, None, bookmark, str(self._count))

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Any:
        return kind.parse(await self.get_raw(kind, name, namespace))

    async def get_raw(self, kind: Kind, name: str, namespace: str = "") -> Raw:
        key = f"{namespace}/{name}" if namespace else name
        await self._call("get", kind, key)
        return copy.deepcopy(self._find(kind, key))

    async def create(self, kind: Kind, raw: Raw) -> Any:
        made = copy.deepcopy(dict(read_identity(kind, raw)))
        metadata = made.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{self._uids + 1:05d}"
        key = self._key(kind, made)
        await self._call("create", kind, key)
        if not metadata.get("name"):
            raise InvalidError(f"create {kind.name}: name or generateName is required", status=422)
        if key in self._objects[kind.name]:
            raise AlreadyExistsError(f'create {kind.name}: "{key}" already exists', status=409)
        if metadata.get("resourceVersion"):
            raise InvalidError(f"create {kind.name}: resourceVersion should not be set on new objects", status=400)
        for gone in ("uid", "deletionTimestamp", "creationTimestamp"):
            metadata.pop(gone, None)
        if kind.name not in _STATUS_AT_BIRTH:
            made.pop("status", None)
        self._identify(kind, made)
        return self._store(kind, key, made, WatchType.ADDED)

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
        key = f"{namespace}/{name}" if namespace else name
        await self._call("patch", kind, key)
        if patch_type is PatchType.APPLY and key not in self._objects[kind.name]:
            assert isinstance(body, Mapping)
            return await self.create(kind, body)
        old = self._find(kind, key)
        new = _patched(kind, old, body, patch_type)
        asked = str(new["metadata"].get("resourceVersion", ""))
        if asked and asked != old["metadata"]["resourceVersion"]:
            raise ConflictError(f'patch {kind.name}: "{key}" has been modified; read it again', status=409)
        for fixed in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation"):
            _restore(new["metadata"], old["metadata"], fixed)
        if kind.name not in _NO_STATUS:
            if subresource == "status":
                new = {**old, "status": new.get("status", {}), "metadata": new["metadata"]}
                _own_status(new["metadata"], body, manager)
            else:
                _restore(new, old, "status")
        if new.get("spec") != old.get("spec") and kind.name not in _NO_GENERATION:
            new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old:
            return kind.parse(copy.deepcopy(old))
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers") and kind is not POD:
            self._objects[kind.name][key] = new
            self._drop(kind, key)
            return kind.parse(copy.deepcopy(new))
        return self._store(kind, key, new, WatchType.MODIFIED)

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
        key = f"{namespace}/{name}" if namespace else name
        await self._call("delete", kind, key)
        old = self._find(kind, key)
        metadata = old["metadata"]
        if (uid and uid != metadata["uid"]) or (resource_version and resource_version != metadata["resourceVersion"]):
            raise ConflictError(f'delete {kind.name}: a precondition does not hold for "{key}"', status=409)
        self._delete(kind, key, old, grace_seconds)

    async def evict(self, pod: Pod, *, grace_seconds: int | None = None) -> None:
        key = pod.meta.key
        await self._call("evict", POD, key)
        old = self._find(POD, key)
        if old["metadata"]["uid"] != pod.meta.uid:
            raise ConflictError(f'evict Pod: the uid of "{key}" is another one', status=409)
        if self._blocked(POD.parse(old)):
            raise EvictionBlockedError(
                f"evict Pod {key}: Cannot evict pod as it would violate the pod's disruption budget.", status=429
            )
        self._delete(POD, key, old, grace_seconds)

    async def server_version(self) -> tuple[int, int]:
        return self._version

    async def record(self, event: KubeEvent) -> None:
        await self._call("record", event.kind, event.meta.key)
        self.events.append(event)

    # Inside.

    async def _call(self, verb: str, kind: Kind, key: str) -> None:
        await asyncio.sleep(0)  # a real call lets others run too
        self.calls.append(Call(verb, kind.name, key))
        for fault in self._faults:
            if fault.verb == verb and fault.kind in ("", kind.name):
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                raise fault.error
        if kind.name in self.missing_kinds:
            raise NotFoundError(f"{verb} {kind.plural}: the server could not find the requested resource", status=404)

    def _key(self, kind: Kind, raw: Object) -> str:
        metadata = raw.setdefault("metadata", {})
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
            return f"{metadata['namespace']}/{metadata.get('name', '')}"
        return str(metadata.get("name", ""))

    def _find(self, kind: Kind, key: str) -> Object:
        found = self._objects[kind.name].get(key)
        if found is None:
            raise NotFoundError(f'{kind.plural} "{key}" not found', status=404)
        return found

    def _identify(self, kind: Kind, raw: Object) -> None:
        self._uids += 1
        metadata = raw["metadata"]
        metadata.setdefault("uid", f"uid-{self._uids}")
        metadata.setdefault("creationTimestamp", format_time(self._now()))
        if kind.name not in _NO_GENERATION:
            metadata.setdefault("generation", 1)

    def _store(self, kind: Kind, key: str, raw: Object, type_: WatchType) -> Any:
        self._count += 1
        raw["metadata"]["resourceVersion"] = str(self._count)
        self._kinds[kind.name] = kind
        self._objects[kind.name][key] = raw
        self._history[kind.name].append((self._count, type_, copy.deepcopy(raw)))
        self._notify()
        parsed = parse_or_none(kind, copy.deepcopy(raw))
        return parsed

    def _drop(self, kind: Kind, key: str) -> None:
        raw = self._objects[kind.name].pop(key, None)
        if raw is None:
            raise NotFoundError(f'{kind.plural} "{key}" not found', status=404)
        self._count += 1
        gone = copy.deepcopy(raw)
        gone["metadata"]["resourceVersion"] = str(self._count)
        self._history[kind.name].append((self._count, WatchType.DELETED, gone))
        self._notify()

    def _delete(self, kind: Kind, key: str, old: Object, grace_seconds: int | None) -> None:
        new = copy.deepcopy(old)
        metadata = new["metadata"]
        grace = 0
        if kind is POD and old.get("spec", {}).get("nodeName") and not self._pods_end_at_once:
            asked = old["spec"].get("terminationGracePeriodSeconds", 30)
            grace = asked if grace_seconds is None else grace_seconds
        if grace <= 0 and not metadata.get("finalizers"):
            self._drop(kind, key)
            return
        end = format_time(self._now() + timedelta(seconds=grace))
        if metadata.get("deletionTimestamp"):
            # Grace may only become shorter; anything else is already being deleted.
            if kind is not POD or end >= metadata["deletionTimestamp"]:
                return
        metadata["deletionTimestamp"] = end
        metadata["deletionGracePeriodSeconds"] = grace
        self._store(kind, key, new, WatchType.MODIFIED)

    def _notify(self) -> None:
        # A fresh event per change, so that no watch can take another's away.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _patched(kind: Kind, old: Object, body: Raw | Sequence[Raw], patch_type: PatchType) -> Object:
    if isinstance(body, Mapping):
        if patch_type is PatchType.JSON:
            raise InvalidError("a JSON patch is a list of operations", status=400)
        strategic = patch_type is PatchType.STRATEGIC
        if strategic and "." in kind.group and not kind.group.endswith(".k8s.io"):
            raise InvalidError(f"patch {kind.name}: custom resources take no strategic merge patch", status=415)
        new = merge(old, body, strategic=strategic)
    else:
        new = json_patch(old, body)
    if not isinstance(new, dict):
        raise InvalidError(f"patch {kind.name}: the result is not an object", status=422)
    return copy.deepcopy(new)


def _restore(new: Object, old: Object, field: str) -> None:
    if field in old:
        new[field] = copy.deepcopy(old[field])
    else:
        new.pop(field, None)


def _own_status(metadata: Object, body: Raw | Sequence[Raw], manager: str) -> None:
    """Keep who wrote which field of the status, as `managedFields` tells it."""
    status = body.get("status") if isinstance(body, Mapping) else None
    if not isinstance(status, Mapping) or not manager:
        return
    fields = {f"f:{name}" for name in status}
    entries: list[Object] = []
    for entry in metadata.get("managedFields") or ():
        owned = {k: v for k, v in (entry.get("fieldsV1", {}).get("f:status") or {}).items() if k not in fields}
        if owned and entry.get("manager") != manager:
            entries.append({**entry, "fieldsV1": {"f:status": owned}})
        elif owned:
            fields |= set(owned)
    entries.append(
        {
            "manager": manager,
            "operation": "Update",
            "subresource": "status",
            "fieldsV1": {"f:status": {field: {} for field in sorted(fields)}},
        }
    )
    metadata["managedFields"] = entries
