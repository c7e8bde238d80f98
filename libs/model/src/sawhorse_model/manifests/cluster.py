"""Nodes, workloads, budgets, volumes and the other kinds from API JSON."""

from sawhorse_model.cluster import (
    CSINode,
    DaemonSet,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    PriorityClass,
    Service,
    StorageClass,
    VolumeAttachment,
    Workload,
)
from sawhorse_model.manifests import fields
from sawhorse_model.manifests.fields import Raw
from sawhorse_model.manifests.pods import parse_pod_spec, selector_term
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.node import Node
from sawhorse_model.pod import NodeSelectorTerm, Pod
from sawhorse_model.requirements import Operator, RequirementSpec

IN_TREE_EBS = "kubernetes.io/aws-ebs"
_CSI_NAMES = {IN_TREE_EBS: "ebs.csi.aws.com"}


def parse_node(raw: Raw) -> Node:
    """Read a Node."""
    spec = fields.mapping(raw, "spec", "")
    status = fields.mapping(raw, "status", "")
    addresses = fields.items(status, "addresses", "status")
    return Node(
        meta=fields.meta(raw),
        provider_id=fields.text(spec, "providerID", "spec"),
        taints=fields.taints(spec, "taints", "spec"),
        unschedulable=bool(spec.get("unschedulable")),
        capacity=fields.resources(status, "capacity", "status"),
        allocatable=fields.resources(status, "allocatable", "status"),
        conditions=fields.conditions(status),
        internal_ip=next((str(a.get("address", "")) for a in addresses if a.get("type") == "InternalIP"), ""),
    )


def template_pod(raw: Raw, path: str, *, name: str, namespace: str) -> Pod:
    """A pod as a workload's template would make it. `raw` is the object that holds `template`."""
    template = fields.mapping(raw, "template", path)
    metadata = fields.mapping(template, "metadata", f"{path}.template")
    where = f"{path}.template.spec"
    return Pod(
        meta=ObjectMeta(
            name=name,
            namespace=namespace,
            labels=fields.string_map(metadata, "labels", f"{path}.template.metadata"),
            annotations=fields.string_map(metadata, "annotations", f"{path}.template.metadata"),
        ),
        spec=parse_pod_spec(fields.mapping(template, "spec", f"{path}.template"), where),
    )


def parse_daemonset(raw: Raw) -> DaemonSet:
    """Read a DaemonSet."""
    meta = fields.meta(raw, default_namespace="default")
    spec = fields.mapping(raw, "spec", "")
    return DaemonSet(meta, template_pod(spec, "spec", name=meta.name, namespace=meta.namespace))


def parse_workload(raw: Raw) -> Workload:
    """Read a ReplicaSet, StatefulSet or ReplicationController."""
    spec = fields.mapping(raw, "spec", "")
    return Workload(
        meta=fields.meta(raw, default_namespace="default"),
        kind=fields.text(raw, "kind", ""),
        replicas=fields.integer(spec, "replicas", "spec", 1, low=0, high=2**31 - 1),
        selector=fields.selector(spec, "selector", "spec") if _has_expressions(spec) else None,
    )


def _has_expressions(spec: Raw) -> bool:
    # A ReplicationController's selector is a plain map.
    value = spec.get("selector")
    return isinstance(value, dict) and ("matchLabels" in value or "matchExpressions" in value)


def parse_pdb(raw: Raw) -> PodDisruptionBudget:
    """Read a PodDisruptionBudget."""
    spec = fields.mapping(raw, "spec", "")
    status = fields.mapping(raw, "status", "")

    def amount(key: str) -> str | None:
        return None if spec.get(key) is None else str(spec[key])

    return PodDisruptionBudget(
        meta=fields.meta(raw, default_namespace="default"),
        selector=fields.selector(spec, "selector", "spec"),
        min_available=amount("minAvailable"),
        max_unavailable=amount("maxUnavailable"),
        disruptions_allowed=fields.integer(status, "disruptionsAllowed", "status"),
        unhealthy_policy=fields.text(spec, "unhealthyPodEvictionPolicy", "spec"),
    )


