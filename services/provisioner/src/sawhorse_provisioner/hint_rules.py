"""Which hints do no harm: pods that kube-scheduler may count on one node at the same time. Pure.

For a pod that it looks at, kube-scheduler takes all others that are nominated to the same node as running there, but
not those that are nominated elsewhere. With a spread over zones, two pods hinted to one node so keep each other off:
either sees its own zone one ahead of zones that are still empty. No more may be hinted at a time than the rule lets a
domain be ahead; the others follow as these are bound.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sawhorse_model.pod import DO_NOT_SCHEDULE, Pod
from sawhorse_model.selectors import LabelSelector


@dataclass(frozen=True, slots=True)
class _Rule:
    """Of pods that match, so many may be ahead in a domain."""

    namespace: str
    selector: LabelSelector
    most: int

    def counts(self, pod: Pod) -> bool:
        """Whether the rule counts this pod."""
        return pod.meta.namespace == self.namespace and self.selector.matches(pod.meta.labels)


def harmless(hinted: Iterable[Pod], wanted: Sequence[Pod]) -> list[Pod]:
    """Those of `wanted` that may be hinted to a node beside the pods that are hinted to it already.

    The largest come first: what is left for later finds its room more easily when it is small.
    """
    counts: dict[_Rule, int] = {}
    on_node: list[Pod] = []

    def add(pod: Pod) -> None:
        for rule in _rules(pod):
            if rule not in counts:
                counts[rule] = sum(map(rule.counts, on_node))
        for rule in counts:
            if rule.counts(pod):
                counts[rule] += 1
        on_node.append(pod)

    def fits(pod: Pod) -> bool:
        for rule in _rules(pod):
            before = counts[rule] if rule in counts else sum(map(rule.counts, on_node))
            if before + rule.counts(pod) > rule.most:
                return False
        return all(count < rule.most for rule, count in counts.items() if rule.counts(pod))

    for pod in hinted:
        add(pod)
    found = []
    for pod in sorted(wanted, key=lambda p: (-p.spec.requests.get("cpu", 0), p.meta.key)):
        if fits(pod):
            add(pod)
            found.append(pod)
    return found


def _rules(pod: Pod) -> list[_Rule]:
    return [
        _Rule(pod.meta.namespace, rule.selector, rule.max_skew)
        for rule in pod.spec.spread
        if rule.when_unsatisfiable == DO_NOT_SCHEDULE and rule.selector is not None
    ]
