"""The kind table: how each kind is addressed in the API and read into a model type."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sawhorse_model.manifests import PARSERS, Raw

Parse = Callable[[Raw], Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """One row: `parse` makes a model object of the API's JSON and raises ManifestError when it cannot."""

    name: str
    group: str  # empty for the core group
    version: str
    plural: str
    namespaced: bool
    parse: Parse

    @property
    def api_version(self) -> str:
        """As in the field `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """The URL path of the collection (no name) or of an object; all namespaces when none is given."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(name, safe="")] if name else []
        parts += [subresource] if subresource else []
        return "/".join(parts)


def _row(name: str, group: str, version: str, plural: str, *, namespaced: bool) -> Kind:
    return Kind(name, group, version, plural, namespaced, PARSERS[name])


def nodeclass_kind(group: str, version: str, kind: str, plural: str) -> Kind:
    """The row of a cloud's NodeClass: read into the neutral NodeClass whatever its name is."""
    return Kind(kind, group, version, plural, False, PARSERS["EC2NodeClass"])


def raw_kind(name: str, group: str, version: str, plural: str, *, namespaced: bool) -> Kind:
    """A row for a kind without a model type: objects stay the API's JSON."""
    return Kind(name, group, version, plural, namespaced, dict)


POD = _row("Pod", "", "v1", "pods", namespaced=True)
NODE = _row("Node", "", "v1", "nodes", namespaced=False)
NODECLAIM = _row("NodeClaim", "karpenter.sh", "v1", "nodeclaims", namespaced=False)
NODEPOOL = _row("NodePool", "karpenter.sh", "v1", "nodepools", namespaced=False)
DAEMONSET = _row("DaemonSet", "apps", "v1", "daemonsets", namespaced=True)
REPLICASET = _row("ReplicaSet", "apps", "v1", "replicasets", namespaced=True)
STATEFULSET = _row("StatefulSet", "apps", "v1", "statefulsets", namespaced=True)
REPLICATIONCONTROLLER = _row("ReplicationController", "", "v1", "replicationcontrollers", namespaced=True)
PDB = _row("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", namespaced=True)
PVC = _row("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", namespaced=True)
PV = _row("PersistentVolume", "", "v1", "persistentvolumes", namespaced=False)
STORAGECLASS = _row("StorageClass", "storage.k8s.io", "v1", "storageclasses", namespaced=False)
CSINODE = _row("CSINode", "storage.k8s.io", "v1", "csinodes", namespaced=False)
VOLUMEATTACHMENT = _row("VolumeAttachment", "storage.k8s.io", "v1", "volumeattachments", namespaced=False)
NAMESPACE = _row("Namespace", "", "v1", "namespaces", namespaced=False)
PRIORITYCLASS = _row("PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
SERVICE = _row("Service", "", "v1", "services", namespaced=True)

EC2_NODECLASS = nodeclass_kind("karpenter.k8s.aws", "v1", "EC2NodeClass", "ec2nodeclasses")

LEASE = raw_kind("Lease", "coordination.k8s.io", "v1", "leases", namespaced=True)
EVENT = raw_kind("Event", "", "v1", "events", namespaced=True)

MIRRORED: tuple[Kind, ...] = (
    POD,
    NODE,
    NODECLAIM,
    NODEPOOL,
    DAEMONSET,
    REPLICASET,
    STATEFULSET,
    REPLICATIONCONTROLLER,
    PDB,
    PVC,
    PV,
    STORAGECLASS,
    CSINODE,
    VOLUMEATTACHMENT,
    NAMESPACE,
    PRIORITYCLASS,
    SERVICE,
)
"""What the watcher mirrors, besides the clouds' NodeClasses."""

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (*MIRRORED, EC2_NODECLASS, LEASE, EVENT)}
