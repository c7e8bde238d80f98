"""Capacity that is there: nodes and claims in flight as one table, in the order in which they are filled."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_model.pod import HostPort
from sawhorse_model.requirements import Operator, Requirements
from sawhorse_model.resources import add, subtract
from sawhorse_model.taints import Taint, untolerated
from sawhorse_scheduling.arrays import Axis, BoolArray, IntArray, times
from sawhorse_scheduling.classes import PodClass, required_terms
from sawhorse_scheduling.daemons import clash, tolerates
from sawhorse_scheduling.hosts import HostRules, anti_rules, host_room
from sawhorse_scheduling.selection import BoundSelection
from sawhorse_scheduling.snapshot import ExistingNode, Snapshot

_FORGIVING = frozenset({Operator.NOT_IN, Operator.DOES_NOT_EXIST})


@dataclass(frozen=True, slots=True)
class KnownLabels:
    """What is certain of a node's labels.

    `possible` holds, for a claim that is not launched, the values a label may still get and whether it will be there
    at all. The claim is immutable, so a pod may count on it only where every outcome serves the pod.
    """

    certain: dict[str, str]
    possible: dict[str, tuple[frozenset[str], bool]] = field(default_factory=dict)

    def serve(self, wants: Requirements) -> bool:
        """Whether the node satisfies the requirements whatever it turns out to be."""
        for key, want in wants.items():
            value = self.certain.get(key)
            if value is not None:
                if not want.has(value):
                    return False
                continue
            values, always = self.possible.get(key, (frozenset(), False))
            if want.operator not in _FORGIVING and not (always and values):
                return False
            if not all(want.has(v) for v in values):
                return False
        return True


def known_labels(node: ExistingNode) -> KnownLabels:
    """The labels of a node, or what a claim in flight promises."""
    certain = dict(node.labels)
    if not node.instance_types and not node.requirements:
        return KnownLabels(certain)
    for key, value in node.requirements.labels().items():
        certain.setdefault(key, value)
    possible: dict[str, tuple[set[str], bool]] = {}
    for key, requirement in node.requirements.items():
        if key not in certain and not requirement.complement:
            possible[key] = (set(requirement.values), bool(requirement.values))
    types = [t for t in node.instance_types if t.requirements.intersects(node.requirements)]
    offers = [
        [o for o in t.offerings if o.available and o.allowed_by(node.requirements)] or list(t.offerings) for t in types
    ]
    for key, values in (
        (ZONE, {o.zone for found in offers for o in found}),
        (CAPACITY_TYPE, {o.capacity_type.value for found in offers for o in found}),
    ):
        if key not in certain and values:
            possible[key] = (values, True)
    for key in {k for t in types for k in t.requirements} - {ZONE, CAPACITY_TYPE} - certain.keys():
        listed = [t.requirements.get(key) for t in types]
        values = {v for r in listed if r is not None for v in r.values}
        if key in node.requirements:
            values = {v for v in values if node.requirements[key].has(v)}
        possible[key] = (values, all(r is not None and bool(r.values) for r in listed))
    for key, (values, always) in list(possible.items()):
        if always and len(values) == 1:
            certain[key] = next(iter(values))
            del possible[key]
    return KnownLabels(certain, {key: (frozenset(values), always) for key, (values, always) in possible.items()})


def is_in_flight(node: ExistingNode) -> bool:
    """Whether it is a claim without a node."""
    return bool(node.claim) and node.claim == node.name


@dataclass(slots=True, eq=False)
class NodeTable:
    """Existing capacity, rows in filling order. The arrays change as pods are placed; `copy` starts anew."""

    nodes: tuple[ExistingNode, ...]
    labels: tuple[KnownLabels, ...]
    room: IntArray  # (N, R) what is free, daemons that are still to come taken off
    open: BoolArray  # (N,) False: something is over-committed there, nothing may be added
    owners: IntArray  # (N, G)
    matched: IntArray  # (N, G)
    ports: list[list[HostPort]]
    bound: BoundSelection  # pods that run, by row

    def copy(self) -> "NodeTable":
        """The same capacity with its own state."""
        return NodeTable(
            self.nodes,
            self.labels,
            self.room.copy(),
            self.open,
            self.owners.copy(),
            self.matched.copy(),
            [list(p) for p in self.ports],
            self.bound,
        )

    def fits(self, members: PodClass, requests: IntArray, rules: HostRules) -> IntArray:
        """(N,) how many more pods of the class each node takes by resources, host rules and ports alone."""
        counts = np.where(self.open, times(self.room, requests[None, :]), 0)
        if rules.rules:
            row = members.index
            by_rule = host_room(
                rules.limits, rules.owns[row][None, :], rules.matches[row][None, :], self.owners, self.matched
            )
            counts = np.minimum(counts, by_rule)
        ports = members.pod.spec.host_ports
        if ports:
            free = np.array([clash(ports, taken) is None for taken in self.ports], dtype=np.bool_)
            counts = np.where(free, np.minimum(counts, 1), 0)
        return counts

    def take(self, row: int, members: PodClass, count: int, requests: IntArray, rules: HostRules) -> None:
        """Place pods of a class on a node."""
        self.room[row] -= requests * count
        self.owners[row] += rules.owns[members.index] * count
        self.matched[row] += rules.matches[members.index] * count
        self.ports[row].extend(members.pod.spec.host_ports)


def build_node_table(snapshot: Snapshot, axis: Axis, rules: HostRules) -> NodeTable:
    """Lay out the snapshot's nodes: initialised ones first, then by name; claims in flight last."""
    nodes = tuple(sorted(snapshot.nodes, key=lambda n: (is_in_flight(n), not n.initialized, n.name)))
    labels = tuple(known_labels(node) for node in nodes)
    room = np.zeros((len(nodes), len(axis.names)), dtype=np.int64)
    owners = np.zeros((len(nodes), len(rules.rules)), dtype=np.int64)
    matched = np.zeros_like(owners)
    is_open = np.ones(len(nodes), dtype=np.bool_)
    ports: list[list[HostPort]] = []
    for row, (node, known) in enumerate(zip(nodes, labels, strict=True)):
        used = add(*(pod.spec.requests for pod in node.pods), node.reserved, missing_daemons(node, known, snapshot))
        left = subtract(node.allocatable, used)
        is_open[row] = all(value >= 0 for value in left.values())
        room[row] = axis.vector(left)
        ports.append([port for pod in node.pods for port in pod.spec.host_ports])
        for pod in node.pods:
            for carried in anti_rules(pod, snapshot) if pod.spec.anti_affinity else ():
                owners[row, rules.rules.index(carried)] += 1
    bound = BoundSelection([node.pods for node in nodes])
    for index, rule in enumerate(rules.rules):
        matched[:, index] = bound.of(rule.matcher)
    return NodeTable(nodes, labels, room, is_open, owners, matched, ports, bound)


