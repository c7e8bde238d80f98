"""NodePool, karpenter.sh/v1: what nodes may be made, how many, and when they may be disrupted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from sawhorse_model.meta import Condition, ObjectMeta, find_condition
from sawhorse_model.requirements import RequirementSpec
from sawhorse_model.taints import Taint


@dataclass(frozen=True, slots=True)
class NodeClassRef:
    """Which NodeClass describes the machines."""

    group: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Budget:
    """How many nodes may be disrupted at a time. `reasons` None: all; empty: none."""

    nodes: str = "10%"
    reasons: tuple[str, ...] | None = None
    schedule: str | None = None
    duration: str | None = None


@dataclass(frozen=True, slots=True)
class Disruption:
    """When nodes of the pool may be consolidated. `consolidate_after` None: never."""

    policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after: timedelta | None = timedelta(0)
    budgets: tuple[Budget, ...] = (Budget(),)


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """What each node of the pool carries. Durations: `expire_after` None is Never, no grace period is no deadline."""

    node_class_ref: NodeClassRef
    requirements: tuple[RequirementSpec, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: timedelta | None = timedelta(hours=720)
    termination_grace_period: timedelta | None = None


@dataclass(frozen=True, slots=True)
class NodePool:
    """A NodePool. `limits` in cpu millicores and base units; a resource not named is unlimited."""

    meta: ObjectMeta
    template: NodeTemplate
    disruption: Disruption = field(default_factory=Disruption)
    limits: Mapping[str, int] = field(default_factory=dict)
    weight: int = 0
    replicas: int | None = None
    conditions: tuple[Condition, ...] = ()
    resources: Mapping[str, int] = field(default_factory=dict)  # status
    node_class_observed_generation: int = 0

    @property
    def is_ready(self) -> bool:
        """Whether Ready is True at this generation."""
        ready = find_condition(self.conditions, "Ready")
        return ready is not None and ready.status == "True" and ready.observed_generation == self.meta.generation
