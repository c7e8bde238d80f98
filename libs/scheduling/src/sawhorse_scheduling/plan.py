"""What planning answers: nodes to make, pods placed on existing ones, and why the rest found no place."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sawhorse_model.instances import CapacityType
from sawhorse_model.requirements import Requirements


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node to make.

    `requirements` are what the NodeClaim asks for (pool, labels and pods together; instance types are in
    `instance_types`, cheapest first). Zone, capacity type and price are those of the cheapest available offering that
    the requirements allow; expected and worst are over the offerings the cloud may choose from. `requests` are the
    pods' sum, `daemon_requests` what daemons add, `allocatable` that of the cheapest type. Resource maps: cpu in
    millicores, the rest in base units.
    """

    name: str  # stable within the plan, e.g. "default-1"
    nodepool: str
    instance_types: tuple[str, ...]
    requirements: Requirements
    zone: str
    capacity_type: CapacityType
    price_per_hour: float
    expected_price_per_hour: float
    worst_price_per_hour: float
    pods: tuple[str, ...]
    requests: Mapping[str, int]
    daemon_requests: Mapping[str, int]
    allocatable: Mapping[str, int]
    classes: Mapping[int, int] = field(default_factory=dict)  # index in Snapshot.pods → how many of them
    least_daemon_requests: Mapping[str, int] | None = None  # per resource over all listed types; None: the same
    relaxed: tuple[str, ...] = ()  # labels of which there were fewer values than the pool's minValues asks for
    reservation_id: str = ""  # of the reservation whose instance it takes

    @property
    def instance_type(self) -> str:
        """The cheapest type."""
        return self.instance_types[0]


@dataclass(frozen=True, slots=True)
class FilledNode:
    """Pods that go to capacity that is there (or in flight). `claim` is set for a claim without a node."""

    name: str
    pods: tuple[str, ...]
    claim: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a pool (empty: no pool is to blame) did not take a pod. `code` is a stable word of docs/reasons.md."""

    nodepool: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Equal pods without a place."""

    pods: tuple[str, ...]
    message: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Stats:
    """What it took. `instance_types` counts distinct names over all pools; times are the caller's to measure.

    `first_price_per_hour` is that of the first whole answer, before it was improved.
    """

    pods: int
    classes: int
    instance_types: int
    rounds: int = 0
    first_price_per_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer. Prices per hour in the catalogue's currency.

    The bound is on the new nodes together, for the pods that got them, as spread dealt them to domains; None where
    none was proven (something was left over for want of limits, or rules that the packing engine cannot be told).
    """

    new_nodes: tuple[PlannedNode, ...]
    existing_nodes: tuple[FilledNode, ...]
    unschedulable: tuple[Unschedulable, ...]
    stats: Stats
    lower_bound_per_hour: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def price_per_hour(self) -> float:
        """Sum of the planned nodes' best prices."""
        return sum(node.price_per_hour for node in self.new_nodes)

    @property
    def expected_price_per_hour(self) -> float:
        """Sum of the planned nodes' expected prices."""
        return sum(node.expected_price_per_hour for node in self.new_nodes)

    @property
    def gap(self) -> float | None:
        """price ÷ bound − 1, where there is a bound above zero."""
        bound = self.lower_bound_per_hour
        return self.price_per_hour / bound - 1 if bound else None
