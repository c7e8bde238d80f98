"""What follows a deletion: dependents of owners, pods of vanished nodes, the content of namespaces and definitions.

Test double for the garbage collector, the pod garbage collector, and the namespace and definition finalizers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import cast

from sawhorse_sandbox.apiserver.crds import CLEANUP
from sawhorse_sandbox.apiserver.deletion import FOREGROUND, ORPHAN
from sawhorse_sandbox.apiserver.operations import Api
from sawhorse_sandbox.apiserver.resources import CRDS, NAMESPACES, NODES, PODS
from sawhorse_sandbox.apiserver.storage import Change, Key, Object, Ref, Stored
from sawhorse_sandbox.apiserver.targets import DeleteOptions, Target, target_of
from sawhorse_sandbox.cluster.replicas import WRITE, is_terminating

QUARANTINE = 3.0  # seconds until the pods of a vanished node are removed; the real collector waits 40


@dataclass(frozen=True, slots=True)
class OwnerGarbage:
    """A reconciler by object: what has lost its last owner goes."""

    api: Api
    name = "garbage-collector"
    kinds = None

    def keys(self, change: Change) -> Iterable[Hashable]:
        found: list[Hashable] = []
        owners = change.stored.obj["metadata"].get("ownerReferences") or ()
        if change.op == "DELETED":
            found.extend(self.api.store.dependents(change.stored.uid))
            found.extend(ref for owner in owners if (ref := self.api.store.by_uid(owner["uid"])) is not None)
        elif owners or _propagates(change.stored):
            found.append((change.kind, change.key))
        return found

    def reconcile(self, key: Hashable) -> float | None:
        ref = cast(Ref, key)
        stored = self.api.store.get(*ref)
        target = self._target(ref)
        if stored is None or target is None:
            return None
        if is_terminating(stored):
            self._propagate(target, stored)
            return None
        owners = stored.obj["metadata"].get("ownerReferences") or []
        alive = [owner for owner in owners if self.api.store.by_uid(owner["uid"]) is not None]
        if owners and not alive:
            self.api.delete(target, DeleteOptions(uid=stored.uid))
        elif len(alive) < len(owners):
            self._keep_owners(target, alive)
        return None

    def _propagate(self, target: Target, stored: Stored) -> None:
        """Do what a foreground or an orphaning deletion has to do before its object may go."""
        finalizers = stored.obj["metadata"].get("finalizers") or ()
        dependents = [ref for ref in self.api.store.dependents(stored.uid) if self._target(ref) is not None]
        if ORPHAN in finalizers:
            for ref in dependents:
                self._orphan(ref, stored.uid)
            self._drop_finalizer(target, ORPHAN)
        elif FOREGROUND in finalizers:
            for ref in dependents:
                dependent = self.api.store.get(*ref)
                its_target = self._target(ref)
                if dependent is not None and its_target is not None and not is_terminating(dependent):
                    options = DeleteOptions(uid=dependent.uid, propagation="Foreground")
                    self.api.delete(its_target, options)
            if not self.api.store.dependents(stored.uid):
                self._drop_finalizer(target, FOREGROUND)

    def _orphan(self, ref: Ref, uid: str) -> None:
        dependent = self.api.store.get(*ref)
        target = self._target(ref)
        if dependent is not None and target is not None:
            owners = dependent.obj["metadata"].get("ownerReferences") or []
            self._keep_owners(target, [owner for owner in owners if owner["uid"] != uid])

    def _keep_owners(self, target: Target, owners: list[Object]) -> None:
        def change(obj: Object) -> None:
            obj["metadata"]["ownerReferences"] = owners
            if not owners:
                del obj["metadata"]["ownerReferences"]

        self.api.modify(target, change, WRITE)

    def _drop_finalizer(self, target: Target, finalizer: str) -> None:
        self.api.modify(target, lambda obj: _without_finalizer(obj, finalizer), WRITE)

    def _target(self, ref: Ref) -> Target | None:
        resource = self.api.resources.of_storage(ref[0])
        return Target(resource, *ref[1]) if resource is not None else None


def _propagates(stored: Stored) -> bool:
    finalizers = stored.obj["metadata"].get("finalizers") or ()
    return is_terminating(stored) and (FOREGROUND in finalizers or ORPHAN in finalizers)


def _without_finalizer(obj: Object, finalizer: str) -> None:
    metadata = obj["metadata"]
    metadata["finalizers"] = [held for held in metadata.get("finalizers") or () if held != finalizer]
    if not metadata["finalizers"]:
        del metadata["finalizers"]


class PodGarbage:
    """A reconciler by node name: pods of a node that is gone are removed after a moment."""

    name = "pod-garbage-collector"
    kinds = (NODES.storage, PODS.storage)

    def __init__(
        self, api: Api, monotonic: Callable[[], float] = time.monotonic, quarantine: float = QUARANTINE
    ) -> None:
        self._api = api
        self._monotonic = monotonic
        self._quarantine = quarantine
        self._missing: dict[str, float] = {}

    def keys(self, change: Change) -> Iterable[Hashable]:
        if change.kind == NODES.storage:
            return [change.key[1]] if change.op != "MODIFIED" else []
        node = change.stored.obj["spec"].get("nodeName")
        gone = node and change.op != "DELETED" and self._api.store.get(NODES.storage, ("", node)) is None
        return [node] if gone else []

    def reconcile(self, key: Hashable) -> float | None:
        name = cast(str, key)
        if self._api.store.get(NODES.storage, ("", name)) is not None:
            self._missing.pop(name, None)
            return None
        waited = self._monotonic() - self._missing.setdefault(name, self._monotonic())
        if waited < self._quarantine:
            return self._quarantine - waited
        for pod in list(self._api.items(PODS)):
            if pod.obj["spec"].get("nodeName") == name:
                self._api.delete(target_of(PODS, pod), DeleteOptions(grace=0, uid=pod.uid))
        return None


@dataclass(frozen=True, slots=True)
class ContentFinalizer:
    """A reconciler of deleted namespaces and definitions: they go when all that was in them is gone."""

    api: Api
    name = "content-finalizer"
    kinds = None

    def keys(self, change: Change) -> Iterable[Hashable]:
        if change.kind in (NAMESPACES.storage, CRDS.storage):
            return [(change.kind, change.key)] if is_terminating(change.stored) and change.op != "DELETED" else []
        if change.op != "DELETED":
            return []
        group, plural = change.kind
        return [(NAMESPACES.storage, ("", change.key[0])), (CRDS.storage, ("", f"{plural}.{group}"))]

    def reconcile(self, key: Hashable) -> float | None:
        kind, object_key = cast(tuple[tuple[str, str], Key], key)
        stored = self.api.store.get(kind, object_key)
        if stored is None or not is_terminating(stored):
            return None
        if kind == NAMESPACES.storage:
            self._empty_namespace(stored)
        else:
            self._empty_definition(stored)
        return None

    def _empty_namespace(self, namespace: Stored) -> None:
        name = namespace.obj["metadata"]["name"]
        left = False
        for kind in self.api.store.kinds():
            resource = self.api.resources.of_storage(kind)
            if resource is None or not resource.namespaced:
                continue
            left = self._delete_all(list(self.api.items(resource, name)), kind) or left
        if not left:
            self.api.modify(target_of(NAMESPACES, namespace), lambda obj: obj["spec"].update(finalizers=[]), WRITE)

    def _empty_definition(self, definition: Stored) -> None:
        spec = definition.obj["spec"]
        kind = (spec["group"], spec["names"]["plural"])
        if not self._delete_all(list(self.api.store.items(kind)), kind):
            self.api.modify(target_of(CRDS, definition), lambda obj: _without_finalizer(obj, CLEANUP), WRITE)

    def _delete_all(self, found: list[Stored], kind: tuple[str, str]) -> bool:
        """Whether something is still there."""
        left = False
        resource = self.api.resources.of_storage(kind)
        for stored in found:
            if resource is not None and not is_terminating(stored):
                left = not self.api.delete(target_of(resource, stored), DeleteOptions(uid=stored.uid)).gone or left
            else:
                left = True
        return left
