"""The verbs of the API on the store: get, list, create, replace, patch, delete, with the real server's semantics.

Test double for kube-apiserver. HTTP handlers and our controllers go through this one class. All methods are
synchronous: what a method reads cannot change before it writes.
"""

from __future__ import annotations

import copy
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from sawhorse_sandbox.apiserver import crds, defaults, events, managedfields, patches, schema, validation
from sawhorse_sandbox.apiserver.deletion import delete, has_finalizers
from sawhorse_sandbox.apiserver.errors import (
    ApiError,
    already_exists,
    bad_request,
    conflict,
    forbidden_field,
    invalid,
    invalid_value,
    not_found,
    required,
    stale,
)
from sawhorse_sandbox.apiserver.resources import CRDS, EVENTS_V1, NAMESPACES, PODS, Resource, ResourceTable
from sawhorse_sandbox.apiserver.selectors import ALL, Selection
from sawhorse_sandbox.apiserver.shapes import BuiltinShape, SchemaShape, Shape
from sawhorse_sandbox.apiserver.storage import Change, Object, Store, Stored, encode, thaw
from sawhorse_sandbox.apiserver.targets import (
    DEFAULT_DELETE,
    Clock,
    Deleted,
    DeleteOptions,
    Target,
    Write,
    rfc3339,
    utc_now,
)

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: no words by chance

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


def random_suffix(length: int = 5) -> str:
    return "".join(random.choices(SUFFIX_LETTERS, k=length))


