"""How the interruption service can be told to run."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from sawhorse_runtime.settings import (
    REQUIRED,
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
    url,
)

LONGEST_VISIBILITY = timedelta(hours=12)  # SQS allows no more
LONGEST_WAIT = timedelta(seconds=20)  # likewise


@dataclass(frozen=True, kw_only=True)
class Settings(CommonSettings):
    """Built once in main(), passed down."""

    # Karpenter's name, so that existing values keep working. It is a name, not a URL.
    interruption_queue: str = option(text, REQUIRED, "Name of the SQS queue that EventBridge fills.")
    aws_region: str = option(text, REQUIRED, "Region of the queue and the instances.")
    aws_endpoint_url: str = option(optional(url), "", "Address of another AWS API, for tests; empty for AWS itself.")
    cluster_endpoint: str = option(text, "", "Address of the cluster's API server; asked from EKS when empty.")
    service_cidr: str = option(text, "", "Address range of the cluster's services; asked from EKS when empty.")
    kubernetes_version: str = option(text, "", "Kubernetes version, as 1.36; asked from EKS when empty.")
    kubeconfig: str = option(path, "", "Kubeconfig file; empty uses the pod's service account.")
    kube_client_qps: float = option(at_least(number, "1"), "200", "Most Kubernetes requests per second.")
    kube_client_burst: int = option(at_least(integer, "1"), "300", "Most Kubernetes requests at once.")
    pricing_address: str = option(
        optional(address), "127.0.0.1:7401", "host:port of the pricing service; empty: offerings are marked in Redis."
    )
    grpc_address: str = option(
        optional(address), "127.0.0.1:7403", "host:port that the gRPC API listens on; port 0 lets the system pick."
    )
    queue_receivers: int = option(at_least(integer, "1"), "4", "Loops that receive from the queue.")
    queue_handlers: int = option(at_least(integer, "1"), "64", "Messages that are acted upon at the same time.")
    queue_parked: int = option(
        at_least(integer, "0"), "1000", "Most messages that wait in this process until they can be acted upon."
    )
    queue_wait: timedelta = option(duration, "20s", "How long a receive waits for a message.")
    queue_visibility: timedelta = option(
        duration, "30s", "How long a received message is hidden from other replicas; renewed while it is in hand."
    )
    unknown_instance_after: timedelta = option(
        duration, "60s", "A message about an instance that no NodeClaim has is dropped when it is older than this."
    )
    deadline_margin: timedelta = option(
        duration, "10s", "A node taken by a spot warning must be empty this long before its two minutes end."
    )
    drain_workers: int = option(at_least(integer, "1"), "32", "Nodes whose drain is looked at at the same time.")

    def problems(self) -> Iterable[str]:
        yield from super().problems()
        if not timedelta(seconds=5) <= self.queue_visibility <= LONGEST_VISIBILITY:
            yield "--queue-visibility: it must be between 5s and 12h, as SQS allows; 30s suits"
        if self.queue_wait > LONGEST_WAIT:
            yield "--queue-wait: SQS waits for 20s at most; set 20s or less"
        if self.deadline_margin > timedelta(seconds=100):
            yield "--deadline-margin: it leaves the pods less than 20s of their two minutes; set 100s or less"
