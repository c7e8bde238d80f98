"""The fluid problem: pods and nodes may be split. Its optimum guides the packing, its duals prove the bound.

Minimise the price of fractional nodes so that each class is spread over columns that it fits and no column's total is
over any resource. Few columns take part; all others are priced by the duals and the promising ones are added.
"""

from dataclasses import dataclass, replace

import numpy as np

from sawhorse_scheduling.arrays import FloatArray, IntArray
from sawhorse_scheduling.packing.compact import Compact
from sawhorse_scheduling.packing.linear import INFINITE, LinearProgram, Solved

# A column is attractive where its best fractional fill is worth this much more than it costs.
ATTRACTIVE = 1e-6


@dataclass(frozen=True, eq=False)
class Fluid:
    """An optimum over the active columns (A of them) and how far all others could better it."""

    objective: float
    active: IntArray  # (A,) column numbers
    nodes: FloatArray  # (A,) fractional nodes
    spread: FloatArray  # (C, A) pods of each class sent to each active column
    class_values: FloatArray  # (C,) dual: what one more pod costs
    resource_prices: FloatArray  # (A, R) dual: what a unit of the resource is worth on a node of the column
    budget_values: FloatArray  # (L,) dual: what a unit of each budget would save
    worth: FloatArray  # (T,) an upper limit of what a node of each column can hold, in class values

    def dealt(self, of: IntArray, part: FloatArray) -> "Fluid":
        """The same for finer classes: `of` which of these each one is, `part` how much of it."""
        return replace(self, spread=self.spread[of] * part[:, None], class_values=self.class_values[of])


class Relaxation:
    """The linear program, kept between solves: columns are added, costs change."""

    def __init__(self, small: Compact) -> None:
        """Start with the column that is cheapest for each class, counted by its largest share."""
        self._small = small
        classes, budgets = len(small.counts), len(small.budget)
        self.rounds = 0
        self._priced_with_fixed = False
        lower = np.concatenate([small.counts.astype(np.float64), np.full(budgets, -INFINITE)])
        upper = np.concatenate([np.full(classes, INFINITE), small.budget / small.budget_scale])
        self._program = LinearProgram(lower, upper)
        self._active = np.zeros(0, dtype=np.int64)
        self._node_variable = np.zeros(0, dtype=np.int64)
        self._resource_row = np.zeros(0, dtype=np.int64)  # first resource row of each active column
        self._pairs: list[IntArray] = []  # blocks of (3, n): class, position of its active column, variable
        self._limits = node_limits(small)
        self._unplaced = budgets > 0
        if self._unplaced:
            # Where budgets may not suffice, leaving a pod out costs more than any node for it alone.
            alone = np.where(small.fit > 0, small.price[None, :], 0.0).max(axis=1) + small.fixed_cost
            every = np.arange(classes)
            self._program.add_variables(4.0 * alone + 1.0, every, every, np.ones(classes))
        share = _largest_share(small)
        cheapest = np.where(small.fit > 0, share * small.cost[None, :], np.inf).argmin(axis=1)
        self._add(np.unique(cheapest))

    def use_fixed_cost(self) -> None:
        """Count the fixed cost of each node from now on: for guidance, no longer for the bound."""
        self._priced_with_fixed = True
        self._program.set_costs(self._node_variable, self._costs()[self._active])

    def solve(self, rounds: int, batch: int = 16) -> Fluid | None:
        """Solve, price all columns, add up to `batch` attractive ones, again until none is left or rounds are."""
        fluid = None
        for number in range(max(1, rounds)):
            solved = self._program.solve()
            self.rounds += 1
            if solved is None:
                return fluid
            fluid = self._read(solved)
            charge = self._costs() + self._small.budget_use @ fluid.budget_values
            attractive = np.flatnonzero(fluid.worth > charge * (1 + ATTRACTIVE) + 1e-12)
            attractive = attractive[~np.isin(attractive, self._active)]
            if not len(attractive) or number + 1 == rounds:
                break
            ratio = fluid.worth[attractive] / np.maximum(charge[attractive], 1e-12)
            self._add(np.sort(attractive[np.argsort(-ratio, kind="stable")[:batch]]))
        return fluid

    def _costs(self) -> FloatArray:
        return self._small.cost if self._priced_with_fixed else self._small.price

    def _add(self, columns: IntArray) -> None:
        """New active columns: a variable for nodes, one for each class that fits, and their rows."""
        small, program = self._small, self._program
        resources, classes = small.requests.shape[1], len(small.counts)
        which, at = np.nonzero(small.fit[:, columns] > 0)
        pairs = len(which)
        rows = program.rows + resources * np.arange(len(columns))
        share = small.requests[which] / np.maximum(small.capacity[columns[at]], 1)
        variable = [np.repeat(np.arange(pairs), resources), np.arange(pairs)]
        row = [(rows[at][:, None] + np.arange(resources)).ravel(), which]
        value = [share.ravel(), np.ones(pairs)]
        nodes = pairs + np.arange(len(columns))
        variable.append(np.repeat(nodes, resources))
        row.append((rows[:, None] + np.arange(resources)).ravel())
        value.append(np.full(resources * len(columns), -1.0))
        next_row = program.rows + resources * len(columns)
        for members, limit in self._limits:
            # At most `limit` pods of the members for each node of the column, where any of them fits.
            chosen = np.flatnonzero(np.isin(which, members))
            hosts, host = np.unique(at[chosen], return_inverse=True)
            variable += [chosen, nodes[hosts]]
            row += [next_row + host.ravel(), next_row + np.arange(len(hosts))]
            value += [np.full(len(chosen), 1.0 / limit), np.full(len(hosts), -1.0)]
            next_row += len(hosts)
        for number in range(len(small.budget)):
            variable.append(nodes)
            row.append(np.full(len(nodes), classes + number))
            value.append(small.budget_use[columns, number] / small.budget_scale[number])
        added = next_row - program.rows
        base = program.variables
        program.add_rows(np.full(added, -INFINITE), np.zeros(added))
        cost = np.concatenate([np.zeros(pairs), self._costs()[columns]])
        program.add_variables(cost, np.concatenate(variable), np.concatenate(row), np.concatenate(value))
        self._pairs.append(np.stack([which, len(self._active) + at, base + np.arange(pairs)]))
        self._active = np.concatenate([self._active, columns])
        self._node_variable = np.concatenate([self._node_variable, base + nodes])
        self._resource_row = np.concatenate([self._resource_row, rows])

    def _read(self, solved: Solved) -> Fluid:
        small = self._small
        classes, resources = small.requests.shape
        budgets = len(small.budget)
        which, at, variable = np.concatenate(self._pairs, axis=1)
        spread = np.zeros((classes, len(self._active)))
        spread[which, at] = solved.values[variable]
        values = np.maximum(solved.duals[:classes], 0.0)
        rows = self._resource_row[:, None] + np.arange(resources)
        prices = np.maximum(-solved.duals[rows], 0.0) / np.maximum(small.capacity[self._active], 1)
        return Fluid(
            objective=solved.objective,
            active=self._active,
            nodes=np.maximum(solved.values[self._node_variable], 0.0),
            spread=np.maximum(spread, 0.0),
            class_values=values,
            resource_prices=prices,
            budget_values=np.maximum(-solved.duals[classes : classes + budgets], 0.0) / small.budget_scale,
            worth=column_worth(small, values, prices),
        )


