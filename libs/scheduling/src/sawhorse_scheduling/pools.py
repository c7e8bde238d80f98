"""A pool as matrices: what each of its instance types holds and costs, and which of them serve a requirement.

Axes: T instance types (by name), C columns = (zone, capacity type), R resources. Requirements are checked once per
distinct requirement and pool; everything after that is boolean algebra.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.labels import CAPACITY_TYPE, INITIALIZED, NODEPOOL, REGISTERED, ZONE
from sawhorse_model.pod import HostPort
from sawhorse_model.requirements import Operator, Requirement, Requirements, RequirementSpec
from sawhorse_model.resources import CPU, MEMORY, NODES, PODS
from sawhorse_model.taints import Taint
from sawhorse_scheduling import daemons as daemon_rules
from sawhorse_scheduling.arrays import Axis, BoolArray, FloatArray, IntArray, all_along, any_along
from sawhorse_scheduling.reservations import Stock, is_reserved
from sawhorse_scheduling.snapshot import Pool, Snapshot, SolveOptions
from sawhorse_scheduling.spot import expected_prices

_NEGATIVE = frozenset({Operator.NOT_IN, Operator.DOES_NOT_EXIST})


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """What a pool has for a requirement.

    `custom` is the part that the instance type does not settle: two fits with different custom parts never share a
    node (they might contradict each other).
    """

    requirements: Requirements  # pool and pods together
    allow: BoolArray  # (T, C) available offerings that serve it
    custom: Requirements


@dataclass(slots=True, eq=False)
class PoolTable:
    """One pool. `remaining` is what its limits leave, per entry of `limited`; it shrinks as nodes are opened."""

    index: int
    pool: Pool
    axis: Axis
    template: Requirements
    types: tuple[InstanceType, ...]
    columns: tuple[tuple[str, str], ...]
    price: FloatArray  # (T, C), inf: not to be had
    search_price: FloatArray  # (T, C) what planning minimises: the best price, or the one to expect
    allocatable: IntArray  # (T, R)
    daemons: IntArray  # (T, R)
    room: IntArray  # (T, R) what pods may use: allocatable less daemons, pods capped
    runs: BoolArray  # (D, T)
    capacity: IntArray  # (T, L)
    limited: tuple[str, ...]
    remaining: IntArray  # (L,)
    exotic: BoolArray  # (T,)
    reservations: tuple[str, ...]  # (C,) id of the reservation that a column is of; empty: bought
    reserved: BoolArray  # (C,) whether it is of one
    stock: Stock
    well_known: frozenset[str]
    reservation_labels: tuple[str, ...]
    min_values: dict[str, int]
    members: dict[str, BoolArray]  # per key with minValues: (T, V) which types have which value
    _fits: dict[Requirements, Fit | None] = field(default_factory=dict)
    _masks: dict[Requirement, BoolArray] = field(default_factory=dict)
    _decided: dict[str, bool] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The NodePool's name."""
        return self.pool.nodepool.meta.name

    @property
    def weight(self) -> int:
        """Higher is tried first."""
        return self.pool.nodepool.weight

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Taints of its nodes (startup taints go away by themselves)."""
        return self.pool.nodepool.template.taints

    def room_with(self, slack: float) -> IntArray:
        """(T, R) what planned pods may use when this part of cpu and memory is left free."""
        if not slack:
            return self.room
        room = self.room.copy()
        for name in {CPU, MEMORY} & set(self.axis.names):
            at = self.axis.names.index(name)
            room[:, at] -= np.floor(self.allocatable[:, at] * slack).astype(np.int64)
        return room

    def fit(self, wants: Requirements) -> Fit | None:
        """What serves `wants` in this pool; None when the pool's own labels and requirements already do not."""
        if wants not in self._fits:
            self._fits[wants] = self._fit(wants)
        return self._fits[wants]

    def _fit(self, wants: Requirements) -> Fit | None:
        if not self.template.is_compatible(wants, self.well_known):
            return None
        both = self.template.intersection(wants)
        allow = np.isfinite(self.price)
        for key in wants:
            allow = allow & self.mask(both[key])
        custom = Requirements(both[key] for key in wants if self._is_custom(key, wants[key]))
        return Fit(both, allow, custom)

    def mask(self, requirement: Requirement) -> BoolArray:
        """(T, C) or something that broadcasts to it: where one requirement holds."""
        found = self._masks.get(requirement)
        if found is None:
            if requirement.key == ZONE:
                found = np.array([[requirement.has(zone) for zone, _ in self.columns]], dtype=np.bool_)
            elif requirement.key == CAPACITY_TYPE:
                found = np.array([[requirement.has(kind) for _, kind in self.columns]], dtype=np.bool_)
            elif requirement.key in self.reservation_labels:
                found = self._reserved_mask(requirement)
            else:
                alone = Requirements((requirement,))
                hits = [kind.requirements.intersects(alone) for kind in self.types]
                found = np.array(hits, dtype=np.bool_).reshape(len(hits), 1)
            self._masks[requirement] = found
        return found

    def _reserved_mask(self, requirement: Requirement) -> BoolArray:
        """(T, C) where a requirement on a label of reserved capacity holds; what is bought has no such label."""
        absent = requirement.operator in _NEGATIVE
        if requirement.key == self.reservation_labels[0]:
            return np.array([[requirement.has(key) if key else absent for key in self.reservations]], dtype=np.bool_)
        alone = Requirements((requirement,))
        hits = np.array([kind.requirements.intersects(alone) for kind in self.types], dtype=np.bool_)
        return np.where(self.reserved[None, :], hits[:, None], absent)

    def _is_custom(self, key: str, want: Requirement) -> bool:
        if key in (ZONE, CAPACITY_TYPE) or key in self.reservation_labels:
            return False
        if key not in self._decided:
            self._decided[key] = _is_single(self.template.get(key)) or all(
                _is_single(kind.requirements.get(key)) for kind in self.types
            )
        if self._decided[key]:
            return False
        # An exclusion of a label that nothing in this pool can carry is kept by every node.
        known = key in self.template or key in self.well_known
        return known or want.operator not in _NEGATIVE

    def domain_values(self, key: str) -> set[str]:
        """Values that a label may get on the pool's new nodes, as far as they can be listed."""
        if key in (ZONE, CAPACITY_TYPE):
            side = 0 if key == ZONE else 1
            return {
                c[side]
                for c, any_type in zip(self.columns, any_along(np.isfinite(self.price), 0), strict=True)
                if any_type
            }
        own = self.template.get(key)
        if own is not None and not own.complement:
            return set(own.values)
        listed = {v for kind in self.types if (r := kind.requirements.get(key)) is not None for v in r.values}
        return {v for v in listed if own is None or own.has(v)}

    def in_stock(self) -> BoolArray:
        """(C,) columns that can be had now: all but those of reservations that are used up."""
        return np.array([self.stock.is_free(key) for key in self.reservations], dtype=np.bool_)

    def within_limits(self) -> BoolArray:
        """(T,) types of which one more node keeps every limit."""
        return all_along(self.capacity <= self.remaining[None, :], 1)

    def min_values_gap(self, allow: BoolArray, types: BoolArray, wanted: dict[str, int]) -> tuple[str, int] | None:
        """The first key whose number of distinct values among these types is below `wanted`, with that number."""
        for key, minimum in wanted.items():
            have = self.distinct(key, allow, types)
            if have < minimum:
                return key, have
        return None

    def distinct(self, key: str, allow: BoolArray, types: BoolArray) -> int:
        """How many values of a label there are among these types."""
        if key in (ZONE, CAPACITY_TYPE):
            side = 0 if key == ZONE else 1
            columns = any_along(allow[types], 0)
            return len({c[side] for c, there in zip(self.columns, columns, strict=True) if there})
        return int(any_along(self.members[key][types], 0).sum())

    def port_clashes(self, ports: Sequence[HostPort], snapshot: Snapshot) -> BoolArray:
        """(T,) types on which a daemon holds one of these host ports."""
        result = np.zeros(len(self.types), dtype=np.bool_)
        for index, daemon in enumerate(snapshot.daemons):
            if daemon_rules.clash(ports, daemon.template.spec.host_ports) is not None:
                result |= self.runs[index]
        return result


