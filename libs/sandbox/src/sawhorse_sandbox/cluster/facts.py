"""Pods and nodes as the scheduler sees them: parsed once, compared cheaply. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sawhorse_sandbox.apiserver.selectors import LabelRequirement, LabelSelector, label_selector
from sawhorse_sandbox.apiserver.storage import Key, Stored, encode
from sawhorse_sandbox.cluster.quantities import amounts, largest, total
from sawhorse_sandbox.cluster.terms import NodeTerm, Taint, Toleration, node_term, taints_of, tolerations_of

Port = tuple[str, str, int]  # protocol, host IP, port
ANY_IP = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint."""

    max_skew: int
    topology_key: str
    hard: bool  # DoNotSchedule
    selector: LabelSelector | None
    min_domains: int | None
    honor_affinity: bool
    honor_taints: bool


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A required pod affinity or anti-affinity term. `namespace_selector` None means: only those listed."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What scheduling needs to know of a pod. `shape` is equal for pods that fit the same nodes."""

    key: Key
    labels: Mapping[str, str]
    owner: str
    priority: int
    created: str
    terminating: bool
    node: str
    nominated: str
    requests: Mapping[str, int]
    ports: frozenset[Port]
    node_selector: Mapping[str, str]
    node_terms: tuple[NodeTerm, ...] | None  # None: no required affinity; empty matches nothing
    preferred_terms: tuple[tuple[int, NodeTerm], ...]
    tolerations: tuple[Toleration, ...]
    spreads: tuple[Spread, ...]
    affinity: tuple[PodTerm, ...]
    anti_affinity: tuple[PodTerm, ...]
    shape: bytes

    @property
    def only_node(self) -> str | None:
        """The one node that a daemon's pod is made for."""
        if self.node_terms is None or len(self.node_terms) != 1:
            return None
        for requirement in self.node_terms[0].fields:
            if requirement.operator == "In" and len(requirement.values) == 1:
                return requirement.values[0]
        return None

    def accepts(self, name: str, labels: Mapping[str, str]) -> bool:
        """Node selector and required node affinity."""
        if any(labels.get(key) != value for key, value in self.node_selector.items()):
            return False
        return self.node_terms is None or any(term.matches(name, labels) for term in self.node_terms)


def pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """What a pod asks of a node, with init containers, sidecars and overhead, and one pod."""
    running = [_requests(container) for container in spec.get("containers") or ()]
    starting: list[Mapping[str, int]] = []
    sidecars: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = total([sidecars, own])
            starting.append(sidecars)
        else:
            starting.append(total([own, sidecars]))
    needed = largest([total([*running, sidecars]), *starting])
    needed.update(_requests(spec))  # resources of the pod as a whole, where given, win
    needed = total([needed, amounts(spec.get("overhead"))])
    needed["pods"] = 1
    return {name: value for name, value in needed.items() if value}


def _requests(holder: Mapping[str, Any]) -> dict[str, int]:
    return amounts((holder.get("resources") or {}).get("requests"))


def pod_facts(stored: Stored) -> PodFacts:
    obj = stored.obj
    metadata, spec = obj["metadata"], obj["spec"]
    labels = metadata.get("labels") or {}
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    preferred = node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    requests = pod_requests(spec)
    ports = _ports(spec)
    namespace = metadata["namespace"]
    shaped = [
        namespace,
        labels,
        requests,
        sorted(ports),
        spec.get("nodeSelector"),
        affinity,
        spec.get("tolerations"),
        spec.get("topologySpreadConstraints"),
        spec.get("priority"),
    ]
    return PodFacts(
        key=(namespace, metadata["name"]),
        labels=labels,
        owner=next((o["uid"] for o in metadata.get("ownerReferences") or () if o.get("controller")), ""),
        priority=int(spec.get("priority") or 0),
        created=metadata["creationTimestamp"],
        terminating="deletionTimestamp" in metadata,
        node=spec.get("nodeName") or "",
        nominated=(obj.get("status") or {}).get("nominatedNodeName") or "",
        requests=requests,
        ports=ports,
        node_selector=spec.get("nodeSelector") or {},
        node_terms=tuple(node_term(t) for t in required.get("nodeSelectorTerms") or ()) if required else None,
        preferred_terms=tuple((int(p["weight"]), node_term(p["preference"])) for p in preferred),
        tolerations=tolerations_of(spec),
        spreads=tuple(_spread(c, labels) for c in spec.get("topologySpreadConstraints") or ()),
        affinity=_pod_terms(affinity.get("podAffinity"), namespace, labels),
        anti_affinity=_pod_terms(affinity.get("podAntiAffinity"), namespace, labels),
        shape=encode(shaped),
    )


