"""Does kube-scheduler agree with the first plan? One JSON line, with hints and without, on the real control plane.

`python tests/bench/scheduler_agrees.py [on|off]... [--slack 0.03]`; the workload is that of
tests/e2e/test_scheduler_agrees.py. Two minutes each.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from sawhorse_console.demo.manifests import node_class
from sawhorse_kube.client import connect_kube
from sawhorse_sandbox.controlplane import find_assets
from sawhorse_sandbox.world import start_world
from sawhorse_testing.agreement.trial import SLACK, Trial


async def measure(directory: Path, assets: Path, *, hints: bool, slack: float) -> None:
    """Prints the line of one trial, and what was left pending to stderr."""
    async with (
        start_world(directory, column="assets", assets=assets) as world,
        connect_kube(kubeconfig=world.kubeconfig) as kube,
    ):
        trial = Trial(world, kube, node_class(world.cluster, world.account.role_name))
        outcome = await trial.run(hints=hints, slack=slack)
    print(outcome.line(hints, slack), flush=True)
    if outcome.where_left:
        print(f"left pending: {dict(outcome.where_left)}", file=sys.stderr, flush=True)


def main() -> int:
    """Return the exit code: 0, or 2 where the real control plane's binaries are absent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hints", nargs="*", choices=["on", "off", []], help="both unless given")
    parser.add_argument("--slack", type=float, default=SLACK, help="part of each node that the plan leaves free")
    arguments = parser.parse_args()
    assets = find_assets(os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE"))
    if assets is None:
        print("the real control plane's binaries are absent; run `make kube-assets`", file=sys.stderr)
        return 2
    for word in arguments.hints or ("on", "off"):
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(measure(Path(directory), assets, hints=word == "on", slack=arguments.slack))
    return 0


if __name__ == "__main__":
    sys.exit(main())
