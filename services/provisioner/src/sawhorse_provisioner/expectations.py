"""Who is expected where: pods that a plan gave a place, until they are bound there or it has taken too long.

Without it every round between a plan and its nodes' arrival would plan the same pods again, fit them a little
otherwise, and make more nodes. A place is remembered as owner, class and count, since an evicted pod comes back under
another name. Memory of one term only: a new leader plans the pods onto the claims in flight instead.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.pod import Pod
from sawhorse_model.resources import Resources, fits, subtract
from sawhorse_provisioner.pods import ClassKey, age_of, class_key, owner_uid
from sawhorse_runtime.clock import Clock

Slot = tuple[str, ClassKey]

PATIENCE = 12.0
"""Seconds that a pod waits whose place on an open node was taken: the longest pause of kube-scheduler between
two tries (10 s, looked at once a second) and a second for the try. As pods change places, the other's is often left
over for it, and a node made for it would stay empty."""


class Capacity(Protocol):
    """What is read of the cluster state."""

    def claim(self, name: str) -> NodeClaim | None: ...
    def node(self, name: str) -> Node | None: ...
    def nodes_of(self, provider_id: str) -> list[Node]: ...
    def pods_on(self, node: str) -> Sequence[Pod]: ...
    def is_going(self, claim: NodeClaim) -> bool: ...
    def is_node_going(self, node: Node) -> bool: ...


@dataclass(slots=True)
class _Expected:
    """What one node or claim waits for."""

    counts: Counter[Slot] = field(default_factory=Counter)
    before: Counter[Slot] = field(default_factory=Counter)  # bound there when it was planned
    until: float | None = None  # monotonic; None while the node is on its way


class Expectations:
    """See the module.

    Args:
        settle: seconds that kube-scheduler has for a node that is open; then the pods are planned again.
    """

    def __init__(self, clock: Clock, settle: float) -> None:
        self._clock = clock
        self._settle = settle
        self._by_target: dict[str, _Expected] = {}  # node or claim → what it waits for, in the order of planning
        self._last: dict[str, str] = {}  # uid of a pod → where the last call that knew of it put it
        self._displaced: dict[str, float] = {}  # uid of a pod → when its place was seen to be taken, monotonic

    def add(self, state: Capacity, target: str, pods: Iterable[Pod]) -> None:
        """A plan put these pods on a node or claim."""
        slots = Counter(slot_of(pod) for pod in pods)
        if not slots:
            return
        node = _node_of(state, target)
        bound = _bound(state, node)
        expected = self._by_target.setdefault(target, _Expected())
        for slot, count in slots.items():
            # What was expected before and has come is settled; the rest is expected still, with the new ones.
            left = max(0, expected.counts[slot] - max(0, bound[slot] - expected.before[slot]))
            expected.counts[slot], expected.before[slot] = left + count, bound[slot]
        if node is not None and node.is_initialized:
            expected.until = self._clock.monotonic() + self._settle

    def targets(self) -> tuple[str, ...]:
        """Nodes and claims on which pods were expected at the last look."""
        return tuple(self._by_target)

    def reset(self) -> None:
        """A new term begins."""
        self._by_target.clear()
        self._last.clear()
        self._displaced.clear()

    def assign(self, state: Capacity, pods: Iterable[Pod]) -> dict[str, str]:
        """Which of these pods are expected somewhere: key → node or claim.

        A pod keeps the place that it had at the last call: hints that wander undo each other. Among the rest the
        oldest come first. A node that is complete holds only what really fits beside the pods that are bound there.
        """
        waiting: dict[Slot, list[Pod]] = {}
        for pod in sorted(pods, key=age_of):
            waiting.setdefault(slot_of(pod), []).append(pod)
        left: dict[str, Counter[Slot]] = {}
        free: dict[str, Resources] = {}
        timely: set[str] = set()  # open nodes to which kube-scheduler may still bring what was planned
        for target in list(self._by_target):
            expected = self._by_target[target]
            node = _node_of(state, target)
            if not self._holds(state, target, node, expected):
                del self._by_target[target]
                continue
            if node is not None and node.is_initialized:
                timely.add(target)
            bound = _bound(state, node)
            open_slots = Counter(
                {s: n for s, c in expected.counts.items() if (n := c - max(0, bound[s] - expected.before[s])) > 0}
            )
            if not open_slots:
                del self._by_target[target]
                continue
            left[target] = open_slots
            if node is not None and node.is_initialized:
                free[target] = _free(state, node)
        found: dict[str, str] = {}

        def take(pod: Pod, slot: Slot, target: str) -> bool:
            requests = pod.spec.requests
            if left[target][slot] <= 0 or (target in free and not fits(requests, free[target])):
                return False
            left[target][slot] -= 1
            if target in free:
                free[target] = subtract(free[target], requests)
            found[pod.meta.key] = target
            return True

        for slot, members in waiting.items():
            rest = []
            for pod in members:
                before = self._last.get(pod.meta.uid, "")
                if before not in left or not take(pod, slot, before):
                    rest.append(pod)
            targets = [t for t in left if left[t][slot] > 0]
            for pod in rest:
                while targets and not take(pod, slot, targets[0]):
                    targets.pop(0)
        members = [pod for members in waiting.values() for pod in members]
        here = {p.meta.uid for p in members}
        self._note_displaced(members, here, found, timely)
        # Who is not asked about this time may be again: kube-scheduler claims a pod for a moment and gives up on it.
        apart = {uid: at for uid, at in self._last.items() if uid not in here and at in self._by_target}
        self._last = apart | {p.meta.uid: found[p.meta.key] for p in members if p.meta.key in found}
        return found

    def is_patient(self, pod: Pod) -> bool:
        """Whether a pod that the last call put nowhere should wait for kube-scheduler rather than be planned anew."""
        since = self._displaced.get(pod.meta.uid)
        return since is not None and self._clock.monotonic() < since + PATIENCE

    def _note_displaced(
        self, waiting: Sequence[Pod], here: Collection[str], found: Mapping[str, str], timely: Collection[str]
    ) -> None:
        now = self._clock.monotonic()
        displaced = {u: at for u, at in self._displaced.items() if u not in here and now < at + PATIENCE}
        for pod in waiting:
            uid = pod.meta.uid
            if pod.meta.key in found or pod.node_name:  # who is on a node that ends has no time to lose
                continue
            if uid in self._displaced:
                displaced[uid] = self._displaced[uid]
            elif self._last.get(uid) in timely:
                displaced[uid] = now
        self._displaced = displaced

    def _holds(self, state: Capacity, target: str, node: Node | None, expected: _Expected) -> bool:
        claim = state.claim(target)
        if claim is not None:
            if state.is_going(claim):
                return False
            complete = claim.is_initialized
        elif node is not None and not state.is_node_going(node):
            complete = True
        else:
            return False
        now = self._clock.monotonic()
        if complete and expected.until is None:
            expected.until = now + self._settle
        return expected.until is None or now < expected.until


def slot_of(pod: Pod) -> Slot:
    """What stays the same when a pod is made anew."""
    return owner_uid(pod), class_key(pod)


def by_target(assigned: Mapping[str, str], pods: Mapping[str, Pod]) -> dict[str, list[Pod]]:
    """The assignment the other way round."""
    result: dict[str, list[Pod]] = {}
    for key, target in assigned.items():
        result.setdefault(target, []).append(pods[key])
    return result


def _node_of(state: Capacity, target: str) -> Node | None:
    claim = state.claim(target)
    if claim is None:
        return state.node(target)
    nodes = state.nodes_of(claim.provider_id)
    return nodes[0] if len(nodes) == 1 else None


def _bound(state: Capacity, node: Node | None) -> Counter[Slot]:
    if node is None:
        return Counter()
    return Counter(slot_of(p) for p in state.pods_on(node.meta.name) if p.is_active and not p.is_daemon)


def _free(state: Capacity, node: Node) -> Resources:
    free: Resources = node.allocatable
    for pod in state.pods_on(node.meta.name):
        if not pod.is_terminal:
            free = subtract(free, pod.spec.requests)
    return free
