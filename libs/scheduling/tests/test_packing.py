"""What packing promises: every pod placed once or reported, nothing over its limits, the bound below every packing."""

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sawhorse_scheduling.packing import Effort, NodeGroup, NodeRules, Packing, PackingProblem, pack
from sawhorse_scheduling.packing.compact import compact
from sawhorse_scheduling.packing.grow import grow
from sawhorse_scheduling.packing.nodes import NodeSet, hardest_first
from sawhorse_scheduling.packing.relaxation import Relaxation, feasible_values, proven_bound

HARDLY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def a_problem(
    requests: Sequence[Sequence[int]],
    counts: Sequence[int],
    capacity: Sequence[Sequence[int]],
    price: Sequence[float],
    **overrides: Any,
) -> PackingProblem:
    """Every class may go everywhere, unless said otherwise."""
    values: dict[str, Any] = {
        "requests": np.array(requests, dtype=np.int64),
        "counts": np.array(counts, dtype=np.int64),
        "columns_capacity": np.array(capacity, dtype=np.int64),
        "price": np.array(price, dtype=np.float64),
        "allowed": np.ones((len(counts), len(price)), dtype=np.bool_),
    }
    return PackingProblem(**(values | overrides))


def rules_hold(problem: PackingProblem, pods: Any) -> bool:
    """Whether a node with so many pods of each class keeps the rules that only some classes carry."""
    rules = problem.rules
    for g, limit in enumerate([] if rules is None else rules.limits):
        owners, matched = pods[rules.owns[:, g]].sum(), pods[rules.matches[:, g]].sum()
        itself = owners == matched == pods[rules.owns[:, g] & rules.matches[:, g]].sum() == 1
        if owners and matched > limit and not (limit == 0 and itself):
            return False
    return True


def broken_rules(problem: PackingProblem, packing: Packing) -> list[str]:
    """A plain check of every rule, node by node."""
    found = []
    seen = np.zeros(len(problem.counts), dtype=np.int64)
    used = np.zeros(0 if problem.budget is None else len(problem.budget), dtype=np.int64)
    for node in packing.nodes:
        held = dict(node.counts)
        if not held or len(held) != len(node.counts) or node.times < 1:
            found.append(f"odd node {node}")
        for resource in range(problem.requests.shape[1]):
            load = sum(int(problem.requests[c, resource]) * n for c, n in held.items())
            if load > problem.columns_capacity[node.column, resource]:
                found.append(f"resource {resource} over in {node}")
        for c, n in held.items():
            seen[c] += n * node.times
            if n < 1 or not problem.allowed[c, node.column]:
                found.append(f"class {c} not allowed in {node}")
            if problem.node_cap is not None and n > problem.node_cap[c]:
                found.append(f"cap of class {c} in {node}")
        for group in problem.groups:
            if sum(held.get(c, 0) for c in set(group.classes)) > group.limit:
                found.append(f"{group} in {node}")
        for first, second in problem.exclusions:
            if first in held and second in held and first != second:
                found.append(f"{first} beside {second} in {node}")
        if not rules_hold(problem, np.array([held.get(c, 0) for c in range(len(problem.counts))])):
            found.append(f"{problem.rules} in {node}")
        if problem.may_open is not None and not any(problem.may_open[c, node.column] for c in held):
            found.append(f"nobody may open {node}")
        if problem.budget_use is not None:
            used = used + problem.budget_use[node.column] * node.times
    if problem.budget is not None and (used > np.maximum(problem.budget, 0)).any():
        found.append(f"budget {problem.budget} used {used}")
    if not (seen + packing.leftover == problem.counts).all() or (packing.leftover < 0).any():
        found.append(f"placed {seen}, left {packing.leftover}")
    price = sum(float(problem.price[node.column]) * node.times for node in packing.nodes)
    if abs(price - packing.price) > 1e-6 * max(1.0, price):
        found.append(f"price {packing.price}, nodes cost {price}")
    return found


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


def test_the_same_problem_twice_gives_the_same_nodes() -> None:
    problem = a_problem([[3, 2], [1, 5], [4, 4]], [17, 23, 9], [[16, 30], [8, 8], [30, 16]], [2.0, 0.9, 2.1])

    assert pack(problem).nodes == pack(problem).nodes


def test_a_pod_that_fits_no_column_is_left_over_and_the_others_are_placed() -> None:
    problem = a_problem([[5], [50]], [4, 2], [[10]], [1.0])

    packing = pack(problem)

    assert packing.leftover.tolist() == [0, 2]
    assert packing.node_count == 2


def test_no_pods_need_no_nodes() -> None:
    packing = pack(a_problem([[5]], [0], [[10]], [1.0]))

    assert (packing.nodes, packing.price, packing.lower_bound) == ((), 0.0, 0.0)


