"""Which fields manifests may have: a typing mistake is warned about instead of silently doing nothing.

Only the objects that planning reads are described, level by level; `...` stands for "anything below".
"""

from collections.abc import Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any, TypeAlias

Shape: TypeAlias = "Mapping[str, Shape] | Sequence[Shape] | EllipsisType"


def _names(text: str) -> dict[str, Shape]:
    return dict.fromkeys(text.split(), ...)


_META = ...
_RESOURCES: Shape = {**_names("limits requests claims")}
_CONTAINER: Shape = [
    {
        **_names(
            "name image command args workingDir envFrom env resizePolicy restartPolicy restartPolicyRules volumeMounts "
            "volumeDevices livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath "
            "terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty targetContainerName",
        ),
        "resources": _RESOURCES,
        "ports": [_names("name containerPort hostPort hostIP protocol")],
    }
]
_EXPRESSIONS: Shape = [_names("key operator values")]
_TERM: Shape = {"matchExpressions": _EXPRESSIONS, "matchFields": _EXPRESSIONS}
_SELECTOR: Shape = {"matchLabels": ..., "matchExpressions": _EXPRESSIONS}
_POD_TERM: Shape = {
    **_names("namespaces topologyKey matchLabelKeys mismatchLabelKeys"),
    "labelSelector": _SELECTOR,
    "namespaceSelector": _SELECTOR,
}
_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_POD_RULES: Shape = {_REQUIRED: [_POD_TERM], _PREFERRED: [{"weight": ..., "podAffinityTerm": _POD_TERM}]}
_POD_SPEC: Shape = {
    **_names(
        "volumes restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy nodeSelector "
        "serviceAccountName serviceAccount automountServiceAccountToken nodeName hostNetwork hostPID hostIPC "
        "shareProcessNamespace securityContext imagePullSecrets hostname subdomain schedulerName hostAliases "
        "priorityClassName priority dnsConfig readinessGates runtimeClassName enableServiceLinks preemptionPolicy "
        "overhead setHostnameAsFQDN os hostUsers schedulingGates resourceClaims hostnameOverride schedulingGroup "
        "workloadRef",
    ),
    "containers": _CONTAINER,
    "initContainers": _CONTAINER,
    "ephemeralContainers": _CONTAINER,
    "resources": _RESOURCES,
    "affinity": {
        "nodeAffinity": {
            _REQUIRED: {"nodeSelectorTerms": [_TERM]},
            _PREFERRED: [{"weight": ..., "preference": _TERM}],
        },
        "podAffinity": _POD_RULES,
        "podAntiAffinity": _POD_RULES,
    },
    "tolerations": [_names("key operator value effect tolerationSeconds")],
    "topologySpreadConstraints": [
        {
            **_names(
                "maxSkew topologyKey whenUnsatisfiable minDomains nodeAffinityPolicy nodeTaintsPolicy matchLabelKeys",
            ),
            "labelSelector": _SELECTOR,
        }
    ],
}
_TEMPLATE: Shape = {"metadata": _META, "spec": _POD_SPEC}
_TAINTS: Shape = [_names("key value effect timeAdded")]
_REQUIREMENTS: Shape = [_names("key operator values minValues")]


def _workload(names: str) -> Shape:
    return {"spec": {**_names(names), "selector": ..., "template": _TEMPLATE}}


_SHAPES: Mapping[str, Shape] = {
    "Pod": {"spec": _POD_SPEC},
    "Deployment": _workload("replicas minReadySeconds strategy revisionHistoryLimit paused progressDeadlineSeconds"),
    "ReplicaSet": _workload("replicas minReadySeconds"),
    "ReplicationController": _workload("replicas minReadySeconds"),
    "StatefulSet": _workload(
        "replicas serviceName podManagementPolicy updateStrategy revisionHistoryLimit minReadySeconds "
        "persistentVolumeClaimRetentionPolicy ordinals volumeClaimTemplates",
    ),
    "DaemonSet": _workload("updateStrategy minReadySeconds revisionHistoryLimit"),
    "Job": _workload(
        "parallelism completions activeDeadlineSeconds podFailurePolicy successPolicy backoffLimit "
        "backoffLimitPerIndex maxFailedIndexes manualSelector ttlSecondsAfterFinished completionMode suspend "
        "podReplacementPolicy managedBy",
    ),
    "NodePool": {
        "spec": {
            **_names("limits weight replicas"),
            "template": {
                "metadata": _names("labels annotations"),
                "spec": {
                    **_names("expireAfter terminationGracePeriod"),
                    "requirements": _REQUIREMENTS,
                    "taints": _TAINTS,
                    "startupTaints": _TAINTS,
                    "nodeClassRef": _names("group kind name"),
                },
            },
            "disruption": {
                **_names("consolidateAfter consolidationPolicy"),
                "budgets": [_names("nodes reasons schedule duration")],
            },
        },
    },
    "EC2NodeClass": {
        "spec": _names(
            "subnetSelectorTerms securityGroupSelectorTerms capacityReservationSelectorTerms amiSelectorTerms "
            "amiFamily associatePublicIPAddress userData role instanceProfile tags kubelet blockDeviceMappings "
            "instanceStorePolicy detailedMonitoring metadataOptions context cpuOptions networkInterfaces "
            "ipPrefixCount connectionTracking placementGroupSelector placementGroupSelectorTerms",
        ),
    },
}


def unknown_fields(kind: str, raw: Mapping[str, Any]) -> Iterator[str]:
    """The paths of fields that the kind does not have. Kinds that are not described have all."""
    shape = _SHAPES.get(kind)
    if isinstance(shape, Mapping):
        yield from _walk({**_names("apiVersion kind metadata status"), **shape}, raw, "")


def _walk(shape: Shape, value: Any, path: str) -> Iterator[str]:
    if isinstance(shape, EllipsisType) or value is None:
        return
    if isinstance(shape, Mapping):
        if isinstance(value, Mapping):
            for key, below in value.items():
                where = f"{path}.{key}".lstrip(".")
                if key in shape:
                    yield from _walk(shape[key], below, where)
                else:
                    yield where
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(shape[0], item, f"{path}[{index}]")
