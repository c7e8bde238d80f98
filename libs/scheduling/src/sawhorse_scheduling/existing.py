"""Capacity that is there: nodes and claims in flight as one table, in the order in which they are filled."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sawhorse_model.cluster import DaemonSet
from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_model.pod import HostPort
from sawhorse_model.resources import add, subtract
from sawhorse_scheduling.arrays import Axis, BoolArray, IntArray, times
from sawhorse_scheduling.classes import PodClass, required_terms
from sawhorse_scheduling.daemons import clash, tolerates
from sawhorse_scheduling.hosts import HostRules, anti_rules, host_room
from sawhorse_scheduling.places import KnownLabels, Places
from sawhorse_scheduling.selection import BoundSelection
from sawhorse_scheduling.snapshot import ExistingNode, Snapshot


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
    places: Places

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
            self.places,
        )

    def fits(self, members: PodClass, requests: IntArray, rules: HostRules) -> IntArray:
        """(N,) how many more pods of the class each node takes by resources, host rules and ports alone."""
        counts = np.where(self.open, times(self.room, requests[None, :]), 0)
        owns, matches = rules.owns[members.index], rules.matches[members.index]
        at_work = np.flatnonzero(owns | matches)
        if len(at_work):
            by_rule = host_room(
                rules.limits[at_work],
                owns[None, at_work],
                matches[None, at_work],
                self.owners[:, at_work],
                self.matched[:, at_work],
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
        daemons = daemons_on(node, known, snapshot)
        used = add(*(pod.spec.requests for pod in node.pods), node.reserved, _missing(node, daemons))
        left = subtract(node.allocatable, used)
        is_open[row] = all(value >= 0 for value in left.values())
        room[row] = axis.vector(left)
        ports.append([port for pod in node.pods for port in pod.spec.host_ports])
        ports[row] += [port for found in daemons for daemon in found for port in daemon.template.spec.host_ports]
        for pod in node.pods:
            for carried in anti_rules(pod, snapshot) if pod.spec.anti_affinity else ():
                owners[row, rules.rules.index(carried)] += 1
    bound = BoundSelection([node.pods for node in nodes])
    for index, rule in enumerate(rules.rules):
        matched[:, index] = bound.of(rule.matcher)
    places = Places(labels, [node.taints for node in nodes])
    return NodeTable(nodes, labels, room, is_open, owners, matched, ports, bound, places)


def daemons_on(node: ExistingNode, known: KnownLabels, snapshot: Snapshot) -> list[list[DaemonSet]]:
    """The daemons that belong on a node; for a claim that may become one of several types, those of each of them."""
    wants = {d.meta.key: required_terms(d.template.spec) for d in snapshot.daemons if tolerates(d, node.taints)}
    fitting = [d for d in snapshot.daemons if any(map(known.might_serve, wants.get(d.meta.key, ())))]
    if all(any(map(known.serve, wants[d.meta.key])) for d in fitting):
        return [fitting]
    outcomes = [known_labels(replace(node, instance_types=(kind,))) for kind in node.instance_types] or [known]
    return [[d for d in fitting if any(map(o.might_serve, wants[d.meta.key]))] for o in outcomes]


def _missing(node: ExistingNode, daemons: Sequence[Sequence[DaemonSet]]) -> dict[str, int]:
    """The most that daemons will still take: their sum less the daemon pods already there."""
    present = add(*(pod.spec.requests for pod in node.pods if pod.is_daemon))
    most: dict[str, int] = {}
    for found in daemons:
        for name, value in add(*(daemon.template.spec.requests for daemon in found)).items():
            most[name] = max(most.get(name, 0), value - present.get(name, 0))
    return most


def label_ranks(table: NodeTable, members: PodClass) -> IntArray:
    """(N,) which level of the class's wishes each node serves; len(levels) where not even the last."""
    ranks = np.full(len(table.nodes), len(members.levels), dtype=np.int64)
    for level in reversed(range(len(members.levels))):
        for choice in members.levels[level]:
            ranks[table.places.serve(choice)] = level
    return ranks
