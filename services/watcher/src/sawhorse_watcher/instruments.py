"""The watcher's metrics."""

from sawhorse_runtime.metrics import Metrics


class Instruments:
    """Made once per process. Label values are kinds and the closed sets named beside each."""

    def __init__(self, metrics: Metrics) -> None:
        kind = ("kind",)
        self.events = metrics.counter(
            "sawhorse_watcher_events_total", "Watch events: ADDED, MODIFIED, DELETED, BOOKMARK.", ("kind", "type")
        )
        self.written = metrics.counter("sawhorse_watcher_changes_total", "Changes written to the mirror.", kind)
        self.lag = metrics.histogram(
            "sawhorse_watcher_lag_seconds", "From the receipt of a watch event to its place in the mirror.", kind
        )
        self.relists = metrics.counter(
            "sawhorse_watcher_relists_total", "Full lists: first, gone, flushed, failed.", ("kind", "why")
        )
        self.list_seconds = metrics.histogram(
            "sawhorse_watcher_list_duration_seconds", "A full list, until it is in the mirror.", kind
        )
        self.objects = metrics.gauge("sawhorse_watcher_mirror_objects", "Objects in the mirror.", kind)
        self.unreadable = metrics.counter(
            "sawhorse_watcher_unreadable_total", "Objects that could not be read and are left out.", kind
        )
        self.synced = metrics.gauge("sawhorse_watcher_synced", "1 when the kind's full list is in the mirror.", kind)
        self.leading = metrics.gauge("sawhorse_watcher_leading", "1 while this replica leads.")
        self.wakes = metrics.counter("sawhorse_watcher_wakes_total", "Wake-ups of the provisioner.", ("result",))
