"""What packing promises, by example: limits, groups, budgets, sizes, deadlines, and figures that make no sense."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sawhorse_scheduling.packing import Effort, NodeGroup, PackingProblem, pack
from sawhorse_scheduling.packing.compact import compact
from sawhorse_scheduling.packing.grow import grow
from sawhorse_scheduling.packing.nodes import NodeSet, hardest_first
from sawhorse_scheduling.packing.relaxation import Relaxation, proven_bound
from sawhorse_testing.packing import a_problem, broken_rules


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
