"""How the watcher can be told to run."""

import re
from dataclasses import dataclass
from datetime import timedelta

from sawhorse_kube.kinds import Kind, nodeclass_kind
from sawhorse_runtime.settings import (
    CommonSettings,
    address,
    at_least,
    duration,
    integer,
    number,
    option,
    optional,
    path,
    text,
    words,
)

_WORD = re.compile(r"([a-z0-9.-]+)/(v[a-z0-9]+)/([A-Z][A-Za-z0-9]*)/([a-z0-9]+)")


def node_class_kinds(value: str) -> tuple[Kind, ...]:
    """A comma list of group/version/Kind/plural."""
    kinds: list[Kind] = []
    for word in words(value):
        found = _WORD.fullmatch(word)
        if found is None:
            raise ValueError(f"{word!r} is not group/version/Kind/plural; see the default for an example")
        kinds.append(nodeclass_kind(*found.groups()))
    return tuple(kinds)


@dataclass(frozen=True, kw_only=True)
class Settings(CommonSettings):
    """Built once in main(), passed down."""

    kubeconfig: str = option(path, "", "Kubeconfig file; empty uses the pod's service account.")
    kube_client_qps: float = option(at_least(number, "1"), "200", "Most Kubernetes requests per second.")
    kube_client_burst: int = option(at_least(integer, "1"), "300", "Most Kubernetes requests at once.")
    node_class_kinds: tuple[Kind, ...] = option(
        node_class_kinds,
        "karpenter.k8s.aws/v1/EC2NodeClass/ec2nodeclasses",
        "NodeClass kinds to mirror, as group/version/Kind/plural with commas between them.",
    )
    leader_election_namespace: str = option(text, "kube-system", "Namespace of the Lease that the leader holds.")
    leader_election_lease_duration: timedelta = option(
        at_least(duration, "3s"), "15s", "How long a leader that died keeps the others from leading."
    )
    grpc_address: str = option(
        optional(address), "127.0.0.1:7404", "host:port that the gRPC API listens on; port 0 lets the system pick."
    )
