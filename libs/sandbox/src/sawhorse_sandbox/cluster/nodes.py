"""Node lifecycle: silent kubelets, taints that follow conditions, and eviction by NoExecute taints. Test double."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, cast

from sawhorse_sandbox.apiserver.defaults import NOT_READY, UNREACHABLE
from sawhorse_sandbox.apiserver.eviction import is_ready, set_condition
from sawhorse_sandbox.apiserver.operations import Api
from sawhorse_sandbox.apiserver.resources import LEASES, NODES, PODS
from sawhorse_sandbox.apiserver.storage import Change, Key, Object, Stored
from sawhorse_sandbox.apiserver.targets import DeleteOptions, Target, target_of
from sawhorse_sandbox.cluster.replicas import WRITE, is_over, is_terminating
from sawhorse_sandbox.cluster.terms import Taint, Toleration, taints_of, tolerations_of

NODE_GRACE = 40.0  # seconds without a Lease renewal until a node counts as unreachable
LEASE_NAMESPACE = "kube-node-lease"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

_PRESSURE = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_OURS = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURE.values()})
_KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


def wanted_taints(node: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The (key, effect) pairs that a node's conditions and its cordon call for."""
    conditions = {c["type"]: c.get("status") for c in (node.get("status") or {}).get("conditions") or ()}
    wanted = {(key, "NoSchedule") for kind, key in _PRESSURE.items() if conditions.get(kind) == "True"}
    ready = conditions.get("Ready")
    if ready == "Unknown":
        wanted |= {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
    elif ready == "False":
        wanted |= {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}
    elif ready is None:
        wanted.add((NOT_READY, "NoSchedule"))  # its kubelet has not reported yet
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.add((UNSCHEDULABLE, "NoSchedule"))
    return wanted


class NodeLifecycle:
    """A reconciler by node name. Staleness is judged by when a renewal was seen here, not by the node's clock."""

    name = "node-lifecycle"
    kinds = (NODES.storage, LEASES.storage)

    def __init__(self, api: Api, monotonic: Callable[[], float] = time.monotonic, grace: float = NODE_GRACE) -> None:
        self._api = api
        self._monotonic = monotonic
        self._grace = grace
        self._heard: dict[str, float] = {}

    def keys(self, change: Change) -> Iterable[Hashable]:
        namespace, name = change.key
        if change.kind == LEASES.storage:
            if namespace == LEASE_NAMESPACE and change.op != "DELETED" and _renewed(change):
                self._heard[name] = self._monotonic()
            return []
        if change.op == "DELETED":
            self._heard.pop(name, None)
            return []
        if change.previous is None or _heartbeat(change.previous) != _heartbeat(change.stored):
            self._heard[name] = self._monotonic()
        return [name]

    def reconcile(self, key: Hashable) -> float | None:
        name = cast(str, key)
        node = self._api.store.get(NODES.storage, ("", name))
        if node is None:
            return None
        silent = self._monotonic() - self._heard.setdefault(name, self._monotonic())
        if silent >= self._grace:
            self._mark_unknown(name)
            node = self._api.get(Target(NODES, "", name))
        self._taint(node)
        return max(self._grace - silent, 0.0) if silent < self._grace else self._grace / 4

    def _mark_unknown(self, name: str) -> None:
        now = self._api.now()

        def change(obj: Object) -> None:
            known = {c["type"]: c.get("status") for c in (obj.get("status") or {}).get("conditions") or ()}
            if known.get("Ready") == "Unknown":
                return
            for kind in _KUBELET_CONDITIONS:
                never = kind not in known
                reason = "NodeStatusNeverUpdated" if never else "NodeStatusUnknown"
                message = f"Kubelet {'never posted' if never else 'stopped posting'} node status."
                set_condition(obj, kind, "Unknown", now, reason=reason, message=message)

        self._api.modify(Target(NODES, "", name, "status"), change, WRITE)
        for pod in self._api.items(PODS):
            if pod.obj["spec"].get("nodeName") == name and is_ready(pod.obj):
                self._mark_pod(pod, now)

    def _mark_pod(self, pod: Stored, now: str) -> None:
        def change(obj: Object) -> None:
            set_condition(obj, "Ready", "False", now, reason="NodeNotReady")

        metadata = pod.obj["metadata"]
        self._api.modify(Target(PODS, metadata["namespace"], metadata["name"], "status"), change, WRITE)

    def _taint(self, node: Stored) -> None:
        wanted = wanted_taints(node.obj)
        held = (node.obj.get("spec") or {}).get("taints") or []
        ours = {(t["key"], t["effect"]) for t in held if t["key"] in _OURS}
        if ours == wanted:
            return
        now = self._api.now()

        def change(obj: Object) -> None:
            spec = obj.setdefault("spec", {})
            kept = [t for t in held if t["key"] not in _OURS or (t["key"], t["effect"]) in wanted]
            added = [{"key": k, "effect": e, "timeAdded": now} for k, e in sorted(wanted - ours)]
            spec["taints"] = [*kept, *added]
            if not spec["taints"]:
                del spec["taints"]

        self._api.modify(target_of(NODES, node), change, WRITE)


def _renewed(change: Change) -> bool:
    def renewal(stored: Stored | None) -> Any:
        return (stored.obj.get("spec") or {}).get("renewTime") if stored is not None else None

    return bool(renewal(change.stored) != renewal(change.previous))


def _heartbeat(stored: Stored) -> Any:
    conditions = (stored.obj.get("status") or {}).get("conditions") or ()
    return next((c.get("lastHeartbeatTime") for c in conditions if c.get("type") == "Ready"), None)


class TaintEviction:
    """A reconciler by node name: NoExecute taints drive out the pods that do not tolerate them, or not any longer."""

    name = "taint-eviction"
    kinds = (NODES.storage, PODS.storage)

    def __init__(self, api: Api, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._monotonic = monotonic
        self._pods: dict[str, dict[Key, None]] = {}
        self._since: dict[tuple[str, Taint], float] = {}  # when a node was first seen with a taint

    def keys(self, change: Change) -> Iterable[Hashable]:
        if change.kind == NODES.storage:
            before = taints_of(change.previous.obj) if change.previous is not None else ()
            return [change.key[1]] if before != taints_of(change.stored.obj) else []
        node = change.stored.obj["spec"].get("nodeName")
        if not node:
            return []
        here = self._pods.setdefault(node, {})
        if change.op == "DELETED":
            here.pop(change.key, None)
            return []
        if change.key in here:
            return []
        here[change.key] = None
        return [node]

    def reconcile(self, key: Hashable) -> float | None:
        name = cast(str, key)
        node = self._api.store.get(NODES.storage, ("", name))
        taints = [t for t in taints_of(node.obj) if t.effect == "NoExecute"] if node is not None else []
        now = self._monotonic()
        for known in [k for k in self._since if k[0] == name and k[1] not in taints]:
            del self._since[known]
        for taint in taints:
            self._since.setdefault((name, taint), now)
        waits = []
        for pod_key in list(self._pods.get(name, ())) if taints else ():
            pod = self._api.store.get(PODS.storage, pod_key)
            if pod is None or is_terminating(pod) or is_over(pod):
                continue
            left = self._left(name, taints, tolerations_of(pod.obj["spec"]), now)
            if left is not None and left <= 0:
                self._evict(pod)
            elif left is not None:
                waits.append(left)
        return min(waits, default=None)

    def _left(self, node: str, taints: list[Taint], tolerations: tuple[Toleration, ...], now: float) -> float | None:
        """Seconds the pod may stay; None for ever."""
        found: list[float] = []
        for taint in taints:
            tolerating = [toleration for toleration in tolerations if toleration.tolerates(taint)]
            if not tolerating:
                return 0.0
            limits = [t.seconds for t in tolerating if t.seconds is not None]
            if limits:
                found.append(self._since[node, taint] + min(limits) - now)
        return min(found, default=None)

    def _evict(self, pod: Stored) -> None:
        def change(obj: Object) -> None:
            message = "Taint manager: deleting due to NoExecute taint"
            set_condition(
                obj, "DisruptionTarget", "True", self._api.now(), reason="DeletionByTaintManager", message=message
            )

        metadata = pod.obj["metadata"]
        self._api.modify(Target(PODS, metadata["namespace"], metadata["name"], "status"), change, WRITE)
        self._api.delete(target_of(PODS, pod), DeleteOptions(uid=pod.uid))
