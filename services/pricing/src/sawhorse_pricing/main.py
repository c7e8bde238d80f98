"""The pricing service's wiring: settings in, loops and the gRPC server out."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from sawhorse_catalog.aws import ResolveSettings
from sawhorse_cloud.cloud import CatalogSource
from sawhorse_cloud_aws.catalog_source import connect_catalog_source
from sawhorse_pricing.account import AccountWatch
from sawhorse_pricing.fetch import Fetcher
from sawhorse_pricing.grpc_api import SERVICE_NAME, WATCH_DEADLINES, CatalogApi, add_catalog_service
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.refresh import Follower, Refresher, Schedule
from sawhorse_pricing.serving import Catalogue
from sawhorse_pricing.settings import Settings
from sawhorse_pricing.shared import RedisShared
from sawhorse_pricing.steps import Step, mark_fetcher, mark_shared
from sawhorse_runtime.clock import SystemClock
from sawhorse_runtime.failpoints import Steps, steps_or_exit
from sawhorse_runtime.health import Readiness, serve_http
from sawhorse_runtime.logs import setup_logging
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.ready import announce_ready
from sawhorse_runtime.rpc import grpc_server, tls_from
from sawhorse_runtime.settings import load_or_exit
from sawhorse_runtime.supervise import run_service, supervise
from sawhorse_state.connection import connect_state

PROG = "sawhorse-pricing"
DESCRIPTION = (
    "Keeps the catalogue of instance types, offerings and prices, and serves it over gRPC: as it is, or as a NodeClass "
    "sees it. Any number of replicas may run; one of them fetches from AWS."
)
LOADED = "catalogue"


async def serve(settings: Settings, source: CatalogSource, stop: asyncio.Event, steps: Steps | None = None) -> None:
    """Wire the real dependencies, run until `stop`, close them in reverse order.

    Args:
        source: where types and prices come from.
    """
    metrics = Metrics()
    instruments = Instruments(metrics)
    readiness = Readiness([LOADED])
    catalogue = Catalogue(
        settings=ResolveSettings(
            vm_memory_overhead_percent=settings.vm_memory_overhead_percent,
            reserved_enis=settings.reserved_enis,
            prefix_delegation=settings.prefix_delegation,
            require_subnets=True,
        ),
        instruments=instruments,
    )
    async with AsyncExitStack() as stack:
        ports = await stack.enter_async_context(serve_http(settings, readiness, metrics.registry))
        state = await stack.enter_async_context(connect_state(settings.read_redis_url(), settings.cluster_name))
        marks = steps if steps is not None else Steps()
        shared = mark_shared(RedisShared(state), marks)
        report = partial(readiness.set, LOADED)
        follower = Follower(shared, catalogue, report=report)
        refresher = Refresher(
            fetcher=mark_fetcher(
                Fetcher(
                    source,
                    region=settings.aws_region,
                    ask_prices=not settings.isolated_vpc and not settings.aws_region.startswith("us-gov-"),
                    instruments=instruments,
                ),
                marks,
            ),
            shared=shared,
            follower=follower,
            catalogue=catalogue,
            schedule=Schedule(
                interval=settings.catalog_refresh_interval,
                spot_interval=settings.spot_refresh_interval,
                fetch_timeout=settings.catalog_fetch_timeout,
                max_age=settings.catalog_max_age,
            ),
            clock=SystemClock(),
            instruments=instruments,
            report=report,
        )
        account = AccountWatch(
            source, shared=shared, interval=settings.account_refresh_interval, instruments=instruments
        )
        api = CatalogApi(catalogue=catalogue, shared=shared, follower=follower, instruments=instruments)
        port = await stack.enter_async_context(
            grpc_server(
                settings.grpc_address,
                servicers={SERVICE_NAME: partial(add_catalog_service, api)},
                readiness=readiness,
                deadlines=WATCH_DEADLINES,
                tls=tls_from(settings),
                insecure_allowed=settings.insecure_grpc,
                metrics=metrics,
            )
        )
        stack.callback(readiness.close)
        stack.callback(api.close)
        loops = {
            "follow": follower.run,
            "refresh": refresher.run,
            "account": account.run,
            "ready-file": announce_ready(settings.ready_file, readiness, grpc=port, ports=ports),
        }
        await supervise(loops, stop=stop, drain=settings.drain_timeout)


async def _run(settings: Settings, steps: Steps, stop: asyncio.Event) -> None:
    async with connect_catalog_source(
        region=settings.aws_region,
        endpoint_url=settings.aws_endpoint_url,
        pricing_endpoint_url=settings.aws_pricing_endpoint_url,
        pricing_region=settings.aws_pricing_region,
    ) as source:
        await serve(settings, source, stop, steps)


def main() -> int:
    """Run the service; returns the exit code."""
    settings = load_or_exit(Settings, prog=PROG, description=DESCRIPTION)
    steps = steps_or_exit(Step, prog=PROG)
    setup_logging(settings.log_level, "pricing")
    return run_service(partial(_run, settings, steps))
