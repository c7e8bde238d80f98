"""The `sawhorse` command. Each subcommand lives in a module of its own; this one only reads the command line."""

import asyncio
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="sawhorse",
    help="Kubernetes nodes on AWS when pods need them: plans offline, looks at a running cluster, shows a demo.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


class Minimize(StrEnum):
    """Which price of spot nodes planning minimises."""

    BEST = "best"
    EXPECTED = "expected"


class Preferences(StrEnum):
    """What becomes of preferred rules."""

    RESPECT = "Respect"
    IGNORE = "Ignore"


class MinValues(StrEnum):
    """What becomes of minValues."""

    STRICT = "Strict"
    BEST_EFFORT = "BestEffort"


class Kubernetes(StrEnum):
    """Which Kubernetes the demo runs on."""

    EMBEDDED = "embedded"
    ASSETS = "assets"


@app.callback()
def _command() -> None:
    """Kubernetes nodes on AWS when pods need them."""


@app.command()
def plan(
    files: Annotated[
        list[Path], typer.Option("-f", "--file", help="Manifest file or folder, YAML or JSON; may be repeated.")
    ],
    catalog: Annotated[
        Path | None, typer.Option(help="Catalogue file; without it the built-in table of us-east-1.")
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the plan.")] = Output.TABLE,
    time_limit: Annotated[float | None, typer.Option(min=0.1, help="Seconds that planning may take.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 2 on skipped kinds and unknown fields.")] = False,
    minimize: Annotated[
        Minimize, typer.Option(help="Which price of spot nodes to minimise: the best, or the one to expect of EC2.")
    ] = Minimize.BEST,
    node_slack: Annotated[
        float,
        typer.Option(min=0, max=0.99, help="Part of a new node's cpu and memory to leave free, such as 0.01."),
    ] = 0.0,
    node_fixed_cost: Annotated[
        float, typer.Option(min=0, help="Counts per node and hour beside its price: fewer, larger nodes.")
    ] = 0.01,
    max_pods_per_node: Annotated[
        int, typer.Option(min=0, help="Most pods on a new node, daemons aside; 0 means no cap.")
    ] = 0,
    preference_policy: Annotated[
        Preferences, typer.Option(help="Whether preferred rules of pods count.")
    ] = Preferences.RESPECT,
    min_values_policy: Annotated[
        MinValues, typer.Option(help="Whether minValues of NodePools may be lowered.")
    ] = MinValues.STRICT,
) -> None:
    """Plan nodes for the pods in manifests, offline: what would be made, where, and for how much.

    The options from --minimize on are settings of the provisioner too; it keeps a slack of 0.01 unless told otherwise.

    Exit codes: 0 every pod has a place, 1 some pod has none, 2 the input cannot be read.
    """
    from sawhorse_console.plan_command import run_plan
    from sawhorse_console.plan_snapshot import Tuning

    tuning = Tuning(
        time_limit=time_limit,
        slack=node_slack,
        fixed_cost=node_fixed_cost,
        max_pods_per_node=max_pods_per_node or None,
        minimize_expected=minimize is Minimize.EXPECTED,
        ignore_preferences=preference_policy is Preferences.IGNORE,
        min_values_strict=min_values_policy is MinValues.STRICT,
    )
    raise typer.Exit(
        run_plan(
            files,
            catalog=catalog,
            output=output.value,
            tuning=tuning,
            strict=strict,
            stdout=sys.stdout,
            stderr=sys.stderr,
        ),
    )


@app.command()
def validate(
    files: Annotated[
        list[Path], typer.Option("-f", "--file", help="Manifest file or folder, YAML or JSON; may be repeated.")
    ],
    against: Annotated[
        list[Path] | None,
        typer.Option(help="The same objects as they are now (kubectl get -o yaml): judges also what may not change."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 2 on skipped kinds and unknown fields.")] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print the findings.")] = Output.TABLE,
) -> None:
    """Check NodePools, NodeClaims and EC2NodeClasses offline: what an API server would refuse, and what looks wrong.

    Exit codes: 0 an API server takes all of them, 1 it refuses some, 2 the input cannot be read.
    """
    from sawhorse_console.validate.command import run_validate
    from sawhorse_runtime.clock import SystemClock

    raise typer.Exit(
        run_validate(
            files,
            against=against or [],
            strict=strict,
            output=output.value,
            now=SystemClock().now(),
            stdout=sys.stdout,
            stderr=sys.stderr,
        ),
    )


@app.command()
def interrupt(
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    queue: Annotated[str, typer.Option(envvar="INTERRUPTION_QUEUE", help="Name of the interruption queue.")],
    kind: Annotated[str, typer.Option(help="What to announce; `spot` is a two-minute warning.")] = "spot",
    region: Annotated[str, typer.Option("--aws-region", envvar="AWS_REGION", help="AWS region.")] = "us-east-1",
    endpoint_url: Annotated[str, typer.Option("--aws-endpoint-url", help="Another endpoint than AWS's own.")] = "",
    kubeconfig: Annotated[
        str, typer.Option(envvar="KUBECONFIG", help="Path of the kubeconfig; empty: the pod's own account.")
    ] = "",
) -> None:
    """Put a real-shaped notice for a node on the queue: a game day.

    Exit codes: 0 sent, 1 no such node, 2 wrong use, 3 Kubernetes or the queue cannot be reached.
    """
    from sawhorse_console.interrupt_command import run_interrupt

    code = asyncio.run(
        run_interrupt(
            node,
            kind=kind,
            queue=queue,
            region=region,
            endpoint_url=endpoint_url,
            kubeconfig=kubeconfig,
            stdout=sys.stdout,
            stderr=sys.stderr,
        ),
    )
    raise typer.Exit(code)


@app.command(name="allocatable-diff")
def allocatable_diff(
    cluster_name: Annotated[str, typer.Option(help="Name of the cluster.", envvar="CLUSTER_NAME")] = "",
    out_file: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("allocatable-diff.csv"),
    overhead_percent: Annotated[
        float, typer.Option(help="Share of memory that machine and kernel keep, as a fraction such as 0.075.")
    ] = 0.0,
    output_format: Annotated[
        str, typer.Option("--format", help="`csv` writes the file; `table` and `json` print instead.")
    ] = "csv",
    aws_region: Annotated[
        str, typer.Option(help="Ask EC2 in this region for the types; without it the shipped table.")
    ] = "",
    aws_endpoint_url: Annotated[str, typer.Option(help="Another endpoint than AWS's own.")] = "",
    kubeconfig: Annotated[
        str, typer.Option(envvar="KUBECONFIG", help="Path of the kubeconfig; empty: the pod's own account.")
    ] = "",
) -> None:
    """Compare what the catalogue expects of nodes with what they report. Changes nothing in the cluster.

    Exit codes: 0 written, 1 a node's instance type is not in the catalogue, 2 wrong use, 3 Kubernetes or AWS cannot be
    reached.
    """
    from sawhorse_console.allocatable_diff.command import Options, run_allocatable_diff

    options = Options(
        cluster_name=cluster_name,
        out_file=out_file,
        overhead_percent=overhead_percent,
        format=output_format,
        aws_region=aws_region,
        aws_endpoint_url=aws_endpoint_url,
        kubeconfig=kubeconfig,
    )
    raise typer.Exit(asyncio.run(run_allocatable_diff(options, stdout=sys.stdout, stderr=sys.stderr)))


@app.command()
def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running and say how to look around.")] = False,
    kube: Annotated[
        Kubernetes, typer.Option(help="`embedded` needs nothing; `assets` is a real control plane's binaries.")
    ] = Kubernetes.EMBEDDED,
) -> None:
    """Show the whole system in an embedded world on this machine: pods get nodes, a spot node is interrupted.

    It never touches a real cluster or account. Exit codes: 0 everything happened in time, 1 something did not.
    """
    from sawhorse_console.demo.command import DemoOptions, run_demo
    from sawhorse_sandbox.controlplane import find_assets

    assets = None
    if kube is Kubernetes.ASSETS:
        environment = os.environ  # noqa: TID251  # this is main()
        assets = find_assets(environment.get("KUBEBUILDER_ASSETS"), cache=environment.get("SAWHORSE_CACHE"))
    options = DemoOptions(as_json=as_json, keep=keep, column=kube.value, assets=assets)
    raise typer.Exit(asyncio.run(run_demo(options, stdout=sys.stdout, stderr=sys.stderr)))


def main() -> None:
    """Entry point: no traceback ever reaches a user."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        print(f"sawhorse: {type(error).__name__}: {error}; this is a bug, please report it", file=sys.stderr)
        sys.exit(70)


if __name__ == "__main__":
    main()
