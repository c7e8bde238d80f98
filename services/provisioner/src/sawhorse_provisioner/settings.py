"""How the provisioner runs. Names and defaults are Karpenter's where Karpenter has them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from sawhorse_model.pod import TopologySpread
from sawhorse_runtime.settings import (
    CommonSettings,
    address,
    at_least,
    boolean,
    choice,
    duration,
    integer,
    number,
    option,
    optional,
    path,
    text,
    url,
)
from sawhorse_scheduling.defaults import parse_default_spread


@dataclass(frozen=True, kw_only=True)
class Settings(CommonSettings):
    """Built once in main(), passed down, never global."""

    grpc_address: str = option(
        optional(address), "127.0.0.1:7402", "host:port that the gRPC API listens on; port 0 lets the system pick."
    )
    pricing_address: str = option(address, "127.0.0.1:7401", "host:port of the pricing service's gRPC API.")

    kubeconfig: str = option(path, "", "Kubeconfig file; empty uses the pod's service account.")
    kube_client_qps: float = option(number, "200", "Requests a second to the Kubernetes API.")
    kube_client_burst: int = option(integer, "300", "Requests at once to the Kubernetes API.")
    leader_election_name: str = option(text, "sawhorse-provisioner", "Name of the Lease that the leader holds.")
    leader_election_namespace: str = option(text, "kube-system", "Namespace of that Lease.")
    leader_election_lease_duration: timedelta = option(
        duration, "15s", "A standby takes over when the leader has been silent for this long."
    )

    aws_region: str = option(text, "", "AWS region; empty takes the SDK's.")
    aws_endpoint_url: str = option(optional(url), "", "Base URL of the AWS API; empty means AWS itself.")
    cluster_endpoint: str = option(optional(url), "", "URL of the API server for new nodes; empty asks EKS.")
    cluster_ca_bundle: str = option(text, "", "The API server's CA, base64, for new nodes; empty asks EKS.")
    service_cidr: str = option(text, "", "The cluster's service range, for new nodes; empty asks EKS.")
    kubernetes_version: str = option(
        text, "", "Minor version that image aliases follow, such as 1.36; empty asks the API server."
    )

    batch_idle_duration: timedelta = option(duration, "1s", "Close a batch of pods after this long without a new one.")
    batch_max_duration: timedelta = option(duration, "10s", "Close a batch of pods after this long at most.")
    solve_timeout: timedelta = option(duration, "1m", "How long one plan may take.")
    preference_policy: str = option(
        choice("Respect", "Ignore"), "Respect", "Whether preferred rules of pods count in planning."
    )
    min_values_policy: str = option(
        choice("Strict", "BestEffort"), "Strict", "Whether minValues of NodePools may be lowered."
    )
    scheduler_config: tuple[TopologySpread, ...] = option(
        parse_default_spread,
        "",
        "kube-scheduler's default spread as JSON, for pods that ask for none: "
        '{"podTopologySpread": {"defaultConstraints": [...]}}.',
    )
    nominate_pods: str = option(
        choice("auto", "on", "off"),
        "auto",
        "Whether pods are told their planned node by status.nominatedNodeName; auto: from Kubernetes 1.35 on.",
    )
    max_instance_types: int = option(integer, "60", "How many instance types a NodeClaim keeps, cheapest first.")
    minimize: str = option(
        choice("best", "expected"),
        "best",
        "Which price of spot nodes planning minimises: that of the cheapest offering, or the one to expect of EC2.",
    )
    node_slack: float = option(
        at_least(number, "0"),
        "0.01",
        "Part of a new node's cpu and memory that planning leaves free where pods also fit so, as a fraction.",
    )
    node_fixed_cost: float = option(
        at_least(number, "0"),
        "0.01",
        "Counts per node and hour beside its price, in planning only: fewer, larger nodes.",
    )
    max_pods_per_node: int = option(
        at_least(integer, "0"), "0", "Most pods that planning puts on a new node, daemons aside; 0 means no cap."
    )

    launch_timeout: timedelta = option(duration, "5m", "A NodeClaim without an instance after this is deleted.")
    registration_timeout: timedelta = option(duration, "15m", "A NodeClaim without a node after this is deleted.")
    initialization_timeout: timedelta = option(
        duration,
        "30m",
        "A node without the extended resources that it was made for is deleted this long after it joined, "
        "unless pods run on it.",
    )
    launch_lookup_window: timedelta = option(
        duration, "60s", "After a restart: how long to look for instances of an open launch before launching anew."
    )
    volume_detach_timeout: timedelta = option(
        duration, "2m", "How long to wait for a drained node's volumes when there is no deadline."
    )
    disable_dry_run: bool = option(
        boolean,
        "false",
        "A refused dry run of permissions is only told in the NodeClass's condition; launches go on.",
    )
    node_class_refresh_interval: timedelta = option(duration, "1m", "How often what a NodeClass selects is looked up.")
    garbage_collection_interval: timedelta = option(duration, "30s", "How often instances without a claim are sought.")
    garbage_collection_age: timedelta = option(duration, "60s", "Younger instances are never collected.")

    def problems(self) -> Iterable[str]:
        yield from super().problems()
        if self.batch_max_duration < self.batch_idle_duration:
            yield "--batch-max-duration: it is shorter than --batch-idle-duration; make it at least as long"
        if self.max_instance_types < 1:
            yield f"--max-instance-types: {self.max_instance_types} is too small; write at least 1"
        if self.node_slack >= 1:
            yield f"--node-slack: {self.node_slack:g} would leave no room for pods; write a fraction such as 0.01"
        if self.kube_client_qps <= 0 or self.kube_client_burst < 1:
            yield "--kube-client-qps: rate and burst must be above zero"
        if self.leader_election_lease_duration < timedelta(seconds=1):
            yield "--leader-election-lease-duration: it is shorter than 1s; write at least 1s"
