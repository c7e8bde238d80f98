"""DaemonSets: one pod for every node that takes it, bound by the scheduler through a node affinity. Test double."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sawhorse_sandbox.apiserver.operations import Api
from sawhorse_sandbox.apiserver.resources import DAEMONSETS, NODES, PODS
from sawhorse_sandbox.apiserver.storage import Change, Key, Object, Stored, encode
from sawhorse_sandbox.apiserver.targets import DeleteOptions, Target, target_of
from sawhorse_sandbox.cluster.facts import PodFacts, pod_facts
from sawhorse_sandbox.cluster.filters import HARD_EFFECTS
from sawhorse_sandbox.cluster.replicas import (
    WRITE,
    controlled,
    counts_anew,
    create_pod,
    is_over,
    is_terminating,
    owner_keys,
    pod_from_template,
    ready_for,
    share,
    template_hash,
)
from sawhorse_sandbox.cluster.terms import taints_of, untolerated

HASH_LABEL = "controller-revision-hash"
_NO_EXECUTE = frozenset({"NoExecute"})

_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


@dataclass(frozen=True, slots=True)
class DaemonSets:
    """A reconciler by DaemonSet."""

    api: Api
    name = "daemonset"
    kinds = (DAEMONSETS.storage, NODES.storage, PODS.storage)

    def keys(self, change: Change) -> Iterable[Hashable]:
        if change.kind == DAEMONSETS.storage:
            return [change.key]
        if change.kind == PODS.storage:
            return owner_keys(change, DAEMONSETS.kind) if counts_anew(change) else []
        if change.op == "MODIFIED" and change.previous is not None and _same_place(change.previous, change.stored):
            return []
        return [_key(daemon) for daemon in self.api.items(DAEMONSETS)]

    def reconcile(self, key: Hashable) -> float | None:
        found = self.api.store.get(DAEMONSETS.storage, cast(Key, key))
        if found is None or is_terminating(found):
            return None
        body = _daemon_body(found)
        facts = _facts_of(body, found)
        label = body["metadata"]["labels"][HASH_LABEL]
        by_node: dict[str, list[Stored]] = {}
        for pod in controlled(self.api, found):
            by_node.setdefault(_node_of(pod), []).append(pod)
        wanted: set[str] = set()
        for node in self.api.items(NODES):
            name = node.obj["metadata"]["name"]
            pods = by_node.get(name, [])
            if _runs(facts, node.obj, HARD_EFFECTS):
                wanted.add(name)
                self._ensure_one(found, name, pods)
            elif not _runs(facts, node.obj, _NO_EXECUTE):
                self._delete(pods)
            else:
                self._delete([pod for pod in pods if is_over(pod)])
        self._roll(found, label, wanted)
        return self._count(found, label, wanted)

    def _ensure_one(self, found: Stored, node: str, pods: list[Stored]) -> None:
        self._delete([pod for pod in pods if is_over(pod)])
        alive = [pod for pod in pods if not is_over(pod) and not is_terminating(pod)]
        going = [pod for pod in pods if is_terminating(pod)]
        self._delete(alive[1:])
        # A daemon that is going is replaced when it is gone: two would fight over ports and files of the node.
        if not alive and not going:
            body = _daemon_body(found)
            body["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})[
                "requiredDuringSchedulingIgnoredDuringExecution"
            ] = {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
                ]
            }
            create_pod(self.api, found, body)

    def _roll(self, found: Stored, label: str, wanted: set[str]) -> None:
        """Delete pods of an older template, as many at once as may be unavailable."""
        strategy = found.obj["spec"]["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return
        now = self.api.clock()
        pods = [pod for pod in controlled(self.api, found) if not is_terminating(pod) and _node_of(pod) in wanted]
        ready = [pod for pod in pods if ready_for(pod, now) is not None]
        old = [pod for pod in pods if (pod.obj["metadata"].get("labels") or {}).get(HASH_LABEL) != label]
        may_miss = share(strategy["rollingUpdate"]["maxUnavailable"], len(wanted), up=True)
        budget = max(may_miss - (len(wanted) - len(ready)), 0)
        sick = [pod for pod in old if pod not in ready]
        self._delete([*sick, *[pod for pod in old if pod in ready][:budget]])

    def _delete(self, pods: Iterable[Stored]) -> None:
        for pod in pods:
            if not is_terminating(pod):
                self.api.delete(target_of(PODS, pod), DeleteOptions(uid=pod.uid))

    def _count(self, found: Stored, label: str, wanted: set[str]) -> float | None:
        pods = [pod for pod in controlled(self.api, found) if not is_terminating(pod) and not is_over(pod)]
        placed = [pod for pod in pods if _node_of(pod) in wanted]
        now = self.api.clock()
        enough = int(found.obj["spec"].get("minReadySeconds") or 0)
        ages = [age for pod in placed if (age := ready_for(pod, now)) is not None]
        available = sum(age >= enough for age in ages)
        updated = sum((p.obj["metadata"].get("labels") or {}).get(HASH_LABEL) == label for p in placed)

        def change(obj: Object) -> None:
            obj["status"] = {
                "desiredNumberScheduled": len(wanted),
                "currentNumberScheduled": len(placed),
                "numberMisscheduled": len(pods) - len(placed),
                "numberReady": len(ages),
                "numberAvailable": available,
                "numberUnavailable": max(len(wanted) - available, 0),
                "updatedNumberScheduled": updated,
                "observedGeneration": obj["metadata"]["generation"],
            }

        namespace, name = _key(found)
        self.api.modify(Target(DAEMONSETS, namespace, name, "status"), change, WRITE)
        return min((max(enough - age, 0.1) for age in ages if age < enough), default=None)


def _key(stored: Stored) -> Key:
    metadata = stored.obj["metadata"]
    return metadata["namespace"], metadata["name"]


def _same_place(before: Stored, after: Stored) -> bool:
    """Whether a node still takes the same daemons; a heartbeat must not wake every DaemonSet."""
    labels = before.obj["metadata"].get("labels") == after.obj["metadata"].get("labels")
    return labels and taints_of(before.obj) == taints_of(after.obj)


def _daemon_body(found: Stored) -> Object:
    """The pod of this set, with the tolerations every daemon gets, before it is tied to a node."""
    body = pod_from_template(found, DAEMONSETS)
    body["metadata"]["labels"][HASH_LABEL] = template_hash(found.obj["spec"]["template"])
    spec = body["spec"]
    tolerations = spec.setdefault("tolerations", [])
    tolerated = list(_TOLERATED)
    if spec.get("hostNetwork"):
        tolerated.append(("node.kubernetes.io/network-unavailable", "NoSchedule"))
    for key, effect in tolerated:
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        if toleration not in tolerations:
            tolerations.append(toleration)
    return body


def _facts_of(body: Object, found: Stored) -> PodFacts:
    metadata = {**body["metadata"], "name": "daemon", "namespace": found.obj["metadata"]["namespace"]}
    obj = {**body, "metadata": {**metadata, "creationTimestamp": ""}}
    return pod_facts(Stored(obj, encode(obj), 0))


def _runs(facts: PodFacts, node: Mapping[str, Any], effects: frozenset[str]) -> bool:
    metadata = node["metadata"]
    if not facts.accepts(metadata["name"], metadata.get("labels") or {}):
        return False
    return untolerated(taints_of(node), facts.tolerations, effects) is None


def _node_of(pod: Stored) -> str:
    """Where a daemon's pod is, or is meant to be."""
    return str(pod.obj["spec"].get("nodeName") or pod_facts(pod).only_node or "")
