"""The pricing service's metrics."""

from sawhorse_runtime.metrics import Metrics


class Instruments:
    """All instruments of one process. Label values come from closed sets."""

    def __init__(self, metrics: Metrics) -> None:
        self.refreshes = metrics.counter(
            "sawhorse_catalog_refreshes_total",
            "Fetches from the cloud. what: catalog or spot; result: published, unchanged, failed or doubted.",
            ("what", "result"),
        )
        self.refresh_seconds = metrics.histogram(
            "sawhorse_catalog_refresh_duration_seconds", "How long a fetch took.", ("what",)
        )
        self.price_fallbacks = metrics.counter(
            "sawhorse_catalog_price_fallbacks_total",
            "Fetches that kept older prices because the call failed. prices: on-demand or spot.",
            ("prices",),
        )
        self.age = metrics.gauge("sawhorse_catalog_age_seconds", "Time since the last complete fetch.")
        self.static_prices = metrics.gauge(
            "sawhorse_catalog_static_prices", "1 while on-demand prices are those of the shipped list."
        )
        self.instance_types = metrics.gauge("sawhorse_catalog_instance_types", "Instance types in the catalogue.")
        self.unavailable = metrics.gauge(
            "sawhorse_catalog_unavailable_offerings", "Offerings that are out of capacity now."
        )
        self.resolve_seconds = metrics.histogram(
            "sawhorse_catalog_resolve_duration_seconds", "How long it took to resolve all types for a NodeClass."
        )
        self.account_refreshes = metrics.counter(
            "sawhorse_catalog_account_refreshes_total",
            "Look-ups of capacity reservations and placement groups. result: done or failed.",
            ("result",),
        )
        self.measured = metrics.gauge(
            "sawhorse_catalog_measured_memory", "Measurements of memory by type, image and kubelet settings."
        )
        self.watchers = metrics.gauge("sawhorse_catalog_watchers", "Open streams that follow the version.")
        self.reported = metrics.counter(
            "sawhorse_catalog_reported_offerings_total", "Offerings reported out of capacity.", ("capacity_type",)
        )
