"""What keeps a pod off a node, in the real scheduler's words, and what makes one node better than another. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from sawhorse_sandbox.cluster.facts import ANY_IP, NodeState, PodFacts, Port
from sawhorse_sandbox.cluster.terms import Taint, untolerated

UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
SOFT_EFFECTS = frozenset({"PreferNoSchedule"})


def static_reasons(pod: PodFacts, node: NodeState) -> list[str]:
    """Why the node is out for good as it is: cordoned, tainted, or not the kind of node asked for."""
    spec = node.spec
    if spec.unschedulable and not any(toleration.tolerates(UNSCHEDULABLE_TAINT) for toleration in pod.tolerations):
        return ["node(s) were unschedulable"]
    if untolerated(spec.taints, pod.tolerations, HARD_EFFECTS) is not None:
        return ["node(s) had untolerated taint(s)"]
    if not pod.accepts(spec.name, spec.labels):
        return ["node(s) didn't match Pod's node affinity/selector"]
    return []


def room_reasons(pod: PodFacts, node: NodeState, promised: Iterable[PodFacts] = ()) -> list[str]:
    """Why the pod does not fit beside what runs there and what else was nominated for the node."""
    promised = tuple(promised)
    if pod.ports:
        taken = {port for other in (*node.pods.values(), *promised) for port in other.ports}
        if any(_clash(port, other) for port in pod.ports for other in taken):
            return ["node(s) didn't have free ports for the requested pod ports"]
    reasons = []
    for name, wanted in pod.requests.items():
        used = node.used[name] + sum(other.requests.get(name, 0) for other in promised)
        if used + wanted > node.spec.allocatable.get(name, 0):
            reasons.append("Too many pods" if name == "pods" else f"Insufficient {name}")
    return reasons


def _clash(one: Port, other: Port) -> bool:
    same = one[0] == other[0] and one[2] == other[2]
    return same and (one[1] == other[1] or ANY_IP in (one[1], other[1]))


def unavailable_message(nodes: int, reasons: Counter[str]) -> str:
    """`0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.`"""
    if nodes == 0:
        return "no nodes available to schedule pods"
    listed = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{nodes} nodes are available: {', '.join(listed)}."


def scores(pod: PodFacts, nodes: list[NodeState], soft_spread: Mapping[str, float]) -> dict[str, float]:
    """A score for each node by name, higher is better: room left, preferences, spread of equals."""
    preferred = {n.spec.name: _preference(pod, n) for n in nodes}
    disliked = {n.spec.name: _disliked(pod, n) for n in nodes}
    siblings = {n.spec.name: float(n.owners[pod.owner]) if pod.owner else 0.0 for n in nodes}
    by_preference = _normalised(preferred)
    by_dislike = _normalised(disliked)
    by_siblings = _normalised(siblings)
    by_spread = _normalised(soft_spread)
    return {
        name: _room_left(pod, node)
        + 2 * by_preference[name]
        + 3 * (100 - by_dislike[name])
        + 2 * (100 - by_spread.get(name, 0.0))
        + (100 - by_siblings[name])
        for node in nodes
        for name in [node.spec.name]
    }


def _normalised(values: Mapping[str, float]) -> dict[str, float]:
    top = max(values.values(), default=0.0)
    return {name: 100 * value / top if top else 0.0 for name, value in values.items()}


def _preference(pod: PodFacts, node: NodeState) -> float:
    return float(sum(w for w, term in pod.preferred_terms if term.matches(node.spec.name, node.spec.labels)))


def _disliked(pod: PodFacts, node: NodeState) -> float:
    return float(sum(untolerated([taint], pod.tolerations, SOFT_EFFECTS) is not None for taint in node.spec.taints))


def _room_left(pod: PodFacts, node: NodeState) -> float:
    """0 to 100, the mean of cpu and memory: the least allocated node is best."""
    shares = []
    for name in ("cpu", "memory"):
        whole = node.spec.allocatable.get(name, 0)
        left = whole - node.used[name] - pod.requests.get(name, 0)
        shares.append(100 * max(left, 0) / whole if whole else 0.0)
    return sum(shares) / len(shares)
