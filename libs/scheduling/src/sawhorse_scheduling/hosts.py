"""Rules per node: spread over hostnames, anti-affinity by hostname, host ports.

A host rule has owners (pods that carry it) and matches (pods that its selector means). On a node with an owner, a
spread rule allows at most `limit` matches, an anti-affinity rule none but the owner itself. This holds for the final
state, so a plan binds in any order; a new node is always possible, so the least count of all nodes is taken as zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sawhorse_model.pod import DO_NOT_SCHEDULE, Pod
from sawhorse_scheduling.arrays import UNBOUNDED, BoolArray, IntArray
from sawhorse_scheduling.classes import ClassSelection, PodClass
from sawhorse_scheduling.matching import Matcher, is_hostname, spread_matcher, term_matcher
from sawhorse_scheduling.snapshot import Snapshot

APART = 0  # limit of an anti-affinity rule


@dataclass(frozen=True, slots=True)
class HostRule:
    """One rule; `limit` is maxSkew of a spread rule, APART for anti-affinity."""

    matcher: Matcher
    limit: int


@dataclass(frozen=True, slots=True, eq=False)
class HostRules:
    """All rules in play and how the classes stand to them."""

    rules: tuple[HostRule, ...]
    limits: IntArray  # (G,)
    owns: BoolArray  # (C, G)
    matches: BoolArray  # (C, G)


def pod_rules(pod: Pod, snapshot: Snapshot) -> list[HostRule]:
    """The host rules that a pod carries."""
    rules = [
        HostRule(spread_matcher(s, pod), s.max_skew)
        for s in pod.spec.spread
        if s.when_unsatisfiable == DO_NOT_SCHEDULE and is_hostname(s.topology_key)
    ]
    rules += anti_rules(pod, snapshot)
    return rules


def anti_rules(pod: Pod, snapshot: Snapshot) -> list[HostRule]:
    """The host anti-affinity that a pod carries; it works in both directions."""
    return [
        HostRule(term_matcher(t, pod.meta.namespace, snapshot), APART)
        for t in pod.spec.anti_affinity
        if not t.weight and is_hostname(t.topology_key)
    ]


def build_host_rules(snapshot: Snapshot, classes: Sequence[PodClass]) -> HostRules:
    """Collect the rules of classes that can be placed, and of bound pods that keep others off."""
    owned = [[r for part in c.members for r in pod_rules(part.pod, snapshot)] if c.is_planned else [] for c in classes]
    found = {rule for rules in owned for rule in rules}
    for node in snapshot.nodes:
        for pod in node.pods:
            if pod.spec.anti_affinity:
                found.update(anti_rules(pod, snapshot))
    rules = tuple(sorted(found, key=repr))
    index = {rule: i for i, rule in enumerate(rules)}
    owns = np.zeros((len(classes), len(rules)), dtype=np.bool_)
    matches = np.zeros((len(classes), len(rules)), dtype=np.bool_)
    for c, carried in zip(classes, owned, strict=True):
        for rule in carried:
            owns[c.index, index[rule]] = True
    selection = ClassSelection(classes)
    for i, rule in enumerate(rules):
        matches[:, i] = selection.of(rule.matcher) > 0
    return HostRules(rules, np.array([r.limit for r in rules], dtype=np.int64), owns, matches)


def host_room(limits: IntArray, owns: BoolArray, matches: BoolArray, owners: IntArray, matched: IntArray) -> IntArray:
    """How many pods of a class each node may still take by the host rules.

    Args:
        limits: (G,).
        owns, matches: (..., G) how the class stands to each rule.
        owners, matched: (..., G) how many owners and matches the node has; all broadcast.
    Returns:
        (...,) counts.
    """
    apart = limits == APART
    free, none = UNBOUNDED, 0
    left = np.maximum(limits - matched, 0)
    spread = np.where(
        matches & (owns | (owners > 0)),
        left,
        np.where(owns & ~matches & (matched > limits), none, free),
    )
    empty = (owners == 0) & (matched == 0)
    separate = np.where(
        owns & matches,
        empty.astype(np.int64),
        np.where((owns & (matched > 0)) | (matches & (owners > 0)), none, free),
    )
    room: IntArray = np.where(apart, separate, spread).min(axis=-1, initial=UNBOUNDED)
    return room
