"""The catalogue's speed: `python tests/bench/catalogue.py` prints one JSON line, each figure the best of some runs.

What it measures: 800 types resolved cold, and over gRPC on loopback the whole list, "not modified", a filtered query
and small calls, with server and client in one process. `limits` are the budgets; the exit code is 1 when one is missed
and `--strict` is given.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from sawhorse_catalog.aws import ResolveSettings, resolve
from sawhorse_catalog.aws.resolve import Resolution
from sawhorse_catalog.builtin import BuiltinCatalog, builtin_catalog
from sawhorse_catalog.snapshot import make_snapshot
from sawhorse_pricing.grpc_api import SERVICE_NAME, CatalogApi, add_catalog_service
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.refresh import Follower
from sawhorse_pricing.serving import Catalogue
from sawhorse_proto.catalog.v1 import catalog_pb2 as pb
from sawhorse_proto.catalog.v1.catalog_pb2_grpc import CatalogServiceStub
from sawhorse_runtime.health import Readiness
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.rpc import channel, grpc_server
from sawhorse_testing.catalog_source import FakeSharedCatalog

TYPES = 800
LIMITS = {"resolveMs": 100.0, "wholeMs": 15.0, "notModifiedMs": 2.0, "queryMs": 15.0, "smallCallsPerSecond": 600.0}
QUERY = (
    ("kubernetes.io/arch", "In", "arm64"),
    ("karpenter.k8s.aws/instance-cpu", "Gte", "4"),
    ("karpenter.k8s.aws/instance-cpu", "Lte", "16"),
    ("karpenter.sh/capacity-type", "In", "spot"),
    ("topology.kubernetes.io/zone", "In", "us-east-1a"),
)


def best_seconds(work: Callable[[], object], runs: int) -> float:
    """The shortest of some runs, in time of one core: others on the machine do not count."""
    found = []
    for _ in range(runs):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


async def best_of(work: Callable[[], Awaitable[object]], runs: int) -> float:
    """The same for a coroutine."""
    found = []
    for _ in range(runs):
        began = time.perf_counter()
        await work()
        found.append(time.perf_counter() - began)
    return min(found)


def cold(catalog: BuiltinCatalog) -> Resolution:
    """Resolve the first types of the catalogue, nothing kept of before but what is the same for every NodeClass."""
    return resolve(catalog.facts[:TYPES], None, catalog.prices, region=catalog.region, zones=catalog.zones)


async def over_grpc(catalog: BuiltinCatalog, runs: int) -> dict[str, float]:
    """Times of calls to a server in this process."""
    metrics, shared = Metrics(), FakeSharedCatalog()
    instruments = Instruments(metrics)
    served = Catalogue(settings=ResolveSettings(), instruments=instruments)
    served.take(
        make_snapshot(catalog.facts[:TYPES], catalog.zones, catalog.prices, region=catalog.region, fetched_at=0.0)
    )
    follower = Follower(shared, served, report=lambda ready, why: None)
    api = CatalogApi(catalogue=served, shared=shared, follower=follower, instruments=instruments)
    servicers = {SERVICE_NAME: partial(add_catalog_service, api)}
    async with (
        grpc_server("127.0.0.1:0", servicers=servicers, readiness=Readiness()) as port,
        channel(f"127.0.0.1:{port}") as connected,
    ):
        stub: Any = CatalogServiceStub(connected)
        version = (await stub.ListInstanceTypes(pb.ListInstanceTypesRequest(), timeout=60)).info.version
        known = pb.ListInstanceTypesRequest(known_version=version)
        name = catalog.facts[0].name
        queries = iter(range(10**6))

        async def query() -> None:
            # Another price each time, so that no answer is one that was kept.
            wanted = [pb.Requirement(key=key, operator=operator, values=[value]) for key, operator, value in QUERY]
            limit = 0.1 + next(queries) / 10**6
            await stub.ListInstanceTypes(pb.ListInstanceTypesRequest(requirements=wanted, max_price=limit), timeout=60)

        async def many(count: int = 600) -> None:
            async with asyncio.TaskGroup() as group:
                for worker in range(8):
                    group.create_task(small(count // 8), name=f"caller-{worker}")

        async def small(count: int) -> None:
            for _ in range(count):
                await stub.GetInstanceType(pb.GetInstanceTypeRequest(name=name), timeout=60)

        return {
            "wholeMs": 1000 * await best_of(lambda: stub.ListInstanceTypes(pb.ListInstanceTypesRequest()), runs),
            "notModifiedMs": 1000 * await best_of(lambda: stub.ListInstanceTypes(known), runs * 5),
            "queryMs": 1000 * await best_of(query, runs),
            "smallCallsPerSecond": 600 / await best_of(many, 3),
        }


def measure(runs: int) -> dict[str, Any]:
    """The row."""
    catalog = builtin_catalog()
    # The first time also reads the network table and fills what all NodeClasses share, as a running service has done.
    first = best_seconds(lambda: cold(catalog), 1)
    gc.collect()
    figures = {"resolveMs": 1000 * best_seconds(lambda: cold(catalog), runs)}
    figures |= asyncio.run(over_grpc(catalog, runs))
    missed = [
        name
        for name, limit in LIMITS.items()
        if (figures[name] < limit if name.endswith("PerSecond") else figures[name] > limit)
    ]
    return {
        "row": "catalogue",
        "types": TYPES,
        "firstResolveMs": round(1000 * first, 2),
        **{name: round(value, 2) for name, value in figures.items()},
        "limits": LIMITS,
        "missed": missed,
    }


def main() -> int:
    """Print the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="each figure is the best of so many")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a budget is missed")
    options = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # stdout is for the row
    row = measure(options.runs)
    print(json.dumps(row))
    return 1 if options.strict and row["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