def parse_namespace(raw: Raw) -> Namespace:
    """Read a Namespace."""
    return Namespace(fields.meta(raw))


def parse_priority_class(raw: Raw) -> PriorityClass:
    """Read a PriorityClass."""
    return PriorityClass(fields.meta(raw), fields.integer(raw, "value", ""), bool(raw.get("globalDefault")))


def parse_service(raw: Raw) -> Service:
    """Read a Service."""
    spec = fields.mapping(raw, "spec", "")
    selector = fields.string_map(spec, "selector", "spec") if spec.get("selector") is not None else None
    return Service(fields.meta(raw, default_namespace="default"), selector)


def parse_volume_claim(raw: Raw) -> PersistentVolumeClaim:
    """Read a PersistentVolumeClaim."""
    spec = fields.mapping(raw, "spec", "")
    return PersistentVolumeClaim(
        meta=fields.meta(raw, default_namespace="default"),
        phase=fields.text(fields.mapping(raw, "status", ""), "phase", "status"),
        volume_name=fields.text(spec, "volumeName", "spec"),
        storage_class=spec.get("storageClassName"),
    )


def parse_volume(raw: Raw) -> PersistentVolume:
    """Read a PersistentVolume."""
    spec = fields.mapping(raw, "spec", "")
    affinity = fields.mapping(fields.mapping(spec, "nodeAffinity", "spec"), "required", "spec.nodeAffinity")
    claim = fields.mapping(spec, "claimRef", "spec")
    driver = fields.text(fields.mapping(spec, "csi", "spec"), "driver", "spec.csi")
    if not driver and spec.get("awsElasticBlockStore") is not None:
        driver = _CSI_NAMES[IN_TREE_EBS]
    return PersistentVolume(
        meta=fields.meta(raw),
        driver=driver,
        local=spec.get("local") is not None or spec.get("hostPath") is not None,
        terms=tuple(
            selector_term(t, f"spec.nodeAffinity.required.nodeSelectorTerms[{i}]")
            for i, t in enumerate(fields.items(affinity, "nodeSelectorTerms", "spec.nodeAffinity.required"))
        ),
        claim=f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
    )


def parse_storage_class(raw: Raw) -> StorageClass:
    """Read a StorageClass."""
    provisioner = fields.text(raw, "provisioner", "")
    return StorageClass(
        meta=fields.meta(raw),
        provisioner=_CSI_NAMES.get(provisioner, provisioner),
        binding_mode=fields.text(raw, "volumeBindingMode", "") or "Immediate",
        topologies=tuple(
            NodeSelectorTerm(
                tuple(
                    RequirementSpec(
                        fields.text(e, "key", "allowedTopologies"),
                        Operator.IN,
                        fields.texts(e, "values", "allowedTopologies"),
                    )
                    for e in fields.items(t, "matchLabelExpressions", "allowedTopologies")
                ),
            )
            for t in fields.items(raw, "allowedTopologies", "")
        ),
    )


def parse_csi_node(raw: Raw) -> CSINode:
    """Read a CSINode."""
    limits: dict[str, int] = {}
    for driver in fields.items(fields.mapping(raw, "spec", ""), "drivers", "spec"):
        count = fields.mapping(driver, "allocatable", "spec.drivers").get("count")
        if isinstance(count, int):
            limits[fields.text(driver, "name", "spec.drivers")] = count
    return CSINode(fields.meta(raw), limits)


def parse_volume_attachment(raw: Raw) -> VolumeAttachment:
    """Read a VolumeAttachment."""
    spec = fields.mapping(raw, "spec", "")
    return VolumeAttachment(
        meta=fields.meta(raw),
        node_name=fields.text(spec, "nodeName", "spec"),
        volume_name=fields.text(fields.mapping(spec, "source", "spec"), "persistentVolumeName", "spec.source"),
        attached=bool(fields.mapping(raw, "status", "").get("attached")),
    )