class Api:
    """All verbs. Raises ApiError for every answer that is not a success."""

    def __init__(self, store: Store, resources: ResourceTable, clock: Clock = utc_now) -> None:
        self.store = store
        self.resources = resources
        self.clock = clock
        store.listen(self._follow_definitions)

    def now(self) -> str:
        return rfc3339(self.clock())

    def find(self, target: Target) -> Stored | None:
        return self.store.get(target.resource.storage, target.key)

    def get(self, target: Target) -> Stored:
        found = self.find(target)
        if found is None:
            raise not_found(target.resource.plural, target.resource.group, target.name)
        return found

    def items(self, resource: Resource, namespace: str | None = None, selection: Selection = ALL) -> Iterator[Stored]:
        """In order of namespace and name; None means all namespaces."""
        for stored in self.store.items(resource.storage, namespace):
            if selection.selects_all or selection.matches(to_view(resource, stored.obj)):
                yield stored

    def create(self, target: Target, body: Object, write: Write) -> Stored:
        """Write a new object; `body` belongs to the server from here on. Its name may come from generateName."""
        resource = target.resource
        obj = from_view(resource, body)
        _check_kind(resource, obj)
        metadata = obj.setdefault("metadata", {})
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        self._place(target, metadata)
        name = self._name(target, metadata)
        if self.find(target.named(name)) is not None:
            raise already_exists(resource.plural, resource.group, name)
        for field in (*_SERVER_OWNED, "managedFields", "resourceVersion"):
            metadata.pop(field, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self.now()
        if resource.generation:
            metadata["generation"] = 1
        self._prepare_new(resource, obj, write)
        self._check(resource, obj, None)
        if write.manager:
            managedfields.record(None, obj, _manager(target, write, "Update"), shape_of(resource), self.now())
        return self._save(target.named(name), obj, write)

    def replace(self, target: Target, body: Object, write: Write) -> Stored:
        """PUT: the whole object, or with the subresource `status` only that part."""
        resource = target.resource
        new = from_view(resource, body)
        _check_kind(resource, new)
        metadata = new.setdefault("metadata", {})
        if metadata.get("name", target.name) != target.name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
            )
        current = self.get(target)
        if resource.custom and not metadata.get("resourceVersion"):
            cause = forbidden_field("metadata.resourceVersion", "must be specified for an update")
            raise invalid(resource.plural, resource.group, target.name, [cause])
        uid = metadata.get("uid")
        if uid and uid != current.uid:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current.uid}"
            raise conflict(resource.plural, resource.group, target.name, why)
        return self._commit(target, current, new, write)

    def modify(self, target: Target, change: Callable[[Object], None], write: Write) -> Stored:
        """Read, change a copy, write: how controllers update."""
        current = self.get(target)
        new = thaw(current)
        change(new)
        return self._commit(target, current, new, write)

    def write_whole(self, target: Target, change: Callable[[Object], None], write: Write) -> Stored:
        """As `modify`, past the border between spec and status and unchecked: for what only the server itself does."""
        current = self.get(target)
        new = thaw(current)
        change(new)
        if write.manager:
            manager = _manager(target, write, "Update")
            managedfields.record(current.obj, new, manager, shape_of(target.resource), self.now())
        return self._save(target, new, write)

    def patch(self, target: Target, kind: str, patch: Any, write: Write, *, force: bool = False) -> tuple[Stored, bool]:
        """PATCH of the given content type. Returns the object and whether apply created it."""
        resource = target.resource
        if kind == APPLY:
            return self._apply(target, patch, write, force=force)
        if kind == STRATEGIC and resource.custom:
            raise ApiError(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: "
                f"{JSON}, {MERGE}, {APPLY}",
            )
        current = self.get(target)
        base = to_view(resource, current.obj)
        if kind == JSON:
            new = patches.json_patch(base, patch)
        elif not isinstance(patch, dict):
            raise bad_request("a patch must be a JSON object")
        elif kind == STRATEGIC:
            new = copy.deepcopy(patches.strategic_merge(base, patch, shape_of(resource)))
        elif kind == MERGE:
            new = copy.deepcopy(patches.merge_patch(base, patch))
        else:
            raise ApiError(415, "UnsupportedMediaType", f"unsupported patch type {kind!r}")
        if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
            raise bad_request("the patch leaves no object")
        return self._commit(target, current, from_view(resource, new), write), False

    def delete(self, target: Target, options: DeleteOptions = DEFAULT_DELETE) -> Deleted:
        return delete(self, target, options)

    def _apply(self, target: Target, config: Any, write: Write, *, force: bool) -> tuple[Stored, bool]:
        resource = target.resource
        if not isinstance(config, dict) or not isinstance(config.get("metadata", {}), dict):
            raise bad_request("an apply patch must be an object")
        if not write.manager:
            raise bad_request(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
            )
        if config.get("apiVersion") != resource.api_version or config.get("kind") != resource.kind:
            raise bad_request(f"apply needs apiVersion {resource.api_version} and kind {resource.kind}")
        metadata = config.setdefault("metadata", {})
        if "managedFields" in metadata:
            raise bad_request("metadata.managedFields must be nil")
        metadata["name"] = target.name
        config = _applied_part(target, config)
        current = self.find(target)
        if current is None and target.subresource:
            raise not_found(resource.plural, resource.group, target.name)
        manager = _manager(target, write, "Apply")
        base = current.obj if current is not None else None
        merged = managedfields.apply(base, config, manager, shape_of(resource), self.now(), force=force)
        managed = merged["metadata"].pop("managedFields")
        merged = copy.deepcopy(merged)
        if current is not None:
            return self._commit(target, current, merged, write, managed=managed), False
        made = self.create(target, merged, Write("", write.dry_run, write.strict))
        final = thaw(made)
        final["metadata"]["managedFields"] = managed
        return (made if write.dry_run else self.store.put(resource.storage, target.key, final)), True

    def _commit(
        self, target: Target, current: Stored, new: Object, write: Write, *, managed: list[Any] | None = None
    ) -> Stored:
        """Make `new` the next state of `current`, if nothing stands against it."""
        resource = target.resource
        self._check_versions(target, current, new)
        result = _combined(target, current, new)
        metadata = result["metadata"]
        if resource.storage == CRDS.storage and not target.subresource:
            result["status"] = copy.deepcopy(result.get("status") or {})
        self._prepare(resource, result, write)
        self._check(resource, result, current.obj)
        if resource.generation and _spec_part(resource, result) != _spec_part(resource, current.obj):
            metadata["generation"] = current.obj["metadata"].get("generation", 0) + 1
        before = current.obj["metadata"].get("managedFields")
        metadata["resourceVersion"] = current.obj["metadata"]["resourceVersion"]
        metadata.pop("managedFields", None)
        if before is not None:
            metadata["managedFields"] = before
        if result == current.obj and managed in (None, before):
            return current  # the real server does not write what changes nothing
        if managed is not None:
            metadata["managedFields"] = managed
        elif write.manager:
            manager = _manager(target, write, "Update")
            managedfields.record(current.obj, result, manager, shape_of(resource), self.now())
        return self._save(target, result, write)

    def _save(self, target: Target, obj: Object, write: Write) -> Stored:
        """Store it; or remove it when it is being deleted and nothing holds it any more."""
        if write.dry_run:
            return Stored(obj, encode(obj), self.store.revision)
        metadata = obj["metadata"]
        kind = target.resource.storage
        if (
            "deletionTimestamp" in metadata
            and not has_finalizers(obj)
            and not metadata.get("deletionGracePeriodSeconds")
        ):
            return self.store.remove(kind, target.key, obj)
        return self.store.put(kind, target.key, obj)

    def _check_versions(self, target: Target, current: Stored, new: Object) -> None:
        given = new["metadata"].get("resourceVersion")
        resource = target.resource
        if given and given != current.obj["metadata"]["resourceVersion"]:
            raise stale(resource.plural, resource.group, target.name)
        uid = new["metadata"].get("uid")
        if uid and uid != current.uid:
            cause = invalid_value("metadata.uid", uid, "field is immutable")
            raise invalid(resource.kind, resource.group, target.name, [cause])

    def _place(self, target: Target, metadata: Object) -> None:
        """Check the namespace, and set it."""
        if not target.resource.namespaced:
            metadata.pop("namespace", None)
            return
        if metadata.get("namespace", target.namespace) != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = target.namespace
        namespace = self.store.get(NAMESPACES.storage, ("", target.namespace))
        if namespace is None:
            raise not_found("namespaces", "", target.namespace)
        if "deletionTimestamp" in namespace.obj["metadata"]:
            shown = metadata.get("name") or metadata.get("generateName") or ""
            raise ApiError(
                403,
                "Forbidden",
                f'{target.resource.plural} "{shown}" is forbidden: unable to create new content in namespace '
                f"{target.namespace} because it is being terminated",
                details={"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
            )

    def _name(self, target: Target, metadata: Object) -> str:
        name = metadata.get("name")
        if not name and metadata.get("generateName"):
            name = metadata["generateName"] + random_suffix()
            while self.find(target.named(name)) is not None:
                name = metadata["generateName"] + random_suffix()
        if not name:
            resource = target.resource
            cause = required("metadata.name", "name or generateName is required")
            raise invalid(resource.kind, resource.group, "", [cause])
        metadata["name"] = name
        return str(name)

    def _prepare_new(self, resource: Resource, obj: Object, write: Write) -> None:
        if resource.custom:
            if resource.status:
                obj.pop("status", None)
        else:
            defaults.reset_status(resource.storage, obj)
        self._prepare(resource, obj, write)
        defaults.admit(resource.storage, obj, self.store)

    def _prepare(self, resource: Resource, obj: Object, write: Write) -> None:
        defaults.drop_empty(obj["metadata"])
        if resource.schema is not None:
            unknown = schema.prune(obj, resource.schema, root=True)
            if unknown and write.strict:
                listed = ", ".join(f'unknown field "{path}"' for path in unknown)
                raise bad_request(
                    f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                    f"strict decoding error: {listed}"
                )
            schema.apply_defaults(obj, resource.schema)
        else:
            defaults.apply_builtin_defaults(resource.storage, obj)
            for part in ("spec", "status"):
                if isinstance(obj.get(part), dict):
                    defaults.drop_empty(obj[part])
        if resource.storage == CRDS.storage and not crds.check_definition(obj):
            crds.establish(obj, self.now())

    def _check(self, resource: Resource, obj: Object, old: Object | None) -> None:
        if resource.schema is not None:
            causes = validation.check_metadata(obj["metadata"]) + schema.validate(obj, resource.schema)
        else:
            causes = validation.check(resource.storage, obj)
            if resource.storage == CRDS.storage:
                causes += crds.check_definition(obj)
            if old is not None:
                causes += validation.check_change(resource.storage, old, obj)
        if old is not None and "deletionTimestamp" in old["metadata"]:
            added = set(obj["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
            if added:
                why = f"no new finalizers can be added if the object is being deleted, found {sorted(added)}"
                causes.append(forbidden_field("metadata.finalizers", why))
        if causes:
            raise invalid(resource.kind, resource.group, obj["metadata"]["name"], causes)

    def _follow_definitions(self, change: Change) -> None:
        """Serve custom resources exactly as long as their definition exists."""
        if change.kind != CRDS.storage:
            return
        spec = change.stored.obj["spec"]
        self.resources.remove_custom(spec["group"], spec["names"]["plural"])
        if change.op != "DELETED":
            for resource in crds.resources_of(change.stored.obj):
                self.resources.add(resource)


def shape_of(resource: Resource) -> Shape:
    return SchemaShape(resource.schema, root=True) if resource.schema is not None else BuiltinShape()


def to_view(resource: Resource, obj: Object) -> Object:
    """A stored object as this resource's version shows it; shares everything below the top level."""
    if resource.group == EVENTS_V1.group and resource.kind == "Event":
        return events.to_v1(obj)
    if resource.custom and obj.get("apiVersion") != resource.api_version:
        return {**obj, "apiVersion": resource.api_version}
    return obj


def from_view(resource: Resource, obj: Object) -> Object:
    return events.to_core(obj) if resource.storage != (resource.group, resource.plural) else obj


def view_bytes(resource: Resource, stored: Stored) -> bytes:
    shown = to_view(resource, stored.obj)
    return stored.raw if shown is stored.obj else encode(shown)


def _check_kind(resource: Resource, obj: Object) -> None:
    version = "v1" if resource.storage != (resource.group, resource.plural) else resource.api_version
    for field, wanted in (("apiVersion", version), ("kind", resource.kind)):
        if obj.setdefault(field, wanted) != wanted:
            raise bad_request(f"{field} in the body ({obj[field]}) does not match the expected {field} ({wanted})")


def _manager(target: Target, write: Write, operation: str) -> managedfields.Manager:
    return managedfields.Manager(write.manager, operation, target.resource.api_version, target.subresource)


def _applied_part(target: Target, config: Object) -> Object:
    """The part of an applied configuration that the endpoint writes."""
    if target.subresource == "status":
        return {
            "apiVersion": config["apiVersion"],
            "kind": config["kind"],
            "metadata": {"name": target.name},
            "status": config.get("status") or {},
        }
    if target.resource.status:
        return {name: value for name, value in config.items() if name != "status"}
    return config


def _combined(target: Target, current: Stored, new: Object) -> Object:
    """`new`, limited to what the endpoint may write."""
    if target.subresource == "status":
        result = thaw(current)
        result.pop("status", None)
        if new.get("status") is not None:
            result["status"] = new["status"]
        return result
    metadata = new["metadata"]
    old = current.obj["metadata"]
    for field in ("name", "namespace", *_SERVER_OWNED):
        metadata.pop(field, None)
        if field in old:
            metadata[field] = old[field]
    if target.resource.status:
        new.pop("status", None)
        if "status" in current.obj:
            new["status"] = current.obj["status"]
    return new


def _spec_part(resource: Resource, obj: Object) -> Any:
    """What the generation counts: the spec, for custom resources everything but metadata and status."""
    if not resource.custom:
        return {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    without = ("metadata", "status") if resource.status else ("metadata",)
    return {name: value for name, value in obj.items() if name not in without}


def pod_target(namespace: str, name: str, subresource: str = "") -> Target:
    return Target(PODS, namespace, name, subresource)
