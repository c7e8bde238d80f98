"""A plain scheduler: filters, scores, binds, and says why a pod fits nowhere. Test double for kube-scheduler.

It preempts nothing, knows no volumes, and honours `status.nominatedNodeName`: a nominated pod goes there when it fits,
and what was promised to it is not given to others of the same or lower priority.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping

from sawhorse_sandbox.apiserver.errors import ApiError
from sawhorse_sandbox.apiserver.eviction import bind, set_condition
from sawhorse_sandbox.apiserver.operations import Api, pod_target
from sawhorse_sandbox.apiserver.resources import NAMESPACES, NODES, PODS
from sawhorse_sandbox.apiserver.storage import Change, Key, Object, Stored
from sawhorse_sandbox.apiserver.targets import Write
from sawhorse_sandbox.cluster.facts import NodeState, PodFacts, node_spec, pod_facts
from sawhorse_sandbox.cluster.filters import room_reasons, scores, static_reasons, unavailable_message
from sawhorse_sandbox.cluster.topology import Topology

NAME = "default-scheduler"
SLICE = 0.02  # seconds of scheduling before others get the loop
FIRST_PAUSE = 0.1  # seconds between fruitless rounds over pods that fitted nowhere
LONGEST_PAUSE = 1.0

_WRITE = Write("kube-scheduler")
_ROUND = "round"


class Scheduler:
    """A reconciler with one key: a round over the pods that have no node."""

    name = "scheduler"
    kinds = (NODES.storage, PODS.storage)

    def __init__(self, api: Api, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._monotonic = monotonic
        self._nodes: dict[str, NodeState] = {}
        self._homeless: dict[str, dict[Key, PodFacts]] = {}  # bound to a node that is not there (yet)
        self._placed: dict[Key, str] = {}
        self._guards: dict[Key, str] = {}  # placed pods with anti-affinity of their own
        self._pending: dict[Key, PodFacts] = {}
        self._nominated: dict[Key, PodFacts] = {}  # those of the pending that have a nominated node
        self._gated: dict[Key, None] = {}
        self._tried: dict[Key, int] = {}  # the version of the world in which a pod last fitted nowhere
        self._version = 0
        self._hopeless: dict[bytes, str] = {}  # messages by shape of pod, for this version
        self._pause = FIRST_PAUSE
        self._next_retry = 0.0
        self._order: list[Key] = []  # of this round, the next one last
        self._unsorted = True  # pods or the world changed since the order was set
        self._retried = False  # whether this round tried again what fitted nowhere before
        self._found = False  # whether it placed any

    def keys(self, change: Change) -> Iterable[Hashable]:
        before = self._version
        waits = False
        if change.kind == NODES.storage:
            self._see_node(change)
        else:
            waits = self._see_pod(change)
        return [_ROUND] if waits or self._version != before else []

    def reconcile(self, key: Hashable) -> float | None:
        started = self._monotonic()
        self._mark_gated()
        if self._unsorted:
            self._sort(started)
        while self._order:
            if self._monotonic() - started > SLICE:
                return 0.0
            pod = self._pending.get(self._order.pop())
            if pod is not None and self._tried.get(pod.key) != self._version:
                self._retried = self._retried or pod.key in self._tried
                self._found = self._try(pod) or self._found
        if self._retried or self._found:
            self._pause = FIRST_PAUSE if self._found else min(2 * self._pause, LONGEST_PAUSE)
            self._next_retry = self._monotonic() + self._pause
            self._retried = self._found = False
        return max(self._next_retry - self._monotonic(), 0.0) if self._unsorted else None

    def _sort(self, now: float) -> None:
        """Set the order of the round. What fitted nowhere before joins in when the pause is over."""
        may_retry = now >= self._next_retry
        chosen = [p for p in self._pending.values() if p.key not in self._tried]
        failed = [p for p in self._pending.values() if self._tried.get(p.key, self._version) != self._version]
        self._unsorted = bool(failed) and not may_retry
        if may_retry:
            chosen += failed
        chosen.sort(key=lambda p: (-p.priority, p.created, p.key), reverse=True)
        self._order = [pod.key for pod in chosen]

    # What the world looks like.

    def _see_node(self, change: Change) -> None:
        name = change.key[1]
        held = self._nodes.get(name)
        if change.op == "DELETED":
            if held is not None:
                del self._nodes[name]
                self._homeless[name] = dict(held.pods)
        else:
            spec = node_spec(change.stored)
            if held is not None and held.spec == spec:
                return
            if held is None:
                held = self._nodes[name] = NodeState(spec)
                for pod in self._homeless.pop(name, {}).values():
                    held.add(pod)
            held.spec = spec
        self._world_changed()

    def _see_pod(self, change: Change) -> bool:
        """Whether a pod waits that did not before, or waits differently."""
        key = change.key
        if change.op == "DELETED" or _is_over(change.stored):
            self._unplace(key)
            self._forget(key)
            return False
        pod = pod_facts(change.stored)
        if pod.node:
            self._forget(key, pod.node)
            self._place(pod)
            return False
        spec = change.stored.obj["spec"]
        if pod.terminating or spec.get("schedulerName", NAME) != NAME:
            self._forget(key)
            return False
        if spec.get("schedulingGates"):
            self._gated[key] = None
            return True
        held = self._pending.get(key)
        if held is not None and (held.shape, held.nominated) == (pod.shape, pod.nominated):
            return False
        self._forget(key)
        self._pending[key] = pod
        self._unsorted = True
        if pod.nominated:
            self._nominated[key] = pod
        return True

    def _forget(self, key: Key, bound_to: str = "") -> None:
        """The pod no longer waits, or not as before."""
        gone = self._pending.pop(key, None)
        self._nominated.pop(key, None)
        self._tried.pop(key, None)
        self._gated.pop(key, None)
        if gone is not None and gone.nominated and gone.nominated != bound_to:
            self._world_changed()  # what was promised to it is free

    def _place(self, pod: PodFacts) -> None:
        node = self._nodes.get(pod.node)
        held = node.pods.get(pod.key) if node is not None else None
        if held is not None and (held.shape, held.terminating) == (pod.shape, pod.terminating):
            return
        if held is not None and node is not None:
            node.remove(pod.key)
        self._placed[pod.key] = pod.node
        if pod.anti_affinity:
            self._guards[pod.key] = pod.node
        if node is None:
            self._homeless.setdefault(pod.node, {})[pod.key] = pod
            return
        node.add(pod)
        if self._tried and any(p.spreads or p.affinity for p in self._pending.values()):
            self._world_changed()  # a new neighbour may be what a waiting pod needs

    def _unplace(self, key: Key) -> None:
        name = self._placed.pop(key, None)
        if name is None:
            return
        self._guards.pop(key, None)
        self._homeless.get(name, {}).pop(key, None)
        node = self._nodes.get(name)
        if node is not None:
            node.remove(key)
        self._world_changed()

    def _world_changed(self) -> None:
        self._version += 1
        self._unsorted = True
        self._hopeless.clear()

    # One pod.

    def _try(self, pod: PodFacts) -> bool:
        """Bind the pod if it fits anywhere; else say why not."""
        message = self._hopeless.get(pod.shape) if not pod.nominated else None
        if message is None:
            chosen, message = self._choose(pod)
            if chosen is not None:
                return self._bind(pod, chosen)
            if not (pod.spreads or pod.affinity):
                self._hopeless[pod.shape] = message
        self._tried[pod.key] = self._version
        self._mark(pod.key, "Unschedulable", message)
        return False

    def _choose(self, pod: PodFacts) -> tuple[str | None, str]:
        """The best node, or None and why none will do."""
        topology = Topology(pod, self._nodes.values(), self._namespace_labels)
        guards = [(self._nodes[n], self._nodes[n].pods[k]) for k, n in self._guards.items() if n in self._nodes]
        promised = self._promised(pod)
        reasons: Counter[str] = Counter()

        def fits(node: NodeState) -> bool:
            found = static_reasons(pod, node)
            if not found:
                found = room_reasons(pod, node, promised.get(node.spec.name, ()))
            if not found:
                other = topology.reason(node, guards)
                found = [other] if other else []
            reasons.update(found)
            return not found

        nominated = self._nodes.get(pod.nominated) if pod.nominated else None
        if nominated is not None and fits(nominated):
            return nominated.spec.name, ""
        reasons.clear()
        fitting = [node for node in self._candidates(pod, reasons) if fits(node)]
        if not fitting:
            return None, unavailable_message(len(self._nodes), reasons)
        points = scores(pod, fitting, topology.soft_counts(fitting))
        return min(points, key=lambda name: (-points[name], name)), ""

    def _candidates(self, pod: PodFacts, reasons: Counter[str]) -> list[NodeState]:
        only = pod.only_node
        if only is None:
            return list(self._nodes.values())
        found = self._nodes.get(only)
        others = len(self._nodes) - (found is not None)
        if others:
            reasons["node(s) didn't match Pod's node affinity/selector"] += others
        return [found] if found is not None else []

    def _promised(self, pod: PodFacts) -> Mapping[str, list[PodFacts]]:
        """By node, the other pods nominated for it that come before this one."""
        found: dict[str, list[PodFacts]] = {}
        for other in self._nominated.values():
            if other.key != pod.key and other.priority >= pod.priority:
                found.setdefault(other.nominated, []).append(other)
        return found

    def _namespace_labels(self, namespace: str) -> Mapping[str, str]:
        stored = self._api.store.get(NAMESPACES.storage, ("", namespace))
        return (stored.obj["metadata"].get("labels") or {}) if stored is not None else {}

    def _bind(self, pod: PodFacts, node: str) -> bool:
        try:
            bind(self._api, pod.key[0], pod.key[1], {"target": {"name": node}}, _WRITE)
        except ApiError:
            self._tried[pod.key] = self._version  # it went, or changed: its own change brings it back
            return False
        return True

    def _mark_gated(self) -> None:
        for key in list(self._gated):
            del self._gated[key]
            self._mark(key, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")

    def _mark(self, key: Key, reason: str, message: str) -> None:
        def change(obj: Object) -> None:
            set_condition(obj, "PodScheduled", "False", self._api.now(), reason=reason, message=message)

        target = pod_target(key[0], key[1], "status")
        if self._api.find(target) is not None:
            self._api.modify(target, change, _WRITE)


def _is_over(stored: Stored) -> bool:
    return (stored.obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
