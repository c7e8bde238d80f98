"""The command: reads nodes and NodeClasses of a cluster, changes nothing in it, and writes the comparison."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from sawhorse_catalog.builtin import builtin_facts
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_console.allocatable_diff.output import write_csv, write_json, write_table
from sawhorse_console.allocatable_diff.rows import Row, UnknownTypeError, make_rows
from sawhorse_model.aws import EC2NodeClass, parse_ec2_node_class
from sawhorse_model.manifests import ManifestError
from sawhorse_model.node import Node
from sawhorse_runtime.errors import describe

DONE, NO, WRONG_USE, UNREACHABLE = 0, 1, 2, 3
FORMATS = ("csv", "table", "json")
LOOK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says.

    `aws_region` empty: types are those of the shipped table. `kubeconfig` empty: the usual file, else the pod's own.
    """

    cluster_name: str
    out_file: Path = Path("allocatable-diff.csv")
    overhead_percent: float = 0.0
    format: str = "csv"
    aws_region: str = ""
    aws_endpoint_url: str = ""
    kubeconfig: str = ""


async def run_allocatable_diff(options: Options, *, stdout: TextIO, stderr: TextIO) -> int:
    """Compare and write.

    Returns:
        0 written; 1 a node's type is not in the catalogue; 2 wrong use, or the file cannot be written; 3 Kubernetes or
        AWS cannot be reached.
    """
    # Only this command needs these: others start without them.
    from sawhorse_cloud.errors import CloudError
    from sawhorse_kube.errors import KubeConfigError, KubeError

    def refuse(code: int, line: str) -> int:
        stderr.write(f"allocatable-diff: {' '.join(line.split())}\n")
        return code

    if problem := _problem(options):
        return refuse(WRONG_USE, problem)
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            nodes, classes, notes = await _look(options)
            facts = await _facts(options)
        rows = make_rows(nodes, classes, facts, overhead_percent=options.overhead_percent)
    except KubeConfigError as error:
        return refuse(WRONG_USE, describe(error))
    except (KubeError, CloudError) as error:
        return refuse(UNREACHABLE, describe(error))
    except TimeoutError:
        return refuse(UNREACHABLE, f"no answer within {LOOK_SECONDS:g} s; check --kubeconfig and --aws-endpoint-url")
    except UnknownTypeError as error:
        where = f"of {options.aws_region}" if options.aws_region else "that is shipped; give --aws-region to ask EC2"
        return refuse(NO, f"{error} (the one {where})")
    for note in notes:
        stderr.write(f"allocatable-diff: {note}\n")
    return _write(rows, options, stdout, refuse_write=lambda line: refuse(WRONG_USE, line))


def _problem(options: Options) -> str:
    if not options.cluster_name:
        return "--cluster-name: cannot be empty; give the cluster's name"
    if not (math.isfinite(options.overhead_percent) and 0 <= options.overhead_percent < 1):
        return (
            f"--overhead-percent: {options.overhead_percent:g} is no share of memory from 0 to less than 1; "
            "write a fraction such as 0.075"
        )
    if options.format not in FORMATS:
        return f"--format: {options.format!r} is not known; use one of {', '.join(FORMATS)}"
    return ""


async def _look(options: Options) -> tuple[Sequence[Node], dict[str, EC2NodeClass], list[str]]:
    from sawhorse_kube.client import connect_kube
    from sawhorse_kube.errors import NotFoundError
    from sawhorse_kube.kinds import EC2_NODECLASS, NODE

    notes: list[str] = []
    classes: dict[str, EC2NodeClass] = {}
    async with connect_kube(kubeconfig=_kubeconfig(options.kubeconfig)) as kube:
        nodes: Sequence[Node] = (await kube.list(NODE)).objects
        try:
            given = (await kube.list(EC2_NODECLASS)).objects
        except NotFoundError:
            given = ()
            notes.append("the cluster has no EC2NodeClasses; nodes are compared with one of defaults")
    for node_class in given:
        try:
            classes[node_class.meta.name] = parse_ec2_node_class(node_class)
        except ManifestError as error:
            notes.append(f"EC2NodeClass {node_class.meta.name}: {error}; its nodes are compared with one of defaults")
    return nodes, classes, notes


async def _facts(options: Options) -> Sequence[InstanceFacts]:
    if not options.aws_region:
        return builtin_facts()
    from sawhorse_cloud_aws.catalog_source import connect_catalog_source

    async with connect_catalog_source(region=options.aws_region, endpoint_url=options.aws_endpoint_url) as source:
        return await source.fetch_instance_types()


def _write(rows: Sequence[Row], options: Options, stdout: TextIO, *, refuse_write: Callable[[str], int]) -> int:
    if options.format == "table":
        write_table(rows, stdout)
    elif options.format == "json":
        write_json(rows, options.cluster_name, options.overhead_percent, stdout)
    else:
        try:
            with options.out_file.open("w", encoding="utf-8", newline="") as file:
                write_csv(rows, file)
        except OSError as error:
            return refuse_write(f"--out-file: {options.out_file} cannot be written: {error.strerror or error}")
        stdout.write(f"{len(rows)} nodes of {options.cluster_name} in {options.out_file}\n")
    return DONE


def _kubeconfig(given: str) -> Path | None:
    if given:
        return Path(given).expanduser()
    usual = Path.home() / ".kube" / "config"
    return usual if usual.exists() else None
