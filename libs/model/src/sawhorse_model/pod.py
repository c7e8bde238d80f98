"""Pods, cut down to what scheduling, draining and events read. `requests` are the effective ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sawhorse_model.labels import HINT_MANAGER
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.requirements import RequirementSpec
from sawhorse_model.selectors import LabelSelector
from sawhorse_model.taints import Toleration

DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"

CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """One of several OR-ed terms; its expressions are AND-ed. `match_fields` tells that field selectors were used."""

    expressions: tuple[RequirementSpec, ...] = ()
    match_fields: tuple[RequirementSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A wish with a weight of 1 to 100."""

    weight: int
    term: NodeSelectorTerm


@dataclass(frozen=True, slots=True)
class TopologySpread:
    """Keep pods that match `selector` even over the values of a label."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str = DO_NOT_SCHEDULE
    selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """Be near (or away from) pods that match. `namespaces` empty and no selector: the pod's own namespace."""

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    weight: int = 0  # 0: required


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port taken on the node. An empty IP means all addresses."""

    port: int
    protocol: str = "TCP"
    ip: str = ""


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What the pod asks of its node. Equal specs are equal, so that pods group into classes."""

    requests: Mapping[str, int] = field(default_factory=dict)  # effective, `pods: 1` included
    node_selector: Mapping[str, str] = field(default_factory=dict)
    required_terms: tuple[NodeSelectorTerm, ...] = ()  # OR-ed; empty: no rule
    preferred_terms: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[TopologySpread, ...] = ()
    affinity: tuple[PodAffinityTerm, ...] = ()  # required and preferred (by weight)
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()  # names of PersistentVolumeClaims, ephemeral ones as `<pod>-<volume>`
    ephemeral_claims: tuple[str, ...] = ()  # volume names of generic ephemeral volumes
    resource_claims: bool = False  # dynamic resource allocation
    priority: int = 0
    priority_class: str = ""
    scheduler: str = "default-scheduler"
    grace_seconds: int = 30
    runtime_class: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod."""

    meta: ObjectMeta
    spec: PodSpec = field(default_factory=PodSpec)
    node_name: str = ""
    phase: str = "Pending"
    ready: bool = False
    unschedulable: bool = False  # condition PodScheduled has reason Unschedulable
    gated: bool = False
    nominated_node: str = ""
    nominated_by: str = ""  # field manager that owns status.nominatedNodeName
    started: datetime | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has run to its end."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_active(self) -> bool:
        """Whether it runs or wants to: neither ended nor being deleted."""
        return not self.is_terminal and not self.meta.is_deleting

    @property
    def is_daemon(self) -> bool:
        """Whether a DaemonSet owns it."""
        return any(o.kind == "DaemonSet" and o.api_version.startswith("apps/") for o in self.meta.owners)

    @property
    def is_mirror(self) -> bool:
        """Whether a Node owns it: a static pod."""
        return any(o.kind == "Node" for o in self.meta.owners)

    @property
    def is_stateful(self) -> bool:
        """Whether a StatefulSet owns it."""
        return any(o.kind == "StatefulSet" and o.api_version.startswith("apps/") for o in self.meta.owners)

    @property
    def is_critical(self) -> bool:
        """Whether its priority class is one of the two system ones."""
        return self.spec.priority_class in CRITICAL_CLASSES

    @property
    def is_provisionable(self) -> bool:
        """Whether it waits for a node that we may have to make."""
        return (
            self.unschedulable
            and not self.node_name
            and self.is_active
            and (not self.nominated_node or self.nominated_by == HINT_MANAGER)
            and not self.is_daemon
            and not self.is_mirror
        )
