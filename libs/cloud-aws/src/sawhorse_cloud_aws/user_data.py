"""User data: what an instance reads at its first boot so that its kubelet joins with the right labels and taints."""

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from email import message_from_string
from typing import Any

import yaml

from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.labels import DO_NOT_SYNC_TAINTS, UNREGISTERED_TAINT, domain
from sawhorse_model.manifests.fields import taint_to_raw
from sawhorse_model.taints import NO_EXECUTE, Taint

SUPPORTED_FAMILIES = ("AL2023", "Custom")
LARGEST_BYTES = 16384

_BOUNDARY = "//"
_NODE_CONFIG = "application/node.eks.aws"
_SHELL = 'text/x-shellscript; charset="us-ascii"'
# Node admission refuses these from a kubelet; they are put on the Node at registration.
_ADMISSION_DOMAINS = ("kubernetes.io", "k8s.io", "node-restriction.kubernetes.io")


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What a node must know to join. `ca` is base64; `service_cidr` gives the default DNS address."""

    name: str
    endpoint: str
    ca: str
    service_cidr: str
    version: str  # e.g. "1.36"

    @property
    def dns_address(self) -> str:
        """Address of kube-dns by the convention of EKS: the tenth of the service range."""
        return str(ipaddress.ip_network(self.service_cidr)[10])


# Fields of the spec that a launch does not act upon yet. To ignore one silently could cost money or isolation.
UNSUPPORTED_FIELDS = (
    "placementGroupSelector",
    "networkInterfaces",
    "capacityReservationSelectorTerms",
    "connectionTracking",
    "ipPrefixCount",
    "cpuOptions",
)


def unsupported(node_class: EC2NodeClass) -> str:
    """What of the NodeClass a launch cannot do yet, with the field named; empty when it can do all."""
    if node_class.ami_family not in SUPPORTED_FAMILIES:
        words = " and ".join(SUPPORTED_FAMILIES)
        return f"spec.amiFamily {node_class.ami_family} is not supported yet; {words} are"
    for field in UNSUPPORTED_FIELDS:
        if node_class.node_class.spec.get(field):
            return f"spec.{field} is not supported yet; remove it"
    return ""


def node_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels a kubelet may set itself, sorted."""
    own = {**labels, DO_NOT_SYNC_TAINTS: "true"}
    return {
        key: own[key]
        for key in sorted(own)
        if not any(domain(key) == d or domain(key).endswith("." + d) for d in _ADMISSION_DOMAINS)
    }


def build_user_data(
    node_class: EC2NodeClass,
    cluster: ClusterFacts,
    *,
    labels: Mapping[str, str],
    taints: tuple[Taint, ...],
    max_pods: int,
) -> str:
    """User data for one launch template, base64. `taints` are the claim's, startup taints included."""
    if node_class.ami_family == "Custom":
        return base64.b64encode(node_class.user_data.encode()).decode()
    config = _node_config(node_class, cluster, labels=labels, taints=taints, max_pods=max_pods)
    parts = [*_user_parts(node_class.user_data), (_NODE_CONFIG, config)]
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"', ""]
    for kind, body in parts:
        lines += [f"--{_BOUNDARY}", f"Content-Type: {kind}", "", body.replace("\r\n", "\n").rstrip("\n"), ""]
    lines.append(f"--{_BOUNDARY}--")
    return base64.b64encode(("\n".join(lines) + "\n").encode()).decode()


def _node_config(
    node_class: EC2NodeClass,
    cluster: ClusterFacts,
    *,
    labels: Mapping[str, str],
    taints: tuple[Taint, ...],
    max_pods: int,
) -> str:
    registered = (*taints, Taint(UNREGISTERED_TAINT, NO_EXECUTE))
    kubelet: dict[str, Any] = dict(node_class.kubelet.raw)
    kubelet["maxPods"] = node_class.kubelet.max_pods if node_class.kubelet.max_pods is not None else max_pods
    kubelet.setdefault("clusterDNS", [cluster.dns_address])
    kubelet["registerWithTaints"] = [taint_to_raw(t) for t in registered]
    flags = ",".join(f"{k}={v}" for k, v in node_labels(labels).items())
    spec: dict[str, Any] = {
        "cluster": {
            "name": cluster.name,
            "apiServerEndpoint": cluster.endpoint,
            "certificateAuthority": cluster.ca,
            "cidr": cluster.service_cidr,
        },
        "kubelet": {"config": kubelet, "flags": [f"--node-labels={flags}"]},
    }
    if node_class.instance_store_policy == "RAID0":
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    return yaml.safe_dump(document, sort_keys=True, default_flow_style=False)


def _user_parts(text: str) -> list[tuple[str, str]]:
    """The user's own parts: MIME is split, a YAML map is a NodeConfig, anything else is a shell script."""
    stripped = text.strip()
    if not stripped:
        return []
    if stripped.startswith(("MIME-Version:", "Content-Type:")):
        message = message_from_string(stripped.replace("\r\n", "\n"))
        found = []
        for part in message.walk():
            if part.is_multipart():
                continue
            payload = part.get_payload(decode=True)
            body = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else str(payload)
            found.append((part.get("Content-Type", _SHELL), body))
        return found
    if not stripped.startswith("#!"):
        try:
            if isinstance(yaml.safe_load(stripped), dict):
                return [(_NODE_CONFIG, stripped)]
        except yaml.YAMLError:
            pass  # not YAML: a script without a first line
    return [(_SHELL, stripped)]