def _is_single(requirement: Requirement | None) -> bool:
    return requirement is not None and not requirement.complement and len(requirement.values) <= 1


def pool_template(pool: Pool) -> Requirements:
    """What every node of the pool carries or may carry: its requirements and labels."""
    template = pool.nodepool.template
    labels = {**pool.class_labels, **template.labels, NODEPOOL: pool.nodepool.meta.name}
    return Requirements.from_specs(template.requirements).intersection(Requirements.from_labels(labels))


def asks_for_choice(template: Requirements) -> bool:
    """Whether minValues keeps every node of a pool open to more than one value of something."""
    return any((r.min_values or 0) > 1 for r in template.values())


def contradictions(specs: Sequence[RequirementSpec]) -> list[str]:
    """Labels of which several requirements leave nothing, though each alone leaves something."""
    together = Requirements.from_specs(specs)
    allowing = {r.key for s in specs if (r := Requirement.from_spec(s)).complement or r.values}
    return [key for key, r in together.items() if key in allowing and not r.complement and not r.values]


def _is_of(kind: InstanceType, offering: Offering, template: Requirements, labels: Sequence[str]) -> bool:
    """Whether an offering meets a pool's requirements on the labels of reserved capacity."""
    for key in labels:
        want = template.get(key)
        if want is None:
            continue
        if not is_reserved(offering):
            met = want.operator in _NEGATIVE
        elif key == labels[0]:
            met = want.has(offering.reservation_id)
        else:
            met = kind.requirements.intersects(Requirements((want,)))
        if not met:
            return False
    return True