def test_one_pod_per_node_takes_as_many_nodes_as_pods_and_the_bound_knows_it() -> None:
    problem = a_problem([[1]], [7], [[100]], [2.0], node_cap=np.array([1]))

    packing = pack(problem)

    assert packing.node_count == 7
    assert packing.lower_bound == pytest.approx(14.0)


def test_classes_of_a_group_share_its_limit() -> None:
    problem = a_problem([[1], [1]], [4, 3], [[100]], [2.0], groups=(NodeGroup((0, 1), 1),))

    packing = pack(problem)

    assert packing.node_count == 7
    assert packing.lower_bound == pytest.approx(14.0)


def test_classes_that_exclude_each_other_never_share_a_node() -> None:
    problem = a_problem([[1], [1], [1]], [3, 3, 3], [[9]], [1.0], exclusions=((0, 1),))

    packing = pack(problem)

    assert packing.node_count == 2
    assert all(not {0, 1} <= dict(node.counts).keys() for node in packing.nodes)


def test_a_pod_that_may_not_open_a_column_still_fills_a_node_that_another_opened() -> None:
    may_open = np.array([[True, True], [False, True]])
    problem = a_problem([[1, 4], [0, 4]], [2, 2], [[2, 16], [0, 4]], [1.0, 5.0], may_open=may_open)

    packing = pack(problem)

    assert packing.price == 1.0


def test_a_pod_that_may_not_open_the_cheap_column_opens_the_dear_one() -> None:
    problem = a_problem([[1]], [3], [[9], [9]], [1.0, 5.0], may_open=np.array([[False, True]]))

    packing = pack(problem)

    assert packing.price == 5.0


def test_pods_that_may_not_open_a_column_do_not_keep_out_those_that_may() -> None:
    may_open = np.array([[True], [False]])
    problem = a_problem([[1], [9]], [1, 1], [[9]], [1.0], may_open=may_open, exclusions=((0, 1),))

    packing = pack(problem)

    assert packing.leftover.tolist() == [0, 1]


def test_billions_of_pods_that_ask_for_nothing_are_counted_not_listed() -> None:
    problem = a_problem([[0]], [5 * 10**9], [[1]], [1.0])

    packing = pack(problem)

    assert packing.leftover.sum() == 0
    assert packing.node_count == 3


def test_a_node_is_made_larger_for_the_last_pod_where_a_new_node_costs_more() -> None:
    # Of each node 30 go to the system, so the large pod alone needs the second size, and beside the small one too.
    problem = a_problem([[50], [80]], [3, 1], [[70], [170], [270]], [1.0, 2.0, 3.0])
    small = compact(problem)
    first, second = (int(np.flatnonzero(small.requests[:, 0] == size)[0]) for size in (50, 80))
    held = np.zeros((3, 2), dtype=np.int32)
    held[:, first] = 1
    nodes = NodeSet.filled(small, np.zeros(3, dtype=np.int64), held)
    rest = np.array([0, 0])
    rest[second] = 1

    grown, left = grow(small, nodes, rest, hardest_first(small), np.array([1.0, 1.5]), Counter())

    assert left.sum() == 0
    assert sorted(small.price[grown.column].tolist()) == [1.0, 1.0, 2.0]
    assert nodes.column.tolist() == [0, 0, 0]


def test_a_budget_is_used_up_exactly_and_the_rest_goes_to_the_dearer_column() -> None:
    budget: dict[str, Any] = {"budget_use": np.array([[4], [0]]), "budget": np.array([11])}
    problem = a_problem([[5]], [8], [[10], [10]], [1.0, 3.0], **budget)

    packing = pack(problem)

    assert packing.price == 2 * 1.0 + 2 * 3.0
    assert packing.lower_bound is not None


