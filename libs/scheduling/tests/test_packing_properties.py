"""What packing promises of any problem: no rule broken, the bound below every packing, the same answer in any order."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sawhorse_scheduling.packing import NodeGroup, NodeRules, PackingProblem, pack
from sawhorse_scheduling.packing.compact import compact
from sawhorse_scheduling.packing.relaxation import Relaxation, feasible_values
from sawhorse_testing.packing import a_problem, broken_rules, rules_hold

HARDLY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def possible_nodes(problem: PackingProblem) -> list[tuple[int, tuple[int, ...]]]:
    """Every content that every column may hold."""
    found = []
    for column in range(len(problem.price)):
        for held in itertools.product(*(range(int(n) + 1) for n in problem.counts)):
            pods = np.array(held)
            if not pods.any() or ((pods > 0) & ~problem.allowed[:, column]).any():
                continue
            if (pods @ problem.requests > problem.columns_capacity[column]).any():
                continue
            if problem.node_cap is not None and (pods > problem.node_cap).any():
                continue
            if any(pods[list(group.classes)].sum() > group.limit for group in problem.groups):
                continue
            if any(pods[first] and pods[second] for first, second in problem.exclusions):
                continue
            if not rules_hold(problem, pods):
                continue
            found.append((column, held))
    return found


def cheapest_packing(problem: PackingProblem) -> float:
    """The optimum of a tiny problem without budgets by dynamic programming; inf where not all pods have a place."""
    nodes = possible_nodes(problem)
    best = {tuple([0] * len(problem.counts)): 0.0}
    for want in itertools.product(*(range(int(n) + 1) for n in problem.counts)):
        if any(want):
            options = [
                best[rest] + float(problem.price[column])
                for column, held in nodes
                if (rest := tuple(max(0, w - h) for w, h in zip(want, held, strict=True))) != want
            ]
            best[want] = min(options, default=float("inf"))
    return best[tuple(int(n) for n in problem.counts)]


@st.composite
def problems(draw: st.DrawFn, largest: int = 30, classes: int = 5, plain: bool = False) -> PackingProblem:
    """Small problems with every kind of rule."""
    c, t, r = draw(st.integers(1, classes)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    row = st.lists(st.integers(0, 9), min_size=r, max_size=r)
    requests = draw(st.lists(row, min_size=c, max_size=c))
    counts = draw(st.lists(st.integers(0, largest), min_size=c, max_size=c))
    capacity = draw(st.lists(st.lists(st.integers(0, 30), min_size=r, max_size=r), min_size=t, max_size=t))
    price = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.7, 3.0, 10.0]), min_size=t, max_size=t))
    mask = st.lists(st.lists(st.sampled_from([True, True, False]), min_size=t, max_size=t), min_size=c, max_size=c)
    extra: dict[str, Any] = {"allowed": np.array(draw(mask), dtype=np.bool_)}
    pick = st.lists(st.integers(0, c - 1), min_size=1, max_size=3, unique=True)
    if draw(st.booleans()):
        cap = draw(st.lists(st.sampled_from([0, 1, 2, 2**40]), min_size=c, max_size=c))
        extra["node_cap"] = np.array(cap, dtype=np.int64)
    if draw(st.booleans()):
        groups = draw(st.lists(st.tuples(pick, st.integers(0, 3)), max_size=2))
        extra["groups"] = tuple(NodeGroup(tuple(members), limit) for members, limit in groups)
    if c > 1 and draw(st.booleans()):
        extra["exclusions"] = tuple(draw(st.lists(st.permutations(range(c)).map(lambda p: (p[0], p[1])), max_size=3)))
    if draw(st.booleans()):
        pairs = st.lists(st.lists(st.booleans(), min_size=2, max_size=2), min_size=c, max_size=c)
        owns, matches = (np.array(draw(pairs), dtype=np.bool_) for _ in range(2))
        limits = draw(st.lists(st.integers(0, 3), min_size=2, max_size=2))
        extra["rules"] = NodeRules(np.array(limits, dtype=np.int64), owns, matches)
    if not plain and draw(st.booleans()):
        extra["may_open"] = np.array(draw(mask), dtype=np.bool_)
    if not plain and draw(st.booleans()):
        use = draw(st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=2), min_size=t, max_size=t))
        units = np.array([draw(st.sampled_from([1, 2**32])), 1])  # bytes beside nodes
        extra["budget_use"] = np.array(use, dtype=np.int64) * units
        extra["budget"] = np.array(draw(st.lists(st.integers(-1, 40), min_size=2, max_size=2)), dtype=np.int64) * units
    extra["fixed_cost"] = draw(st.sampled_from([0.0, 0.01, 1.0]))
    return a_problem(requests, counts, capacity, price, **extra)


@HARDLY
@given(problems())
def test_every_pod_is_placed_once_or_left_over_and_no_rule_is_broken(problem: PackingProblem) -> None:
    packing = pack(problem)

    assert broken_rules(problem, packing) == []


@HARDLY
@given(problems())
def test_a_pod_is_left_over_only_where_no_new_node_could_hold_it(problem: PackingProblem) -> None:
    packing = pack(problem)

    spent = np.zeros(0 if problem.budget is None else len(problem.budget), dtype=np.int64)
    for node in packing.nodes:
        spent = spent if problem.budget_use is None else spent + problem.budget_use[node.column] * node.times
    for c in np.flatnonzero(packing.leftover):
        for t in range(len(problem.price)):
            hopeless = (
                not problem.allowed[c, t]
                or (problem.requests[c] > problem.columns_capacity[t]).any()
                or (problem.node_cap is not None and problem.node_cap[c] < 1)
                or any(c in group.classes and group.limit < 1 for group in problem.groups)
                or (problem.may_open is not None and not problem.may_open[c, t])
                or (problem.budget_use is not None and (spent + problem.budget_use[t] > problem.budget).any())
            )
            assert hopeless


@HARDLY
@given(problems())
def test_the_price_is_never_below_the_bound(problem: PackingProblem) -> None:
    packing = pack(problem)

    assert packing.lower_bound is None or packing.lower_bound <= packing.price + 1e-9


@settings(HARDLY, max_examples=30)
@given(problems(largest=3, classes=3, plain=True))
def test_the_bound_is_never_above_the_true_optimum_of_a_tiny_problem(problem: PackingProblem) -> None:
    best = cheapest_packing(problem)

    packing = pack(problem)

    assert packing.lower_bound is None or packing.lower_bound <= best + 1e-9
    assert best == float("inf") or packing.price >= best - 1e-9


@settings(HARDLY, max_examples=30)
@given(problems(largest=4, classes=3))
def test_at_the_values_behind_the_bound_no_possible_node_holds_more_than_it_costs(problem: PackingProblem) -> None:
    small = compact(problem)
    if not len(small.counts):
        return
    fluid = Relaxation(small).solve(8)
    assert fluid is not None

    values = np.zeros(len(problem.counts))
    for members, value in zip(small.members, feasible_values(small, fluid), strict=True):
        values[members] = value
    charge = problem.price if problem.budget_use is None else problem.price + problem.budget_use @ fluid.budget_values

    assert all(values @ held <= charge[column] + 1e-12 for column, held in possible_nodes(problem))


@HARDLY
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_classes_and_columns_changes_neither_price_nor_bound(problem: PackingProblem, random: Any) -> None:
    classes, columns = list(range(len(problem.counts))), list(range(len(problem.price)))
    random.shuffle(classes)
    random.shuffle(columns)
    place = {c: position for position, c in enumerate(classes)}
    shuffled = replace(
        problem,
        requests=problem.requests[classes],
        counts=problem.counts[classes],
        columns_capacity=problem.columns_capacity[columns],
        price=problem.price[columns],
        allowed=problem.allowed[np.ix_(classes, columns)],
        node_cap=None if problem.node_cap is None else problem.node_cap[classes],
        groups=tuple(NodeGroup(tuple(place[c] for c in group.classes), group.limit) for group in problem.groups),
        rules=problem.rules
        and NodeRules(problem.rules.limits, problem.rules.owns[classes], problem.rules.matches[classes]),
        exclusions=tuple((place[first], place[second]) for first, second in problem.exclusions),
        may_open=None if problem.may_open is None else problem.may_open[np.ix_(classes, columns)],
        budget_use=None if problem.budget_use is None else problem.budget_use[columns],
    )

    one, other = pack(problem), pack(shuffled)

    assert (other.price, other.lower_bound, other.node_count) == (one.price, one.lower_bound, one.node_count)
    assert other.leftover.sum() == one.leftover.sum()
