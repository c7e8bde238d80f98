"""ReplicaSets and Deployments: pods are replaced at once, templates rolled out, statuses counted. Test double."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from sawhorse_sandbox.apiserver.eviction import is_ready, set_condition
from sawhorse_sandbox.apiserver.operations import Api
from sawhorse_sandbox.apiserver.resources import DEPLOYMENTS, PODS, REPLICASETS
from sawhorse_sandbox.apiserver.storage import Change, Key, Object, Stored, decode
from sawhorse_sandbox.apiserver.targets import DeleteOptions, Target, target_of
from sawhorse_sandbox.cluster.replicas import (
    WRITE,
    controlled,
    controller_of,
    counts_anew,
    create_pod,
    is_active,
    is_over,
    is_terminating,
    owner_keys,
    owner_reference,
    pod_from_template,
    ready_for,
    share,
    template_hash,
)

BURST = 100  # pods made or deleted in one look, so that a large set does not hold the loop
HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


@dataclass(frozen=True, slots=True)
class ReplicaSets:
    """A reconciler: as many active pods as the spec says."""

    api: Api
    name = "replicaset"
    kinds = (REPLICASETS.storage, PODS.storage)

    def keys(self, change: Change) -> Iterable[Hashable]:
        if change.kind == REPLICASETS.storage:
            return [change.key]
        return owner_keys(change, REPLICASETS.kind) if counts_anew(change) else []

    def reconcile(self, key: Hashable) -> float | None:
        found = self.api.store.get(REPLICASETS.storage, cast(Key, key))
        if found is None:
            return None
        active = [pod for pod in controlled(self.api, found) if is_active(pod)]
        missing = int(found.obj["spec"]["replicas"]) - len(active)
        if is_terminating(found):
            missing = 0
        for _ in range(min(missing, BURST)):
            create_pod(self.api, found, pod_from_template(found, REPLICASETS))
        if missing < 0:
            for pod in sorted(active, key=_deletion_order)[: min(-missing, BURST)]:
                self.api.delete(target_of(PODS, pod), DeleteOptions(uid=pod.uid))
        return 0.0 if abs(missing) > BURST else self._count(found)

    def _count(self, found: Stored) -> float | None:
        """Write the status; returns when a ready pod becomes an available one."""
        active = [pod for pod in controlled(self.api, found) if is_active(pod)]
        enough = int(found.obj["spec"].get("minReadySeconds") or 0)
        now = self.api.clock()
        ages = [age for pod in active if (age := ready_for(pod, now)) is not None]
        available = sum(age >= enough for age in ages)

        def change(obj: Object) -> None:
            obj["status"] = {
                "replicas": len(active),
                "fullyLabeledReplicas": len(active),
                "readyReplicas": len(ages),
                "availableReplicas": available,
                "observedGeneration": obj["metadata"]["generation"],
            }

        metadata = found.obj["metadata"]
        self.api.modify(Target(REPLICASETS, metadata["namespace"], metadata["name"], "status"), change, WRITE)
        return min((max(enough - age, 0.1) for age in ages if age < enough), default=None)


def _deletion_order(pod: Stored) -> tuple[Any, ...]:
    """What goes first: cheap by annotation, without a node, not running, not ready; then the youngest."""
    metadata = pod.obj["metadata"]
    cost = int((metadata.get("annotations") or {}).get(DELETION_COST) or 0)
    return (
        bool(pod.obj["spec"].get("nodeName")),
        (pod.obj.get("status") or {}).get("phase") == "Running",
        is_ready(pod.obj),
        cost,
        -int(pod.revision),
    )


@dataclass(frozen=True, slots=True)
class Deployments:
    """A reconciler: one ReplicaSet per template, old ones scaled down as the new one comes up."""

    api: Api
    name = "deployment"
    kinds = (DEPLOYMENTS.storage, REPLICASETS.storage, PODS.storage)

    def keys(self, change: Change) -> Iterable[Hashable]:
        if change.kind == DEPLOYMENTS.storage:
            return [change.key]
        if change.kind == REPLICASETS.storage:
            return owner_keys(change, DEPLOYMENTS.kind)
        if change.op != "DELETED":
            return []
        sets = (self.api.store.get(REPLICASETS.storage, key) for key in owner_keys(change, REPLICASETS.kind))
        owners = (controller_of(rs.obj) for rs in sets if rs is not None)
        return [(change.key[0], owner["name"]) for owner in owners if owner is not None]

    def reconcile(self, key: Hashable) -> float | None:
        found = self.api.store.get(DEPLOYMENTS.storage, cast(Key, key))
        if found is None or is_terminating(found):
            return None
        if not found.obj["spec"].get("paused"):
            self._roll(found)
        self._count(found)
        return None

    def _roll(self, found: Stored) -> None:
        spec = found.obj["spec"]
        wanted = int(spec["replicas"])
        sets = controlled(self.api, found, REPLICASETS)
        label = template_hash(spec["template"])
        new = next((rs for rs in sets if (rs.obj["metadata"].get("labels") or {}).get(HASH_LABEL) == label), None)
        old = [rs for rs in sets if rs is not new]
        running = [rs for rs in old if _replicas(rs) or _counted(rs, "replicas")]
        if spec["strategy"]["type"] == "Recreate":
            for rs in running:
                self._scale(rs, 0)
            start = 0 if any(self._has_pods(rs) for rs in old) else wanted
        else:
            start = self._allowed_new(wanted, spec["strategy"], new, running)
        if new is None:
            new = self._create_set(found, label, start, len(sets) + 1)
        elif start != _replicas(new):
            self._scale(new, start)
        if running and spec["strategy"]["type"] != "Recreate":
            self._shrink(wanted, spec["strategy"], new, running)
        self._drop_history(old, int(spec["revisionHistoryLimit"]))

    def _allowed_new(self, wanted: int, strategy: Object, new: Stored | None, old: list[Stored]) -> int:
        """How many replicas the new set may have now."""
        current = _replicas(new) if new is not None else 0
        if not old or current >= wanted:
            return wanted
        most = wanted + share(strategy["rollingUpdate"]["maxSurge"], wanted, up=True)
        room = most - current - sum(_replicas(rs) for rs in old)
        return min(wanted, current + max(room, 0))

    def _shrink(self, wanted: int, strategy: Object, new: Stored, old: list[Stored]) -> None:
        """Scale old sets down: first what is not available anyway, then as far as availability allows."""
        rolling = strategy["rollingUpdate"]
        may_miss = share(rolling["maxUnavailable"], wanted, up=False)
        if may_miss == 0 and share(rolling["maxSurge"], wanted, up=True) == 0:
            may_miss = 1  # else nothing could ever move
        least = wanted - may_miss
        fresh = self.api.get(target_of(REPLICASETS, new))
        not_yet = max(_replicas(fresh) - _counted(fresh, "availableReplicas"), 0)
        spare = sum(_replicas(rs) for rs in [fresh, *old]) - least - not_yet
        sizes = {rs.uid: _replicas(rs) for rs in old}
        for rs in old:
            sick = min(max(sizes[rs.uid] - _counted(rs, "availableReplicas"), 0), max(spare, 0))
            sizes[rs.uid] -= sick
            spare -= sick
        available = sum(_counted(rs, "availableReplicas") for rs in [fresh, *old])
        spare = min(spare, max(available - least, 0))
        for rs in old:
            less = min(sizes[rs.uid], max(spare, 0))
            sizes[rs.uid] -= less
            spare -= less
            self._scale(rs, sizes[rs.uid])

    def _has_pods(self, rs: Stored) -> bool:
        """Also those that are still ending: a recreated workload never runs beside its old self."""
        return any(not is_over(pod) for pod in controlled(self.api, rs))

    def _create_set(self, found: Stored, label: str, replicas: int, revision: int) -> Stored:
        spec = decode(found.raw)["spec"]
        metadata = found.obj["metadata"]
        template = spec["template"]
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: label}
        template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
        selector = spec["selector"]
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: label}
        body: Object = {
            "metadata": {
                "name": f"{metadata['name']}-{label}",
                "labels": dict(labels),
                "annotations": {REVISION: str(revision)},
                "ownerReferences": [owner_reference(found, DEPLOYMENTS)],
            },
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        }
        if spec.get("minReadySeconds"):
            body["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        return self.api.create(Target(REPLICASETS, metadata["namespace"]), body, WRITE)

    def _scale(self, rs: Stored, replicas: int) -> None:
        if _replicas(rs) == replicas:
            return

        def change(obj: Object) -> None:
            obj["spec"]["replicas"] = replicas

        self.api.modify(target_of(REPLICASETS, rs), change, WRITE)

    def _drop_history(self, old: list[Stored], keep: int) -> None:
        idle = [rs for rs in old if not _replicas(rs) and not _counted(rs, "replicas") and not is_terminating(rs)]
        for rs in idle[: max(len(idle) - keep, 0)]:
            self.api.delete(target_of(REPLICASETS, rs), DeleteOptions(uid=rs.uid))

    def _count(self, found: Stored) -> None:
        sets = controlled(self.api, found, REPLICASETS)
        label = template_hash(found.obj["spec"]["template"])
        new = [rs for rs in sets if (rs.obj["metadata"].get("labels") or {}).get(HASH_LABEL) == label]
        wanted = int(found.obj["spec"]["replicas"])
        total = sum(_counted(rs, "replicas") for rs in sets)
        updated = sum(_counted(rs, "replicas") for rs in new)
        available = sum(_counted(rs, "availableReplicas") for rs in sets)
        strategy = found.obj["spec"]["strategy"].get("rollingUpdate") or {}
        least = wanted - share(strategy.get("maxUnavailable"), wanted, up=False)
        complete = updated == wanted == total and available == wanted

        def change(obj: Object) -> None:
            status = obj.setdefault("status", {})
            status.update(
                observedGeneration=obj["metadata"]["generation"],
                replicas=total,
                updatedReplicas=updated,
                readyReplicas=sum(_counted(rs, "readyReplicas") for rs in sets),
                availableReplicas=available,
                unavailableReplicas=max(wanted - available, 0),
            )
            enough = available >= least
            reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
            set_condition(obj, "Available", "True" if enough else "False", self.api.now(), reason=reason)
            reason = "NewReplicaSetAvailable" if complete else "ReplicaSetUpdated"
            set_condition(obj, "Progressing", "True", self.api.now(), reason=reason)

        metadata = found.obj["metadata"]
        self.api.modify(Target(DEPLOYMENTS, metadata["namespace"], metadata["name"], "status"), change, WRITE)


def _replicas(rs: Stored) -> int:
    return int(rs.obj["spec"]["replicas"])


def _counted(rs: Stored, field: str) -> int:
    return int((rs.obj.get("status") or {}).get(field) or 0)
