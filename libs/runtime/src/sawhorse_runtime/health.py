"""Health over HTTP: `/healthz` (the loop answers), `/readyz` (what is not ready, and why), `/metrics`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from sawhorse_runtime.errors import SettingsError

_CLOSE_SECONDS = 2.0  # a scraper that does not finish reading must not use up the drain time


class Readiness:
    """Named checks that must all pass. The HTTP server and the gRPC health service both answer from it.

    Belongs to one event loop. Name the checks that take a while when constructing, so that the service is not ready
    before the first of them has reported.
    """

    def __init__(self, checks: Iterable[str] = ()) -> None:
        self._failing: dict[str, str] = {name: "not checked yet" for name in checks}
        self._closed = False
        self._changed = asyncio.Event()

    def set(self, name: str, ready: bool, why: str = "") -> None:
        """Report a check. A new name is a new check. `why` says what is missing, for a person."""
        if ready:
            if self._failing.pop(name, None) is None:
                return
        elif self._failing.get(name) == why:
            return
        else:
            self._failing[name] = why
        self._notify()

    def close(self) -> None:
        """Not ready from now on, because the process is stopping."""
        if not self._closed:
            self._closed = True
            self._notify()

    @property
    def is_ready(self) -> bool:
        """Do all checks pass?"""
        return not self._failing and not self._closed

    def missing(self) -> dict[str, str]:
        """What is not ready, by name, with the reason."""
        return {**self._failing, "stopping": "the process is stopping"} if self._closed else dict(self._failing)

    async def wait_changed(self) -> None:
        """Return after the next change. Nothing is missed between reading the state and calling this at once."""
        await self._changed.wait()

    async def wait_ready(self) -> None:
        """Return when all checks pass; never, after `close`. Give it a deadline or a sibling to be cancelled by."""
        while not self.is_ready:
            await self.wait_changed()

    def _notify(self) -> None:
        # A fresh event per change: waiters of this one wake, those who come later wait for the next.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that are really listened on."""

    metrics: int
    health: int


class HttpSettings(Protocol):
    """The part of `CommonSettings` that `serve_http` reads."""

    @property
    def bind_address(self) -> str: ...
    @property
    def metrics_port(self) -> int: ...
    @property
    def health_probe_port(self) -> int: ...


@asynccontextmanager
async def serve_http(settings: HttpSettings, readiness: Readiness, registry: CollectorRegistry) -> AsyncIterator[Ports]:
    """Serve health and metrics while the block runs.

    `/readyz` answers 200 and `[]`, or 503 and a JSON list of `{"name", "why"}`.

    Raises:
        SettingsError: a port cannot be listened on.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        missing = [{"name": name, "why": why} for name, why in sorted(readiness.missing().items())]
        return web.json_response(missing, status=503 if missing else 200)

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})

    health = web.Application()
    health.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    scraped = web.Application()
    scraped.add_routes([web.get("/metrics", metrics)])
    async with AsyncExitStack() as stack:
        host = settings.bind_address
        metrics_port = await _listen(stack, scraped, host, settings.metrics_port, "--metrics-port")
        health_port = await _listen(stack, health, host, settings.health_probe_port, "--health-probe-port")
        yield Ports(metrics=metrics_port, health=health_port)


async def _listen(stack: AsyncExitStack, app: web.Application, host: str, port: int, flag: str) -> int:
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_CLOSE_SECONDS)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as err:
        why = err.strerror or str(err)
        raise SettingsError(f"{flag}: cannot listen on {host}:{port} ({why}); choose another port") from err
    bound: int = runner.addresses[0][1]
    return bound
