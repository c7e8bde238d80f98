"""Measured memory: what nodes of a type really reported, by image and kubelet settings, and what a NodeClass uses.

The estimate keeps back a share of memory that is too much on large machines. One node that has registered knows better.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

Measured = Mapping[tuple[str, str, str], int]
"""(instance type, image id, kubelet hash) → bytes."""


def kubelet_hash(spec: Mapping[str, Any]) -> str:
    """Names the kubelet settings of a NodeClass's spec; the order of keys does not matter, absent and empty are one."""
    settings = spec.get("kubelet") or {}
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def memory_for(spec: Mapping[str, Any], images: Iterable[str], measured: Measured) -> dict[str, int]:
    """Type → bytes for a NodeClass: the lowest that was measured under its kubelet settings and any of its images.

    Args:
        spec: of the NodeClass.
        images: ids of its images. Others are another system, and start from the estimate again.
    """
    settings, mine = kubelet_hash(spec), frozenset(images)
    found: dict[str, int] = {}
    for (name, image, kubelet), size in measured.items():
        if kubelet == settings and image in mine:
            found[name] = min(size, found.get(name, size))
    return found
