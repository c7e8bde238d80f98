"""What the workloads of `workload` lean on: NodePools, namespaces, volumes, a runtime class, DaemonSets. Pure."""

from collections.abc import Sequence
from typing import Any

from sawhorse_kube.kinds import DAEMONSET, NAMESPACE, NODEPOOL, PV, PVC, STORAGECLASS, Kind, raw_kind
from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_testing.agreement.workload import (
    AGENT_TAINT,
    ARCH,
    CATEGORY,
    DEDICATED,
    DRIVER,
    FAR,
    GENERATION,
    NEAR,
    REGIONAL,
    RUNTIME,
    SOFT,
    WAITING,
    Json,
    zones,
)

RUNTIMECLASS = raw_kind("RuntimeClass", "node.k8s.io", "v1", "runtimeclasses", namespaced=False)

Objects = Sequence[tuple[Kind, Json]]


def pools() -> Objects:
    """Five NodePools: by weight with a limit, tainted hard and softly, with a startup taint, and for devices."""
    soft = [{"key": SOFT, "value": "yes", "effect": "PreferNoSchedule"}]
    hard = [{"key": DEDICATED, "value": "batch", "effect": "NoSchedule"}]
    agent = [{"key": AGENT_TAINT, "value": "starting", "effect": "NoSchedule"}]
    gpu = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    return (
        _pool("everyday", limits={"cpu": "400"}),
        _pool("first", weight=50, limits={"cpu": "48"}, categories=("c", "m"), capacity=("on-demand",)),
        _pool("batch", taints=hard, labels={DEDICATED: "batch"}, limits={"nodes": "20"}),
        _pool("soft", weight=5, taints=soft, labels={SOFT: "yes"}, limits={"cpu": "200"}),
        _pool("agents", startupTaints=agent, labels={AGENT_TAINT: "yes"}, limits={"cpu": "80"}),
        _pool("devices", taints=gpu, categories=("g",), architectures=("amd64",)),
    )


def _pool(
    name: str,
    *,
    weight: int = 0,
    limits: Json | None = None,
    labels: Json | None = None,
    categories: Sequence[str] = ("c", "m", "r"),
    architectures: Sequence[str] = ("amd64", "arm64"),
    capacity: Sequence[str] = ("spot", "on-demand"),
    **template: Any,
) -> tuple[Kind, Json]:
    requirements = [
        {"key": CATEGORY, "operator": "In", "values": list(categories)},
        {"key": GENERATION, "operator": "Gt", "values": ["4" if "g" not in categories else "3"]},
        {"key": CAPACITY_TYPE, "operator": "In", "values": list(capacity)},
        {"key": ARCH, "operator": "In", "values": list(architectures)},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec: Json = {
        "template": {
            "metadata": {"labels": labels or {}},
            "spec": {"nodeClassRef": reference, "requirements": requirements, **template},
        },
        "disruption": {"consolidateAfter": "Never"},
        "limits": limits or {},
    }
    if weight:
        spec["weight"] = weight
    return NODEPOOL, {"metadata": {"name": name}, "spec": spec}


def around(region: str) -> Objects:
    """All else that must be there before the workloads."""
    a, b, c = zones(region, "a", "b", "c")
    return (
        *((NAMESPACE, {"metadata": {"name": n, "labels": {"team": n.removeprefix("agree-")}}}) for n in (NEAR, FAR)),
        (
            RUNTIMECLASS,
            {
                "metadata": {"name": RUNTIME},
                "handler": "sandboxed",
                "overhead": {"podFixed": {"cpu": "120m", "memory": "160Mi"}},
                "scheduling": {"nodeSelector": {ARCH: "amd64"}},
            },
        ),
        *_storage(a, b, c),
        *_daemons(),
    )


def _storage(a: str, b: str, c: str) -> Objects:
    in_two = [{"matchLabelExpressions": [{"key": ZONE, "values": [a, c]}]}]
    bound = [(f"bound-{number}", (a, b, c, a)[number]) for number in range(4)] + [("shared", b)]
    return (
        _storage_class(WAITING, DRIVER),
        _storage_class(REGIONAL, DRIVER, allowedTopologies=in_two),
        *((PV, volume(name, zone, "", claim=name)) for name, zone in bound),
        *((PVC, _claim(name, "", volumeName=name)) for name, _ in bound),
        (PVC, _claim("shared-unbound", WAITING)),
    )


def _storage_class(name: str, provisioner: str, **more: Any) -> tuple[Kind, Json]:
    mode = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    return STORAGECLASS, {"metadata": {"name": name}, **mode, **more}


def volume(name: str, zone: str, storage_class: str, *, claim: str = "") -> Json:
    """A volume of a zone, for a claim of the near namespace where one is named."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    spec: Json = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": DRIVER, "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    if claim:
        spec["claimRef"] = {"namespace": NEAR, "name": claim}
    return {"metadata": {"name": name}, "spec": spec}


def _claim(name: str, storage_class: str, **more: Any) -> Json:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
        **more,
    }
    return {"metadata": {"name": name, "namespace": NEAR}, "spec": spec}


def _daemons() -> Objects:
    everywhere = {"tolerations": [{"operator": "Exists"}]}
    port = {"ports": [{"containerPort": 9100, "hostPort": 9100}]}
    return (
        _daemon("node-agent", "40m", "60Mi", everywhere, port),
        _daemon("logs", "60m", "120Mi", {}, {}),
        _daemon("amd-only", "30m", "50Mi", {"nodeSelector": {ARCH: "amd64"}}, {}),
        _daemon("batch-only", "80m", "100Mi", {"nodeSelector": {DEDICATED: "batch"}, **everywhere}, {}),
    )


def _daemon(name: str, cpu: str, memory: str, spec: Json, container: Json) -> tuple[Kind, Json]:
    requests = {"cpu": cpu, "memory": memory}
    app = {"name": "app", "image": "example.test/app", "resources": {"requests": requests}, **container}
    labels = {"app": name}
    return DAEMONSET, {
        "metadata": {"name": name, "namespace": FAR},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [app], **spec},
            },
        },
    }
