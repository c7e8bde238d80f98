"""A server that is asked too much refuses at once, and is well again afterwards."""

import asyncio
from typing import Any

import grpc
import pytest

from sawhorse_runtime import rpc
from sawhorse_runtime.errors import RemoteError
from sawhorse_runtime.health import Readiness
from sawhorse_runtime.rpc import call, channel, grpc_server

SERVICE = "test.Slow"


async def test_calls_beyond_the_bound_are_refused_and_the_others_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MOST_CALLS", 3)
    go_on = asyncio.Event()

    async def slow(request: bytes, context: Any) -> bytes:
        await go_on.wait()
        return request

    def add(server: grpc.aio.Server) -> None:
        method = grpc.unary_unary_rpc_method_handler(slow)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Wait": method}),))

    async with (
        grpc_server("127.0.0.1:0", servicers={SERVICE: add}, readiness=Readiness([])) as port,
        channel(f"127.0.0.1:{port}") as made,
    ):
        wait = made.unary_unary(f"/{SERVICE}/Wait")
        outcomes: list[str] = []

        async def ask() -> None:
            try:
                await call(wait, b"x", 10.0)
            except RemoteError as error:
                outcomes.append(error.code)
                if len(outcomes) == 2:
                    go_on.set()
            else:
                outcomes.append("OK")

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(ask())
        again = await call(wait, b"again", 10.0)

    assert sorted(outcomes) == ["OK", "OK", "OK", "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"]
    assert again == b"again"
