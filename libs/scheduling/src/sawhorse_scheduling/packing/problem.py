"""What packing is asked and what it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sawhorse_scheduling.arrays import UNBOUNDED, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Classes that share one limit per node: at most `limit` of their pods together on any node."""

    classes: tuple[int, ...]
    limit: int


@dataclass(frozen=True, slots=True, eq=False)
class NodeRules:
    """Limits per node that count only where somebody carries them.

    On a node with a pod of a class that owns a rule, at most `limits` pods of classes that match it; a limit of zero
    means none but the owner itself. Where all who match also own, `NodeGroup` says the same and the bound knows it.
    """

    limits: IntArray  # (G,)
    owns: BoolArray  # (C, G)
    matches: BoolArray  # (C, G)


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try, in units of work, so that equal input gives an equal answer on any machine."""

    gap_target: float = 0.005  # stop improving when price ÷ bound − 1 is at or below this
    lp_rounds: int = 12  # pricing rounds of the relaxation
    pattern_rounds: int = 60  # column generation, used where few pods share a node
    pattern_work: int = 30_000_000  # steps of its search and of its linear programs, about 20 ns each
    pattern_width: int = 24  # kept partial patterns per column while one is searched
    repairs: int = 32  # tries of taking nodes apart and packing them again
    stall: int = 8  # repairs in a row without gain after which to stop


@dataclass(frozen=True, eq=False)
class PackingProblem:
    """Counted pods and the ways to buy nodes for them.

    C classes, T columns, R resources, L budgets. A column is an instance type under one signature of offerings
    (zone, capacity type, pool, …); its price is that of the cheapest offering of it.
    """

    requests: IntArray  # (C, R) of one pod
    counts: IntArray  # (C,) pods
    columns_capacity: IntArray  # (T, R) usable: what daemons take is already off
    price: FloatArray  # (T,) per hour
    allowed: BoolArray  # (C, T)
    node_cap: IntArray | None = None  # (C,) most pods of the class on one node; None or a huge number: no cap
    groups: tuple[NodeGroup, ...] = ()  # caps that several classes share
    rules: NodeRules | None = None
    exclusions: tuple[tuple[int, int], ...] = ()  # pairs of classes that never share a node
    may_open: BoolArray | None = None  # (C, T) a node needs at least one pod of a class that may open its column
    budget_use: IntArray | None = None  # (T, L) what one node of the column takes from each budget
    budget: IntArray | None = None  # (L,) what is left of each; never exceeded
    fixed_cost: float = 0.0  # per node: steers toward fewer nodes, in neither price nor bound
    effort: Effort = field(default_factory=Effort)
    deadline: Callable[[], bool] | None = None  # true: return what there is; a guard only
    on_first: Callable[[float], None] | None = None  # told the price of the first whole answer, as soon as it stands

    def __post_init__(self) -> None:
        """Refuse shapes that do not belong together and numbers that would scramble a comparison."""
        classes, resources = self.requests.shape
        columns = len(self.price)
        expected = {
            "counts": (self.counts.shape, (classes,)),
            "columns_capacity": (self.columns_capacity.shape, (columns, resources)),
            "allowed": (self.allowed.shape, (classes, columns)),
        }
        if self.node_cap is not None:
            expected["node_cap"] = (self.node_cap.shape, (classes,))
        if self.rules is not None:
            for name, mask in (("rules.owns", self.rules.owns), ("rules.matches", self.rules.matches)):
                expected[name] = (mask.shape, (classes, len(self.rules.limits)))
        if self.may_open is not None:
            expected["may_open"] = (self.may_open.shape, (classes, columns))
        if (self.budget is None) != (self.budget_use is None):
            raise ValueError("budget and budget_use come together")
        if self.budget is not None and self.budget_use is not None:
            expected["budget_use"] = (self.budget_use.shape, (columns, len(self.budget)))
        for name, (got, wanted) in expected.items():
            if got != wanted:
                raise ValueError(f"{name} has shape {got}, expected {wanted}")
        if not (np.isfinite(self.price).all() and (self.price >= 0).all()):
            raise ValueError("prices must be finite and >= 0")
        if (self.requests < 0).any() or (self.counts < 0).any():
            raise ValueError("requests and counts must be >= 0")
        if int(self.counts.sum()) >= UNBOUNDED:
            raise ValueError(f"more than {UNBOUNDED - 1} pods")


@dataclass(frozen=True, slots=True)
class PackedNode:
    """`times` equal nodes: the column and (class, pods of it on each node), by class."""

    column: int
    counts: tuple[tuple[int, int], ...]
    times: int = 1


@dataclass(frozen=True, slots=True)
class Packing:
    """The answer. Class and column numbers are those of the problem."""

    nodes: tuple[PackedNode, ...]
    leftover: IntArray  # (C,) pods without a place
    price: float  # per hour, all nodes
    lower_bound: float | None  # no packing of all these pods is cheaper; None where that could not be proven
    first: float  # price of the first whole answer
    work: Mapping[str, int]  # units of work done, by kind

    @property
    def node_count(self) -> int:
        """How many nodes."""
        return sum(node.times for node in self.nodes)

    @property
    def gap(self) -> float | None:
        """price ÷ bound − 1, where there is a bound above zero."""
        return self.price / self.lower_bound - 1 if self.lower_bound else None
