"""What the demo applies: a NodeClass, a NodePool, a DaemonSet and three Deployments."""

from collections.abc import Mapping
from typing import Any

NAMESPACE = "default"
GRACE_SECONDS = 5

# Name → replicas: the pods that the demo counts.
WORKLOADS: Mapping[str, int] = {"web": 40, "batch": 30, "arm": 10}
PODS = sum(WORKLOADS.values())


def node_class(cluster: str, role: str) -> dict[str, Any]:
    """An EC2NodeClass that finds the sandbox's network by its discovery tag."""
    discovery = [{"tags": {"karpenter.sh/discovery": cluster}}]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": role,
            "subnetSelectorTerms": discovery,
            "securityGroupSelectorTerms": discovery,
        },
    }


def node_pool() -> dict[str, Any]:
    """A NodePool of current compute, general and memory types, spot and on-demand, both architectures."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [
                        _requirement("karpenter.k8s.aws/instance-category", "In", "c", "m", "r"),
                        _requirement("karpenter.k8s.aws/instance-generation", "Gt", "4"),
                        _requirement("karpenter.sh/capacity-type", "In", "spot", "on-demand"),
                        _requirement("kubernetes.io/arch", "In", "amd64", "arm64"),
                    ],
                },
            },
            "limits": {"cpu": "1000"},
        },
    }


def _requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def daemon_set() -> dict[str, Any]:
    """A small agent on every node."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": _template("agent", "50m", "64Mi"),
        },
    }


def deployments() -> list[dict[str, Any]]:
    """`web` spread over zones, `batch` with much cpu, `arm` on arm64 only."""
    web = _template("web", "250m", "512Mi")
    web["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        },
    ]
    arm = _template("arm", "500m", "1Gi")
    arm["spec"]["nodeSelector"] = {"kubernetes.io/arch": "arm64"}
    templates = {"web": web, "batch": _template("batch", "1", "2Gi"), "arm": arm}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": templates[name],
            },
        }
        for name, replicas in WORKLOADS.items()
    ]


def _template(app: str, cpu: str, memory: str) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": memory}
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [{"name": app, "image": f"example.test/{app}", "resources": {"requests": requests}}],
        },
    }
