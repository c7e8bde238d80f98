"""API objects as JSON (from the API server or a file) to model types and back. Stdlib only.

`PARSERS` maps a kind to its reader; every reader raises ManifestError naming the field that it cannot read.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sawhorse_model.manifests.cluster import (
    parse_csi_node,
    parse_daemonset,
    parse_namespace,
    parse_node,
    parse_pdb,
    parse_priority_class,
    parse_service,
    parse_storage_class,
    parse_volume,
    parse_volume_attachment,
    parse_volume_claim,
    parse_workload,
    template_pod,
)
from sawhorse_model.manifests.fields import ManifestError, Raw, format_time, parse_duration, parse_time
from sawhorse_model.manifests.karpenter import nodeclaim_to_raw, parse_nodeclaim, parse_nodeclass, parse_nodepool
from sawhorse_model.manifests.pods import parse_pod, parse_pod_spec

PARSERS: Mapping[str, Callable[[Raw], Any]] = {
    "Pod": parse_pod,
    "Node": parse_node,
    "NodeClaim": parse_nodeclaim,
    "NodePool": parse_nodepool,
    "EC2NodeClass": parse_nodeclass,
    "DaemonSet": parse_daemonset,
    "ReplicaSet": parse_workload,
    "StatefulSet": parse_workload,
    "ReplicationController": parse_workload,
    "PodDisruptionBudget": parse_pdb,
    "Namespace": parse_namespace,
    "PriorityClass": parse_priority_class,
    "Service": parse_service,
    "PersistentVolumeClaim": parse_volume_claim,
    "PersistentVolume": parse_volume,
    "StorageClass": parse_storage_class,
    "CSINode": parse_csi_node,
    "VolumeAttachment": parse_volume_attachment,
}

__all__ = [
    "PARSERS",
    "ManifestError",
    "Raw",
    "format_time",
    "nodeclaim_to_raw",
    "parse_duration",
    "parse_nodeclaim",
    "parse_nodeclass",
    "parse_nodepool",
    "parse_pod",
    "parse_pod_spec",
    "parse_time",
    "template_pod",
]
