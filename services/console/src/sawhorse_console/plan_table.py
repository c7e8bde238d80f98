"""A plan for people: nodes by pool and type, what they cost and could cost at best, and what is left and why."""

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sawhorse_console.plan_output import Timing
from sawhorse_model.resources import CPU, MEMORY
from sawhorse_scheduling.plan import Plan, PlannedNode, Unschedulable

SHOWN_TYPES = 40  # rows before the table says "and n more"
SHOWN_ZONES = 4  # named in a row
UNBOUND_WIDTH = 160  # columns where there is no terminal to ask
_COLUMNS = (
    ("POOL", "left"),
    ("INSTANCE TYPE", "left"),
    ("CAPACITY", "left"),
    ("ZONES", "left"),
    ("NODES", "right"),
    ("PODS", "right"),
    ("CPU", "right"),
    ("MEMORY", "right"),
    ("PRICE/H", "right"),
)


def write_table(plan: Plan, timing: Timing, warnings: Sequence[str], currency: str, stdout: TextIO) -> None:
    """Print what a person wants to know first: the nodes, the price, who has no place and why, and what is doubtful."""
    wide = None if stdout.isatty() else UNBOUND_WIDTH
    console = Console(file=stdout, highlight=False, width=wide)
    if plan.new_nodes:
        console.print(_nodes_table(plan.new_nodes))
        console.print()
    _summary(console, plan, currency)
    told = tuple(dict.fromkeys((*warnings, *plan.warnings)))
    for warning in told:
        _say(console, f"warning: {warning}", style="yellow")
    if told:
        console.print()
    stats = plan.stats
    _say(
        console,
        f"{_count(stats.pods, 'pod')} in {_count(stats.classes, 'class')}, "
        f"{_count(stats.instance_types, 'instance type')}, planned in {timing.solve_seconds:.2f} s",
        style="dim",
    )


def _summary(console: Console, plan: Plan, currency: str) -> None:
    """What was found, a paragraph for each thing."""
    filled = sum(len(node.pods) for node in plan.existing_nodes)
    if filled:
        _say(console, f"{_count(filled, 'pod')} on {_count(len(plan.existing_nodes), 'node')} there or on the way")
    if plan.new_nodes:
        _say(console, f"{_count(len(plan.new_nodes), 'new node')}, {_price(plan, currency)}", style="bold")
        for line in _prices(plan, currency):
            _say(console, line)
    elif not plan.unschedulable:
        _say(console, "no new node is needed")
    if plan.new_nodes or filled or not plan.unschedulable:
        console.print()
    for entry in plan.unschedulable:
        _explain(console, entry)
        console.print()


def _say(console: Console, text: str, style: str = "") -> None:
    """One line as it is: names may hold what rich would take for markup."""
    console.print(Text(text, style=style), soft_wrap=True)


def _price(plan: Plan, currency: str) -> str:
    return f"{plan.price_per_hour:.4f} {currency} an hour"


def _prices(plan: Plan, currency: str) -> Iterable[str]:
    """What the price may turn out to be, and how far it is from the least possible."""
    worst = sum(node.worst_price_per_hour for node in plan.new_nodes)
    if worst - plan.price_per_hour > 1e-6:
        yield f"  expected {plan.expected_price_per_hour:.4f}, at worst {worst:.4f}: EC2 chooses among the listed types"
    bound = plan.lower_bound_per_hour
    if bound is None:
        yield "  no lower bound is proven: limits or rules of pods stand in the way"
    elif bound < 1e-6:
        yield "  nothing to save: it costs next to nothing"
    else:
        over = plan.price_per_hour / bound - 1
        yield f"  lower bound {bound:.4f}: no plan for these pods costs less; this one is {over:.1%} above it"


def _explain(console: Console, entry: Unschedulable) -> None:
    more = f" and {len(entry.pods) - 1} more" if len(entry.pods) > 1 else ""
    _say(console, f"no place for {entry.pods[0]}{more}", style="bold red")
    told: dict[tuple[str, str], list[str]] = {}
    for reason in entry.reasons:
        told.setdefault((reason.code, reason.message), []).append(reason.nodepool)
    for (code, message), pools in told.items():
        names = [pool for pool in pools if pool]
        where = f"pool {', '.join(names)}: " if names else ""
        _say(console, f"  {where}{message} ({code})")


def _nodes_table(nodes: Sequence[PlannedNode]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, side in _COLUMNS:
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=True)
    rows: dict[tuple[str, str, str], list[PlannedNode]] = {}
    for node in nodes:
        rows.setdefault((node.nodepool, node.instance_type, node.capacity_type.value), []).append(node)
    ordered = sorted(rows.items(), key=lambda row: (row[0][0], -_sum(row[1]), row[0]))
    for (pool, kind, capacity), alike in ordered[:SHOWN_TYPES]:
        zones = sorted({node.zone for node in alike})
        shown = ", ".join(zones) if len(zones) <= SHOWN_ZONES else f"{len(zones)} zones"
        table.add_row(Text(pool), kind, capacity, shown, *_figures(alike))
    if len(ordered) > SHOWN_TYPES:
        rest = [node for _, alike in ordered[SHOWN_TYPES:] for node in alike]
        table.add_row("", f"and {len(ordered) - SHOWN_TYPES} more", "", "", *_figures(rest))
    if len(ordered) > 1:
        table.add_row("total", "", "", "", *_figures(nodes), style="bold")
    return table


def _figures(nodes: Sequence[PlannedNode]) -> tuple[str, ...]:
    return (
        str(len(nodes)),
        str(sum(len(node.pods) for node in nodes)),
        _filled(nodes, CPU),
        _filled(nodes, MEMORY),
        f"{_sum(nodes):.4f}",
    )


def _sum(nodes: Sequence[PlannedNode]) -> float:
    return sum(node.price_per_hour for node in nodes)


def _filled(nodes: Sequence[PlannedNode], resource: str) -> str:
    """How much of a resource pods and daemons take."""
    used = sum(node.requests.get(resource, 0) + node.daemon_requests.get(resource, 0) for node in nodes)
    there = sum(node.allocatable.get(resource, 0) for node in nodes)
    return f"{used / there:.0%}" if there else "-"


def _count(number: int, thing: str) -> str:
    if number == 1:
        return f"1 {thing}"
    return f"{number} {thing}{'es' if thing.endswith('s') else 's'}"
