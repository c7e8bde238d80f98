"""Metrics are exported under the names they were given, on a registry of their own."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY, generate_latest

from sawhorse_runtime.metrics import DURATION_BUCKETS, Metrics


def test_names_are_exported_as_given_and_nothing_beside_them() -> None:
    metrics = Metrics()

    metrics.counter("karpenter_nodeclaims_created_total", "Claims.", ["nodepool"]).labels("a").inc()
    metrics.gauge("karpenter_cluster_state_node_count", "Nodes.").set(3)
    metrics.histogram("karpenter_pods_bound_duration_seconds", "Bound.").observe(0.02)

    text = generate_latest(metrics.registry).decode()
    assert 'karpenter_nodeclaims_created_total{nodepool="a"} 1.0' in text
    assert "karpenter_cluster_state_node_count 3.0" in text
    assert 'karpenter_pods_bound_duration_seconds_bucket{le="0.025"} 1.0' in text
    assert "_created{" not in text
    assert "_created " not in text


def test_the_default_registry_stays_empty_of_ours() -> None:
    Metrics().counter("sawhorse_only_here_total", "x")

    assert b"sawhorse_only_here" not in generate_latest(REGISTRY)


def test_asking_twice_gives_the_same_instrument_and_other_labels_are_refused() -> None:
    metrics = Metrics()

    first = metrics.counter("a_total", "x", ["zone"])

    assert metrics.counter("a_total", "x", ["zone"]) is first
    with pytest.raises(ValueError, match="exists as a Counter"):
        metrics.counter("a_total", "x", ["pool"])
    with pytest.raises(ValueError, match="exists as a Counter"):
        metrics.gauge("a_total", "x", ["zone"])


def test_a_counter_whose_name_would_be_changed_is_refused() -> None:
    with pytest.raises(ValueError, match="ends in _total"):
        Metrics().counter("claims_created", "x")


def test_duration_buckets_are_the_45_shared_ones_in_order() -> None:
    assert len(DURATION_BUCKETS) == 45
    assert list(DURATION_BUCKETS) == sorted(set(DURATION_BUCKETS))
    assert (DURATION_BUCKETS[0], DURATION_BUCKETS[-1]) == (0.005, 600)
