"""Rows as CSV (two header rows, 13 columns), as a table, or as JSON."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

import msgspec
from rich.console import Console
from rich.table import Table

from sawhorse_console.allocatable_diff.rows import Amounts, Row

GROUPS = ("Expected Capacity", "Expected Allocatable", "Actual Capacity", "Actual Allocatable")
UNITS = ("Memory (Mi)", "CPU (m)", "Storage (Mi)")


def amounts_of(row: Row) -> tuple[Amounts, ...]:
    """In the order of GROUPS."""
    return row.expected_capacity, row.expected_allocatable, row.actual_capacity, row.actual_allocatable


def csv_lines(rows: Iterable[Row]) -> Iterator[Sequence[object]]:
    """The lines of the file, headers first."""
    yield ["Instance Type", *(cell for group in GROUPS for cell in (group, "", ""))]
    yield ["", *(UNITS * len(GROUPS))]
    for row in rows:
        yield [row.instance_type, *(cell for amounts in amounts_of(row) for cell in amounts.cells)]


def write_csv(rows: Iterable[Row], stream: TextIO) -> None:
    """Write the file."""
    csv.writer(stream, lineterminator="\n").writerows(csv_lines(rows))


def write_json(rows: Iterable[Row], cluster: str, overhead_percent: float, stream: TextIO) -> None:
    """Write one JSON object, one line."""
    body = {
        "apiVersion": "sawhorse.dev/v1",
        "kind": "AllocatableDiff",
        "clusterName": cluster,
        "overheadPercent": overhead_percent,
        "nodes": [
            {
                "name": row.node,
                "instanceType": row.instance_type,
                **{_camel(group): _raw(amounts) for group, amounts in zip(GROUPS, amounts_of(row), strict=True)},
            }
            for row in rows
        ],
    }
    stream.write(msgspec.json.encode(body).decode() + "\n")


def write_table(rows: Sequence[Row], stream: TextIO) -> None:
    """Print what a person looks for: expected and actual allocatable, and how far apart they are."""
    console = Console(file=stream, width=120, highlight=False)
    if not rows:
        console.print("no node of a NodePool has reported its size yet")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("NODE", "INSTANCE TYPE"):
        table.add_column(title)
    for title in ("MEMORY Mi", "EXPECTED", "DIFF", "CPU m", "EXPECTED", "STORAGE Mi", "EXPECTED"):
        table.add_column(title, justify="right")
    for row in rows:
        is_, should = row.actual_allocatable, row.expected_allocatable
        cells = (
            is_.memory_mib,
            should.memory_mib,
            f"{is_.memory_mib - should.memory_mib:+d}",
            is_.cpu_millis,
            should.cpu_millis,
            is_.storage_mib,
            should.storage_mib,
        )
        table.add_row(row.node, row.instance_type, *map(str, cells))
    console.print(table)


def _raw(amounts: Amounts) -> dict[str, int]:
    memory, cpu, storage = amounts.cells
    return {"memoryMi": memory, "cpuMillis": cpu, "storageMi": storage}


def _camel(words: str) -> str:
    first, *rest = words.split()
    return first.lower() + "".join(rest)
