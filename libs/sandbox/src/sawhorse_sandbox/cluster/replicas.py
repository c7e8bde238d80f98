"""What Deployments, ReplicaSets and DaemonSets share: pods from a template, which of them count, percentages."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from sawhorse_sandbox.apiserver.eviction import is_ready
from sawhorse_sandbox.apiserver.operations import SUFFIX_LETTERS, Api
from sawhorse_sandbox.apiserver.resources import PODS, Resource
from sawhorse_sandbox.apiserver.storage import Change, Key, Object, Stored, decode
from sawhorse_sandbox.apiserver.targets import Target, Write, parse_time

WRITE = Write("kube-controller-manager")


def template_hash(template: Mapping[str, Any]) -> str:
    """Ten letters that stand for a pod template."""
    digest = hashlib.blake2s(msgspec.json.encode(template, order="sorted"), digest_size=10).digest()
    return "".join(SUFFIX_LETTERS[byte % len(SUFFIX_LETTERS)] for byte in digest)


def owner_reference(owner: Stored, resource: Resource) -> Object:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.obj["metadata"]["name"],
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from_template(owner: Stored, resource: Resource) -> Object:
    """A fresh pod body of a workload."""
    template = decode(owner.raw)["spec"]["template"]
    metadata = template.get("metadata") or {}
    name = owner.obj["metadata"]["name"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-",
            "labels": metadata.get("labels") or {},
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [owner_reference(owner, resource)],
        },
        "spec": template["spec"],
    }


def create_pod(api: Api, owner: Stored, body: Object) -> Stored:
    return api.create(Target(PODS, owner.obj["metadata"]["namespace"]), body, WRITE)


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def controlled(api: Api, owner: Stored, resource: Resource = PODS) -> list[Stored]:
    """The objects of a kind that `owner` controls, oldest first."""
    uid = owner.uid
    found = api.store.dependents_of(uid, resource.storage)
    return [
        stored
        for stored in found
        if any(ref["uid"] == uid and ref.get("controller") for ref in stored.obj["metadata"]["ownerReferences"])
    ]


def owner_keys(change: Change, kind: str) -> set[Key]:
    """The controllers of a kind that a change of one of their objects concerns."""
    found = set()
    for stored in (change.stored, change.previous):
        owner = controller_of(stored.obj) if stored is not None else None
        if owner is not None and owner.get("kind") == kind:
            found.add((change.key[0], str(owner["name"])))
    return found


def counts_anew(change: Change) -> bool:
    """Whether a change of a pod can change what its owner counts; that it was bound, say, does not."""
    before, after = change.previous, change.stored
    if change.op != "MODIFIED" or before is None:
        return True
    if before.obj["metadata"].get("ownerReferences") != after.obj["metadata"].get("ownerReferences"):
        return True
    return (is_active(before), is_ready(before.obj)) != (is_active(after), is_ready(after.obj))


def is_terminating(stored: Stored) -> bool:
    return "deletionTimestamp" in stored.obj["metadata"]


def is_over(stored: Stored) -> bool:
    return (stored.obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_active(stored: Stored) -> bool:
    return not is_terminating(stored) and not is_over(stored)


def ready_for(pod: Stored, now: datetime.datetime) -> float | None:
    """Seconds since the pod became ready; None when it is not."""
    if not is_ready(pod.obj):
        return None
    since = next(c.get("lastTransitionTime") for c in pod.obj["status"]["conditions"] if c["type"] == "Ready")
    return (now - parse_time(since)).total_seconds() if since else 0.0


def share(value: int | str | None, whole: int, *, up: bool) -> int:
    """An int-or-percent of `whole`, rounded up or down."""
    if isinstance(value, str) and value.endswith("%"):
        exact = int(value[:-1]) * whole / 100
        return math.ceil(exact) if up else math.floor(exact)
    return int(value or 0)
