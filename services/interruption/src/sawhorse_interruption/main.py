"""Wiring: the one module that knows which cloud it is. Every replica is active; there is no leader."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import structlog

from sawhorse_cloud.cloud import Cloud, Instance, Queue
from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws import AwsSettings, connect_cloud, connect_queue
from sawhorse_interruption.acks import Acks, Burials
from sawhorse_interruption.cache import RedisCache
from sawhorse_interruption.consumer import Consumer, Limits
from sawhorse_interruption.draining import Draining
from sawhorse_interruption.effects import Effects
from sawhorse_interruption.grpc_api import SERVICE, InterruptionApi, add_to
from sawhorse_interruption.handler import Handler
from sawhorse_interruption.index import ClaimIndex
from sawhorse_interruption.instruments import Instruments
from sawhorse_interruption.marking import Marker, Report, pricing_report
from sawhorse_interruption.precedence import Precedence
from sawhorse_interruption.settings import Settings
from sawhorse_interruption.steps import Failpoint, Steps, failpoint_from
from sawhorse_kube.client import connect_kube
from sawhorse_kube.errors import KubeConfigError
from sawhorse_kube.events import EventRecorder
from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.clock import SystemClock
from sawhorse_runtime.errors import SettingsError, describe
from sawhorse_runtime.health import Readiness, serve_http
from sawhorse_runtime.logs import setup_logging
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.ready import announce_ready
from sawhorse_runtime.rpc import channel, grpc_server, tls_from
from sawhorse_runtime.settings import exit_with, load_or_exit
from sawhorse_runtime.supervise import run_service, supervise
from sawhorse_state.connection import connect_state
from sawhorse_state.mirror import Mirror

log = structlog.get_logger(__name__)

MIRRORED = ("Pod", "Node", "NodeClaim")
LOOK_SECONDS = 0.5  # how soon readiness follows the mirror
CONNECT_SECONDS = 30.0


async def serve(settings: Settings, stop: asyncio.Event, failpoint: Failpoint | None = None) -> None:
    """Wire the real dependencies and run until `stop`."""
    metrics, readiness, clock = Metrics(), Readiness(["index", "queue"]), SystemClock()
    instruments, steps, precedence = Instruments(metrics), Steps(failpoint), Precedence()
    async with AsyncExitStack() as stack:
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
            raise SettingsError(f"--kubeconfig: {describe(err)}") from err
        cloud = await stack.enter_async_context(_LazyCloud(settings))
        cache = RedisCache(state, clock)
        mirror = Mirror(state, MIRRORED)
        index = ClaimIndex(kube, clock, cache, mirror=mirror)
        recorder = EventRecorder(kube, clock)
        draining = Draining(
            kube,
            index,
            cache,
            recorder,
            clock,
            instruments,
            precedence,
            identity=f"{socket.gethostname()}-{os.getpid()}",
            mirror=mirror,
            workers=settings.drain_workers,
            steps=steps,
            metrics=metrics,
        )
        marker = Marker(clock, cache, report=await _pricing(stack, settings))
        effects = Effects(
            kube, index, recorder, marker, cache, clock, instruments, on_doomed=draining.doomed, steps=steps
        )
        handler = Handler(
            effects,
            index,
            cache,
            clock,
            precedence,
            unknown_after=settings.unknown_instance_after,
            margin=settings.deadline_margin,
            describe=cloud.describe,
            steps=steps,
        )

        def make_consumer(queue: Queue) -> Consumer:
            acks = Acks(queue, cache, clock, instruments, steps=steps)
            burials = Burials(queue, clock, instruments)
            limits = limits_of(settings)
            return Consumer(queue, handler, acks, burials, clock, instruments, limits=limits, steps=steps)

        intake = Intake(settings, make_consumer, readiness)
        api = InterruptionApi(index, draining, instruments, lambda: intake.consumer)
        ports = await stack.enter_async_context(serve_http(settings, readiness, metrics.registry))
        grpc = await stack.enter_async_context(
            grpc_server(
                settings.grpc_address,
                servicers={SERVICE: lambda server: add_to(server, api)},
                readiness=readiness,
                tls=tls_from(settings),
                insecure_allowed=settings.insecure_grpc,
                metrics=metrics,
            )
        )
        loops = {
            "mirror": mirror.run,
            "readiness": lambda stop: _follow_mirror(mirror, readiness, stop),
            "consume": intake.run,
            "drain": draining.run,
            "announce-ready": announce_ready(settings.ready_file, readiness, grpc=grpc, ports=ports),
        }
        await supervise(loops, stop=stop, drain=settings.drain_timeout)


def limits_of(settings: Settings) -> Limits:
    """The consumer's bounds as the settings say them."""
    return Limits(
        receivers=settings.queue_receivers,
        handlers=settings.queue_handlers,
        parked=settings.queue_parked,
        visibility=settings.queue_visibility,
        wait=settings.queue_wait,
    )


