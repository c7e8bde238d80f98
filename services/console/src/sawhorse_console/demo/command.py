"""`sawhorse demo`: makes the world, starts the services, tells the story, sums it up, takes everything down."""

import asyncio
import json
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console

from sawhorse_console.demo.observer import Observer
from sawhorse_console.demo.report import Report
from sawhorse_console.demo.story import PlanLine, Story, StoryError
from sawhorse_console.demo.view import View, open_view, print_summary
from sawhorse_kube.client import connect_kube
from sawhorse_kube.errors import KubeError
from sawhorse_kube.kinds import NODE
from sawhorse_runtime.errors import SawhorseError, leaves
from sawhorse_runtime.rpc import channel
from sawhorse_sandbox.aws import ControlError
from sawhorse_sandbox.controlplane import ControlPlaneError
from sawhorse_sandbox.crds import CrdError
from sawhorse_sandbox.processes import ChildError
from sawhorse_sandbox.world import Column, World, remove_directory, start_world
from sawhorse_state.connection import connect_state
from sawhorse_state.errors import StateUnavailableError
from sawhorse_state.journal import Journal

FAILURES = (
    StoryError,
    ChildError,
    ControlPlaneError,
    ControlError,
    CrdError,
    KubeError,
    SawhorseError,
    StateUnavailableError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """How the demo runs. `assets` is the folder of the real control plane's binaries for the column "assets"."""

    as_json: bool = False
    keep: bool = False
    column: Column = "embedded"
    assets: Path | None = None
    directory: Path | None = None  # None: a temporary one


async def run_demo(options: DemoOptions, *, stdout: TextIO, stderr: TextIO) -> int:
    """Run the demo. Progress goes to stdout, with `as_json` to stderr; returns the exit code.

    The logs of a failed run are kept, and the error says where.
    """
    console = Console(file=stderr if options.as_json else stdout)
    report = Report()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="sawhorse-demo-"))
    try:
        async with AsyncExitStack() as stack:
            view = stack.enter_context(open_view(console))
            world = await _tell(stack, options, directory, view, report)
            if options.keep and report.ok:
                await _stay(world, view)
    except* FAILURES as group:
        report.ok = False
        # What a child quotes of its log is for its developers; they find the whole of it in the folder.
        reasons = "; ".join(str(error).partition("; the end of ")[0] for error in leaves(group))
        report.error = f"{reasons}; the logs are in {directory}"
    except* asyncio.CancelledError:
        report.ok = False
        report.error = "interrupted"
    if options.directory is None and report.ok:
        remove_directory(directory)
    if report.pods and not options.as_json:
        print_summary(console, report)
    if options.as_json:
        print(json.dumps(report.to_json()), file=stdout, flush=True)
    elif not report.ok:
        print(f"sawhorse demo: {report.error}", file=stderr)
    return 0 if report.ok else 1


async def _tell(stack: AsyncExitStack, options: DemoOptions, directory: Path, view: View, report: Report) -> World:
    begun = time.monotonic()
    names = {"embedded": "embedded Kubernetes", "assets": "a real control plane"}
    view.step(f"starting Redis, a simulated EC2, {names[options.column]} and the services")
    world = await stack.enter_async_context(
        start_world(directory, column=options.column, assets=options.assets),
    )
    await world.start_services()
    report.seconds["start"] = time.monotonic() - begun
    view.step(f"everything is up after {report.seconds['start']:.1f} s")
    story = await stack.enter_async_context(open_story(world, view, report))
    try:
        await story.tell()
    finally:
        report.seconds["total"] = time.monotonic() - begun
    return world


@asynccontextmanager
async def open_story(world: World, view: View, report: Report) -> AsyncIterator[Story]:
    """A story in a running world."""
    async with (
        connect_kube(kubeconfig=world.kubeconfig) as kube,
        channel(world.services["pricing"].grpc_address) as pricing,
        connect_state(
            f"redis://127.0.0.1:{world.redis.port}/0",
            world.cluster,
            password=await asyncio.to_thread(world.redis_password_file.read_text),
        ) as state,
    ):
        plans = Journal(state, "plans")

        async def read_plan() -> PlanLine | None:
            made = [entry for entry in await plans.tail(20) if entry.get("claims")]
            if not made:
                return None
            # The first that made nodes: what follows only mends.
            claims = made[0]["claims"]
            pods = sum(int(claim["pods"]) for claim in claims)
            return PlanLine(len(claims), pods, made[0]["pricePerHour"], made[0].get("lowerBoundPerHour"))

        async def warn(node: str) -> tuple[str, float]:
            found = await kube.get(NODE, node)
            sent = time.monotonic()
            # As EC2 does it: an event whose rule has the queue as target; the instance is taken back two minutes later.
            answer = await world.aws.interrupt(found.provider_id.rsplit("/", 1)[-1])
            return f"{answer['message']['detail-type']} is on the queue {', '.join(answer['queues'])}", sent

        yield Story(
            world=world,
            kube=kube,
            observer=Observer(kube=kube, pricing=pricing),
            view=view,
            report=report,
            read_plan=read_plan,
            warn=warn,
        )


async def _stay(world: World, view: View) -> None:
    """Leave everything running until a signal."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    view.step("")
    view.step("Everything keeps running. To look around:")
    view.step(f"  export KUBECONFIG={world.kubeconfig}   # kubectl get nodes,pods,nodeclaims")
    for name, service in sorted(world.services.items()):
        view.step(f"  {name}: gRPC {service.grpc_address}, metrics http://127.0.0.1:{service.ports['metrics']}/metrics")
    view.step(f"  EC2 of the sandbox: {world.aws.endpoint_url} (state: {world.aws.endpoint_url}/sandbox/state)")
    view.step(f"  Redis: 127.0.0.1:{world.redis.port}, password in {world.redis_password_file}")
    view.step(f"  logs: {world.directory}/*.log")
    view.step("Ctrl-C ends it.")
    await stop.wait()
