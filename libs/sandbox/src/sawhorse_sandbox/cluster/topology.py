"""Topology spread, pod affinity and anti-affinity for one pod over all nodes. Pure.

Counts are taken once for a pod; then each node is judged by the domain it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sawhorse_sandbox.cluster.facts import NodeState, PodFacts, PodTerm, Spread
from sawhorse_sandbox.cluster.filters import HARD_EFFECTS
from sawhorse_sandbox.cluster.terms import untolerated

NamespaceLabels = Callable[[str], Mapping[str, str]]

SPREAD = "node(s) didn't match pod topology spread constraints"
NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(frozen=True, slots=True)
class _Counted:
    spread: Spread
    domains: Mapping[str, int]
    least: int
    adds: int  # 1 when the pod counts itself


class Topology:
    """How the domains stand for one pod now. Make a new one after every placement."""

    def __init__(self, pod: PodFacts, nodes: Iterable[NodeState], namespace_labels: NamespaceLabels) -> None:
        self._pod = pod
        self._nodes = list(nodes) if pod.spreads or pod.affinity or pod.anti_affinity else []
        self._namespace_labels = namespace_labels
        hard = [spread for spread in pod.spreads if spread.hard]
        soft = [spread for spread in pod.spreads if not spread.hard]
        self._hard = [self._count(spread, hard) for spread in hard]
        self._soft = [self._count(spread, soft) for spread in soft]
        self._near = [self._matching_domains(term) for term in pod.affinity]
        self._away = [self._matching_domains(term) for term in pod.anti_affinity]

    def reason(self, node: NodeState, guards: Iterable[tuple[NodeState, PodFacts]]) -> str | None:
        """Why the node is out; `guards` are the placed pods that have anti-affinity of their own."""
        labels = node.spec.labels
        for counted in self._hard:
            domain = labels.get(counted.spread.topology_key)
            if domain is None:
                return NO_LABEL
            if counted.domains.get(domain, 0) + counted.adds - counted.least > counted.spread.max_skew:
                return SPREAD
        if not self._is_near(labels):
            return AFFINITY
        for term, domains in zip(self._pod.anti_affinity, self._away, strict=True):
            if labels.get(term.topology_key) in domains:
                return ANTI_AFFINITY
        return EXISTING_ANTI_AFFINITY if self._breaks_existing(node, guards) else None

    def soft_counts(self, nodes: Iterable[NodeState]) -> dict[str, float]:
        """By node name, how many pods of the ScheduleAnyway constraints are in the node's domains."""
        return {
            node.spec.name: float(
                sum(c.domains.get(node.spec.labels.get(c.spread.topology_key, ""), 0) for c in self._soft)
            )
            for node in nodes
        }

    def _count(self, spread: Spread, together: list[Spread]) -> _Counted:
        """Only nodes that carry the keys of all constraints form domains."""
        pod = self._pod
        domains: dict[str, int] = {}
        for node in self._nodes:
            labels = node.spec.labels
            if any(other.topology_key not in labels for other in together):
                continue
            if spread.honor_affinity and not pod.accepts(node.spec.name, labels):
                continue
            if spread.honor_taints and untolerated(node.spec.taints, pod.tolerations, HARD_EFFECTS) is not None:
                continue
            domain = labels[spread.topology_key]
            domains[domain] = domains.get(domain, 0) + node.count(pod.key[0], spread.selector)
        least = min(domains.values(), default=0)
        if spread.min_domains is not None and len(domains) < spread.min_domains:
            least = 0
        counts_itself = spread.selector is not None and spread.selector.matches(pod.labels)
        return _Counted(spread, domains, least, int(counts_itself))

    def _matching_domains(self, term: PodTerm) -> set[str]:
        found: set[str] = set()
        for node in self._nodes:
            domain = node.spec.labels.get(term.topology_key)
            if domain is not None and domain not in found and any(self._matches(term, p) for p in node.pods.values()):
                found.add(domain)
        return found

    def _matches(self, term: PodTerm, pod: PodFacts) -> bool:
        return term.matches(pod.key[0], pod.labels, self._namespace_labels(pod.key[0]))

    def _is_near(self, labels: Mapping[str, str]) -> bool:
        terms = self._pod.affinity
        if any(term.topology_key not in labels for term in terms):
            return False
        if all(labels[term.topology_key] in domains for term, domains in zip(terms, self._near, strict=True)):
            return True
        # The first pod of a group that wants to be near itself may start anywhere.
        return not any(self._near) and all(self._matches(term, self._pod) for term in terms)

    def _breaks_existing(self, node: NodeState, guards: Iterable[tuple[NodeState, PodFacts]]) -> bool:
        for guarded, guard in guards:
            for term in guard.anti_affinity:
                domain = guarded.spec.labels.get(term.topology_key)
                if domain is None or node.spec.labels.get(term.topology_key) != domain:
                    continue
                if self._matches(term, self._pod):
                    return True
        return False