def missing_daemons(node: ExistingNode, known: KnownLabels, snapshot: Snapshot) -> dict[str, int]:
    """What daemons that belong on the node will still take: their sum less the daemon pods already there."""
    expected = add(
        *(
            daemon.template.spec.requests
            for daemon in snapshot.daemons
            if tolerates(daemon, node.taints) and any(known.serve(w) for w in required_terms(daemon.template.spec))
        ),
    )
    present = add(*(pod.spec.requests for pod in node.pods if pod.is_daemon))
    return {name: value - present.get(name, 0) for name, value in expected.items() if value > present.get(name, 0)}


def label_ranks(table: NodeTable, members: PodClass, cache: dict[tuple[int, Requirements], bool]) -> IntArray:
    """(N,) which level of the class's wishes each node serves; len(levels) where not even the last.

    `cache` remembers (row, requirements), as many classes ask for the same.
    """
    levels = members.levels
    ranks = np.full(len(table.nodes), len(levels), dtype=np.int64)
    for row, known in enumerate(table.labels):
        for level, choices in enumerate(levels):
            if any(_served(cache, row, known, choice) for choice in choices):
                ranks[row] = level
                break
    return ranks


def _served(cache: dict[tuple[int, Requirements], bool], row: int, known: KnownLabels, wants: Requirements) -> bool:
    if not wants:
        return True
    found = cache.get((row, wants))
    if found is None:
        found = cache[(row, wants)] = known.serve(wants)
    return found


def taint_ranks(taints: Sequence[tuple[Taint, ...]], members: PodClass) -> IntArray:
    """(N,) 0: all tolerated; 1: only PreferNoSchedule taints are not; 2: kept off."""
    tolerations = members.pod.spec.tolerations
    known: dict[tuple[Taint, ...], int] = {(): 0}
    for group in taints:
        if group not in known:
            hard = untolerated(group, tolerations) is not None
            known[group] = 2 if hard else int(untolerated(group, tolerations, prefer_counts=True) is not None)
    return np.array([known[group] for group in taints], dtype=np.int64)
