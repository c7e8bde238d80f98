"""The provisioner's metrics, under Karpenter's names where Karpenter has them."""

from sawhorse_runtime.metrics import Metrics

_MINUTES = tuple(float(2**n) for n in range(12))  # 1 s to 34 min


class Instruments:
    """All instruments of one process. Label values come from closed sets and names of pools and zones."""

    def __init__(self, metrics: Metrics) -> None:
        counter, gauge, histogram = metrics.counter, metrics.gauge, metrics.histogram
        self.claims_created = counter(
            "karpenter_nodeclaims_created_total",
            "NodeClaims created.",
            ("reason", "nodepool", "min_values_relaxed"),
        )
        self.claims_terminated = counter(
            "karpenter_nodeclaims_terminated_total",
            "NodeClaims fully removed.",
            ("nodepool", "capacity_type", "zone"),
        )
        self.claims_disrupted = counter(
            "karpenter_nodeclaims_disrupted_total",
            "NodeClaims whose removal was started here.",
            ("reason", "nodepool", "capacity_type"),
        )
        self.claim_termination_seconds = histogram(
            "karpenter_nodeclaims_termination_duration_seconds",
            "From deletion to the finalizer's removal.",
            ("nodepool",),
            _MINUTES,
        )
        self.nodes_created = counter("karpenter_nodes_created_total", "Nodes registered.", ("nodepool", "zone"))
        self.nodes_terminated = counter("karpenter_nodes_terminated_total", "Nodes finalized.", ("nodepool", "zone"))
        self.nodes_drained = counter("karpenter_nodes_drained_total", "Drains completed.", ("nodepool",))
        self.node_termination_seconds = histogram(
            "karpenter_nodes_termination_duration_seconds",
            "From a node's deletion to its finalizer's removal.",
            ("nodepool",),
            _MINUTES,
        )
        self.scheduling_seconds = histogram(
            "karpenter_scheduler_scheduling_duration_seconds", "How long one plan took.", ("controller",)
        )
        self.unschedulable_pods = gauge(
            "karpenter_scheduler_unschedulable_pods_count", "Pods without a place in the last plan.", ("controller",)
        )
        self.ignored_pods = gauge("karpenter_scheduler_ignored_pods_count", "Pods that no plan can be made for.")
        self.pending_by_zone = gauge(
            "karpenter_scheduler_pending_pods_by_effective_zone_count",
            "Pods in the last plan by the zone that they are held to: its name, flexible, or none.",
            ("controller", "zone"),
        )
        self.queue_depth = gauge(
            "karpenter_scheduler_queue_depth", "Pods in the plan that is being made.", ("controller",)
        )
        self.plan_price = gauge("sawhorse_plan_price_per_hour", "Price of the last plan's new nodes.")
        self.launched_price = counter(
            "sawhorse_launched_price_per_hour_total",
            "Price of machines launched for plans. price: launched, or what the plan said: best or expected.",
            ("price",),
        )
        self.plan_failures = counter(
            "sawhorse_plan_failures_total", "Plans that were not made or not kept.", ("reason",)
        )
        self.synced = gauge("karpenter_cluster_state_synced", "1 while the mirror is complete, else 0.")
        self.node_count = gauge("karpenter_cluster_state_node_count", "Nodes in the cluster state.")
        self.launch_failures = counter(
            "karpenter_cloudprovider_instance_launch_failures_total",
            "Offerings that could not be filled.",
            ("zone", "capacity_type", "reason"),
        )
        self.cloud_errors = counter(
            "karpenter_cloudprovider_errors_total", "Calls to the cloud that failed.", ("method", "error")
        )
        self.collected = counter("sawhorse_garbage_collected_total", "What garbage collection removed.", ("kind",))
        self.pool_usage = gauge(
            "karpenter_nodepools_usage", "Capacity of a pool's nodes.", ("nodepool", "resource_type")
        )
        self.pool_limit = gauge("karpenter_nodepools_limit", "Limits of a pool.", ("nodepool", "resource_type"))
