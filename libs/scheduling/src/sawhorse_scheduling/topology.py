"""Rules over domains: zones, capacity types, or any other label but the hostname.

Before anything is packed, the pods of a class are dealt out to domains (combinations of the label values that its
rules read); packing then treats (class, domain) as a class of its own that requires these labels. Counts are those of
the final state: in every domain where a class is placed, matching pods − the least count ≤ maxSkew. That is what
kube-scheduler checks at the last pod, so the plan binds in any order that fills evenly.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from sawhorse_model.labels import normalize
from sawhorse_model.pod import DO_NOT_SCHEDULE, Pod
from sawhorse_model.requirements import Operator, Requirement, Requirements
from sawhorse_model.taints import Taint, Toleration, untolerated
from sawhorse_scheduling.affinity import (
    ApartRules,
    NearUse,
    Wish,
    apart_rules_of,
    by_demand,
    collect_apart,
    is_wide,
    near_demands,
)
from sawhorse_scheduling.arrays import BoolArray
from sawhorse_scheduling.classes import ClassSelection, PodClass, required_terms
from sawhorse_scheduling.company import Company, build_company
from sawhorse_scheduling.existing import NodeTable
from sawhorse_scheduling.matching import AllOf, Matcher, is_hostname, spread_matcher, term_matcher
from sawhorse_scheduling.places import KnownLabels, Places
from sawhorse_scheduling.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SpreadGroup:
    """Whose pods are counted, by which label, on which nodes. Affinity counts on every node that has the label.

    A node takes part when it carries all of `keys` (the topology keys of the pod's hard constraints), serves one of
    `terms` (None: any node) and has only taints that `tolerations` (None: any taints) tolerate.
    """

    key: str
    matcher: Matcher | AllOf
    keys: tuple[str, ...]
    terms: tuple[Requirements, ...] | None
    tolerations: tuple[Toleration, ...] | None

    def counts_node(self, known: KnownLabels, taints: Sequence[Taint]) -> bool:
        """Whether a node takes part, whatever it turns out to be."""
        return self._counts(known, taints, known.serve)

    def might_count_node(self, known: KnownLabels, taints: Sequence[Taint]) -> bool:
        """Whether a node may turn out to take part."""
        return self._counts(known, taints, known.might_serve)

    def _counts(self, known: KnownLabels, taints: Sequence[Taint], serves: Callable[[Requirements], bool]) -> bool:
        if self.key not in known.certain or any(key not in known.certain for key in self.keys):
            return False
        if self.terms is not None and not any(map(serves, self.terms)):
            return False
        return self.tolerations is None or untolerated(taints, self.tolerations) is None

    def counted_nodes(self, places: Places) -> BoolArray:
        """(N,) the same for all existing nodes."""
        found = places.has(self.key)
        for key in self.keys:
            found = found & places.has(key)
        if self.terms is not None:
            found = found & np.logical_or.reduce([places.serve(term) for term in self.terms] or [~found])
        if self.tolerations is not None:
            found = found & (places.tolerated(self.tolerations) < 2)
        return found


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
    counted_by: tuple[Mapping[int, int], ...]  # per class: groups that count its pods, with how many of one unit
    hard_groups: frozenset[int]
    near_groups: frozenset[int]  # those that somebody must be near to
    forbidden: tuple[Requirements, ...]  # per class: domains where anti-affinity with bound pods keeps it away
    existing_counts: tuple[dict[str, int], ...]  # per group, value → matching bound pods; all values of its nodes
    near: tuple[tuple[NearUse, ...], ...]  # per class
    wishes: tuple[tuple[Wish, ...], ...]  # per class
    apart: ApartRules
    unsettled: frozenset[int]  # groups with bound pods of which the domain is not known yet
    company: Company

    def keys(self, members: PodClass) -> tuple[str, ...]:
        """The labels whose value must be known for a class: its own rules', and hard rules' that count it."""
        row = members.index
        wished = {use.key for use in self.uses[row]} | {wish.key for wish in self.wishes[row]}
        return tuple(sorted(wished | self.own_hard_keys(members) | self.watched_keys(members)))

    def own_hard_keys(self, members: PodClass) -> frozenset[str]:
        """The labels that hard rules of the class itself read."""
        row = members.index
        own = {use.key for use in self.uses[row] if use.hard} | {use.key for use in self.near[row]}
        return frozenset(own | {self.apart.rules[rule].key for rule in self.apart.owned[row]})

    def watched_keys(self, members: PodClass) -> frozenset[str]:
        """The labels by which hard rules of other classes count the class."""
        row, watched = members.index, self.hard_groups | self.near_groups
        others = {self.groups[g].key for g in self.counted_by[row] if g in watched}
        return frozenset(others | {self.apart.rules[rule].key for rule in self.apart.meant[row]})

    def is_ruled(self, members: PodClass) -> bool:
        """Whether hard rules of the class's own say in which domains it may be."""
        row = members.index
        return any(u.hard for u in self.uses[row]) or bool(self.near[row]) or bool(self.apart.owned[row])

    def may_be_anywhere(self, members: PodClass) -> bool:
        """Whether a pod of the class for which its domain has no node may go to any other."""
        return not self.is_ruled(members) and not self.apart.meant[members.index]

    def serving_order(self, classes: Sequence[PodClass]) -> list[PodClass]:
        """Classes without rules over domains first: the others then see where those are, and before each class
        those that it must be near, and those that it is spread by without counting itself."""
        by_group: dict[int, list[PodClass]] = {}
        for c in classes:
            for group in self.counted_by[c.index]:
                by_group.setdefault(group, []).append(c)
        planned = {c.index: c for c in classes}

        def before(c: PodClass) -> Iterator[PodClass]:
            groups = [use.group for use in self.near[c.index]]
            groups += [u.group for u in self.uses[c.index] if u.hard and u.group not in self.counted_by[c.index]]
            for group in groups:
                yield from by_group.get(group, ())
            yield from (planned[index] for index in self.company.liked_by(c) if index in planned)

        ordered: list[PodClass] = []
        entered: set[int] = set()
        for first in sorted(classes, key=lambda c: (self.is_ruled(c), c.index)):
            if first.index in entered:
                continue
            entered.add(first.index)
            path = [(first, before(first))]  # a stack of our own: chains may be longer than Python's
            while path:
                c, waited = path[-1]
                following = next((other for other in waited if other.index not in entered), None)
                if following is None:
                    ordered.append(c)
                    path.pop()
                else:
                    entered.add(following.index)
                    path.append((following, before(following)))
        return ordered


def build_topology(snapshot: Snapshot, classes: Sequence[PodClass], table: NodeTable) -> Topology:
    """Read the rules of the classes and count the bound pods."""
    order: dict[SpreadGroup, int] = {}
    uses, near, wishes = [], [], []
    for c in classes:
        pods = [part.pod for part in c.members] if c.is_planned else []
        uses.append(_distinct(use for pod in pods for use in _uses(pod, snapshot, order)))
        starters = _starters([part.pod for part in c.members], snapshot) if c.parts else ()
        near.append(_distinct(use for pod in pods for use in _near(pod, starters, snapshot, order)))
        wishes.append(_distinct(wish for pod in pods for wish in _wishes(pod, snapshot, order)))
    groups = tuple(order)
    weights = _counted_by(groups, classes)
    hard = frozenset(use.group for found in uses for use in found if use.hard)
    return Topology(
        groups=groups,
        uses=tuple(uses),
        counted_by=weights,
        hard_groups=hard,
        near_groups=frozenset(use.group for found in near for use in found),
        forbidden=_forbidden(snapshot, classes, table),
        existing_counts=_existing_counts(groups, table),
        near=tuple(near),
        wishes=tuple(wishes),
        apart=collect_apart([[p.pod for p in c.members] if c.is_planned else [] for c in classes], snapshot),
        unsettled=_unsettled(groups, table),
        company=build_company(snapshot, classes, table),
    )


_Use = TypeVar("_Use", SpreadUse, NearUse, Wish)


def _distinct(found: Iterable[_Use]) -> tuple[_Use, ...]:
    return tuple(dict.fromkeys(found))


def _uses(pod: Pod, snapshot: Snapshot, order: dict[SpreadGroup, int]) -> tuple[SpreadUse, ...]:
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
            terms=required_terms(pod.spec) if spread.node_affinity_policy == "Honor" else None,
            tolerations=tuple(sorted(pod.spec.tolerations, key=repr)) if spread.node_taints_policy == "Honor" else None,
        )
        index = order.setdefault(group, len(order))
        result.append(SpreadUse(index, group.key, spread.max_skew, spread.min_domains or 1, hard))
    return tuple(result)


