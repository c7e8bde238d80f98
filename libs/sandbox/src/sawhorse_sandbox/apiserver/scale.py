"""The scale subresource of the built-in workloads: replicas read and set through a Scale object. Test double."""

from __future__ import annotations

from typing import Any

from sawhorse_sandbox.apiserver.errors import bad_request
from sawhorse_sandbox.apiserver.operations import Api
from sawhorse_sandbox.apiserver.storage import Object, Stored
from sawhorse_sandbox.apiserver.targets import Target, Write


def scale_of(stored: Stored) -> dict[str, Any]:
    metadata = stored.obj["metadata"]
    spec = stored.obj.get("spec") or {}
    selector = (spec.get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: metadata[k] for k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {
            "replicas": (stored.obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(selector.items())),
        },
    }


def set_scale(api: Api, target: Target, body: Any, write: Write) -> Stored:
    """Take the replicas from a Scale, or from a merge patch of one.

    Raises:
        ApiError: 400 without a number of replicas, 409 when the Scale is of an older state.
    """
    replicas = (body.get("spec") or {}).get("replicas") if isinstance(body, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("spec.replicas of the Scale must be a number")
    version = (body.get("metadata") or {}).get("resourceVersion")

    def change(obj: Object) -> None:
        obj["spec"]["replicas"] = replicas
        if version:
            obj["metadata"]["resourceVersion"] = version  # compared when it is written

    return api.modify(target, change, write)
