"""The snapshot laid out for planning: classes, pools, existing capacity, rules; and where a class may get new nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from sawhorse_model.requirements import Requirements
from sawhorse_model.taints import untolerated
from sawhorse_scheduling.arrays import Axis, BoolArray, FloatArray, IntArray, all_along, any_along, share
from sawhorse_scheduling.classes import PodClass, group_classes
from sawhorse_scheduling.colocation import colocate
from sawhorse_scheduling.defaults import with_default_spread
from sawhorse_scheduling.existing import NodeTable, build_node_table
from sawhorse_scheduling.hosts import HostRules, build_host_rules
from sawhorse_scheduling.matching import matchers_in_play
from sawhorse_scheduling.pools import Fit, PoolTable, build_pool_table
from sawhorse_scheduling.reservations import Stock, free_instances
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_scheduling.topology import Topology, build_topology
from sawhorse_scheduling.volumes import with_volumes


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """How a pool can serve a class.

    `joins` are the offerings (T, C) whose nodes the class may be on, `opens` those for which it may make a node: one
    pod of it fits there, and accelerator nodes are only opened for pods that ask for them (`selective`: that keeps some
    types from it which would hold it). `cost` is the least price of the share that one pod takes.
    """

    pool: int
    fit: Fit
    joins: BoolArray
    opens: BoolArray
    cost: float
    selective: bool


@dataclass(slots=True, eq=False)
class Problem:
    """Everything that does not change while planning, and memos of what was computed from it."""

    snapshot: Snapshot
    axis: Axis
    classes: tuple[PodClass, ...]
    requests: IntArray  # (C, R)
    rules: HostRules
    table: NodeTable
    topology: Topology
    pools: tuple[PoolTable, ...]  # by weight descending, then name
    faulty: dict[str, str]  # pools whose own requirements cannot be read, and why
    stock: Stock  # of reservations, shared by the pools
    initial: tuple[IntArray, ...]  # per pool: what limits leave before planning
    _options: dict[tuple[int, Requirements], dict[int, list[dict[int, Option]]]] = field(default_factory=dict)
    _single: dict[tuple[int, int, Requirements], Option | None] = field(default_factory=dict)
    _parts: dict[tuple[bytes, int], tuple[BoolArray, FloatArray]] = field(default_factory=dict)
    _within: dict[int, BoolArray] = field(default_factory=dict)
    _costs: dict[tuple[int, Requirements], float | None] = field(default_factory=dict)
    _kinds: dict[tuple[object, ...], int] = field(default_factory=dict)
    _kind_of: dict[int, int] = field(default_factory=dict)
    _keys: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def keys(self, members: PodClass) -> tuple[str, ...]:
        """The labels whose value must be known for a class, as `Topology.keys`."""
        if members.index not in self._keys:
            self._keys[members.index] = self.topology.keys(members)
        return self._keys[members.index]

    def _kind(self, members: PodClass) -> int:
        """A number that classes share which ask for the same nodes, whatever else tells them apart."""
        if members.index not in self._kind_of:
            spec = members.pod.spec
            asked = self.requests[members.index].tobytes()
            key = (asked, members.exotic, spec.host_ports, spec.tolerations, members.levels)
            self._kind_of[members.index] = self._kinds.setdefault(key, len(self._kinds))
        return self._kind_of[members.index]

    def tiers(self) -> tuple[int, ...]:
        """The pools' weights, highest first."""
        return tuple(dict.fromkeys(pool.weight for pool in self.pools))

    def options(self, members: PodClass, extra: Requirements) -> dict[int, list[dict[int, Option]]]:
        """Per tier (weight), the pools that can make a node for one pod of the class, `extra` required as well.

        Each tier is a list of stages: pools in the first serve the most wishes, the next are for pods that found no
        place there. Pools without an untolerated PreferNoSchedule taint come first, then higher levels of preference.
        """
        key = (self._kind(members), extra)
        if key not in self._options:
            self._options[key] = {
                weight: found for weight in self.tiers() if (found := self._tier(members, extra, weight))
            }
        return self._options[key]

    def _tier(self, members: PodClass, extra: Requirements, weight: int) -> list[dict[int, Option]]:
        stages: dict[tuple[int, int], dict[int, Option]] = {}
        tolerations = members.pod.spec.tolerations
        for pool in self.pools:
            if pool.weight != weight or untolerated(pool.taints, tolerations) is not None:
                continue
            soft = int(untolerated(pool.taints, tolerations, prefer_counts=True) is not None)
            for level, choices in enumerate(members.levels):
                found = [o for w in choices if (o := self.single(members, pool, w.intersection(extra))) is not None]
                if found:
                    stages.setdefault((soft, level), {})[pool.index] = min(found, key=lambda o: o.cost)
        return [stages[key] for key in sorted(stages)]

    def single(self, members: PodClass, pool: PoolTable, wants: Requirements) -> Option | None:
        """How the pool serves one pod of the class under these requirements; None when it cannot."""
        key = (self._kind(members), pool.index, wants)
        if key not in self._single:
            self._single[key] = self._find(members, pool, wants)
        return self._single[key]

    def _find(self, members: PodClass, pool: PoolTable, wants: Requirements) -> Option | None:
        fit = pool.fit(wants)
        if fit is None or not fit.allow.any():
            return None
        joins = fit.allow
        if members.pod.spec.host_ports:
            joins = joins & ~pool.port_clashes(members.pod.spec.host_ports, self.snapshot)[:, None]
        holds, part = self._alone(members, pool)
        may = openable(members, pool, fit)
        opens = joins & (holds & may)[:, None]
        if not opens.any():
            return None
        strict = self.snapshot.options.min_values_strict
        if strict and pool.min_values_gap(opens, any_along(opens, 1), pool.min_values) is not None:
            return None
        # Where it can be bought, that is what it costs: reserved instances are few, and others may need them more.
        bought = opens & ~pool.reserved[None, :]
        usual = bought if bought.any() else opens
        cost = np.where(usual, pool.search_price * part[:, None], np.inf)
        return Option(pool.index, fit, joins, opens, float(cost.min()), not may.all())

    def _alone(self, members: PodClass, pool: PoolTable) -> tuple[BoolArray, FloatArray]:
        """(T,) types that hold one pod of the class beside the daemons, and the largest part of a resource it takes."""
        asked = self.requests[members.index]
        key = (asked.tobytes(), pool.index)
        if key not in self._parts:
            self._parts[key] = all_along(pool.room >= asked[None, :], 1), share(asked[None, :], pool.room)
        return self._parts[key]

    def can_open(self, members: PodClass, extra: Requirements) -> float | None:
        """The least cost of one pod on a new node, limits as they stand at the start; None when there is none."""
        key = (self._kind(members), extra)
        if key not in self._costs:
            costs = [
                option.cost
                for stages in self.options(members, extra).values()
                for stage in stages
                for option in stage.values()
                if (any_along(option.opens, 1) & self._within_initial(option.pool)).any()
            ]
            self._costs[key] = min(costs, default=None)
        return self._costs[key]

    def could_open(self, members: PodClass, wants: Sequence[Requirements]) -> bool:
        """Whether one pod of the class could be on a new node under one of these, its own levels left aside."""
        for pool in self.pools:
            if untolerated(pool.taints, members.pod.spec.tolerations) is None:
                for option in (self.single(members, pool, want) for want in wants):
                    if option is not None and (any_along(option.opens, 1) & self._within_initial(pool.index)).any():
                        return True
        return False

    def _within_initial(self, pool: int) -> BoolArray:
        if pool not in self._within:
            self._within[pool] = all_along(self.pools[pool].capacity <= self.initial[pool][None, :], 1)
        return self._within[pool]