def _starters(parts: Sequence[Pod], snapshot: Snapshot) -> tuple[Pod, ...]:
    """Those of a bundle's pods that may be bound one after the other while nobody whom they mean is anywhere."""
    found: list[Pod] = []
    demands = {id(pod): [matcher for matcher, _ in near_demands(pod, snapshot)] for pod in parts}
    while True:
        more = [
            pod
            for pod in parts
            if all(pod is not other for other in found)
            and all(matcher.selects(pod) or any(map(matcher.selects, found)) for matcher in demands[id(pod)])
            and (not found or pod is not parts[0])
        ]
        if not found:  # the first of a bundle starts it
            more = [pod for pod in more if pod is parts[0]]
        if not more:
            return tuple(found)
        found += more


def _near(pod: Pod, starters: Sequence[Pod], snapshot: Snapshot, order: dict[SpreadGroup, int]) -> tuple[NearUse, ...]:
    result = []
    for matcher, keys in near_demands(pod, snapshot):
        before = starters[: next((i for i, other in enumerate(starters) if other is pod), 0)]
        own = matcher.selects(pod) or any(map(matcher.selects, before))
        groups = [order.setdefault(SpreadGroup(key, matcher, (), None, None), len(order)) for key in keys]
        result += [NearUse(group, key, own, groups[0]) for group, key in zip(groups, keys, strict=True)]
    return tuple(result)


