"""Tells the demo's story to services that run in containers: `docker compose run --rm story`.

The same story as `sawhorse demo` tells, through the same code; only the processes are elsewhere. It expects the
sandbox of serve.py and an empty cluster. Exits 0 when everything happened in time.
"""

import argparse
import asyncio
import json
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from relay import relay
from rich.console import Console

from sawhorse_console.demo.command import FAILURES, open_story
from sawhorse_console.demo.report import Report
from sawhorse_console.demo.view import open_view, print_summary
from sawhorse_runtime.errors import describe
from sawhorse_runtime.settings import split_address
from sawhorse_sandbox.aws import AwsSandbox
from sawhorse_sandbox.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where everything is. `secrets` is the folder that holds the file `redis-password`."""

    cluster: str
    region: str
    kubeconfig: Path
    aws_endpoint: str
    redis: str
    pricing: str
    secrets: Path
    json: bool


def read_options(arguments: list[str]) -> Options:
    """Return the options; wrong use ends the program with exit code 2."""
    parser = argparse.ArgumentParser(prog="story.py", description=__doc__)
    parser.add_argument("--cluster", default="sandbox")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--kubeconfig", type=Path, default=Path("/world/kubeconfig"))
    parser.add_argument("--aws-endpoint", default="http://sandbox:4566")
    parser.add_argument("--redis", default="redis:6379", help="host:port")
    parser.add_argument("--pricing", default="pricing:7401", help="host:port of its gRPC API")
    parser.add_argument("--secrets", type=Path, default=Path("/run/secrets"))
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    return Options(**vars(parser.parse_args(arguments)))


async def tell(options: Options, report: Report, console: Console) -> None:
    """Fill the report as far as the story comes."""
    async with AsyncExitStack() as stack:
        # The story looks for its world on loopback.
        redis = await stack.enter_async_context(relay(("127.0.0.1", 0), split_address(options.redis)))
        pricing = await stack.enter_async_context(relay(("127.0.0.1", 0), split_address(options.pricing)))
        view = stack.enter_context(open_view(console))
        # As the services read it: a line break at the end of the file is not part of it.
        password = await asyncio.to_thread((options.secrets / "redis-password").read_text)
        # What a story reads of a world; the rest of it are processes, which are not ours here.
        world = SimpleNamespace(
            cluster=options.cluster,
            account=SimpleNamespace(role_name=f"KarpenterNodeRole-{options.cluster}"),
            aws=AwsSandbox(options.aws_endpoint, options.region, cast(Any, None)),
            kubeconfig=options.kubeconfig,
            redis=SimpleNamespace(port=redis),
            redis_password_file=SimpleNamespace(read_text=password.strip),
            services={"pricing": SimpleNamespace(grpc_address=f"127.0.0.1:{pricing}")},
        )
        story = await stack.enter_async_context(open_story(cast(World, world), view, report))
        await story.tell()


def main() -> int:
    """Return the exit code."""
    options = read_options(sys.argv[1:])
    report = Report()
    console = Console(file=sys.stderr if options.json else sys.stdout)
    try:
        asyncio.run(tell(options, report, console))
    except* (*FAILURES, OSError) as group:
        report.ok, report.error = False, "; ".join(describe(error) for error in group.exceptions)
    if not options.json:
        print_summary(console, report)
    if not report.ok:
        print(f"story: {report.error}", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(report.to_json()))
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
