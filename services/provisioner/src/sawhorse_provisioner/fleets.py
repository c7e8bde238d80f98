"""Forming fleets: which claims can be launched by one request to the cloud. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from sawhorse_model.nodeclaim import NodeClaim

# One refused call must not hold up hundreds of claims; and small fleets cost few calls more.
_MOST_PER_FLEET = 50


def form_fleets(claims: Iterable[NodeClaim]) -> list[list[NodeClaim]]:
    """Claims that ask for the same, together: one request to the cloud each. Sorted, and bounded in size."""
    groups: dict[tuple[object, ...], list[NodeClaim]] = {}
    for claim in sorted(claims, key=lambda c: c.meta.name):
        groups.setdefault(fleet_key(claim), []).append(claim)
    return [
        members[start : start + _MOST_PER_FLEET]
        for members in groups.values()
        for start in range(0, len(members), _MOST_PER_FLEET)
    ]


def fleet_key(claim: NodeClaim) -> tuple[object, ...]:
    """What a launch depends on."""
    return (
        claim.node_class_ref,
        claim.requirements,
        _frozen(claim.requests),
        _frozen(claim.meta.labels),
        claim.taints,
        claim.startup_taints,
    )


def _frozen(mapping: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(mapping.items())