def _wishes(pod: Pod, snapshot: Snapshot, order: dict[SpreadGroup, int]) -> tuple[Wish, ...]:
    """Preferred terms over domains. Those over hosts are kube-scheduler's to honour: they make no extra nodes."""
    if snapshot.options.ignore_preferences:
        return ()
    result = []
    for sign, terms in ((1, pod.spec.affinity), (-1, pod.spec.anti_affinity)):
        for term in terms:
            if term.weight and is_wide(term):
                matcher = term_matcher(term, pod.meta.namespace, snapshot)
                group = SpreadGroup(normalize(term.topology_key), matcher, (), None, None)
                result.append(Wish(order.setdefault(group, len(order)), group.key, sign * term.weight))
    return tuple(result)


def _unsettled(groups: Sequence[SpreadGroup], table: NodeTable) -> frozenset[int]:
    """Groups that count a pod on a node of which the domain is not known yet."""
    found = set()
    for number, group in enumerate(groups):
        open_ended = table.places.is_open(group.key)
        if open_ended.any() and table.bound.of(group.matcher)[open_ended].any():
            found.add(number)
    return frozenset(found)


def _counted_by(groups: Sequence[SpreadGroup], classes: Sequence[PodClass]) -> tuple[dict[int, int], ...]:
    """Per class, how many pods of one unit each group counts; groups that count none are left out."""
    selection = ClassSelection(classes)
    found: tuple[dict[int, int], ...] = tuple({} for _ in classes)
    for number, group in enumerate(groups):
        pods = selection.of(group.matcher)
        for row in np.flatnonzero(pods).tolist():
            if classes[row].is_planned and _may_count(group, classes[row]):
                found[row][number] = int(pods[row])
    return found


def _may_count(group: SpreadGroup, members: PodClass) -> bool:
    """Whether nodes that take the class can take part in the group at all."""
    if group.terms is None:
        return True
    return any(mine.intersects(theirs) for mine in members.required for theirs in group.terms)


def _existing_counts(groups: Sequence[SpreadGroup], table: NodeTable) -> tuple[dict[str, int], ...]:
    """Per group and value of its label, the bound pods that it counts; every value of nodes that take part is there.

    So is that of a claim which may turn out to take part: once it does, a domain without pods is there to be measured
    from.
    """
    found = []
    undecided = [row for row, known in enumerate(table.labels) if known.possible]
    for group in groups:
        rows = np.flatnonzero(group.counted_nodes(table.places))
        counts: dict[str, int] = {}
        pods = table.bound.active_of(group.matcher)[rows].tolist() if len(rows) else []
        for row, number in zip(rows.tolist(), pods, strict=True):
            value = table.labels[row].certain[group.key]
            counts[value] = counts.get(value, 0) + number
        for row in undecided:
            if group.might_count_node(table.labels[row], table.nodes[row].taints):
                counts.setdefault(table.labels[row].certain[group.key], 0)
        found.append(counts)
    return tuple(found)


