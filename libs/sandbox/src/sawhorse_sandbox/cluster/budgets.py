"""PodDisruptionBudgets: how many pods are healthy, and how many may be evicted now. Test double."""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sawhorse_sandbox.apiserver.eviction import is_ready, set_condition
from sawhorse_sandbox.apiserver.operations import Api
from sawhorse_sandbox.apiserver.resources import BUDGETS, DEPLOYMENTS, PODS, REPLICASETS, STATEFULSETS
from sawhorse_sandbox.apiserver.selectors import label_selector
from sawhorse_sandbox.apiserver.storage import Change, Key, Object, Stored
from sawhorse_sandbox.apiserver.targets import Target, parse_time
from sawhorse_sandbox.cluster.replicas import WRITE, controller_of, is_over, is_terminating, share

DISRUPTED_FOR = datetime.timedelta(minutes=2)  # how long an evicted pod that does not go is counted as gone
_SCALES = {"ReplicaSet": REPLICASETS, "StatefulSet": STATEFULSETS, "Deployment": DEPLOYMENTS}


class _NoScaleError(Exception):
    """A pod without a controller whose size is known: the budget cannot be worked out."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """A reconciler by budget."""

    api: Api
    name = "disruption"
    kinds = (BUDGETS.storage, PODS.storage, REPLICASETS.storage, STATEFULSETS.storage, DEPLOYMENTS.storage)

    def keys(self, change: Change) -> Iterable[Hashable]:
        if change.kind == BUDGETS.storage:
            return [change.key]
        namespace = change.key[0]
        budgets = list(self.api.items(BUDGETS, namespace))
        if change.kind == PODS.storage:
            budgets = [b for b in budgets if _selects(b, change.stored) or _selects(b, change.previous)]
        return [(namespace, budget.obj["metadata"]["name"]) for budget in budgets]

    def reconcile(self, key: Hashable) -> float | None:
        found = self.api.store.get(BUDGETS.storage, cast(Key, key))
        if found is None:
            return None
        pods = [p for p in self.api.items(PODS, found.obj["metadata"]["namespace"]) if _selects(found, p)]
        pods = [pod for pod in pods if not is_over(pod)]
        disrupted = self._still_disrupted(found, pods)
        healthy = sum(
            is_ready(pod.obj) and not is_terminating(pod) and pod.obj["metadata"]["name"] not in disrupted
            for pod in pods
        )
        try:
            expected, desired = self._expected(found, pods)
        except _NoScaleError as err:
            self._write(found, healthy, 0, len(pods), 0, disrupted, failure=str(err))
        else:
            allowed = max(healthy - desired, 0) if expected > 0 else 0
            self._write(found, healthy, desired, expected, allowed, disrupted)
        return DISRUPTED_FOR.total_seconds() if disrupted else None

    def _still_disrupted(self, found: Stored, pods: list[Stored]) -> dict[str, str]:
        """Evicted pods that are neither gone nor going yet."""
        waiting = {pod.obj["metadata"]["name"] for pod in pods if not is_terminating(pod)}
        held = (found.obj.get("status") or {}).get("disruptedPods") or {}
        now = self.api.clock()
        return {n: since for n, since in held.items() if n in waiting and now - parse_time(since) < DISRUPTED_FOR}

    def _expected(self, found: Stored, pods: list[Stored]) -> tuple[int, int]:
        """How many pods there should be, and how many must stay healthy."""
        spec = found.obj.get("spec") or {}
        if "maxUnavailable" in spec:
            expected = self._scale_of(pods)
            return expected, max(expected - share(spec["maxUnavailable"], expected, up=True), 0)
        least = spec.get("minAvailable", 1)
        if isinstance(least, str):
            expected = self._scale_of(pods)
            return expected, share(least, expected, up=True)
        return len(pods), int(least)

    def _scale_of(self, pods: list[Stored]) -> int:
        scales: dict[str, int] = {}
        for pod in pods:
            uid, replicas = self._top_scale(pod.obj)
            scales[uid] = replicas
        return sum(scales.values())

    def _top_scale(self, obj: Mapping[str, Any]) -> tuple[str, int]:
        """The replicas of the controller, or of the controller's own."""
        owner = controller_of(obj)
        resource = _SCALES.get(owner["kind"]) if owner is not None else None
        if owner is None or resource is None:
            raise _NoScaleError(f'found no controllers for pod "{obj["metadata"]["name"]}"')
        stored = self.api.store.get(resource.storage, (obj["metadata"]["namespace"], owner["name"]))
        if stored is None:
            return str(owner["uid"]), 0
        above = controller_of(stored.obj)
        if above is not None and above["kind"] in _SCALES:
            return self._top_scale(stored.obj)
        return stored.uid, int(stored.obj["spec"]["replicas"])

    def _write(
        self,
        found: Stored,
        healthy: int,
        desired: int,
        expected: int,
        allowed: int,
        disrupted: dict[str, str],
        *,
        failure: str = "",
    ) -> None:
        def change(obj: Object) -> None:
            status = obj.setdefault("status", {})
            status.update(
                currentHealthy=healthy,
                desiredHealthy=desired,
                expectedPods=expected,
                disruptionsAllowed=allowed,
                observedGeneration=obj["metadata"]["generation"],
            )
            status.pop("disruptedPods", None)
            if disrupted:
                status["disruptedPods"] = disrupted
            reason = "SyncFailed" if failure else "SufficientPods" if allowed else "InsufficientPods"
            word = "True" if allowed else "False"
            set_condition(obj, "DisruptionAllowed", word, self.api.now(), reason=reason, message=failure)

        metadata = found.obj["metadata"]
        self.api.modify(Target(BUDGETS, metadata["namespace"], metadata["name"], "status"), change, WRITE)


def _selects(budget: Stored, pod: Stored | None) -> bool:
    if pod is None:
        return False
    selector = label_selector((budget.obj.get("spec") or {}).get("selector"))
    return selector is not None and selector.matches(pod.obj["metadata"].get("labels") or {})
