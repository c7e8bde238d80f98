"""Metrics: Prometheus instruments on a registry of their own, under exactly the names they are given.

No default registry: two services in one test process, or one service twice, must not meet in a global.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase

# Seconds. The shared duration buckets of Karpenter's histograms, so that its dashboards read ours.
# fmt: off
DURATION_BUCKETS: tuple[float, ...] = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 1.75,
    2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60, 120, 150, 300, 450, 600,
)
# fmt: on

M = TypeVar("M", bound=MetricWrapperBase)


class Metrics:
    """Makes instruments on one registry. Asking twice for the same instrument gives the same one."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        # The client would export a `<name>_created` gauge beside each counter and histogram: names nobody chose.
        # It offers only this process-wide switch.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped there
        self.registry = registry if registry is not None else CollectorRegistry(auto_describe=True)
        self._made: dict[str, tuple[MetricWrapperBase, tuple[str, ...]]] = {}
        if registry is None:
            ProcessCollector(registry=self.registry)  # memory, CPU seconds, open files of this process

    def counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
        """A count that only grows.

        Raises:
            ValueError: `name` does not end in "_total"; the client would add it and export another name.
        """
        if not name.endswith("_total"):
            raise ValueError(f"a counter's name ends in _total, got {name!r}")
        return self._make(Counter, name, documentation, labels)

    def gauge(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Gauge:
        """A value that goes up and down."""
        return self._make(Gauge, name, documentation, labels)

    def histogram(
        self, name: str, documentation: str, labels: Sequence[str] = (), buckets: Sequence[float] = DURATION_BUCKETS
    ) -> Histogram:
        """How values are spread over `buckets` (upper bounds, ascending; +Inf is added)."""
        return self._make(Histogram, name, documentation, labels, buckets=tuple(buckets))

    def _make(self, kind: type[M], name: str, documentation: str, labels: Sequence[str], **more: object) -> M:
        made = self._made.get(name)
        if made is None:
            instrument = kind(name, documentation, tuple(labels), registry=self.registry, **more)  # type: ignore[arg-type]  # buckets, for Histogram only
            self._made[name] = (instrument, tuple(labels))
            return instrument
        known, known_labels = made
        if type(known) is not kind or known_labels != tuple(labels):
            raise ValueError(f"metric {name!r} exists as a {type(known).__name__} with labels {known_labels}")
        return known
