"""A plan for people (tables) and for programs (the contract's JSON)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec
from rich.console import Console
from rich.table import Table

from sawhorse_model.resources import CPU, MEMORY, add, format_resources
from sawhorse_scheduling.plan import Plan, PlannedNode

SHOWN_TYPES = 40  # rows before the table says "and n more"
UNBOUND_WIDTH = 160  # columns where there is no terminal to ask


@dataclass(frozen=True, slots=True)
class Timing:
    """What it took, in seconds, and what the first whole answer cost."""

    first_seconds: float
    first_price: float
    solve_seconds: float


def plan_to_raw(plan: Plan, timing: Timing, warnings: Sequence[str]) -> dict[str, Any]:
    """The plan in the format of `-o json`. Resource maps hold Kubernetes quantities."""
    return {
        "apiVersion": "sawhorse.dev/v1",
        "kind": "Plan",
        "newNodes": [_node_to_raw(node) for node in plan.new_nodes],
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


def _node_to_raw(node: PlannedNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "nodePool": node.nodepool,
        "instanceType": node.instance_type,
        "instanceTypes": list(node.instance_types),
        "zone": node.zone,
        "capacityType": node.capacity_type.value,
        "pricePerHour": node.price_per_hour,
        "expectedPricePerHour": node.expected_price_per_hour,
        "worstPricePerHour": node.worst_price_per_hour,
        "pods": list(node.pods),
        "requests": format_resources(node.requests),
        "daemonRequests": format_resources(node.daemon_requests),
        "allocatable": format_resources(node.allocatable),
    }


def write_json(plan: Plan, timing: Timing, warnings: Sequence[str], stdout: TextIO) -> None:
    """Print the JSON form, one line."""
    stdout.write(msgspec.json.encode(plan_to_raw(plan, timing, warnings)).decode() + "\n")


def write_table(plan: Plan, timing: Timing, warnings: Sequence[str], currency: str, stdout: TextIO) -> None:
    """Print what a person wants to know first: nodes by pool and type, the price, who has no place and why."""
    wide = None if stdout.isatty() else UNBOUND_WIDTH
    console = Console(file=stdout, highlight=False, width=wide)
    if plan.new_nodes:
        console.print(_nodes_table(plan))
    filled = sum(len(node.pods) for node in plan.existing_nodes)
    if filled:
        console.print(f"{filled} pods fit on {len(plan.existing_nodes)} nodes that are there or on their way")
    if plan.new_nodes:
        bound = plan.lower_bound_per_hour
        floor = f", lower bound {bound:.2f} (gap {plan.gap:.1%})" if bound and plan.gap is not None else ""
        console.print(
            f"[bold]{len(plan.new_nodes)} new nodes, {plan.price_per_hour:.4f} {currency} an hour[/bold]"
            f" (expected {plan.expected_price_per_hour:.4f}{floor})"
        )
    elif not plan.unschedulable:
        console.print("no new node is needed")
    for entry in plan.unschedulable:
        more = f" and {len(entry.pods) - 1} more" if len(entry.pods) > 1 else ""
        console.print(f"[red]no place[/red] for {entry.pods[0]}{more}", soft_wrap=True)
        for reason in entry.reasons:
            where = f"pool {reason.nodepool}: " if reason.nodepool else ""
            console.print(f"  {where}{reason.message} ({reason.code})", soft_wrap=True, markup=False)
    for warning in (*warnings, *plan.warnings):
        console.print(f"warning: {warning}", style="yellow", soft_wrap=True, markup=False)
    stats = plan.stats
    console.print(
        f"{stats.pods} pods in {stats.classes} classes, {stats.instance_types} instance types, "
        f"planned in {timing.solve_seconds:.2f} s",
        style="dim",
    )


def _nodes_table(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, side in (
        ("POOL", "left"),
        ("INSTANCE TYPE", "left"),
        ("CAPACITY", "left"),
        ("ZONE", "left"),
        ("NODES", "right"),
        ("PODS", "right"),
        ("CPU", "right"),
        ("MEMORY", "right"),
        ("PRICE/H", "right"),
    ):
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=True)
    rows: dict[tuple[str, str, str], list[PlannedNode]] = {}
    for node in plan.new_nodes:
        rows.setdefault((node.nodepool, node.instance_type, node.capacity_type.value), []).append(node)
    ordered = sorted(rows.items(), key=lambda row: (row[0][0], -sum(n.price_per_hour for n in row[1]), row[0]))
    for (pool, kind, capacity), nodes in ordered[:SHOWN_TYPES]:
        zones = {node.zone for node in nodes}
        table.add_row(
            pool,
            kind,
            capacity,
            next(iter(zones)) if len(zones) == 1 else f"{len(zones)} zones",
            str(len(nodes)),
            str(sum(len(node.pods) for node in nodes)),
            _filled(nodes, CPU),
            _filled(nodes, MEMORY),
            f"{sum(node.price_per_hour for node in nodes):.4f}",
        )
    if len(ordered) > SHOWN_TYPES:
        table.add_row("", f"and {len(ordered) - SHOWN_TYPES} more kinds of nodes")
    return table


def _filled(nodes: Sequence[PlannedNode], resource: str) -> str:
    """How much of a resource pods and daemons take."""
    used = add(*(node.requests for node in nodes), *(node.daemon_requests for node in nodes)).get(resource, 0)
    there = sum(node.allocatable.get(resource, 0) for node in nodes)
    return f"{used / there:.0%}" if there else "-"
