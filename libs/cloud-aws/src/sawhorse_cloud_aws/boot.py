"""What a node must know to boot into the cluster, whatever the language of its image. Pure."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.labels import DO_NOT_SYNC_TAINTS, UNREGISTERED_TAINT, in_domain
from sawhorse_model.taints import NO_EXECUTE, Taint

# Node admission refuses these from a kubelet; they are put on the Node at registration.
_ADMISSION_DOMAINS = ("kubernetes.io", "k8s.io")


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
        """Address of kube-dns by the convention of EKS: the tenth of the service range. Empty when it is not known."""
        return str(ipaddress.ip_network(self.service_cidr, strict=False)[10]) if self.service_cidr else ""

    @property
    def is_ipv6(self) -> bool:
        """Whether services, and so pods, have IPv6 addresses."""
        return ":" in self.service_cidr


@dataclass(frozen=True, slots=True)
class Boot:
    """What one launch template's nodes are told. `taints` are the claim's, startup taints included."""

    node_class: EC2NodeClass
    cluster: ClusterFacts
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    max_pods: int

    @property
    def registered_taints(self) -> tuple[Taint, ...]:
        """The taints that the kubelet registers with, in one order."""
        return (*sorted(self.taints, key=lambda t: (t.key, t.effect, t.value)), Taint(UNREGISTERED_TAINT, NO_EXECUTE))

    @property
    def sent_max_pods(self) -> int:
        """As typed in spec.kubelet, else what the plan counted with."""
        typed = self.node_class.kubelet.max_pods
        return self.max_pods if typed is None else typed

    @property
    def cluster_dns(self) -> str:
        """The first DNS address of spec.kubelet, else the cluster's own."""
        typed = self.node_class.kubelet.cluster_dns
        return typed[0] if typed else self.cluster.dns_address

    @property
    def has_raid0(self) -> bool:
        """Whether pods' storage lies on the machine's own disks."""
        return self.node_class.instance_store_policy == "RAID0"


def node_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels a kubelet may set itself, sorted."""
    own = {**labels, DO_NOT_SYNC_TAINTS: "true"}
    return {key: own[key] for key in sorted(own) if not any(in_domain(key, d) for d in _ADMISSION_DOMAINS)}
