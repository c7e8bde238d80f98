"""The watcher's wiring: settings in, loops and servers out."""

import asyncio
import socket
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from sawhorse_kube.client import connect_kube
from sawhorse_kube.errors import KubeConfigError
from sawhorse_kube.kinds import MIRRORED
from sawhorse_kube.leases import LeaderElector
from sawhorse_runtime.clock import SystemClock
from sawhorse_runtime.errors import SettingsError
from sawhorse_runtime.failpoints import Steps, steps_or_exit
from sawhorse_runtime.health import Readiness, serve_http
from sawhorse_runtime.logs import setup_logging
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.ready import announce_ready
from sawhorse_runtime.rpc import grpc_server, tls_from
from sawhorse_runtime.settings import load_or_exit
from sawhorse_runtime.supervise import Loop, run_service, supervise
from sawhorse_state.connection import connect_state
from sawhorse_watcher.feed import Feed
from sawhorse_watcher.instruments import Instruments
from sawhorse_watcher.settings import Settings
from sawhorse_watcher.standing import CHECKS, Standing
from sawhorse_watcher.steps import Step
from sawhorse_watcher.wakeups import Waker

PROG = "sawhorse-watcher"
DESCRIPTION = (
    "Mirrors Kubernetes into Redis and wakes the provisioner. Of several replicas one leads, by a Lease; the others "
    "stand by."
)
LEASE = "sawhorse-watcher"


async def serve(settings: Settings, steps: Steps, stop: asyncio.Event) -> None:
    """Wire the real dependencies, run until `stop`, close them in reverse order."""
    metrics = Metrics()
    instruments = Instruments(metrics)
    readiness = Readiness(CHECKS)
    async with AsyncExitStack() as stack:
        ports = await stack.enter_async_context(serve_http(settings, readiness, metrics.registry))
        state = await stack.enter_async_context(connect_state(settings.read_redis_url(), settings.cluster_name))
        try:
            kube = await stack.enter_async_context(
                connect_kube(
                    kubeconfig=Path(settings.kubeconfig) if settings.kubeconfig else None,
                    qps=settings.kube_client_qps,
                    burst=settings.kube_client_burst,
                )
            )
        except KubeConfigError as err:
            raise SettingsError(f"--kubeconfig: {err}", action=err.action) from err
        elector = LeaderElector(
            kube,
            LEASE,
            settings.leader_election_namespace,
            socket.gethostname(),
            settings.leader_election_lease_duration,
            clock=SystemClock(),
        )
        waker = Waker(state, instruments, steps=steps)
        feed = Feed(
            kube,
            state,
            kinds=MIRRORED,
            node_classes=settings.node_class_kinds,
            notify=waker.notify,
            instruments=instruments,
            steps=steps,
        )
        standing = Standing(readiness, elector, feed, state, fresh=2 * settings.leader_election_lease_duration)
        grpc_port = None
        if settings.grpc_address:
            grpc_port = await stack.enter_async_context(
                grpc_server(
                    settings.grpc_address,
                    servicers={},
                    readiness=readiness,
                    tls=tls_from(settings),
                    insecure_allowed=settings.insecure_grpc,
                    metrics=metrics,
                )
            )
        stack.callback(readiness.close)

        async def lead(_lost: asyncio.Event, epoch: int) -> None:
            await feed.lead(elector, epoch, stop)

        loops: dict[str, Loop] = {
            "lead": partial(elector.run, lead),
            "wake": waker.run,
            "standing": standing.run,
            "ready-file": announce_ready(settings.ready_file, readiness, grpc=grpc_port, ports=ports),
        }
        await supervise(loops, stop=stop, drain=settings.drain_timeout)


def main() -> int:
    """Run the service; returns the exit code."""
    settings = load_or_exit(Settings, prog=PROG, description=DESCRIPTION)
    steps = steps_or_exit(Step, prog=PROG)
    setup_logging(settings.log_level, "watcher")
    return run_service(partial(serve, settings, steps))
