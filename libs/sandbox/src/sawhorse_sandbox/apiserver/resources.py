"""The kind table: what the embedded API server serves, built in or by a CustomResourceDefinition. Test double."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Kind = tuple[str, str]  # (group, plural): names one collection of the store, whatever the version


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource in one version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False  # has a status subresource that the main endpoint does not write
    generation: bool = False  # metadata.generation follows the spec
    scale: bool = False
    custom: bool = False
    schema: dict[str, Any] | None = None  # openAPIV3Schema of a custom resource
    list_kind_name: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage(self) -> Kind:
        """The collection that holds the objects; both Event kinds share one."""
        return EVENTS.storage if self.group == "events.k8s.io" else (self.group, self.plural)

    @property
    def list_kind(self) -> str:
        return self.list_kind_name or f"{self.kind}List"


def _builtin(group: str, plural: str, kind: str, options: str = "", short: str = "", categories: str = "") -> Resource:
    """`options`: words of cluster, status, generation, scale."""
    words = options.split()
    return Resource(
        group=group,
        version="v1",
        plural=plural,
        kind=kind,
        namespaced="cluster" not in words,
        singular=kind.lower(),
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        status="status" in words,
        generation="generation" in words,
        scale="scale" in words,
    )


PODS = _builtin("", "pods", "Pod", "status generation", "po", "all")
NODES = _builtin("", "nodes", "Node", "cluster status", "no")
NAMESPACES = _builtin("", "namespaces", "Namespace", "cluster status", "ns")
EVENTS = _builtin("", "events", "Event", "", "ev")
EVENTS_V1 = _builtin("events.k8s.io", "events", "Event", "", "ev")
DEPLOYMENTS = _builtin("apps", "deployments", "Deployment", "status generation scale", "deploy", "all")
REPLICASETS = _builtin("apps", "replicasets", "ReplicaSet", "status generation scale", "rs", "all")
STATEFULSETS = _builtin("apps", "statefulsets", "StatefulSet", "status generation scale", "sts", "all")
DAEMONSETS = _builtin("apps", "daemonsets", "DaemonSet", "status generation", "ds", "all")
BUDGETS = _builtin("policy", "poddisruptionbudgets", "PodDisruptionBudget", "status generation", "pdb")
LEASES = _builtin("coordination.k8s.io", "leases", "Lease")
PRIORITY_CLASSES = _builtin("scheduling.k8s.io", "priorityclasses", "PriorityClass", "cluster generation", "pc")
CRDS = _builtin(
    "apiextensions.k8s.io",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    "cluster status generation",
    "crd crds",
)

BUILTIN: tuple[Resource, ...] = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    EVENTS_V1,
    DEPLOYMENTS,
    REPLICASETS,
    STATEFULSETS,
    DAEMONSETS,
    BUDGETS,
    LEASES,
    PRIORITY_CLASSES,
    CRDS,
    _builtin("", "services", "Service", "status", "svc", "all"),
    _builtin("", "replicationcontrollers", "ReplicationController", "status generation scale", "rc", "all"),
    _builtin("", "persistentvolumeclaims", "PersistentVolumeClaim", "status", "pvc"),
    _builtin("", "persistentvolumes", "PersistentVolume", "cluster status", "pv"),
    _builtin("", "configmaps", "ConfigMap", "", "cm"),
    _builtin("", "secrets", "Secret"),
    _builtin("", "serviceaccounts", "ServiceAccount", "", "sa"),
    _builtin("batch", "jobs", "Job", "status generation", "", "all"),
    _builtin("storage.k8s.io", "storageclasses", "StorageClass", "cluster", "sc"),
    _builtin("storage.k8s.io", "csinodes", "CSINode", "cluster"),
    _builtin("storage.k8s.io", "volumeattachments", "VolumeAttachment", "cluster status"),
)


class ResourceTable:
    """What is served now. Custom resources come and go with their definitions."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str], Resource] = {}
        for resource in BUILTIN:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        self._by_path[resource.group, resource.version, resource.plural] = resource
        self._by_kind[resource.api_version, resource.kind] = resource

    def remove_custom(self, group: str, plural: str) -> None:
        for resource in [r for r in self if r.custom and (r.group, r.plural) == (group, plural)]:
            del self._by_path[resource.group, resource.version, resource.plural]
            del self._by_kind[resource.api_version, resource.kind]

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def find_kind(self, api_version: str, kind: str) -> Resource | None:
        return self._by_kind.get((api_version, kind))

    def of_storage(self, storage: Kind) -> Resource | None:
        """Any served version of a collection."""
        return next((r for r in self if r.storage == storage), None)

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_path.values()))
