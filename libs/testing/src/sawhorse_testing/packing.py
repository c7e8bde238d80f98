"""Packing problems for tests, and what a packing of one must not break, spelled out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sawhorse_scheduling.packing import Packing, PackingProblem


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
    if rules is None:
        return True
    for g, limit in enumerate(rules.limits):
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