def _ports(spec: Mapping[str, Any]) -> frozenset[Port]:
    found: set[Port] = set()
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                found.add((port.get("protocol") or "TCP", port.get("hostIP") or ANY_IP, int(port["hostPort"])))
    return frozenset(found)


def _narrowed(selector: LabelSelector | None, keys: list[str], labels: Mapping[str, str]) -> LabelSelector | None:
    """`matchLabelKeys`: the pod's own values of these labels are selected too."""
    if selector is None or not keys:
        return selector
    extra = tuple(LabelRequirement(key, "in", frozenset({labels[key]})) for key in keys if key in labels)
    return LabelSelector(selector.requirements + extra)


def _spread(constraint: Mapping[str, Any], labels: Mapping[str, str]) -> Spread:
    selector = label_selector(constraint.get("labelSelector"))
    return Spread(
        max_skew=int(constraint["maxSkew"]),
        topology_key=constraint["topologyKey"],
        hard=constraint["whenUnsatisfiable"] == "DoNotSchedule",
        selector=_narrowed(selector, constraint.get("matchLabelKeys") or [], labels),
        min_domains=constraint.get("minDomains"),
        honor_affinity=constraint.get("nodeAffinityPolicy", "Honor") == "Honor",
        honor_taints=constraint.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def _pod_terms(affinity: Mapping[str, Any] | None, namespace: str, labels: Mapping[str, str]) -> tuple[PodTerm, ...]:
    found = []
    for term in (affinity or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ():
        named = term.get("namespaces") or ()
        spaces = label_selector(term.get("namespaceSelector"))
        own = {namespace} if not named and spaces is None else set()
        selector = _narrowed(label_selector(term.get("labelSelector")), term.get("matchLabelKeys") or [], labels)
        found.append(PodTerm(term["topologyKey"], selector, frozenset({*named, *own}), spaces))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What of a node bears on scheduling; equal specs need no new look."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]


def node_spec(stored: Stored) -> NodeSpec:
    obj = stored.obj
    status = obj.get("status") or {}
    return NodeSpec(
        name=obj["metadata"]["name"],
        labels=obj["metadata"].get("labels") or {},
        taints=taints_of(obj),
        unschedulable=bool((obj.get("spec") or {}).get("unschedulable")),
        allocatable=amounts(status.get("allocatable") or status.get("capacity")),
    )


@dataclass(slots=True)
class NodeState:
    """A node and the pods bound to it, with sums kept as pods come and go."""

    spec: NodeSpec
    pods: dict[Key, PodFacts] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)
    owners: Counter[str] = field(default_factory=Counter)
    _counts: dict[tuple[str, LabelSelector], int] = field(default_factory=dict)

    def add(self, pod: PodFacts) -> None:
        self.pods[pod.key] = pod
        self.used.update(pod.requests)
        self.owners[pod.owner] += 1
        self._counts.clear()

    def remove(self, key: Key) -> None:
        pod = self.pods.pop(key, None)
        if pod is not None:
            self.used.subtract(pod.requests)
            self.owners[pod.owner] -= 1
            self._counts.clear()

    def count(self, namespace: str, selector: LabelSelector | None) -> int:
        """Pods of a namespace that a selector selects, but for those that are going."""
        if selector is None:
            return 0
        found = self._counts.get((namespace, selector))
        if found is None:
            found = sum(
                pod.key[0] == namespace and not pod.terminating and selector.matches(pod.labels)
                for pod in self.pods.values()
            )
            self._counts[namespace, selector] = found
        return found
