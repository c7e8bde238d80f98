"""How the interruption service can be told to run."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from sawhorse_runtime.settings import (
    REQUIRED,
    CommonSettings,
    address,
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
SHORTEST_WAIT, LONGEST_WAIT = timedelta(seconds=1), timedelta(seconds=20)  # likewise


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
    # More than elsewhere: two hundred warnings at once are a thousand requests, and all are wanted within 2 s.
    kube_client_qps: float = option(number, "1000", "Most Kubernetes requests per second.")
    kube_client_burst: int = option(integer, "1000", "Most Kubernetes requests at once.")
    pricing_address: str = option(
        optional(address), "127.0.0.1:7401", "host:port of the pricing service; empty: offerings are marked in Redis."
    )
    grpc_address: str = option(
        optional(address), "127.0.0.1:7403", "host:port that the gRPC API listens on; port 0 lets the system pick."
    )
    queue_receivers: int = option(integer, "4", "Loops that receive from the queue.")
    queue_handlers: int = option(integer, "64", "Messages that are acted upon at the same time.")
    queue_parked: int = option(integer, "1000", "Most messages that wait in this process until they can be acted upon.")
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
    drain_workers: int = option(integer, "32", "Nodes whose drain is looked at at the same time.")

    def problems(self) -> Iterable[str]:
        yield from super().problems()
        at_least_one = {
            "--kube-client-qps": self.kube_client_qps,
            "--kube-client-burst": self.kube_client_burst,
            "--queue-receivers": self.queue_receivers,
            "--queue-handlers": self.queue_handlers,
            "--drain-workers": self.drain_workers,
        }
        for flag, value in at_least_one.items():
            if value < 1:
                yield f"{flag}: {value} leaves nothing to work with; set at least 1"
        if self.queue_parked < 0:
            yield f"--queue-parked: {self.queue_parked} is negative; set 0 or more"
        if not timedelta(seconds=5) <= self.queue_visibility <= LONGEST_VISIBILITY:
            yield "--queue-visibility: it must be between 5s and 12h, as SQS allows; 30s suits"
        if not SHORTEST_WAIT <= self.queue_wait <= LONGEST_WAIT:
            yield "--queue-wait: SQS waits for 20s at most, and below 1s is a busy loop; set 1s to 20s"
        if self.deadline_margin > timedelta(seconds=100):
            yield "--deadline-margin: it leaves the pods less than 20s of their two minutes; set 100s or less"