def _forbidden(snapshot: Snapshot, classes: Sequence[PodClass], table: NodeTable) -> tuple[Requirements, ...]:
    """Domains where anti-affinity keeps a class from bound pods, theirs or its own."""
    rules: dict[tuple[Matcher, str], set[str]] = {}
    for node, known in zip(table.nodes, table.labels, strict=True):
        for pod in node.pods:
            for rule in apart_rules_of(pod, snapshot) if pod.spec.anti_affinity else ():
                rules.setdefault((rule.matcher, rule.key), set()).update(_values(known, rule.key))
    selection, result = ClassSelection(classes), []
    meant = [(key, values, selection.of(matcher)) for (matcher, key), values in rules.items()]
    for row, c in enumerate(classes):
        away: dict[str, set[str]] = {}
        for key, values, pods in meant:
            if pods[row]:
                away.setdefault(key, set()).update(values)
        for rule in {r for part in c.members for r in apart_rules_of(part.pod, snapshot)}:
            for at in np.flatnonzero(table.bound.of(rule.matcher)).tolist():
                away.setdefault(rule.key, set()).update(_values(table.labels[at], rule.key))
        result.append(Requirements(Requirement.of(k, Operator.NOT_IN, v) for k, v in sorted(away.items()) if v))
    return tuple(result)


def _values(known: KnownLabels, key: str) -> set[str]:
    """The values that a node's label has or may still get."""
    if key in known.certain:
        return {known.certain[key]}
    return set(known.possible.get(key, (frozenset(), False))[0])


@dataclass(slots=True)
class Combo:
    """A combination of label values that a class may be dealt to. None: the label is not there."""

    values: dict[str, str | None]
    room: int  # pods that existing nodes of the combination still take
    new: bool  # whether new nodes are possible there
    cost: float = 0.0  # of one pod on a new node
    dealt: int = 0
    is_domain: bool = False  # counts for spread though no pod of the class can be dealt there


@dataclass(slots=True)
class Tally:
    """Counts per group while pods are dealt out; per anti-affinity rule and domain, pods that carry it or it means."""

    counts: list[dict[str, int]]
    owners: dict[tuple[int, str | None], int] = field(default_factory=dict)
    meant: dict[tuple[int, str | None], int] = field(default_factory=dict)

    @classmethod
    def start(cls, topology: Topology) -> "Tally":
        """The bound pods' counts."""
        return cls([dict(c) for c in topology.existing_counts])


def deal(topology: Topology, tally: Tally, members: PodClass, count: int, combos: list[Combo], *, evenly: bool) -> int:
    """Deal pods of a class to combinations, updating `combos` and `tally`; return how many found none.

    Hard rules decide where a pod may go. Among those, existing room first (unless `evenly`), then where wishes, soft
    constraints and other classes' rules are served best, then the cheapest.
    """
    uses, row = topology.uses[members.index], members.index
    counted = topology.counted_by[row]
    hard = [(u, topology.groups[u.group].key, counted.get(u.group, 0)) for u in uses if u.hard]
    domains = {u.group: _domains(topology, u, combos) for u, _, _ in hard}
    own = {u.group for u, _, _ in hard}
    watched = [u.group for u in uses if not u.hard]
    watched += [g for g in counted if g in topology.hard_groups and g not in own]
    near, wishes = topology.near[row], topology.wishes[row]
    tied = bool(near or wishes or topology.apart.owned[row] or topology.apart.meant[row])
    left, recent, steps = count, [0] * len(combos), 0
    regular = _regular(combos) and not tied
    while left:
        least = [least_count(tally.counts[u.group], domains[u.group], u.min_domains) for u, _, _ in hard]
        best: tuple[tuple[float, ...], int] | None = None
        for index, combo in enumerate(combos):
            room = combo.room - combo.dealt
            if room <= 0 and not combo.new:
                continue
            if not all(
                (value := combo.values[key]) is not None
                and tally.counts[u.group].get(value, 0) + added - low <= u.max_skew
                for (u, key, added), low in zip(hard, least, strict=True)
            ):
                continue
            if tied and not (_is_near(topology, tally, near, combo) and _is_apart(topology, tally, row, combo)):
                continue
            wish = -sum(w.weight * min(_count(tally, topology, w.group, combo), 1) for w in wishes)
            soft = sum(_count(tally, topology, g, combo) for g in watched)
            even = sum(_count(tally, topology, g, combo) for g in own)
            cramped = bool(near) and not combo.new and room < left  # would not hold all that must be together
            first = (soft, even, room <= 0) if evenly else (room <= 0, soft, even)
            rank = (*map(float, (cramped, wish, *first)), combo.cost, float(index))
            if best is None or rank < best[0]:
                best = (rank, index)
        if best is None:
            return left
        chosen = combos[best[1]]
        if near and not hard and not topology.apart.owned[row]:
            # Nothing but nearness decides: what this domain takes goes there at once.
            room = chosen.room - chosen.dealt
            number = min(left, room) if room > 0 else left
        else:
            number = 1
        put(topology, tally, row, chosen, number)
        recent[best[1]] += number
        left, steps = left - number, steps + 1
        if steps == 2 * len(combos):
            # Two whole turns in which every combination got its share: the counts are level, so the same again and
            # again stays level while existing room lasts. Deal the bulk at once; the last turns are looked at one by
            # one.
            bulk = left // len(combos) - 2
            if regular and bulk > 0 and all(r == 2 for r in recent):
                bulk = min([bulk, *(room - 1 for c in combos if (room := c.room - c.dealt) > 0 or not c.new)])
            if regular and bulk > 0 and all(r == 2 for r in recent):
                for combo in combos:
                    put(topology, tally, row, combo, bulk)
                left -= bulk * len(combos)
            recent, steps = [0] * len(combos), 0
    return 0


