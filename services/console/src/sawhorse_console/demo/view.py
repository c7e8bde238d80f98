"""Shows the demo's progress: a live table on a terminal, plain lines elsewhere. Everything goes to one stream."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sawhorse_console.demo.report import NodeRow, Report


class View(Protocol):
    """How progress is shown."""

    def step(self, text: str) -> None:
        """Something was done or begins."""
        ...

    def progress(self, pods_running: int, pods: int, rows: Sequence[NodeRow]) -> None:
        """The state now; called often."""
        ...


class PlainView:
    """Lines; progress only where it changed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: tuple[int, int] | None = None

    def step(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def progress(self, pods_running: int, pods: int, rows: Sequence[NodeRow]) -> None:
        """Print a line when a number changed."""
        state = (pods_running, len(rows))
        if state != self._last:
            self._last = state
            self.step(f"  {pods_running} of {pods} pods running on {len(rows)} nodes")


class LiveView:
    """A table that stays in place below the steps."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def step(self, text: str) -> None:
        """Print a line above the table."""
        self._live.console.print(text, highlight=False)

    def progress(self, pods_running: int, pods: int, rows: Sequence[NodeRow]) -> None:
        """Redraw the table."""
        self._live.update(Group(node_table(rows), Text(f"{pods_running} of {pods} pods running")))


def node_table(rows: Sequence[NodeRow]) -> RenderableType:
    """The nodes as a table, with the total."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("node", "type", "zone", "capacity"):
        table.add_column(name)
    for name in ("$/h", "pods"):
        table.add_column(name, justify="right")
    for row in rows:
        price = f"{row.price_per_hour:.4f}"
        table.add_row(row.name, row.instance_type, row.zone, row.capacity_type, price, str(row.pods))
    if rows:
        total = f"{sum(r.price_per_hour for r in rows):.4f}"
        table.add_row("total", "", "", "", total, str(sum(r.pods for r in rows)), style="bold")
    return table


@contextmanager
def open_view(console: Console) -> Iterator[View]:
    """The view that fits the stream."""
    if not console.is_terminal:
        yield PlainView(console)
        return
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield LiveView(live)


def print_summary(console: Console, report: Report) -> None:
    """What happened, for a person."""
    console.print()
    console.print(node_table(report.nodes))
    console.print()
    bound = "" if report.lower_bound_per_hour is None else f" (lower bound {report.lower_bound_per_hour:.4f})"
    lines = [
        f"{report.pods_running} of {report.pods} pods running on {len(report.nodes)} nodes"
        f" for ${report.price_per_hour:.4f} an hour{bound},"
        f" chosen from {report.instance_types_in_catalog} instance types.",
        "Seconds: "
        + ", ".join(f"{name} {value:.1f}" for name, value in report.seconds.items())
        + " (on-demand: list prices; spot: invented by the sandbox).",
    ]
    event = report.interruption
    if event is not None:

        def after(value: float | None) -> str:
            return "never" if value is None else f"{value:.1f} s"

        ordered, ready = after(event.seconds_to_replacement_ordered), after(event.seconds_to_replacement_ready)
        lines.append(
            f"Spot warning for {event.node}: cordoned after {after(event.seconds_to_cordon)}; "
            f"replacement ordered after {ordered}, ready after {ready}; "
            f"node gone after {after(event.seconds_to_terminated)}; {event.pods_running_after} pods running then.",
        )
    lines.append(f"Instances that nothing accounts for: {report.leaked_instances}.")
    if report.ok:
        lines.append("Done: everything happened in time.")
    for line in lines:
        console.print(line, highlight=False)
