"""The gRPC health service, answering from `Readiness`: one truth for /readyz and for gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sawhorse_runtime.health import Readiness

SERVICE_NAME = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_Status = health_pb2.HealthCheckResponse


class ReadinessHealth(health_pb2_grpc.HealthServicer):
    """Every service of this server, and the empty name, is SERVING while all checks pass, else NOT_SERVING.

    grpcio ships a servicer that is told each status; this one asks, so there is nothing to keep in step.
    """

    def __init__(self, readiness: Readiness, services: Iterable[str]) -> None:
        self._readiness = readiness
        self._services = frozenset(services) | {""}
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """NOT_SERVING from now on; open Watch calls say so and end, so that they do not use up the grace."""
        self._stopped.set()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> health_pb2.HealthCheckResponse:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"this server has no service {request.service!r}")
        return _Status(status=self._status(request.service))

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        last: int | None = None
        while not self._stopped.is_set():
            status = self._status(request.service)
            if status != last:
                last = status
                yield _Status(status=status)
                continue  # it may have changed while the client was slow to read
            await self._changed_or_stopped()
        if last != _Status.NOT_SERVING:
            yield _Status(status=self._status(request.service))

    def _status(self, service: str) -> int:
        if service not in self._services:
            return _Status.SERVICE_UNKNOWN
        if self._readiness.is_ready and not self._stopped.is_set():
            return _Status.SERVING
        return _Status.NOT_SERVING

    async def _changed_or_stopped(self) -> None:
        async with asyncio.TaskGroup() as group:
            waits = [
                group.create_task(self._readiness.wait_changed(), name="health-changed"),
                group.create_task(self._stopped.wait(), name="health-stopped"),
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
