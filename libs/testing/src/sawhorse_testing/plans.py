"""Plans of small snapshots: the independent checker has looked at each before a test asserts anything of it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sawhorse_scheduling.engine import NO_WATCH, Watch
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import Snapshot, SolveOptions, Volumes
from sawhorse_scheduling.solve import solve
from sawhorse_testing.checker import check_plan


def checked_plan(options: SolveOptions, *, watch: Watch = NO_WATCH, **parts: Any) -> Plan:
    """Plan a snapshot.

    Args:
        parts: fields of the Snapshot; sequences of any kind become tuples.
    """
    fields: dict[str, Any] = {
        key: part if isinstance(part, Volumes | Mapping) else tuple(part) for key, part in parts.items()
    }
    snapshot = Snapshot(options=options, **fields)
    plan = solve(snapshot, watch)
    assert check_plan(snapshot, plan) == []
    return plan


def codes(plan: Plan) -> set[str]:
    """The codes of all reasons."""
    return {reason.code for entry in plan.unschedulable for reason in entry.reasons}


def zones_of(plan: Plan, name: str) -> Counter[str]:
    """Pods of a group on new nodes, by zone."""
    found: Counter[str] = Counter()
    for node in plan.new_nodes:
        number = sum(pod.startswith(f"default/{name}-") for pod in node.pods)
        if number:
            found[node.zone] += number
    return found
