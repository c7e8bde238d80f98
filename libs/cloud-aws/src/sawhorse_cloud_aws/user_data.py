"""User data: what an instance reads at its first boot so that its kubelet joins with the right labels and taints."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from sawhorse_cloud_aws import mime
from sawhorse_cloud_aws.boot import Boot, ClusterFacts, node_labels
from sawhorse_cloud_aws.bottlerocket import bottlerocket_user_data, toml_problem
from sawhorse_cloud_aws.scripts import al2_user_data, windows_user_data
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.manifests.fields import taint_to_raw
from sawhorse_model.taints import Taint

LARGEST_BYTES = 16384  # EC2's limit, before base64


def unsupported(node_class: EC2NodeClass) -> str:
    """What of the NodeClass a launch cannot do yet, with the field named; empty when it can do all."""
    if node_class.ami_family not in _BUILDERS:
        words = " and ".join(sorted(_BUILDERS))
        return f"spec.amiFamily {node_class.ami_family} is not supported yet; {words} are"
    return ""


def build_user_data(
    node_class: EC2NodeClass,
    cluster: ClusterFacts,
    *,
    labels: Mapping[str, str],
    taints: Sequence[Taint],
    max_pods: int,
) -> str:
    """User data for one launch template, base64; empty when there is none. `taints` as in `Boot`."""
    text = _BUILDERS[node_class.ami_family](Boot(node_class, cluster, labels, tuple(taints), max_pods))
    return base64.b64encode(text.encode()).decode()


def user_data_bytes(encoded: str) -> int:
    """The size that EC2 counts."""
    return len(encoded) * 3 // 4 - encoded[-2:].count("=")


def user_data_problem(node_class: EC2NodeClass) -> str:
    """Why spec.userData cannot be merged with ours, with the line; empty when it can."""
    check = _PROBLEMS.get(node_class.ami_family)
    problem = check(node_class.user_data) if check is not None else ""
    return f"spec.userData {problem}" if problem else ""


def uses_max_pods(node_class: EC2NodeClass) -> bool:
    """Whether the resolved number of pods is part of the user data, so that types with other numbers need their own."""
    return node_class.ami_family != "Custom" and node_class.kubelet.max_pods is None


def _custom(boot: Boot) -> str:
    return boot.node_class.user_data


def _al2023(boot: Boot) -> str:
    text = boot.node_class.user_data
    plain = mime.NODE_CONFIG if mime.is_yaml_map(text) else mime.SHELL
    return mime.join([*mime.split(text, plain=plain), mime.part(mime.NODE_CONFIG, _node_config(boot))])


def _node_config(boot: Boot) -> str:
    cluster, node_class = boot.cluster, boot.node_class
    kubelet: dict[str, Any] = dict(node_class.kubelet.raw)
    kubelet["maxPods"] = boot.sent_max_pods
    if not kubelet.get("clusterDNS"):
        kubelet["clusterDNS"] = [cluster.dns_address]
    kubelet["registerWithTaints"] = [taint_to_raw(t) for t in boot.registered_taints]
    flags = ",".join(f"{k}={v}" for k, v in node_labels(boot.labels).items())
    spec: dict[str, Any] = {
        "cluster": {
            "name": cluster.name,
            "apiServerEndpoint": cluster.endpoint,
            "certificateAuthority": cluster.ca,
            "cidr": cluster.service_cidr,
        },
        "kubelet": {"config": kubelet, "flags": [f"--node-labels={flags}"]},
    }
    if boot.has_raid0:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    return yaml.safe_dump(document, sort_keys=True, default_flow_style=False, width=2**20, allow_unicode=True)


_BUILDERS: Mapping[str, Callable[[Boot], str]] = {
    "AL2": al2_user_data,
    "AL2023": _al2023,
    "Bottlerocket": bottlerocket_user_data,
    "Custom": _custom,
    "Windows2019": windows_user_data,
    "Windows2022": windows_user_data,
    "Windows2025": windows_user_data,
}
_PROBLEMS: Mapping[str, Callable[[str], str]] = {
    "AL2": mime.mime_problem,
    "AL2023": mime.mime_problem,
    "Bottlerocket": toml_problem,
}
