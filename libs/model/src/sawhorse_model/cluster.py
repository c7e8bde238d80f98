"""The other kinds that decisions read: workloads, disruption budgets, volumes, priorities. Cut down to what is used."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import NodeSelectorTerm, Pod
from sawhorse_model.selectors import LabelSelector


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """A DaemonSet; `template` is a pod built from its template."""

    meta: ObjectMeta
    template: Pod


@dataclass(frozen=True, slots=True)
class Workload:
    """An owner of pods: ReplicaSet, StatefulSet or ReplicationController."""

    meta: ObjectMeta
    kind: str
    replicas: int = 0
    selector: LabelSelector | None = None


@dataclass(frozen=True, slots=True)
class PodDisruptionBudget:
    """How many pods must stay. Amounts as typed (`1`, `50%`); `disruptions_allowed` from the status."""

    meta: ObjectMeta
    selector: LabelSelector | None = None
    min_available: str | None = None
    max_unavailable: str | None = None
    disruptions_allowed: int = 0
    unhealthy_policy: str = ""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace: its labels decide affinity's namespace selectors."""

    meta: ObjectMeta


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A priority class."""

    meta: ObjectMeta
    value: int = 0
    global_default: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its selector feeds the cluster's default spread."""

    meta: ObjectMeta
    selector: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PersistentVolumeClaim:
    """A claim on a volume."""

    meta: ObjectMeta
    phase: str = ""
    volume_name: str = ""
    storage_class: str | None = None


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """A volume; `terms` is its required node affinity (OR-ed)."""

    meta: ObjectMeta
    driver: str = ""
    local: bool = False
    terms: tuple[NodeSelectorTerm, ...] = ()
    claim: str = ""  # namespace/name


@dataclass(frozen=True, slots=True)
class StorageClass:
    """How volumes are made; `topologies` are OR-ed."""

    meta: ObjectMeta
    provisioner: str = ""
    binding_mode: str = "Immediate"
    topologies: tuple[NodeSelectorTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class CSINode:
    """How many volumes of each driver a node takes."""

    meta: ObjectMeta
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """A volume attached to a node."""

    meta: ObjectMeta
    node_name: str = ""
    volume_name: str = ""
    attached: bool = False