def test_a_budget_of_few_nodes_holds_beside_one_of_bytes() -> None:
    """Three pools with limits of cpu and memory, and one reserved instance that two of them may use: a fuzz's find."""
    gib = 2**30
    # What a tenth of slack leaves; two pods at most on each.
    large, small = (7200, 15461882266, 0, 2), (1800, 3865470567, 0, 2)
    fat, gpu = (3600, 30923764532, 0, 2), (7200, 30923764532, 1, 2)
    use = [
        [8000, 0, 0, 0, 0, 1, 0],
        [0, 8000, 16 * gib, 0, 0, 1, 0],
        [0, 8000, 16 * gib, 0, 0, 0, 0],
        [0, 0, 0, 4000, 32 * gib, 0, 0],
        [0, 0, 0, 8000, 32 * gib, 0, 0],
        [0, 0, 0, 8000, 16 * gib, 0, 0],
        [0, 0, 0, 2000, 4 * gib, 0, 0],
    ]
    problem = a_problem(
        [[100, 12 * gib, 0, 1], [100, gib // 8, 1, 1]],
        [3, 4],
        [large, large, large, fat, gpu, large, small],
        [4e-8, 4e-8, 0.17, 0.3, 0.05, 0.17, 0.04],
        allowed=np.array([[True] * 4 + [False, True, True], [False] * 4 + [True, False, False]]),
        may_open=np.array([[True] * 4 + [False, True, False], [False] * 4 + [True, False, False]]),
        budget_use=np.array(use),
        budget=np.array([4000, 20000, 40 * gib, 16000, 40 * gib, 1, 3]),
        fixed_cost=0.01,
    )

    packing = pack(problem)

    assert broken_rules(problem, packing) == []
    assert sum(node.times for node in packing.nodes) == 3


def test_a_budget_that_right_sizing_frees_is_used_for_pods_that_were_left_over() -> None:
    budget: dict[str, Any] = {"budget_use": np.array([[0], [1]]), "budget": np.array([1])}
    caps = np.array([1, 1])
    problem = a_problem([[3], [0]], [1, 2], [[0], [3]], [0.0, 0.5], node_cap=caps, exclusions=((0, 1),), **budget)

    packing = pack(problem)

    assert packing.leftover.sum() == 0


def test_pods_beyond_every_budget_are_left_over_without_a_bound() -> None:
    problem = a_problem([[5]], [8], [[10]], [1.0], budget_use=np.array([[1]]), budget=np.array([3]))

    packing = pack(problem)

    assert packing.leftover.tolist() == [2]
    assert packing.lower_bound is None


def test_a_fixed_cost_makes_fewer_nodes_of_an_equal_price_and_is_in_no_figure() -> None:
    problem = a_problem([[1]], [64], [[1], [16]], [1.0, 16.0], fixed_cost=0.01)

    packing = pack(problem)

    assert packing.node_count == 4
    assert (packing.price, packing.lower_bound) == (64.0, pytest.approx(64.0))


def test_many_equal_pods_become_few_kinds_of_nodes() -> None:
    problem = a_problem([[3, 2], [1, 5]], [700_000, 300_000], [[160, 300], [80, 80]], [2.0, 0.9])

    packing = pack(problem)

    assert packing.leftover.sum() == 0
    assert len(packing.nodes) < 50
    assert packing.gap is not None
    assert packing.gap < 0.01


def few_pods_on_a_node() -> PackingProblem:
    """Pods of a quarter to a half of a node, whose sizes only add up in some mixes."""
    sizes = [[24, 30], [31, 20], [45, 38], [27, 41], [38, 24], [21, 22], [34, 47], [49, 33]]
    return a_problem(sizes, [40, 33, 25, 31, 28, 44, 23, 19], [[100, 100], [200, 150], [150, 210]], [1.0, 1.8, 1.9])


def test_patterns_find_mixes_that_add_up_where_few_pods_share_a_node() -> None:
    problem = few_pods_on_a_node()

    packing = pack(problem)
    without = pack(replace(problem, effort=Effort(pattern_rounds=0)))

    assert packing.work["patterns"] > 0
    assert packing.price < without.price


def test_a_deadline_that_has_passed_leaves_the_first_answer() -> None:
    told: list[float] = []
    problem = replace(few_pods_on_a_node(), deadline=lambda: True, on_first=told.append)

    packing = pack(problem)

    assert told == [packing.first]
    assert packing.price == packing.first
    assert broken_rules(problem, packing) == []


def test_a_badly_solved_relaxation_still_proves_a_bound_that_holds() -> None:
    problem = few_pods_on_a_node()
    small = compact(problem)
    fluid = Relaxation(small).solve(8)
    assert fluid is not None
    worse = replace(fluid, class_values=fluid.class_values * 3, worth=fluid.worth * 3)

    assert proven_bound(small, worse) == pytest.approx(proven_bound(small, fluid), rel=0.05)
    assert proven_bound(small, worse) <= pack(problem).price


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"price": np.array([float("nan")])}, "prices must be finite"),
        ({"price": np.array([-1.0])}, "prices must be finite"),
        ({"counts": np.array([1, 2])}, "counts has shape"),
        ({"requests": np.array([[-1]])}, "requests and counts must be >= 0"),
        ({"budget": np.array([1])}, "come together"),
    ],
)
def test_figures_that_make_no_sense_are_refused(change: dict[str, Any], complaint: str) -> None:
    problem = a_problem([[1]], [1], [[1]], [1.0])

    with pytest.raises(ValueError, match=complaint):
        replace(problem, **change)


def test_nothing_is_printed_on_stdout() -> None:
    script = (
        "import numpy as np\n"
        "from sawhorse_scheduling.packing import PackingProblem, pack\n"
        "one = np.ones((1, 1), dtype=np.int64)\n"
        "packing = pack(PackingProblem(one, np.array([3]), 2 * one, np.array([1.0]), one > 0))\n"
        "print(packing.node_count)\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=True)

    assert (done.stdout, done.stderr) == (b"2\n", b"")