def node_limits(small: Compact) -> list[tuple[IntArray, int]]:
    """Limits of pods per node that can bind: of single classes and of groups."""
    single = np.flatnonzero(small.node_cap < small.counts)
    grouped = {int(member) for members, _ in small.groups for member in members}
    limits = [(np.array([c]), int(small.node_cap[c])) for c in single if int(c) not in grouped]
    limits += [(members, limit) for members, limit in small.groups if limit < int(small.counts[members].sum())]
    return limits


def column_worth(small: Compact, values: FloatArray, resource_prices: FloatArray) -> FloatArray:
    """What the best fractional fill of one node of each column can be worth, from above.

    For any prices of resources, a fill is worth at most what its node's resources cost at them plus, for each pod, by
    how much its value is above the price of what it asks for. Limits of pods per node bound the second part; classes of
    a group share theirs. The least over all given prices is taken, so bad candidates do no harm.

    Args:
        values: (C,) of one pod.
        resource_prices: (M, R) candidates, ≥ 0, the same for all columns.
    Returns:
        (T,)
    """
    candidates = np.unique(resource_prices, axis=0)
    surplus = np.maximum(values[:, None] - small.requests @ candidates.T, 0.0)  # (C, M)
    most = small.fit.astype(np.float64)
    shared = np.zeros(len(values), dtype=np.bool_)
    for members, limit in small.groups:
        members = members[~shared[members]]  # a class counts in one group only: leaving limits out errs upward
        if not len(members):
            continue
        shared[members] = True
        lead = members[0]
        most[lead] = np.minimum(most[members].sum(axis=0), limit)
        best = surplus[members].max(axis=0)
        surplus[members] = 0.0
        surplus[lead] = best
    total = small.capacity @ candidates.T + most.T @ surplus
    worth: FloatArray = total.min(axis=1)
    return worth


def feasible_values(small: Compact, fluid: Fluid) -> FloatArray:
    """(C,) class values at which no node of any column holds more than it costs (with its share of the budgets).

    The duals, scaled down until that holds: feasible in the dual program however well or badly it was solved.
    """
    return _scaled(small, fluid, fluid.budget_values)


def _scaled(small: Compact, fluid: Fluid, budget_values: FloatArray) -> FloatArray:
    charge = small.price + small.budget_use @ budget_values
    holding = fluid.worth > 0
    ratio = charge[holding] / fluid.worth[holding]
    scale = min(1.0, float(ratio.min())) if len(ratio) else 1.0
    values: FloatArray = scale * (1 - 1e-9) * fluid.class_values  # less what rounding may have added
    return values


def proven_bound(small: Compact, fluid: Fluid) -> float:
    """A price below which no packing of all pods exists.

    Where a column that is nearly free is worth a hair more than it costs, scaling would take all of the bound with it;
    so it is also tried with the budgets of such columns valued higher. Any values of budgets prove something.
    """
    best = 0.0
    for budget_values in (fluid.budget_values, _raised(small, fluid)):
        gross = float(_scaled(small, fluid, budget_values) @ small.counts) - float(budget_values @ small.budget)
        best = max(best, gross)
    return best


def _raised(small: Compact, fluid: Fluid) -> FloatArray:
    """(L,) values of the budgets at which no column that uses one is worth more than it costs."""
    over = np.maximum(fluid.worth - small.price - small.budget_use @ fluid.budget_values, 0.0)
    uses = small.budget_use > 0
    more = np.where(uses, over[:, None] / np.maximum(small.budget_use, 1), 0.0).max(axis=0, initial=0.0)
    raised: FloatArray = fluid.budget_values + more * (1 + 1e-9)
    return raised


def _largest_share(small: Compact) -> FloatArray:
    """(C, T) the part of a node that one pod takes."""
    share = np.zeros(small.fit.shape)
    for resource in range(small.requests.shape[1]):
        capacity = np.maximum(small.capacity[:, resource], 1)
        share = np.maximum(share, small.requests[:, resource, None] / capacity[None, :])
    return share
