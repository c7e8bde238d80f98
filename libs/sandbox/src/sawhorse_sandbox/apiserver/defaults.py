"""What the real API server fills in: defaults, the status an object starts with, and built-in admission. Test double.

Only what the project's services, our scheduler and our controllers read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sawhorse_sandbox.apiserver.errors import ApiError
from sawhorse_sandbox.apiserver.resources import PRIORITY_CLASSES, Kind
from sawhorse_sandbox.apiserver.storage import Object, Store

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
DEFAULT_EVICTION_SECONDS = 300  # how long a pod that says nothing stays on a node that is not ready


def default_pod_spec(spec: Object) -> None:
    """In place; also for the template of a workload."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        resources = container.setdefault("resources", {})
        _requests_from_limits(resources)
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if spec.get("hostNetwork"):
                port.setdefault("hostPort", port.get("containerPort"))


def _requests_from_limits(resources: Object) -> None:
    limits = resources.get("limits")
    if limits:
        requests = resources.setdefault("requests", {})
        for name, quantity in limits.items():
            requests.setdefault(name, quantity)


def _default_template(spec: Object) -> None:
    template = spec.get("template")
    if isinstance(template, dict):
        metadata = template.setdefault("metadata", {})
        metadata.pop("creationTimestamp", None)
        drop_empty(metadata)
        default_pod_spec(template.setdefault("spec", {}))


def _pod(obj: Object) -> None:
    default_pod_spec(obj.setdefault("spec", {}))
    obj["spec"].setdefault("enableServiceLinks", True)
    obj["spec"].setdefault("serviceAccountName", "default")


def _deployment(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")
    _default_template(spec)


def _replicas(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    _default_template(spec)


def _stateful_set(obj: Object) -> None:
    _replicas(obj)
    obj["spec"].setdefault("podManagementPolicy", "OrderedReady")
    obj["spec"].setdefault("revisionHistoryLimit", 10)


def _daemon_set(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    _default_template(spec)


def _job(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("completions", 1)
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    _default_template(spec)


def _service(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _namespace(obj: Object) -> None:
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]


def _storage_class(obj: Object) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _priority_class(obj: Object) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _claim(obj: Object) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


_DEFAULTS: Mapping[Kind, Callable[[Object], None]] = {
    ("", "pods"): _pod,
    ("", "services"): _service,
    ("", "namespaces"): _namespace,
    ("", "replicationcontrollers"): _replicas,
    ("", "persistentvolumeclaims"): _claim,
    ("apps", "deployments"): _deployment,
    ("apps", "replicasets"): _replicas,
    ("apps", "statefulsets"): _stateful_set,
    ("apps", "daemonsets"): _daemon_set,
    ("batch", "jobs"): _job,
    ("storage.k8s.io", "storageclasses"): _storage_class,
    ("scheduling.k8s.io", "priorityclasses"): _priority_class,
}

_FIRST_STATUS: Mapping[Kind, Object] = {
    ("", "pods"): {"phase": "Pending"},
    ("", "namespaces"): {"phase": "Active"},
    ("", "persistentvolumeclaims"): {"phase": "Pending"},
    ("", "persistentvolumes"): {"phase": "Pending"},
    ("apps", "replicasets"): {"replicas": 0},
    ("", "replicationcontrollers"): {"replicas": 0},
    ("apps", "daemonsets"): {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    ("policy", "poddisruptionbudgets"): {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    },
    ("apps", "deployments"): {},
    ("apps", "statefulsets"): {"replicas": 0},
    ("", "services"): {"loadBalancer": {}},
    ("batch", "jobs"): {},
    ("storage.k8s.io", "volumeattachments"): {"attached": False},
    ("apiextensions.k8s.io", "customresourcedefinitions"): {},
}


def drop_empty(part: Object) -> None:
    """Drop, in place, null fields, empty lists and, of metadata, empty maps: the real server's types leave them out."""
    for name in [n for n, v in part.items() if v is None or v == [] or (v == {} and n in ("labels", "annotations"))]:
        del part[name]


def apply_builtin_defaults(kind: Kind, obj: Object) -> None:
    """Fill in, in place, what the user left out. May be repeated."""
    fill = _DEFAULTS.get(kind)
    if fill is not None:
        fill(obj)


def reset_status(kind: Kind, obj: Object) -> None:
    """Give a new object the status it starts with; a Node alone may bring its own, as a kubelet does."""
    first = _FIRST_STATUS.get(kind)
    if first is not None:
        obj["status"] = dict(first)


def admit(kind: Kind, obj: Object, store: Store) -> None:
    """The built-in admission of creates. Raises ApiError 403 for a pod of an unknown priority class."""
    if kind == ("", "pods"):
        _admit_pod(obj, store)
    elif kind == ("", "nodes"):
        _admit_node(obj)


def _admit_pod(obj: Object, store: Store) -> None:
    spec = obj["spec"]
    _resolve_priority(obj, store)
    tolerations = spec.setdefault("tolerations", [])
    for taint in (NOT_READY, UNREACHABLE):
        if not any(t.get("key", "") in ("", taint) and t.get("effect", "") in ("", "NoExecute") for t in tolerations):
            tolerations.append(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": DEFAULT_EVICTION_SECONDS,
                }
            )
    obj["status"]["qosClass"] = qos_class(spec)


def _resolve_priority(obj: Object, store: Store) -> None:
    spec = obj["spec"]
    name = spec.get("priorityClassName")
    chosen: Object | None = None
    if name:
        stored = store.get(PRIORITY_CLASSES.storage, ("", name))
        if stored is None:
            pod = obj["metadata"]["name"]
            raise ApiError(403, "Forbidden", f'pods "{pod}" is forbidden: no PriorityClass with name {name} was found')
        chosen = stored.obj
    else:
        defaults = [s.obj for s in store.items(PRIORITY_CLASSES.storage) if s.obj.get("globalDefault")]
        chosen = min(defaults, key=lambda c: int(c["value"]), default=None)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    spec["priority"] = int(chosen["value"]) if chosen is not None else 0
    spec.setdefault("preemptionPolicy", (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority"))


def _admit_node(obj: Object) -> None:
    """A node starts with the not-ready taint, so that nothing lands before its kubelet has reported."""
    spec = obj.setdefault("spec", {})
    taints = spec.setdefault("taints", [])
    if not any(t.get("key") == NOT_READY and t.get("effect") == "NoSchedule" for t in taints):
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})


def qos_class(spec: Mapping[str, Any]) -> str:
    """Guaranteed, Burstable or BestEffort, by cpu and memory of every container."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    some = False
    guaranteed = True
    for container in containers:
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        requests = resources.get("requests") or {}
        for name in ("cpu", "memory"):
            some = some or name in requests or name in limits
            guaranteed = guaranteed and name in limits and limits[name] == requests.get(name)
    if not some:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
