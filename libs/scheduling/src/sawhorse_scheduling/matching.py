"""Which pods a topology rule is about: selectors with their namespaces resolved."""

from collections.abc import Mapping
from dataclasses import dataclass

from sawhorse_model.labels import HOSTNAME, normalize
from sawhorse_model.pod import Pod, PodAffinityTerm, TopologySpread
from sawhorse_model.selectors import LabelSelector
from sawhorse_scheduling.snapshot import Snapshot

NAMESPACE_NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class Matcher:
    """Pods in these namespaces (None: all) that a selector matches. No selector matches nothing."""

    namespaces: tuple[str, ...] | None  # sorted
    selector: LabelSelector | None

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is meant."""
        if self.selector is None or (self.namespaces is not None and namespace not in self.namespaces):
            return False
        return self.selector.matches(labels)

    def selects(self, pod: Pod) -> bool:
        """Whether this pod is meant."""
        return self.matches(pod.meta.namespace, pod.meta.labels)


@dataclass(frozen=True, slots=True)
class AllOf:
    """Pods that every one of several matchers means."""

    matchers: tuple[Matcher, ...]

    def selects(self, pod: Pod) -> bool:
        """Whether this pod is meant."""
        return all(matcher.selects(pod) for matcher in self.matchers)


def spread_selector(spread: TopologySpread, labels: Mapping[str, str]) -> LabelSelector | None:
    """The selector of a spread constraint, narrowed by the pod's values of its matchLabelKeys."""
    if spread.selector is None:
        return None
    own = {key: labels[key] for key in spread.match_label_keys if key in labels}
    return spread.selector.with_labels(own) if own else spread.selector


def spread_matcher(spread: TopologySpread, pod: Pod) -> Matcher:
    """Whom a pod's spread constraint counts."""
    return Matcher((pod.meta.namespace,), spread_selector(spread, pod.meta.labels))


def term_matcher(term: PodAffinityTerm, namespace: str, snapshot: Snapshot) -> Matcher:
    """Whom an affinity or anti-affinity term of a pod in `namespace` is about."""
    chosen = term.namespace_selector
    if chosen is None:
        return Matcher(tuple(sorted(set(term.namespaces))) or (namespace,), term.selector)
    if not chosen.expressions:
        return Matcher(None, term.selector)
    known = {n.meta.name: n.meta.labels for n in snapshot.namespaces}
    matching = {n for n, labels in known.items() if chosen.matches({NAMESPACE_NAME: n, **labels})}
    return Matcher(tuple(sorted(matching | set(term.namespaces))), term.selector)


def matchers_in_play(snapshot: Snapshot) -> tuple[Matcher, ...]:
    """Every selector that a rule or wish of a waiting pod, or anti-affinity of a bound one, uses; sorted."""
    found: set[Matcher] = set()
    for group in snapshot.pods:
        pod = group.pod
        found.update(spread_matcher(spread, pod) for spread in pod.spec.spread)
        terms = (*pod.spec.affinity, *pod.spec.anti_affinity)
        found.update(term_matcher(term, pod.meta.namespace, snapshot) for term in terms)
    for node in snapshot.nodes:
        for pod in node.pods:
            if pod.spec.anti_affinity:
                found.update(_apart(pod, snapshot))
    return tuple(sorted(found, key=repr))


def _apart(pod: Pod, snapshot: Snapshot) -> list[Matcher]:
    return [term_matcher(t, pod.meta.namespace, snapshot) for t in pod.spec.anti_affinity if not t.weight]


def is_hostname(key: str) -> bool:
    """Whether a topology key means single nodes."""
    return normalize(key) == HOSTNAME