def build_pool_table(index: int, pool: Pool, snapshot: Snapshot, axis: Axis, stock: Stock) -> PoolTable:
    """Lay out a pool. Types that its own requirements exclude, and reservations without a free instance, are left out.

    So are all reservations where minValues asks for a choice that a claim for one of them does not leave.
    """
    options, template = snapshot.options, pool_template(pool)
    of_types = template.without(*options.reservation_labels)
    types = tuple(
        sorted((t for t in pool.instance_types if of_types.intersects(t.requirements)), key=lambda t: t.name),
    )
    usable = not (options.min_values_strict and asks_for_choice(template))
    asked = [key for key in options.reservation_labels if key in template]
    one_of_each = {(o.zone, o.capacity_type): o for t in types for o in t.offerings}
    allowed = {way for way, o in one_of_each.items() if o.allowed_by(template)}
    offers: dict[tuple[int, str, str, str], float] = {}
    for t, kind in enumerate(types):
        for o in kind.offerings:
            if not o.available or (o.zone, o.capacity_type) not in allowed:
                continue
            if is_reserved(o) and not (usable and stock.has(o)):
                continue
            if asked and not _is_of(kind, o, template, options.reservation_labels):
                continue
            way = (t, o.zone, o.capacity_type.value, o.reservation_id)
            offers[way] = min(o.price, offers.get(way, o.price))
    ways = sorted({(zone, bought, key) for _, zone, bought, key in offers})
    where = {way: c for c, way in enumerate(ways)}
    columns = tuple((zone, bought) for zone, bought, _ in ways)
    reservations = tuple(key for _, _, key in ways)
    price = np.full((len(types), len(columns)), np.inf)
    for (t, zone, bought, key), amount in offers.items():
        price[t, where[zone, bought, key]] = amount
    later = Requirements.from_labels({REGISTERED: "true", INITIALIZED: "true"})
    taken, runs = daemon_rules.on_types(
        snapshot.daemons,
        pool.nodepool.template.taints,
        template.intersection(later),
        types,
        options.well_known,
        axis,
    )
    allocatable = axis.matrix(t.allocatable for t in types)
    room = allocatable - taken
    if options.max_pods_per_node is not None and PODS in axis.names:
        at = axis.names.index(PODS)
        room[:, at] = np.minimum(room[:, at], max(options.max_pods_per_node, 1))
    limits = pool.nodepool.limits
    limited = tuple(sorted(limits))
    capacity = [[1 if name == NODES else t.capacity.get(name, 0) for name in limited] for t in types]
    wanted = {key: r.min_values for key, r in sorted(template.items()) if r.min_values}
    return PoolTable(
        index=index,
        pool=pool,
        axis=axis,
        template=template,
        types=types,
        columns=columns,
        price=price,
        search_price=expected_prices(price, _spot(columns), room) if options.minimize_expected else price,
        allocatable=allocatable,
        daemons=taken,
        room=room,
        runs=runs,
        capacity=np.array(capacity, dtype=np.int64).reshape(len(types), len(limited)),
        limited=limited,
        remaining=np.array([limits[name] - pool.usage.get(name, 0) for name in limited], dtype=np.int64),
        exotic=np.array([_is_exotic(t, options) for t in types], dtype=np.bool_),
        reservations=reservations,
        reserved=np.array([bought == CapacityType.RESERVED for _, bought in columns], dtype=np.bool_),
        stock=stock,
        well_known=options.well_known,
        reservation_labels=options.reservation_labels,
        min_values=wanted,
        members={key: _members(key, types) for key in wanted},
    )


def _spot(columns: Sequence[tuple[str, str]]) -> BoolArray:
    return np.array([bought == CapacityType.SPOT for _, bought in columns], dtype=np.bool_)


def _is_exotic(kind: InstanceType, options: SolveOptions) -> bool:
    named = any(
        word in value
        for key, word in options.exotic_labels
        if (r := kind.requirements.get(key)) is not None
        for value in r.values
    )
    return named or any(kind.allocatable.get(name, 0) > 0 for name in options.exotic)


def _members(key: str, types: Sequence[InstanceType]) -> BoolArray:
    values = [r.values if (r := t.requirements.get(key)) is not None else frozenset() for t in types]
    known = sorted(set().union(*values))
    matrix = [[v in own for v in known] for own in values]
    return np.array(matrix, dtype=np.bool_).reshape(len(types), len(known))
