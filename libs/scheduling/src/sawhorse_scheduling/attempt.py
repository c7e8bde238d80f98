"""One attempt at a plan: every class in turn onto existing capacity, the rest dealt to domains and packed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from sawhorse_model.instances import CapacityType
from sawhorse_model.labels import CAPACITY_TYPE
from sawhorse_model.requirements import Operator, Requirement, Requirements
from sawhorse_scheduling.arrays import BoolArray, IntArray
from sawhorse_scheduling.classes import PodClass
from sawhorse_scheduling.company import shares_of
from sawhorse_scheduling.engine import NO_WATCH, Watch
from sawhorse_scheduling.existing import NodeTable, label_ranks
from sawhorse_scheduling.filling import Demand, Item
from sawhorse_scheduling.opener import Opener
from sawhorse_scheduling.opening import Pattern
from sawhorse_scheduling.problem import Problem
from sawhorse_scheduling.topology import Combo, Tally, deal, put


@dataclass(slots=True, eq=False)
class Attempt:
    """Where pods went. `filled`: (class, row of the node table) → pods; `placed`: pods per class.

    `bounds`: what was proven about the price of each packing of new nodes, None where nothing was.
    """

    table: NodeTable
    company: IntArray  # (M, N) pods on existing nodes whom wishes by hostname mean
    filled: dict[tuple[int, int], int] = field(default_factory=dict)
    patterns: list[Pattern] = field(default_factory=list)
    placed: dict[int, int] = field(default_factory=dict)
    dealt: dict[int, int] = field(default_factory=dict)  # what the rules over domains had a place for
    bounds: list[float | None] = field(default_factory=list)

    @property
    def lower_bound(self) -> float | None:
        """A proven bound on the price of all new nodes.

        Pools of a lower weight get only pods that no heavier pool can serve, unless limits stop those; then nothing
        is proven. So the bounds of all packings add up.
        """
        known = [bound for bound in self.bounds if bound is not None]
        return sum(known) if len(known) == len(self.bounds) else None


class Attempter:
    """Makes attempts over one problem; what depends on the problem alone is computed once."""

    def __init__(self, problem: Problem, watch: Watch = NO_WATCH) -> None:
        self.problem = problem
        self.watch = watch
        self._domains: dict[int, list[tuple[tuple[str | None, ...], float]]] = {}
        self._values: dict[str, list[str]] = {}
        self._no_ranks: IntArray = np.zeros(0, dtype=np.int64)
        self._ranks: dict[int, IntArray] = {}
        self._extras: dict[tuple[Requirements, tuple[tuple[str, str | None], ...]], Requirements] = {}

    def run(self, caps: dict[int, int], *, evenly: bool) -> Attempt:
        """Plan at most `caps[class]` pods of each class (absent: all)."""
        problem = self.problem
        for pool, initial in zip(problem.pools, problem.initial, strict=True):
            pool.remaining = initial.copy()
        problem.stock.restore(problem.stock.initial)
        attempt = Attempt(problem.table.copy(), problem.topology.company.bound.copy())
        tally = Tally.start(problem.topology)
        demands: list[Demand] = []
        for members in self._order():
            count = min(members.count, caps.get(members.index, members.count))
            keys = problem.keys(members)
            if keys:
                demands += self._by_domain(attempt, tally, members, count, keys, evenly=evenly)
                continue
            left = count - self._fill(attempt, members, count, self._rank(members))
            attempt.dealt[members.index] = count
            extra = problem.topology.forbidden[members.index]
            if left:
                demands.append(Demand(members.index, extra, left))
        self._pack(attempt, tally, demands)
        self.watch = Watch(self.watch.deadline)  # the first answer is told once
        return attempt

    def _order(self) -> Iterable[PodClass]:
        return self.problem.topology.serving_order([c for c in self.problem.classes if c.is_planned])

    def _rank(self, members: PodClass) -> IntArray:
        """(N,) order of preference among nodes; negative where the class may not go."""
        if members.index not in self._ranks:
            problem = self.problem
            if not problem.table.nodes:
                return self._no_ranks
            table, forbidden = problem.table, problem.topology.forbidden[members.index]
            labels = label_ranks(table, members)
            taints = table.places.tolerated(members.pod.spec.tolerations)
            barred = (labels >= len(members.levels)) | (taints > 1) | ~table.places.serve(forbidden)
            self._ranks[members.index] = np.where(barred, -1, taints * len(members.levels) + labels)
        return self._ranks[members.index]

    def _fill(self, attempt: Attempt, members: PodClass, count: int, ranks: IntArray) -> int:
        """Place up to `count` pods on existing capacity where `ranks` is not negative; return how many."""
        if not len(ranks) or count <= 0:
            return 0
        problem, table = self.problem, attempt.table
        requests = problem.requests[members.index]
        fits = np.where(ranks >= 0, table.fits(members, requests, problem.rules), 0)
        left = count
        for row, number in shares_of(problem.topology.company, members, attempt.company, ranks, fits, count):
            table.take(row, members, number, requests, problem.rules)
            key = (members.index, row)
            attempt.filled[key] = attempt.filled.get(key, 0) + number
            left -= number
        attempt.placed[members.index] = attempt.placed.get(members.index, 0) + count - left
        return count - left

    def _by_domain(
        self,
        attempt: Attempt,
        tally: Tally,
        members: PodClass,
        count: int,
        keys: tuple[str, ...],
        *,
        evenly: bool,
        bought: bool = False,
    ) -> list[Demand]:
        """Deal pods to domains and place what existing nodes there hold; what needs new nodes, and where.

        Args:
            bought: new nodes are no reserved ones.
        """
        combos, where = self.combos(members, keys, attempt.table)
        for combo in combos:
            if bought and _is_reserved(combo):  # a domain all the same, from which spread is measured
                combo.new, combo.is_domain = False, combo.is_domain or combo.new
        left = deal(self.problem.topology, tally, members, count, combos, evenly=evenly)
        attempt.dealt[members.index] = attempt.dealt.get(members.index, 0) + count - left
        demands, ranks = [], self._rank(members)
        for index, combo in enumerate(combos):
            here = np.where(where == index, ranks, -1) if len(ranks) else ranks
            rest = combo.dealt - self._fill(attempt, members, combo.dealt, here)
            if rest:
                demands.append(Demand(members.index, self._extra(members, combo), rest, combo))
        return demands

    def _extra(self, members: PodClass, combo: Combo) -> Requirements:
        forbidden = self.problem.topology.forbidden[members.index]
        key = (forbidden, tuple(combo.values.items()))
        if key not in self._extras:
            pinned = [Requirement.of(k, Operator.IN, (v,)) for k, v in combo.values.items() if v is not None]
            self._extras[key] = Requirements((*forbidden.values(), *pinned))
        return self._extras[key]

    def combos(self, members: PodClass, keys: tuple[str, ...], table: NodeTable) -> tuple[list[Combo], IntArray]:
        """The combinations of label values that the class may be dealt to, and per node which it is in (−1: none)."""
        problem = self.problem
        ranks = self._rank(members)
        fits = table.fits(members, problem.requests[members.index], problem.rules) if len(ranks) else ranks
        found: dict[tuple[str | None, ...], Combo] = {}
        where = np.full(len(ranks), -1, dtype=np.int64)
        rooms: dict[tuple[str | None, ...], int] = {}
        # A claim that may still become either is no place for a pod that must know.
        number, listed = table.places.combined(keys)
        usable = (ranks >= 0) & (number >= 0)
        for at in np.unique(number[usable]).tolist() if len(ranks) else ():
            values = listed[at]
            rooms[values] = int(fits[usable & (number == at)].sum())
            found[values] = Combo(dict(zip(keys, values, strict=True)), rooms[values], new=False)
        if members.index not in self._domains:
            self._domains[members.index] = self._new_domains(members, keys)
        for chosen, cost in self._domains[members.index]:
            found[chosen] = Combo(dict(zip(keys, chosen, strict=True)), rooms.get(chosen, 0), new=True, cost=cost)
        self._note_domains(members, keys, found)
        order = sorted(found, key=lambda values: tuple(v or "" for v in values))
        if len(listed):
            position = {values: i for i, values in enumerate(order)}
            where[usable] = np.array([position.get(values, -1) for values in listed])[number[usable]]
        return [found[values] for values in order], where

    def _note_domains(
        self, members: PodClass, keys: tuple[str, ...], found: dict[tuple[str | None, ...], Combo]
    ) -> None:
        """Mark what counts as a domain of the class though its volumes, or pods that it keeps away from, bar it there.

        Spread is measured over what the pod's own node selector and affinity allow.
        """
        problem = self.problem
        if not members.own_terms and not members.parts and not len(problem.topology.forbidden[members.index]):
            return
        if not any(use.hard for use in problem.topology.uses[members.index]):
            return
        # Pods of a bundle may each be where the whole may not.
        sources = [problem.classes[part.members] for part in members.parts] or [members]
        listed = [self._listed(key) for key in keys]
        for chosen in product(*listed):
            combo = found.get(chosen) or Combo(dict(zip(keys, chosen, strict=True)), 0, new=False)
            if not combo.new:
                pinned = Requirements(Requirement.of(k, Operator.IN, (v,)) for k, v in combo.values.items() if v)
                if any(
                    problem.could_open(c, [w.intersection(pinned) for w in c.own_terms or c.required]) for c in sources
                ):
                    combo.is_domain = True
                    found[chosen] = combo

    def _new_domains(self, members: PodClass, keys: tuple[str, ...]) -> list[tuple[tuple[str | None, ...], float]]:
        """Combinations that a new node may be made in, with the least cost of a pod there.

        Where none of them can take the class, labels that only wishes read are left open, then those that only other
        classes' rules read.
        """
        problem = self.problem
        topology = problem.topology
        own = topology.own_hard_keys(members)
        listed = [self._listed(key) for key in keys]
        found: list[tuple[tuple[str | None, ...], float]] = []
        for needed in dict.fromkeys((frozenset(keys), own | topology.watched_keys(members), own)):
            pinned: list[list[str | None]] = [
                [*values] if key in needed else [None] for key, values in zip(keys, listed, strict=True)
            ]
            for values in product(*pinned):
                combo = Combo(dict(zip(keys, values, strict=True)), 0, new=True)
                cost = problem.can_open(members, self._extra(members, combo))
                if cost is not None:
                    found.append((values, cost))
            if found:
                break
        return found

    def _listed(self, key: str) -> list[str]:
        """The values that a label may get on new nodes."""
        if key not in self._values:
            self._values[key] = sorted({v for pool in self.problem.pools for v in pool.domain_values(key)})
        return self._values[key]

    def _pack(self, attempt: Attempt, tally: Tally, demands: list[Demand]) -> None:
        """Open new nodes. Pods pinned to a domain only for others' rules go anywhere rather than nowhere."""
        topology = self.problem.topology
        self._open(attempt, demands)
        if bought := self._beyond_reserved(attempt, tally, demands):
            self._open(attempt, bought)
        unpinned = [
            Demand(d.members, topology.forbidden[d.members], d.count)
            for d in (*demands, *bought)
            if d.count
            and d.extra != topology.forbidden[d.members]
            and topology.may_be_anywhere(self.problem.classes[d.members])
        ]
        if unpinned:
            self._open(attempt, unpinned)
        for pattern in attempt.patterns:
            for load in pattern.loads:
                for index, number in load.items():
                    attempt.placed[index] = attempt.placed.get(index, 0) + number

    def _beyond_reserved(self, attempt: Attempt, tally: Tally, demands: list[Demand]) -> list[Demand]:
        """Deal anew what was dealt to reserved capacity, which has an end, and found none left."""
        problem = self.problem
        found: list[Demand] = []
        for demand in demands:
            if demand.count and demand.combo is not None and _is_reserved(demand.combo):
                members, count = problem.classes[demand.members], demand.count
                put(problem.topology, tally, members.index, demand.combo, -count)
                attempt.dealt[members.index] -= count
                demand.count = 0
                keys = problem.keys(members)
                found += self._by_domain(attempt, tally, members, count, keys, evenly=False, bought=True)
        return found

    def _open(self, attempt: Attempt, demands: list[Demand]) -> None:
        problem = self.problem
        opener = Opener(problem, self.watch)
        waiting = sum(demand.count for demand in demands)
        for weight in problem.tiers():
            tier = [pool for pool in problem.pools if pool.weight == weight]
            stage = 0
            while items := self._items(demands, weight, stage):
                everything = sum(item.remaining for item in items) == waiting
                attempt.patterns += opener.open(tier, items, everything=everything)
                stage += 1
        attempt.bounds += opener.bounds

    def _items(self, demands: list[Demand], weight: int, stage: int) -> list[Item]:
        """Merge what is alike to the packer. Demands that are served already drop out."""
        problem = self.problem
        items: dict[tuple[object, ...], Item] = {}
        for demand in demands:
            members = problem.classes[demand.members]
            stages = problem.options(members, demand.extra).get(weight, [])
            if not demand.count or stage >= len(stages):
                continue
            options = stages[stage]
            requests: IntArray = problem.requests[members.index]
            owns: BoolArray = problem.rules.owns[members.index]
            matches: BoolArray = problem.rules.matches[members.index]
            ports = members.pod.spec.host_ports
            key = (
                requests.tobytes(),
                owns.tobytes(),
                matches.tobytes(),
                ports,
                members.exotic,
                tuple((index, option.fit.requirements) for index, option in options.items()),
            )
            item = items.setdefault(key, Item(requests, options, owns, matches, ports, members.exotic))
            item.demands.append(demand)
        return list(items.values())


def _is_reserved(combo: Combo) -> bool:
    return combo.values.get(CAPACITY_TYPE) == CapacityType.RESERVED
