"""Filling one node on trial: which pods go on it, given what it has left and the rules per node."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sawhorse_model.pod import HostPort
from sawhorse_model.requirements import Requirements
from sawhorse_scheduling.arrays import BoolArray, FloatArray, IntArray, all_along, any_along, share, times
from sawhorse_scheduling.daemons import clash
from sawhorse_scheduling.hosts import host_room
from sawhorse_scheduling.pools import PoolTable
from sawhorse_scheduling.problem import Option, holds_daemons
from sawhorse_scheduling.topology import Combo

CHUNK = 4  # a step places at most this fraction of what fits, so that the rest of the mix stays balanced


@dataclass(slots=True, eq=False)
class Demand:
    """Pods of a class that need new nodes, in one domain (`extra`) if its rules read domains."""

    members: int
    extra: Requirements
    count: int
    combo: Combo | None = None  # the domain


@dataclass(slots=True, eq=False)
class Item:
    """Demands that are alike to the packer: same requests, offerings, host rules and ports."""

    requests: IntArray
    options: dict[int, Option]
    owns: BoolArray
    matches: BoolArray
    ports: tuple[HostPort, ...]
    exotic: bool = False  # asks for an accelerator
    demands: list[Demand] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        """How many pods still wait."""
        return sum(demand.count for demand in self.demands)


@dataclass(slots=True, eq=False)
class Columns:
    """Items as arrays; row i is item i."""

    requests: IntArray  # (I, R)
    remaining: IntArray  # (I,)
    value: FloatArray  # (I,) work of one pod
    owns: BoolArray  # (I, G)
    matches: BoolArray  # (I, G)
    has_ports: BoolArray  # (I,)
    limits: IntArray  # (G,) of the host rules


class Filling:
    """A node being filled. Positions are rows of `index`, which shrinks to the items that still fit."""

    def __init__(self, columns: Columns, items: Sequence[Item], index: IntArray, room: IntArray) -> None:
        self.columns = columns
        self.items = items
        self.index = index
        self.requests = columns.requests[index]
        self.left = columns.remaining[index].copy()
        self.room = room.copy()
        self.start = room
        self.counts: dict[int, int] = {}
        self.owners = np.zeros(len(columns.limits), dtype=np.int64)
        self.matched = np.zeros_like(self.owners)

    def used(self) -> IntArray:
        """(R,) what the pods on it take."""
        taken: IntArray = self.start - self.room
        return taken

    def _fits(self) -> IntArray:
        fits = times(self.room[None, :], self.requests)
        if len(self.columns.limits):
            by_rule = host_room(
                self.columns.limits,
                self.columns.owns[self.index],
                self.columns.matches[self.index],
                self.owners[None, :],
                self.matched[None, :],
            )
            fits = np.minimum(fits, by_rule)
        return np.where(self.columns.has_ports[self.index], np.minimum(fits, 1), fits)

    def next(self) -> tuple[int, int] | None:
        """The item that does most work for the share it takes of what is left, and how many to place now."""
        fits = self._fits()
        live = (fits > 0) & (self.left > 0)
        if not live.all():
            self.index, self.requests, self.left = self.index[live], self.requests[live], self.left[live]
            fits = fits[live]
        if not len(self.index):
            return None
        worth = self.columns.value[self.index] / np.maximum(share(self.requests, self.room[None, :]), 1e-12)
        position = int(np.argmax(worth))
        return position, min(int(self.left[position]), max(1, int(fits[position]) // CHUNK))

    def place(self, position: int, count: int) -> None:
        """Put pods of an item on the node."""
        item = int(self.index[position])
        self.room = self.room - self.requests[position] * count
        self.left[position] -= count
        self.counts[item] = self.counts.get(item, 0) + count
        self.owners += self.columns.owns[item] * count
        self.matched += self.columns.matches[item] * count
        ports = self.items[item].ports
        if ports:
            for other in np.flatnonzero(self.columns.has_ports[self.index]):
                if clash(ports, self.items[int(self.index[other])].ports) is not None:
                    self.left[other] = 0

    def bar(self, position: int) -> None:
        """Consider an item no more."""
        self.left[position] = 0


class MinValues:
    """Whether a node being filled can still be one of enough different types, as the pool's minValues want.

    `room` (T, R) is what pods may use of each type, slack taken off: the node will list those that hold it so.
    """

    def __init__(
        self, pool: PoolTable, room: IntArray, columns: Columns, items: Sequence[Item], seed: int, *, strict: bool
    ) -> None:
        self.pool = pool
        self.room = room
        self.columns = columns
        self.items = items
        self.allow = np.isfinite(pool.price)
        self.opens = np.zeros(len(pool.types), dtype=np.bool_)
        self.within = pool.within_limits() & holds_daemons(pool)
        self.wanted = dict(pool.min_values)
        if not strict:
            allow, types = self._with(np.zeros(columns.requests.shape[1], dtype=np.int64), seed, 1)
            self.wanted = {key: min(n, pool.distinct(key, allow, types)) for key, n in self.wanted.items()}

    def _with(self, used: IntArray, item: int, count: int) -> tuple[BoolArray, BoolArray]:
        option = self.items[item].options[self.pool.index]
        allow = self.allow & option.joins
        total = used + self.columns.requests[item] * count
        holds = all_along(self.room >= total[None, :], 1) & self.within & (self.opens | any_along(option.opens, 1))
        return allow & holds[:, None], any_along(allow, 1) & holds

    def accepts(self, used: IntArray, item: int, count: int) -> bool:
        """Whether `count` pods of an item may be added to what is used."""
        allow, types = self._with(used, item, count)
        return bool(types.any()) and self.pool.min_values_gap(allow, types, self.wanted) is None

    def add(self, item: int) -> None:
        """Note that an item is on the node."""
        option = self.items[item].options[self.pool.index]
        self.allow = self.allow & option.joins
        self.opens |= any_along(option.opens, 1)
