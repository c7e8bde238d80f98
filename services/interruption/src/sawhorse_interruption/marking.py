"""Step `marked`: the offering of a doomed instance is left out of launches for a while.

Pricing is told over gRPC, so that its catalogue changes at once; without it the mark goes to Redis, where pricing finds
it. Losing a mark costs one failed launch at most, so neither stops what comes after.
"""

from collections.abc import Awaitable, Callable

import grpc

from sawhorse_interruption.breaker import Breaker
from sawhorse_interruption.cache import Cache, Offering
from sawhorse_interruption.policy import Response
from sawhorse_model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_proto.catalog.v1 import catalog_pb2, catalog_pb2_grpc
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.rpc import call

REPORT_SECONDS = 0.5  # the cordon waits for this
REST_SECONDS = 5.0
WAVE_SECONDS = 60.0

Report = Callable[[Offering, str], Awaitable[None]]
"""Tells pricing of an offering and the reason."""


def pricing_report(channel: grpc.aio.Channel) -> Report:
    """A `Report` over gRPC."""
    stub: catalog_pb2_grpc.CatalogServiceAsyncStub = catalog_pb2_grpc.CatalogServiceStub(channel)

    async def report(offering: Offering, reason: str) -> None:
        capacity_type, instance_type, zone = offering
        unavailable = catalog_pb2.UnavailableOffering(
            capacity_type=capacity_type, instance_type=instance_type, zone=zone, reason=reason
        )
        request = catalog_pb2.ReportUnavailableRequest(offerings=[unavailable])
        await call(stub.ReportUnavailable, request, REPORT_SECONDS, service="pricing")

    return report


class Marker:
    """Marks offerings, each once per wave.

    A pool that is taken back warns all its instances at nearly the same time. That is one sign, not many, and the
    length of a mark doubles with each.

    Args:
        report: see `Report`; None without pricing.
    """

    def __init__(self, clock: Clock, cache: Cache, *, report: Report | None = None) -> None:
        self._clock = clock
        self._cache = cache
        self._report = report
        self._pricing = Breaker(clock, "pricing", seconds=2 * REPORT_SECONDS, rest=REST_SECONDS)
        self._until: dict[Offering, float] = {}

    async def mark(self, claim: NodeClaim, response: Response) -> bool:
        """Mark the claim's offering, when the kind of message says so. Bounded in time, never raises.

        Returns:
            Whether the offering is known to be marked now.
        """
        labels = claim.meta.labels
        offering = (labels.get(CAPACITY_TYPE, ""), labels.get(INSTANCE_TYPE, ""), labels.get(ZONE, ""))
        if not response.unavailable or not all(offering):
            return False
        now = self._clock.monotonic()
        self._until = {known: until for known, until in self._until.items() if until > now}
        if offering in self._until:
            return True
        # Before the call: the others of the wave are being handled at the same time.
        self._until[offering] = now + WAVE_SECONDS
        if await self._told_pricing(offering, response.unavailable):
            return True
        if await self._cache.mark_unavailable(offering, response.unavailable):
            return True
        self._until.pop(offering, None)
        return False

    async def _told_pricing(self, offering: Offering, reason: str) -> bool:
        report = self._report
        if report is None:
            return False

        async def tell() -> bool:
            await report(offering, reason)
            return True

        return await self._pricing.call(tell, False)
