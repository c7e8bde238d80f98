"""The metrics of the service: Karpenter's under its names, ours beside them. Labels are closed sets and pool names."""

from collections import Counter

from sawhorse_runtime.metrics import Metrics


class Instruments:
    """All instruments, and the plain counts that the gRPC API tells."""

    def __init__(self, metrics: Metrics) -> None:
        theirs, ours = "karpenter_interruption_", "sawhorse_interruption_"
        self._received = metrics.counter(
            f"{theirs}received_messages_total", "Messages that could be read, no-ops included.", ("message_type",)
        )
        self._deleted = metrics.counter(f"{theirs}deleted_messages_total", "Messages deleted from the queue.")
        self.queue_duration = metrics.histogram(
            f"{theirs}message_queue_duration_seconds", "From the time of an event to its message being handled."
        )
        self._disrupted = metrics.counter(
            "karpenter_nodeclaims_disrupted_total",
            "NodeClaims that were deleted because of an interruption.",
            ("reason", "nodepool", "capacity_type"),
        )
        self._acted = metrics.counter(
            f"{ours}acted_total", "Messages whose effects are all in place.", ("message_type",)
        )
        self._duplicate = metrics.counter(f"{ours}duplicate_total", "Messages that had been acted upon before.")
        self._foreign = metrics.counter(
            f"{ours}foreign_total", "Messages about instances that are not of this cluster.", ("reason",)
        )
        self._malformed = metrics.counter(f"{ours}malformed_total", "Messages that cannot be read.", ("reason",))
        self._buried = metrics.counter(f"{ours}dlq_total", "Messages moved to the dead-letter queue.")
        self._expired = metrics.counter(f"{ours}expired_total", "Messages let go because their retention has passed.")
        self._killed = metrics.counter(
            f"{ours}pods_killed_by_deadline_total", "Pods deleted by force at a node's deadline.", ("nodepool",)
        )
        self.age = metrics.histogram(f"{ours}event_age_at_receive_seconds", "From an event's time to its receipt.")
        self.taint = metrics.histogram(f"{ours}receive_to_taint_seconds", "From receipt to the node's cordon.")
        self.requested = metrics.histogram(
            f"{ours}receive_to_replacement_requested_seconds", "From receipt to the deletion of the claim."
        )
        self.replaced = metrics.histogram(
            f"{ours}receive_to_replacement_ready_seconds", "From receipt to a ready place for the node's pods."
        )
        self._drained = metrics.histogram(
            f"{ours}receive_to_drained_seconds", "From receipt to an empty node.", ("nodepool",)
        )
        self.handling = metrics.gauge(f"{ours}handling_messages", "Messages in hand.")
        self.parked = metrics.gauge(f"{ours}parked_messages", "Messages that wait until they can be acted upon.")
        self.oldest = metrics.gauge(f"{ours}oldest_unhandled_message_seconds", "Age of the oldest message in hand.")
        self.received_counts: Counter[str] = Counter()
        self.acted_counts: Counter[str] = Counter()
        self.malformed_count = self.duplicate_count = self.foreign_count = 0

    def received(self, message_type: str) -> None:
        """Count a message that could be read."""
        self._received.labels(message_type).inc()
        self.received_counts[message_type] += 1

    def deleted(self, count: int) -> None:
        """Count deletions from the queue."""
        self._deleted.inc(count)

    def acted(self, message_type: str) -> None:
        """Count a message whose effects are in place."""
        self._acted.labels(message_type).inc()
        self.acted_counts[message_type] += 1

    def duplicate(self) -> None:
        """Count a message that had been acted upon before."""
        self._duplicate.inc()
        self.duplicate_count += 1

    def foreign(self) -> None:
        """Count a message about an instance that is not of this cluster."""
        self._foreign.labels("unknown_instance").inc()
        self.foreign_count += 1

    def malformed(self, reason: str) -> None:
        """Count a message that cannot be read."""
        self._malformed.labels(reason).inc()
        self.malformed_count += 1

    def buried(self) -> None:
        """Count a message that is now in the dead-letter queue."""
        self._buried.inc()
        self._deleted.inc()

    def expired(self) -> None:
        """Count a message that was let go unhandled."""
        self._expired.inc()

    def disrupted(self, reason: str, nodepool: str, capacity_type: str) -> None:
        """Count a claim that was deleted."""
        self._disrupted.labels(reason, nodepool, capacity_type).inc()

    def killed(self, nodepool: str) -> None:
        """Count a pod that did not leave in time."""
        self._killed.labels(nodepool).inc()

    def drained(self, nodepool: str, seconds: float) -> None:
        """Note how long a node took to be empty."""
        self._drained.labels(nodepool).observe(seconds)
