"""What a plan is made from: frozen data, no clock, no names of services.

Pods come as groups of equal pods with a count, so that a million replicas are one object. The caller builds a
snapshot from the mirror or from files; `solve(snapshot)` reads nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sawhorse_model.cluster import (
    DaemonSet,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    Service,
    StorageClass,
    Workload,
)
from sawhorse_model.instances import AttachEstimate, InstanceType
from sawhorse_model.nodepool import NodePool
from sawhorse_model.pod import Pod, TopologySpread
from sawhorse_model.requirements import Requirements
from sawhorse_model.taints import Taint


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods that want a place and differ only in name.

    `pod` stands for all (its namespace, labels and spec count); `names` are the keys `namespace/name`, in the order
    in which they are served. `names` may be a lazy sequence.
    """

    pod: Pod
    names: Sequence[str]

    @property
    def count(self) -> int:
        """How many pods."""
        return len(self.names)


@dataclass(frozen=True, slots=True)
class ExistingNode:
    """Capacity that is there or on its way: a node, or a claim in flight without one.

    For a claim that is not launched yet, `instance_types` are those it may still become and `requirements` are the
    claim's; `labels` hold what is certain. `allocatable` is what it has (in flight: the least of its types).
    `taints` are those that count for scheduling (startup and ephemeral ones are left out by the caller while the node
    is not initialised). `pods` are bound, active pods, daemons included. Deleting nodes are not in the snapshot.
    """

    name: str  # the node's, or the claim's while there is no node
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    pods: tuple[Pod, ...] = ()
    initialized: bool = True
    nodepool: str = ""
    claim: str = ""
    capacity: Mapping[str, int] = field(default_factory=dict)
    requirements: Requirements = field(default_factory=Requirements)
    instance_types: tuple[InstanceType, ...] = ()
    reserved: Mapping[str, int] = field(default_factory=dict)  # promised to pods that are not bound yet
    price_per_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool with what its NodeClass makes of the catalogue.

    `usage` is the capacity of its living nodes and claims in flight (`nodes` included), for limits.
    `class_labels` are labels that the cloud puts on every node of the NodeClass.
    """

    nodepool: NodePool
    instance_types: tuple[InstanceType, ...]
    usage: Mapping[str, int] = field(default_factory=dict)
    class_labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Volumes:
    """Volumes: claims by `namespace/name`, the rest by name; `limits` of CSINodes by node, then driver."""

    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """How to plan. `exotic` are resources of accelerators: types that have one serve only pods that ask for one.

    `exotic_labels` are (label, word): types with that word in the label's value serve nobody who does not name them.
    `hints` say per resource what helps where no type has enough of it.

    `fixed_cost` per node and hour steers toward fewer nodes and is in no price. `slack` is the part of a new node's
    cpu and memory that is left free where pods also fit so. `max_pods_per_node` caps planned pods on a new node.
    `minimize_expected`: by what EC2 is likely to choose rather than by the best price.
    """

    well_known: frozenset[str] = frozenset()
    exotic: frozenset[str] = frozenset()
    exotic_labels: tuple[tuple[str, str], ...] = ()
    reservation_labels: tuple[str, ...] = ()  # of reserved capacity alone; the first is the reservation's id
    hints: Mapping[str, str] = field(default_factory=dict)
    ignore_preferences: bool = False
    min_values_strict: bool = True
    max_instance_types: int = 60
    time_limit_seconds: float | None = None
    fixed_cost: float = 0.01
    slack: float = 0.0
    max_pods_per_node: int | None = None
    minimize_expected: bool = False
    attachments: tuple[AttachEstimate, ...] = ()  # what new nodes take of volumes; drivers not named are not limited
    default_spread: tuple[TopologySpread, ...] = ()  # of the cluster, for pods without any; selectors are deduced


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a plan depends on."""

    pods: tuple[PodGroup, ...] = ()
    nodes: tuple[ExistingNode, ...] = ()
    pools: tuple[Pool, ...] = ()
    daemons: tuple[DaemonSet, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    options: SolveOptions = field(default_factory=SolveOptions)
    volumes: Volumes = field(default_factory=Volumes)
    services: tuple[Service, ...] = ()  # these and workloads only matter to the cluster's default spread
    workloads: tuple[Workload, ...] = ()
    reservations_taken: Mapping[str, int] = field(default_factory=dict)  # id → since its free instances were counted
