"""Subresources of a pod: binding to a node, and eviction under PodDisruptionBudgets. Test double."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sawhorse_sandbox.apiserver.deletion import check_preconditions
from sawhorse_sandbox.apiserver.errors import ApiError, bad_request, conflict, required
from sawhorse_sandbox.apiserver.errors import invalid as invalid_object
from sawhorse_sandbox.apiserver.operations import Api, pod_target
from sawhorse_sandbox.apiserver.resources import BUDGETS
from sawhorse_sandbox.apiserver.selectors import label_selector
from sawhorse_sandbox.apiserver.storage import Object, Stored
from sawhorse_sandbox.apiserver.targets import DeleteOptions, Target, Write

RETRY_AFTER = 10  # seconds, while a budget has not been looked at yet
WOULD_VIOLATE = "Cannot evict pod as it would violate the pod's disruption budget."
_CONTROLLER = Write("kube-apiserver")


def set_condition(obj: Object, kind: str, status: str, now: str, *, reason: str = "", message: str = "") -> None:
    """Set a status condition in place; the transition time moves only when the status does."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    held = next((c for c in conditions if c.get("type") == kind), None)
    fresh: Object = {"type": kind, "status": status, "lastTransitionTime": now}
    if held is not None and held.get("status") == status:
        fresh["lastTransitionTime"] = held.get("lastTransitionTime", now)
    if reason:
        fresh["reason"] = reason
    if message:
        fresh["message"] = message
    if held is None:
        conditions.append(fresh)
    else:
        conditions[conditions.index(held)] = fresh


def is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def bind(api: Api, namespace: str, name: str, binding: Mapping[str, Any], write: Write) -> Stored:
    """Put a pod on a node.

    Raises:
        ApiError: 404; 409 when the pod is on a node or being deleted; 422 without a node.
    """
    node = (binding.get("target") or {}).get("name")
    if not node:
        raise invalid_object("Binding", "", name, [required("target.name")])
    target = pod_target(namespace, name)
    current = api.get(target)
    uid = (binding.get("metadata") or {}).get("uid")
    if uid and uid != current.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current.uid}"
        raise conflict("pods/binding", "", name, why)
    if "deletionTimestamp" in current.obj["metadata"]:
        raise conflict("pods/binding", "", name, f"pod {name} is being deleted, cannot be assigned to a host")
    held = current.obj["spec"].get("nodeName")
    if held:
        raise conflict("pods/binding", "", name, f'pod {name} is already assigned to node "{held}"')
    if current.obj["spec"].get("schedulingGates"):
        raise conflict("pods/binding", "", name, f"pod {name} has non-empty .spec.schedulingGates")

    def place(pod: Object) -> None:
        pod["spec"]["nodeName"] = node
        set_condition(pod, "PodScheduled", "True", api.now())
        pod["status"].pop("nominatedNodeName", None)  # as the real server since 1.35: the hint has served

    return api.write_whole(target, place, write)


def evict(api: Api, namespace: str, name: str, eviction: Mapping[str, Any]) -> None:
    """Delete a pod if every budget over it allows.

    Raises:
        ApiError: 404; 409 when a precondition fails; 429 when the budget would be violated; 500 with several budgets.
    """
    target = pod_target(namespace, name)
    pod = api.get(target)
    options = delete_options(eviction.get("deleteOptions") or {})
    budgets = [] if _is_free(pod.obj) else _budgets_over(api, pod.obj)
    check_preconditions(target, pod, options)
    if len(budgets) > 1:
        raise ApiError(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    if budgets and not _goes_without_budget(pod.obj, budgets[0].obj):
        if options.dry_run:
            _check_budget(budgets[0].obj)
        else:
            _take_from_budget(api, budgets[0], name)
    if not options.dry_run and "deletionTimestamp" not in pod.obj["metadata"]:
        _note_disruption(api, target)
    # Noting the disruption moved the resourceVersion; the precondition was checked above, in the same step.
    api.delete(target, replace(options, resource_version=""))


def delete_options(body: Mapping[str, Any]) -> DeleteOptions:
    """The options in the body of a delete or an eviction."""
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds")
    if grace is not None and not isinstance(grace, int):
        raise bad_request("gracePeriodSeconds must be a number")
    propagation = body.get("propagationPolicy") or ("Orphan" if body.get("orphanDependents") else "Background")
    return DeleteOptions(
        grace=grace,
        propagation=propagation,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=bool(body.get("dryRun")),
    )


def _is_free(pod: Mapping[str, Any]) -> bool:
    """Pods that no budget protects: finished, not started, or already going."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Pending") or (
        "deletionTimestamp" in pod["metadata"]
    )


def _budgets_over(api: Api, pod: Mapping[str, Any]) -> list[Stored]:
    labels = pod["metadata"].get("labels") or {}
    found = []
    for budget in api.items(BUDGETS, pod["metadata"]["namespace"]):
        selector = label_selector((budget.obj.get("spec") or {}).get("selector"))
        if selector is not None and selector.matches(labels):
            found.append(budget)
    return found


def _goes_without_budget(pod: Mapping[str, Any], budget: Mapping[str, Any]) -> bool:
    """A pod that is not ready may go while its budget is met otherwise, or always, as the budget's policy says."""
    if is_ready(pod):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    healthy, desired = int(status.get("currentHealthy", 0)), int(status.get("desiredHealthy", 0))
    return desired > 0 and healthy >= desired


def _check_budget(budget: Mapping[str, Any]) -> None:
    status = budget.get("status") or {}
    name = budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _too_many(
            f"The disruption budget {name} is still being processed by the server.", retry_after=RETRY_AFTER
        )
    if status.get("disruptionsAllowed", 0) <= 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _too_many(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")


def _too_many(message: str, *, retry_after: int | None = None) -> ApiError:
    details = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    return ApiError(429, "TooManyRequests", WOULD_VIOLATE, details=details, retry_after=retry_after)


def _take_from_budget(api: Api, budget: Stored, pod: str) -> None:
    _check_budget(budget.obj)
    metadata = budget.obj["metadata"]

    def take(obj: Object) -> None:
        obj["status"]["disruptionsAllowed"] -= 1
        obj["status"].setdefault("disruptedPods", {})[pod] = api.now()

    api.modify(Target(BUDGETS, metadata["namespace"], metadata["name"], "status"), take, _CONTROLLER)


def _note_disruption(api: Api, target: Target) -> None:
    def note(pod: Object) -> None:
        set_condition(
            pod, "DisruptionTarget", "True", api.now(), reason="EvictionByEvictionAPI", message="Eviction API: evicting"
        )

    api.modify(pod_target(target.namespace, target.name, "status"), note, _CONTROLLER)
