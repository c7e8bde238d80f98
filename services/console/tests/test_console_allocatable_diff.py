"""`sawhorse allocatable-diff`: the rows, the file, and how it ends."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from typer.testing import CliRunner

from sawhorse_catalog.builtin import builtin_facts
from sawhorse_console.allocatable_diff.command import Options, run_allocatable_diff
from sawhorse_console.allocatable_diff.output import csv_lines
from sawhorse_console.allocatable_diff.rows import UnknownTypeError, make_rows
from sawhorse_console.main import app
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.node import Node
from sawhorse_model.resources import parse_resources
from sawhorse_testing.catalog import an_ec2_node_class

HEADERS = [
    "Instance Type,Expected Capacity,,,Expected Allocatable,,,Actual Capacity,,,Actual Allocatable,,",
    ",Memory (Mi),CPU (m),Storage (Mi),Memory (Mi),CPU (m),Storage (Mi),"
    "Memory (Mi),CPU (m),Storage (Mi),Memory (Mi),CPU (m),Storage (Mi)",
]


def a_node(name: str = "n-1", kind: str = "m5.large", *, memory: str = "7000Mi", **labels: str) -> Node:
    """A node that a NodePool made; labels given by name replace those, `_` standing for what a test is about."""
    chosen = {"karpenter.sh/nodepool": "default", "node.kubernetes.io/instance-type": kind, **labels}
    return Node(
        ObjectMeta(name=name, labels=chosen),
        capacity=parse_resources({"cpu": "2", "memory": "7900Mi", "ephemeral-storage": "20Gi"}),
        allocatable=parse_resources({"cpu": "1930m", "memory": memory, "ephemeral-storage": "18Gi"}),
    )


def rows(*nodes: Node, overhead: float = 0.0, **classes: Any) -> list[Any]:
    return make_rows(nodes, classes, builtin_facts(), overhead_percent=overhead)


def test_a_row_holds_expected_and_actual_figures_in_mebibytes_and_millicores() -> None:
    (row,) = rows(a_node())

    assert list(csv_lines([row]))[2] == [
        "m5.large",
        *(8192, 2000, 20480),
        *(7518, 1930, 17408),
        *(7900, 2000, 20480),
        *(7000, 1930, 18432),
    ]


def test_the_file_has_two_header_rows_and_thirteen_columns() -> None:
    lines = list(csv_lines(rows(a_node())))

    assert [",".join(map(str, line)) for line in lines[:2]] == HEADERS
    assert [len(line) for line in lines] == [13, 13, 13]


@pytest.mark.parametrize(
    ("kind", "overhead", "memory"),
    [("m5.large", 0.0, 8192), ("m5.large", 0.075, 7577), ("m6g.large", 0.0, 8128), ("m6g.large", 0.075, 7518)],
)
def test_arm64_gives_up_64_mib_first_and_the_overhead_is_rounded_up(kind: str, overhead: float, memory: int) -> None:
    (row,) = rows(a_node(kind=kind), overhead=overhead)

    assert row.expected_capacity.memory_mib == memory


def test_only_nodes_that_a_nodepool_made_and_that_have_memory_are_compared() -> None:
    stranger = Node(ObjectMeta(name="n-2", labels={"node.kubernetes.io/instance-type": "m5.large"}))
    silent = replace(a_node("n-3"), allocatable={})

    assert [row.node for row in rows(a_node("n-1"), stranger, silent)] == ["n-1"]


def test_rows_are_sorted_by_type_then_by_name() -> None:
    found = rows(a_node("b", "m5.large"), a_node("a", "m5.large"), a_node("z", "c5.large"))

    assert [(row.instance_type, row.node) for row in found] == [("c5.large", "z"), ("m5.large", "a"), ("m5.large", "b")]


def test_a_nodes_own_class_decides_what_is_expected_of_it() -> None:
    small = an_ec2_node_class({"kubelet": {"maxPods": 10, "systemReserved": {"memory": "100Mi"}}})

    (plain,) = rows(a_node())
    (row,) = rows(a_node(**{"karpenter.k8s.aws/ec2nodeclass": "small"}), small=small)

    assert plain.expected_allocatable.memory_mib - row.expected_allocatable.memory_mib == 100


def test_an_unknown_type_is_an_error_that_names_node_and_type() -> None:
    with pytest.raises(UnknownTypeError, match=r"node n-1: instance type 'zz9\.large'"):
        rows(a_node(kind="zz9.large"))


def as_raw(node: Node) -> dict[str, Any]:
    status = {
        "capacity": {"cpu": "2", "memory": "7900Mi", "ephemeral-storage": "20Gi"},
        "allocatable": {"cpu": "1930m", "memory": "7000Mi", "ephemeral-storage": "18Gi"},
    }
    return {"metadata": {"name": node.meta.name, "labels": dict(node.meta.labels)}, "status": status}


def write_kubeconfig(directory: Path, port: int) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = directory / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return str(file)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A kubeconfig of an API server, and the nodes that it lists."""
    nodes: list[dict[str, Any]] = [as_raw(a_node("b", "m5.large")), as_raw(a_node("a", "c5.large"))]

    async def list_nodes(request: web.Request) -> web.Response:
        body = {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": nodes}
        return web.json_response(body)

    application = web.Application()
    application.add_routes([web.get("/api/v1/nodes", list_nodes)])  # and no EC2NodeClasses: 404
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield write_kubeconfig(tmp_path, runner.addresses[0][1]), nodes
    await runner.cleanup()


def read_lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def run(options: Options) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return await run_allocatable_diff(options, stdout=out, stderr=err), out.getvalue(), err.getvalue()


async def test_the_file_is_written_sorted_by_type(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "diff.csv"

    code, out, _ = await run(Options("demo", out_file=file, kubeconfig=cluster[0]))

    lines = read_lines(file)
    assert code == 0
    assert lines[:2] == HEADERS
    assert [line[0] for line in csv.reader(lines[2:])] == ["c5.large", "m5.large"]
    assert out == f"2 nodes of demo in {file}\n"


async def test_json_and_table_are_printed_and_no_file_is_written(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "diff.csv"

    code, out, _ = await run(Options("demo", out_file=file, format="json", kubeconfig=cluster[0]))
    _, table, _ = await run(Options("demo", out_file=file, format="table", kubeconfig=cluster[0]))

    body = json.loads(out)
    assert code == 0
    assert [node["name"] for node in body["nodes"]] == ["a", "b"]
    assert body["nodes"][1]["actualAllocatable"] == {"memoryMi": 7000, "cpuMillis": 1930, "storageMi": 18432}
    assert "-518" in table
    assert not file.exists()


async def test_an_unknown_type_in_the_cluster_ends_with_1_and_writes_nothing(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "diff.csv"
    cluster[1].append(as_raw(a_node("odd", "zz9.large")))

    code, _, problem = await run(Options("demo", out_file=file, kubeconfig=cluster[0]))

    assert code == 1
    assert "node odd: instance type 'zz9.large'" in problem
    assert not file.exists()


async def test_a_file_that_cannot_be_written_ends_with_2(cluster: Any, tmp_path: Path) -> None:
    code, _, problem = await run(Options("demo", out_file=tmp_path / "no" / "diff.csv", kubeconfig=cluster[0]))

    assert code == 2
    assert "--out-file" in problem


async def test_a_cluster_out_of_reach_ends_with_3(tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path, 1)

    code, _, problem = await run(Options("demo", kubeconfig=file))

    assert code == 3
    assert len(problem.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (Options(""), "--cluster-name: cannot be empty"),
        (Options("demo", overhead_percent=-0.1), "--overhead-percent: -0.1"),
        (Options("demo", overhead_percent=1), "--overhead-percent: 1"),
        (Options("demo", overhead_percent=float("nan")), "--overhead-percent: nan"),
        (Options("demo", format="xml"), "--format: 'xml'"),
    ],
)
async def test_wrong_use_ends_with_2_and_says_which_option(options: Options, why: str) -> None:
    code, _, problem = await run(options)

    assert code == 2
    assert why in problem


def test_the_options_are_those_of_the_tool_it_replaces() -> None:
    text = CliRunner().invoke(app, ["allocatable-diff", "--help"], env={"COLUMNS": "200", "CLUSTER_NAME": ""}).output

    assert all(option in text for option in ("--cluster-name", "--out-file", "--overhead-percent", "--format"))
    assert "allocatable-diff.csv" in "".join(text.split())


@pytest.mark.integration
def test_a_negative_overhead_is_refused_at_the_shell() -> None:
    command = [sys.executable, "-m", "sawhorse_console", "allocatable-diff", "--cluster-name", "x"]

    done = subprocess.run(
        [*command, "--overhead-percent", "-1"], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 2
    assert "--overhead-percent" in done.stderr
    assert "Traceback" not in done.stderr
