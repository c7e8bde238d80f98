"""One embedded Kubernetes in this process: store, API, HTTP, scheduler and controllers, until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from sawhorse_sandbox.apiserver.bootstrap import bootstrap
from sawhorse_sandbox.apiserver.operations import Api
from sawhorse_sandbox.apiserver.resources import ResourceTable
from sawhorse_sandbox.apiserver.routes import Server
from sawhorse_sandbox.apiserver.storage import Store
from sawhorse_sandbox.apiserver.targets import Clock, utc_now

HOST = "127.0.0.1"
LARGEST_BODY = 3 * 2**20  # bytes, as the real server
CLOSE_TIMEOUT = 1.0  # seconds that open requests get at the end


@dataclass(frozen=True, slots=True)
class Serving:
    api: Api
    port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


def new_api(clock: Clock = utc_now) -> Api:
    """An empty cluster with its first namespaces and priority classes; nothing serves or watches it yet."""
    api = Api(Store(), ResourceTable(), clock)
    bootstrap(api)
    return api


@asynccontextmanager
async def serve_api(api: Api, token: str, port: int = 0) -> AsyncIterator[Serving]:
    """Answer HTTP on loopback while the context is open; port 0 takes a free one."""
    stopping = asyncio.Event()
    handler = Server(api, token, stopping)
    loop = asyncio.get_running_loop()

    def make_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LARGEST_BODY)

    server = web.Server(handler.handle, request_factory=make_request, access_log=None, handler_cancellation=True)
    runner = web.ServerRunner(server, shutdown_timeout=CLOSE_TIMEOUT)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port, backlog=1024)
        await site.start()
        yield Serving(api, int(runner.addresses[0][1]))
    finally:
        stopping.set()
        api.store.wake_watchers()
        await runner.cleanup()
