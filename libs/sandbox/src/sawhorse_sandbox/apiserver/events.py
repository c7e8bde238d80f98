"""Events are one collection under two APIs: core v1 and events.k8s.io/v1. Pure conversion; core form is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sawhorse_sandbox.apiserver.storage import Object

_TO_V1 = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_TO_CORE = {new: old for old, new in _TO_V1.items()}


def to_core(obj: Mapping[str, Any]) -> Object:
    """An event of events.k8s.io/v1 (or a patch of one) in its core form."""
    return {**{_TO_CORE.get(name, name): value for name, value in obj.items()}, "apiVersion": "v1"}


def to_v1(obj: Mapping[str, Any]) -> Object:
    return {**{_TO_V1.get(name, name): value for name, value in obj.items()}, "apiVersion": "events.k8s.io/v1"}