def _is_near(topology: Topology, tally: Tally, near: Sequence[NearUse], combo: Combo) -> bool:
    """Whether a domain has what the pods must be near, or they may be the first there."""
    if any(combo.values.get(use.key) is None for use in near):
        return False
    return all(
        all(_count(tally, topology, use.group, combo) > 0 for use in uses)
        or all(
            use.own and use.group not in topology.unsettled and not any(tally.counts[use.group].values())
            for use in uses
        )
        for uses in by_demand(near)
    )


def _is_apart(topology: Topology, tally: Tally, row: int, combo: Combo) -> bool:
    """Whether no planned pod in a domain forbids the class or is forbidden by it."""
    rules = topology.apart.rules
    for rule in topology.apart.owned[row]:
        if tally.meant.get((rule, combo.values.get(rules[rule].key)), 0):
            return False
    return not any(tally.owners.get((rule, combo.values.get(rules[rule].key)), 0) for rule in topology.apart.meant[row])


def _regular(combos: Sequence[Combo]) -> bool:
    """Whether every value of a label is in equally many combinations, so that a whole turn keeps counts level."""
    for key in combos[0].values if combos else ():
        seen = [c.values[key] for c in combos]
        if len({seen.count(v) for v in seen}) > 1:
            return False
    return True


def put(topology: Topology, tally: Tally, row: int, combo: Combo, count: int) -> None:
    """Deal pods of a class (its row) to a combination; a negative count takes them back."""
    combo.dealt += count
    for group, weight in topology.counted_by[row].items():
        value = combo.values.get(topology.groups[group].key)
        if value is not None:
            tally.counts[group][value] = tally.counts[group].get(value, 0) + count * weight
    for found, side in ((topology.apart.owned[row], tally.owners), (topology.apart.meant[row], tally.meant)):
        for rule in found:
            value = combo.values.get(topology.apart.rules[rule].key)
            if value is not None:
                side[rule, value] = side.get((rule, value), 0) + count


def _count(tally: Tally, topology: Topology, group: int, combo: Combo) -> int:
    value = combo.values.get(topology.groups[group].key)
    return tally.counts[group].get(value, 0) if value is not None else 0


def _domains(topology: Topology, use: SpreadUse, combos: Sequence[Combo]) -> tuple[str, ...]:
    """The domains that count for the minimum: those of nodes that take part, and those where a node could be made."""
    values = set(topology.existing_counts[use.group])
    values |= {v for c in combos if (c.new or c.is_domain) and (v := c.values[use.key]) is not None}
    return tuple(sorted(values))


def least_count(counts: dict[str, int], domains: Sequence[str], min_domains: int) -> int:
    """The minimum that skew is measured from."""
    return 0 if len(domains) < min_domains else min((counts.get(d, 0) for d in domains), default=0)
