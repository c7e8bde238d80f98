"""Spread over domains: zones, capacity types, or any other label but the hostname.

Before anything is packed, the pods of a class are dealt out to domains (combinations of the label values that its
rules read); packing then treats (class, domain) as a class of its own that requires these labels. Counts are those of
the final state: in every domain where a class is placed, matching pods − the least count ≤ maxSkew. That is what
kube-scheduler checks at the last pod, so the plan binds in any order that fills evenly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sawhorse_model.labels import normalize
from sawhorse_model.pod import DO_NOT_SCHEDULE, Pod
from sawhorse_model.requirements import Operator, Requirement, Requirements
from sawhorse_model.taints import Taint, Toleration, untolerated
from sawhorse_scheduling.classes import PodClass
from sawhorse_scheduling.existing import KnownLabels, NodeTable
from sawhorse_scheduling.matching import Matcher, is_hostname, spread_matcher, term_matcher
from sawhorse_scheduling.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SpreadGroup:
    """Whose pods are counted, by which label, on which nodes.

    A node takes part when it carries all of `keys` (the topology keys of the pod's hard constraints), serves one of
    `terms` (None: any node) and has only taints that `tolerations` (None: any taints) tolerate.
    """

    key: str
    matcher: Matcher
    keys: tuple[str, ...]
    terms: tuple[Requirements, ...] | None
    tolerations: tuple[Toleration, ...] | None

    def counts_node(self, known: KnownLabels, taints: Sequence[Taint]) -> bool:
        """Whether a node takes part."""
        if self.key not in known.certain or any(key not in known.certain for key in self.keys):
            return False
        if self.terms is not None and not any(known.serve(term) for term in self.terms):
            return False
        return self.tolerations is None or untolerated(taints, self.tolerations) is None


@dataclass(frozen=True, slots=True)
class SpreadUse:
    """A class's constraint over a group."""

    group: int
    key: str
    max_skew: int
    min_domains: int
    hard: bool


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """All groups, who uses them, whom they count, and what bound pods' anti-affinity forbids."""

    groups: tuple[SpreadGroup, ...]
    uses: tuple[tuple[SpreadUse, ...], ...]  # per class
    counted_by: tuple[tuple[int, ...], ...]  # per class: groups that count its pods
    hard_groups: frozenset[int]
    forbidden: tuple[Requirements, ...]  # per class: domains where bound pods want it away
    existing_counts: tuple[dict[str, int], ...]  # per group, value → matching bound pods; all values of its nodes

    def keys(self, members: PodClass) -> tuple[str, ...]:
        """The labels whose value must be known for a class: its own rules', and hard rules' that count it."""
        own = {use.key for use in self.uses[members.index]}
        others = {self.groups[g].key for g in self.counted_by[members.index] if g in self.hard_groups}
        return tuple(sorted(own | others))


def build_topology(snapshot: Snapshot, classes: Sequence[PodClass], table: NodeTable) -> Topology:
    """Read the rules of the classes and count the bound pods."""
    order: dict[SpreadGroup, int] = {}
    uses = []
    for c in classes:
        uses.append(_uses(c, snapshot, order) if c.refusal is None else ())
    groups = tuple(order)
    counted = tuple(
        tuple(i for i, g in enumerate(groups) if g.matcher.selects(c.pod) and _may_count(g, c)) for c in classes
    )
    hard = frozenset(use.group for found in uses for use in found if use.hard)
    return Topology(
        groups=groups,
        uses=tuple(uses),
        counted_by=counted,
        hard_groups=hard,
        forbidden=_forbidden(snapshot, classes, table),
        existing_counts=tuple(_existing_counts(g, table) for g in groups),
    )


def _uses(members: PodClass, snapshot: Snapshot, order: dict[SpreadGroup, int]) -> tuple[SpreadUse, ...]:
    pod = members.pod
    wide = [s for s in pod.spec.spread if not is_hostname(s.topology_key)]
    keys = tuple(sorted({normalize(s.topology_key) for s in wide if s.when_unsatisfiable == DO_NOT_SCHEDULE}))
    result = []
    for spread in wide:
        hard = spread.when_unsatisfiable == DO_NOT_SCHEDULE
        if not hard and snapshot.options.ignore_preferences:
            continue
        group = SpreadGroup(
            key=normalize(spread.topology_key),
            matcher=spread_matcher(spread, pod),
            keys=keys if hard else (),
            terms=members.required if spread.node_affinity_policy == "Honor" else None,
            tolerations=tuple(sorted(pod.spec.tolerations, key=repr)) if spread.node_taints_policy == "Honor" else None,
        )
        index = order.setdefault(group, len(order))
        result.append(SpreadUse(index, group.key, spread.max_skew, spread.min_domains or 1, hard))
    return tuple(result)


def _may_count(group: SpreadGroup, members: PodClass) -> bool:
    """Whether nodes that take the class can take part in the group at all."""
    if group.terms is None:
        return True
    return any(mine.intersects(theirs) for mine in members.required for theirs in group.terms)


def _existing_counts(group: SpreadGroup, table: NodeTable) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node, known in zip(table.nodes, table.labels, strict=True):
        if group.counts_node(known, node.taints):
            value = known.certain[group.key]
            counts[value] = counts.get(value, 0) + sum(group.matcher.selects(p) for p in node.pods if p.is_active)
    return counts


def _forbidden(snapshot: Snapshot, classes: Sequence[PodClass], table: NodeTable) -> tuple[Requirements, ...]:
    """Anti-affinity of bound pods over anything wider than a host, as exclusions of domains."""
    rules: dict[tuple[Matcher, str], set[str]] = {}
    for node, known in zip(table.nodes, table.labels, strict=True):
        for pod in node.pods:
            for key, matcher in _wide_terms(pod, snapshot):
                if key in known.certain:
                    rules.setdefault((matcher, key), set()).add(known.certain[key])
    result = []
    for c in classes:
        found = [
            Requirement.of(key, Operator.NOT_IN, values)
            for (matcher, key), values in rules.items()
            if matcher.selects(c.pod)
        ]
        result.append(Requirements(found))
    return tuple(result)


def _wide_terms(pod: Pod, snapshot: Snapshot) -> list[tuple[str, Matcher]]:
    return [
        (normalize(t.topology_key), term_matcher(t, pod.meta.namespace, snapshot))
        for t in pod.spec.anti_affinity
        if not t.weight and not is_hostname(t.topology_key)
    ]


@dataclass(slots=True)
class Combo:
    """A combination of label values that a class may be dealt to. None: the label is not there."""

    values: dict[str, str | None]
    room: int  # pods that existing nodes of the combination still take
    new: bool  # whether new nodes are possible there
    cost: float = 0.0  # of one pod on a new node
    dealt: int = 0


@dataclass(slots=True)
class Tally:
    """Counts per group while pods are dealt out."""

    counts: list[dict[str, int]]

    @classmethod
    def start(cls, topology: Topology) -> "Tally":
        """The bound pods' counts."""
        return cls([dict(c) for c in topology.existing_counts])


def deal(topology: Topology, tally: Tally, members: PodClass, count: int, combos: list[Combo], *, evenly: bool) -> int:
    """Deal pods of a class to combinations, updating `combos` and `tally`; return how many found none.

    Hard constraints decide where a pod may go. Among those, existing room first (unless `evenly`), then where soft
    constraints and other classes' rules count least, then the cheapest.
    """
    uses = [u for u in topology.uses[members.index]]
    counted = topology.counted_by[members.index]
    hard = [(u, topology.groups[u.group].key, u.group in counted) for u in uses if u.hard]
    domains = {u.group: _domains(topology, u, combos) for u, _, _ in hard}
    own = {u.group for u, _, _ in hard}
    watched = [u.group for u in uses if not u.hard]
    watched += [g for g in counted if g in topology.hard_groups and g not in own]
    left, recent, steps = count, [0] * len(combos), 0
    regular = all(c.new for c in combos) and _regular(combos)
    while left:
        best: tuple[tuple[float, ...], int] | None = None
        for index, combo in enumerate(combos):
            room = combo.room - combo.dealt
            if room <= 0 and not combo.new:
                continue
            if not all(_allowed(tally, domains[u.group], u, combo.values[key], counts) for u, key, counts in hard):
                continue
            soft = sum(_count(tally, topology, g, combo) for g in watched)
            even = sum(_count(tally, topology, g, combo) for g in own)
            first = (soft, even, room <= 0) if evenly else (room <= 0, soft, even)
            rank = (*map(float, first), combo.cost, float(index))
            if best is None or rank < best[0]:
                best = (rank, index)
        if best is None:
            return left
        _put(topology, tally, counted, combos[best[1]], 1)
        recent[best[1]] += 1
        left, steps = left - 1, steps + 1
        if steps == 2 * len(combos):
            # Two whole turns in which every combination got its share: the counts are level, so the same again and
            # again stays level. Deal the bulk at once; the last turns are looked at one by one.
            bulk = left // len(combos) - 2
            if regular and bulk > 0 and all(r == 2 for r in recent):
                for combo in combos:
                    _put(topology, tally, counted, combo, bulk)
                left -= bulk * len(combos)
            recent, steps = [0] * len(combos), 0
    return 0


def _regular(combos: Sequence[Combo]) -> bool:
    """Whether every value of a label is in equally many combinations, so that a whole turn keeps counts level."""
    for key in combos[0].values if combos else ():
        seen = [c.values[key] for c in combos]
        if len({seen.count(v) for v in seen}) > 1:
            return False
    return True


def _put(topology: Topology, tally: Tally, counted: tuple[int, ...], combo: Combo, count: int) -> None:
    combo.dealt += count
    for group in counted:
        value = combo.values.get(topology.groups[group].key)
        if value is not None:
            tally.counts[group][value] = tally.counts[group].get(value, 0) + count


def _count(tally: Tally, topology: Topology, group: int, combo: Combo) -> int:
    value = combo.values.get(topology.groups[group].key)
    return tally.counts[group].get(value, 0) if value is not None else 0


def _domains(topology: Topology, use: SpreadUse, combos: Sequence[Combo]) -> tuple[str, ...]:
    """The domains that count for the minimum: those of nodes that take part, and those where a node could be made."""
    values = set(topology.existing_counts[use.group])
    values |= {v for c in combos if c.new and (v := c.values[use.key]) is not None}
    return tuple(sorted(values))


def _allowed(tally: Tally, domains: tuple[str, ...], use: SpreadUse, value: str | None, counts_self: bool) -> bool:
    if value is None:
        return False
    counts = tally.counts[use.group]
    least = least_count(counts, domains, use.min_domains)
    return counts.get(value, 0) + int(counts_self) - least <= use.max_skew


def least_count(counts: dict[str, int], domains: Sequence[str], min_domains: int) -> int:
    """The minimum that skew is measured from."""
    return 0 if len(domains) < min_domains else min((counts.get(d, 0) for d in domains), default=0)