@dataclass
class Intake:
    """Consumes while the queue can be reached; a queue that is missing must not stop the drains."""

    settings: Settings
    make_consumer: Callable[[Queue], Consumer]
    readiness: Readiness
    consumer: Consumer | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(1.0, maximum=30.0))

    async def run(self, stop: asyncio.Event) -> None:
        """Connect, consume until `stop`; on failure to connect try again later."""
        name, region = self.settings.interruption_queue, self.settings.aws_region
        while not stop.is_set():
            try:
                async with AsyncExitStack() as stack:
                    async with asyncio.timeout(CONNECT_SECONDS):
                        queue = await stack.enter_async_context(
                            connect_queue(name, region=region, endpoint_url=self.settings.aws_endpoint_url)
                        )
                    self.backoff.reset(name)
                    self.readiness.set("queue", True)
                    self.consumer = self.make_consumer(queue)
                    await self.consumer.run(stop)
            except (CloudError, TimeoutError) as err:
                pause = self.backoff.next(name)
                log.warning("queue not reached", queue=name, error=describe(err), retry_seconds=round(pause, 1))
                self.readiness.set("queue", False, f"queue {name!r}: {describe(err)}")
                await _wait(stop, pause)
            finally:
                self.consumer = None


class _LazyCloud:
    """Asks EC2 about single instances; connected at the first question, which few processes ever ask."""

    def __init__(self, settings: Settings) -> None:
        self._aws = AwsSettings(
            cluster_name=settings.cluster_name,
            region=settings.aws_region,
            endpoint_url=settings.aws_endpoint_url,
            cluster_endpoint=settings.cluster_endpoint,
            service_cidr=settings.service_cidr,
            kubernetes_version=settings.kubernetes_version,
        )
        self._stack = AsyncExitStack()
        self._cloud: Cloud | None = None
        self._connecting = asyncio.Lock()

    async def __aenter__(self) -> "_LazyCloud":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def describe(self, instance_id: str) -> Instance | None:
        """See `handler.Describe`."""
        async with self._connecting:
            if self._cloud is None:
                self._cloud = await self._stack.enter_async_context(connect_cloud(self._aws))
        return (await self._cloud.describe([instance_id])).get(instance_id)


async def _pricing(stack: AsyncExitStack, settings: Settings) -> Report | None:
    if not settings.pricing_address:
        return None
    made = await stack.enter_async_context(
        channel(settings.pricing_address, tls=tls_from(settings), insecure_allowed=settings.insecure_grpc)
    )
    return pricing_report(made)


async def _follow_mirror(mirror: Mirror, readiness: Readiness, stop: asyncio.Event) -> None:
    while not stop.is_set():
        if mirror.synced:
            readiness.set("index", True)
        else:
            readiness.set("index", False, mirror.missing or "the mirror is being read")
            await mirror.wait_synced(timedelta(seconds=LOOK_SECONDS))
            continue
        await _wait(stop, LOOK_SECONDS)
    readiness.close()


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


def main() -> int:
    """Run the service; the exit code of the process."""
    settings = load_or_exit(
        Settings,
        prog="sawhorse-interruption",
        description="Acts on EC2's interruption messages: cordon, replacement, drain.",
    )
    try:
        # Not a setting: only crash tests set it, and only they may.
        failpoint = failpoint_from(os.environ)  # noqa: TID251
    except SettingsError as err:
        exit_with(err, prog="sawhorse-interruption")
    setup_logging(settings.log_level, "interruption")
    serving: Callable[[asyncio.Event], Awaitable[None]] = lambda stop: serve(settings, stop, failpoint)  # noqa: E731
    return run_service(serving)


if __name__ == "__main__":
    raise SystemExit(main())
