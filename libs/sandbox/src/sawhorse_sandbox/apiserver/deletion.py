"""Deletion: preconditions, grace periods, finalizers, and how far it propagates. Test double for the server's own."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sawhorse_sandbox.apiserver.errors import conflict
from sawhorse_sandbox.apiserver.resources import NAMESPACES, PODS
from sawhorse_sandbox.apiserver.storage import Object, Stored, thaw
from sawhorse_sandbox.apiserver.targets import Deleted, DeleteOptions, Target, rfc3339

if TYPE_CHECKING:
    from sawhorse_sandbox.apiserver.operations import Api

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
DEFAULT_GRACE = 30


def has_finalizers(obj: Mapping[str, Any]) -> bool:
    """Whether something has yet to let go of a deleted object; a namespace has finalizers of its own kind too."""
    if obj["metadata"].get("finalizers"):
        return True
    return obj.get("kind") == NAMESPACES.kind and bool((obj.get("spec") or {}).get("finalizers"))


def delete(api: Api, target: Target, options: DeleteOptions) -> Deleted:
    """Delete now, or mark for deletion where a grace period or finalizers hold the object.

    Raises:
        ApiError: 404, or 409 when a precondition does not hold.
    """
    current = api.get(target)
    check_preconditions(target, current, options)
    grace = _grace(target, current.obj, options)
    if options.dry_run:
        return Deleted(current, gone=False)
    obj = thaw(current)
    if options.propagation in ("Foreground", "Orphan"):
        finalizer = FOREGROUND if options.propagation == "Foreground" else ORPHAN
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if finalizer not in finalizers and "deletionTimestamp" not in obj["metadata"]:
            finalizers.append(finalizer)
    if grace == 0 and not has_finalizers(obj):
        return Deleted(api.store.remove(target.resource.storage, target.key), gone=True)
    if not _mark(obj, grace, api.clock()):
        return Deleted(current, gone=False)
    if target.resource.storage == NAMESPACES.storage:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return Deleted(api.store.put(target.resource.storage, target.key, obj), gone=False)


def check_preconditions(target: Target, current: Stored, options: DeleteOptions) -> None:
    resource = target.resource
    version = current.obj["metadata"]["resourceVersion"]
    for word, given, held in (
        ("UID", options.uid, current.uid),
        ("ResourceVersion", options.resource_version, version),
    ):
        if given and given != held:
            why = f"Precondition failed: {word} in precondition: {given}, {word} in object meta: {held}"
            raise conflict(resource.plural, resource.group, target.name, why)


def _grace(target: Target, obj: Object, options: DeleteOptions) -> int:
    """Seconds; only pods that run on a node are given any."""
    if target.resource.storage != PODS.storage:
        return 0
    spec = obj.get("spec") or {}
    if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = options.grace if options.grace is not None else spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE)
    return max(1, grace) if grace < 0 else int(grace)


def _mark(obj: Object, grace: int, now: datetime.datetime) -> bool:
    """Set or shorten the deletion of `obj`, in place; false when it is already to end as soon or sooner."""
    metadata = obj["metadata"]
    running = metadata.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" in metadata and (running is None or grace >= running):
        return False
    metadata["deletionTimestamp"] = rfc3339(now + datetime.timedelta(seconds=grace))
    metadata["deletionGracePeriodSeconds"] = grace
    if running is None and "generation" in metadata:
        metadata["generation"] += 1
    return True
