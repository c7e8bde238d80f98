"""`pack`: a valid answer first, then improved while it pays, in units of work."""

from collections import Counter

import numpy as np

from sawhorse_scheduling.arrays import IntArray
from sawhorse_scheduling.packing.compact import Compact, compact, expand, without_rules
from sawhorse_scheduling.packing.improve import repair, settle
from sawhorse_scheduling.packing.nodes import NodeSet, hardest_first, total_cost
from sawhorse_scheduling.packing.patterns import pack_by_patterns
from sawhorse_scheduling.packing.problem import Packing, PackingProblem
from sawhorse_scheduling.packing.relaxation import Relaxation, proven_bound
from sawhorse_scheduling.packing.slices import pack_by_slices

# Patterns pay where nodes hold few pods of few classes; beyond, slices are nearly as good as the fluid and a search
# of one node takes long: so many pods on a node on average times classes, and so many classes at all.
_SMALL_SEARCH = 1024
_FEW_CLASSES = 1024


def pack(problem: PackingProblem) -> Packing:
    """Nodes for all pods at a low price, a proven bound, and what found no place.

    Pure and deterministic: equal problems, in whatever order of classes and columns, give equal prices.
    """
    work: Counter[str] = Counter()
    small = compact(problem)
    if not len(small.counts):
        if problem.on_first is not None:
            problem.on_first(0.0)
        return Packing((), problem.counts.copy(), 0.0, 0.0, 0.0, dict(work))
    nodes, rest, bound, first = _search(problem, small, work)
    packed, placed = expand(small, nodes.column, nodes.counts, len(problem.counts))
    return Packing(
        nodes=tuple(packed),
        leftover=problem.counts - placed,
        price=_price(small, nodes),
        lower_bound=None if rest.any() else bound,
        first=first,
        work=dict(sorted(work.items())),
    )


def _search(
    problem: PackingProblem, small: Compact, work: Counter[str]
) -> tuple[NodeSet, IntArray, float | None, float]:
    effort = problem.effort

    def stop() -> bool:
        return problem.deadline is not None and problem.deadline()

    order = hardest_first(small)
    lean, of = without_rules(small)
    relaxation = Relaxation(lean)
    fluid = relaxation.solve(effort.lp_rounds)
    if fluid is None:
        raise ArithmeticError("the relaxation has no optimum: numbers beyond what the solver can hold")
    bound = proven_bound(lean, fluid)
    guide = fluid
    if small.fixed_cost > 0:
        relaxation.use_fixed_cost()
        guide = relaxation.solve(effort.lp_rounds) or fluid
    if lean is not small:
        guide = guide.dealt(of, small.counts / lean.counts[of])
    first: list[float] = []

    def tell(nodes: NodeSet) -> bool:
        if not first:
            first.append(_price(small, nodes))
            if problem.on_first is not None:
                problem.on_first(first[0])
        return stop()

    nodes, rest = pack_by_slices(small, guide, order, work, tell)
    if not first or not stop():
        nodes, rest = settle(small, nodes, rest, order, guide.class_values, work)
    tell(nodes)
    enough = guide.objective * (1 + effort.gap_target)
    values = guide.class_values
    if total_cost(small, nodes) > enough and _is_small_search(small, nodes) and not stop():
        better = pack_by_patterns(small, guide, nodes, order, effort, enough, stop, work)
        if better is not None:
            found, left, values = better
            found, left = settle(small, found, left, order, values, work)
            if (int(left.sum()), total_cost(small, found)) < (int(rest.sum()), total_cost(small, nodes)):
                nodes, rest = found, left
    tries, stall = small.tries(effort.repairs), small.tries(effort.stall, least=2)
    nodes, rest = repair(small, nodes, rest, values, order, tries, stall, enough, stop, work)
    if rest.any():
        nodes, rest = settle(small, nodes, rest, order, values, work)
    work["lp_rounds"] = relaxation.rounds
    return nodes, rest, bound, first[0]


def _is_small_search(small: Compact, nodes: NodeSet) -> bool:
    if len(small.counts) > _FEW_CLASSES:
        return False
    return int(small.counts.sum()) * min(len(small.counts), 64) <= _SMALL_SEARCH * len(nodes)


def _price(small: Compact, nodes: NodeSet) -> float:
    return float(np.sort(small.price[nodes.column]).sum())