def holds_daemons(pool: PoolTable) -> BoolArray:
    """(T,) types whose daemons fit."""
    fits: BoolArray = all_along(pool.room >= 0, 1)
    return fits


def openable(members: PodClass, pool: PoolTable, fit: Fit) -> BoolArray:
    """(T,) types that a class may make a node of.

    Accelerator types are for pods that ask for an accelerator, unless pool and pod together leave nothing else: then
    somebody named them.
    """
    plain = any_along(fit.allow, 1) & ~pool.exotic
    if members.exotic or not plain.any():
        return np.ones(len(pool.types), dtype=np.bool_)
    return ~pool.exotic


def build_problem(
    snapshot: Snapshot, parted: frozenset[int] = frozenset(), gathered: Mapping[int, int] = MappingProxyType({})
) -> Problem:
    """Lay out a snapshot. Static pools and pools being deleted are not used; `parted`, `gathered` as in `colocate`."""
    snapshot, wants = with_volumes(with_default_spread(snapshot))
    classes = colocate(group_classes(snapshot, matchers_in_play(snapshot), wants), snapshot, parted, gathered)
    axis = Axis.over(
        [*(c.pod.spec.requests for c in classes), *(d.template.spec.requests for d in snapshot.daemons)],
    )
    rules = build_host_rules(snapshot, classes)
    table = build_node_table(snapshot, axis, rules)
    usable = sorted(
        (p for p in snapshot.pools if p.nodepool.replicas is None and not p.nodepool.meta.is_deleting),
        key=lambda p: (-p.nodepool.weight, p.nodepool.meta.name),
    )
    stock = free_instances(snapshot)
    pools: list[PoolTable] = []
    faulty: dict[str, str] = {}
    for pool in usable:
        try:
            pools.append(build_pool_table(len(pools), pool, snapshot, axis, stock))
        except ValueError as error:  # one pool with a fault never stops the others
            faulty[pool.nodepool.meta.name] = str(error)
    return Problem(
        snapshot=snapshot,
        axis=axis,
        classes=classes,
        requests=axis.matrix(c.pod.spec.requests for c in classes),
        rules=rules,
        table=table,
        topology=build_topology(snapshot, classes, table),
        pools=tuple(pools),
        faulty=faulty,
        stock=stock,
        initial=tuple(pool.remaining.copy() for pool in pools),
    )
