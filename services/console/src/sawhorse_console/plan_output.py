"""A plan for programs: the contract's JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec

from sawhorse_model.resources import format_resources
from sawhorse_scheduling.plan import Plan, PlannedNode


@dataclass(frozen=True, slots=True)
class Timing:
    """What it took, in seconds, and what the first whole answer cost."""

    first_seconds: float
    first_price: float
    solve_seconds: float


def plan_to_raw(plan: Plan, timing: Timing, warnings: Sequence[str]) -> dict[str, Any]:
    """The plan in the format of `-o json`. Resource maps hold Kubernetes quantities."""
    shown = _Resources()
    return {
        "apiVersion": "sawhorse.dev/v1",
        "kind": "Plan",
        "newNodes": [_node_to_raw(node, shown) for node in plan.new_nodes],
        "existingNodes": [{"name": node.name, "pods": list(node.pods)} for node in plan.existing_nodes],
        "unschedulable": [
            {
                "pod": pod,
                "message": entry.message,
                "reasons": [{"nodePool": r.nodepool, "code": r.code, "message": r.message} for r in entry.reasons],
            }
            for entry in plan.unschedulable
            for pod in entry.pods
        ],
        "cost": {
            "pricePerHour": _tidy(plan.price_per_hour),
            "expectedPricePerHour": _tidy(plan.expected_price_per_hour),
            "lowerBoundPerHour": None if plan.lower_bound_per_hour is None else _tidy(plan.lower_bound_per_hour),
            "gap": plan.gap,
        },
        "stats": {
            "pods": plan.stats.pods,
            "classes": plan.stats.classes,
            "instanceTypes": plan.stats.instance_types,
            "firstSeconds": round(timing.first_seconds, 4),
            "firstPricePerHour": _tidy(timing.first_price),
            "solveSeconds": round(timing.solve_seconds, 4),
        },
        "warnings": [*warnings, *plan.warnings],
    }


def _tidy(price: float) -> float:
    """A sum without the dust of binary fractions."""
    return round(price, 9)


class _Resources:
    """Resource maps as quantities. Equal nodes share their maps, so that each is written out once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Mapping[str, int], dict[str, str]]] = {}

    def of(self, amounts: Mapping[str, int]) -> dict[str, str]:
        found = self._known.get(id(amounts))
        if found is None:
            found = self._known[id(amounts)] = (
                amounts,
                format_resources(amounts),
            )  # held, so that the id stays its own
        return found[1]


def _node_to_raw(node: PlannedNode, shown: _Resources) -> dict[str, Any]:
    return {
        "name": node.name,
        "nodePool": node.nodepool,
        "instanceType": node.instance_type,
        "instanceTypes": node.instance_types,
        "zone": node.zone,
        "capacityType": node.capacity_type.value,
        "pricePerHour": node.price_per_hour,
        "expectedPricePerHour": _tidy(node.expected_price_per_hour),
        "worstPricePerHour": _tidy(node.worst_price_per_hour),
        "pods": node.pods,
        "requests": shown.of(node.requests),
        "daemonRequests": shown.of(node.daemon_requests),
        "allocatable": shown.of(node.allocatable),
        **({"reservationId": node.reservation_id} if node.reservation_id else {}),
    }


def write_json(plan: Plan, timing: Timing, warnings: Sequence[str], stdout: TextIO) -> None:
    """Print the JSON form, one line."""
    stdout.write(msgspec.json.encode(plan_to_raw(plan, timing, warnings)).decode() + "\n")
