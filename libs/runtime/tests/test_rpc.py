"""gRPC server, channel and call, over loopback in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from sawhorse_runtime.errors import (
    InvalidRequestError,
    RemoteError,
    Retry,
    SawhorseError,
    SettingsError,
    UnavailableError,
)
from sawhorse_runtime.health import Readiness
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.rpc import call, channel, grpc_server

SERVICE = "test.v1.Echo"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

Behaviour = Callable[[bytes, Any], Awaitable[bytes]]


async def echo(request: bytes, context: Any) -> bytes:
    return request


def a_servicer(behaviour: Any, *, streams: bool = False) -> dict[str, Callable[[grpc.aio.Server], None]]:
    """The test service: one method, `Echo`, of bytes."""
    make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
    handlers = grpc.method_handlers_generic_handler(SERVICE, {"Echo": make(behaviour)})
    return {SERVICE: lambda server: server.add_generic_rpc_handlers((handlers,))}


@asynccontextmanager
async def serving(behaviour: Any = echo, **options: Any) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a server of the test service."""
    streams = options.pop("streams", False)
    servicers = a_servicer(behaviour, streams=streams)
    options = {"readiness": Readiness(), "grace": timedelta(0), **options}
    async with (
        asyncio.timeout(20),
        grpc_server("127.0.0.1:0", servicers=servicers, **options) as port,
        channel(f"127.0.0.1:{port}") as made,
    ):
        yield made


def echo_of(made: grpc.aio.Channel) -> Any:
    return made.unary_unary(f"/{SERVICE}/Echo")


async def test_a_call_is_answered_whatever_its_size_up_to_64_mib() -> None:
    async with serving() as made:
        answer = await call(echo_of(made), b"x" * 8_000_000)

    assert len(answer) == 8_000_000


async def test_health_follows_readiness_for_the_server_and_each_service() -> None:
    readiness = Readiness(["mirror"])
    async with serving(readiness=readiness) as made:
        health = health_pb2_grpc.HealthStub(made)

        async def statuses() -> list[int]:
            requests = [health_pb2.HealthCheckRequest(service=name) for name in ("", SERVICE)]
            return [(await call(health.Check, request)).status for request in requests]

        before = await statuses()
        readiness.set("mirror", True)
        ready = await statuses()
        readiness.set("mirror", False, "lost")
        after = await statuses()

    assert (before, ready, after) == ([NOT_SERVING] * 2, [SERVING] * 2, [NOT_SERVING] * 2)


async def test_a_service_that_this_server_has_not_is_not_found() -> None:
    async with serving() as made:
        with pytest.raises(RemoteError, match="no service 'other'") as caught:
            await call(health_pb2_grpc.HealthStub(made).Check, health_pb2.HealthCheckRequest(service="other"))

    assert (caught.value.code, caught.value.retry) == ("NOT_FOUND", Retry.NEVER)


async def test_who_watches_health_hears_of_each_change_and_of_the_stop() -> None:
    readiness = Readiness(["mirror"])
    heard: list[int] = []
    first, ready = asyncio.Event(), asyncio.Event()

    async def watch(made: grpc.aio.Channel) -> None:
        async for answer in health_pb2_grpc.HealthStub(made).Watch(health_pb2.HealthCheckRequest(service=SERVICE)):
            heard.append(answer.status)
            first.set()
            if answer.status == SERVING:
                ready.set()

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        server = grpc_server(
            "127.0.0.1:0", servicers=a_servicer(echo), readiness=readiness, grace=timedelta(seconds=10)
        )
        async with server as port:
            made = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
            watcher = group.create_task(watch(made))
            await first.wait()
            readiness.set("mirror", True)
            await ready.wait()
        await watcher
        await made.close()

    assert heard == [NOT_SERVING, SERVING, NOT_SERVING]


async def test_reflection_lists_the_services() -> None:
    async with serving() as made:
        stub = reflection_pb2_grpc.ServerReflectionStub(made)
        stream = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        answer = await stream.read()

    names = {service.name for service in answer.list_services_response.service}
    assert names == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


async def sleeps(request: bytes, context: Any) -> bytes:
    await asyncio.sleep(60)
    return request


async def test_a_call_without_a_deadline_gets_the_servers() -> None:
    async with serving(sleeps, default_deadline=timedelta(milliseconds=50)) as made:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await echo_of(made)(b"x")

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert caught.value.details() == "no answer within 0.05 s"


async def test_the_clients_own_deadline_is_respected() -> None:
    async def takes_a_while(request: bytes, context: Any) -> bytes:
        await asyncio.sleep(0.2)
        return request

    async with serving(takes_a_while, default_deadline=timedelta(milliseconds=50)) as made:
        answer = await call(echo_of(made), b"x", timeout=10)

    assert answer == b"x"


async def test_a_method_may_be_without_a_bound() -> None:
    async def takes_a_while(request: bytes, context: Any) -> bytes:
        await asyncio.sleep(0.2)
        return request

    async with serving(
        takes_a_while, default_deadline=timedelta(milliseconds=50), deadlines={f"/{SERVICE}/Echo": None}
    ) as made:
        answer = await echo_of(made)(b"x")

    assert answer == b"x"


async def test_call_says_unavailable_when_no_answer_came_in_time() -> None:
    async with serving(sleeps) as made:
        with pytest.raises(UnavailableError, match=r"pricing is unavailable: no answer within 0\.1 s"):
            await call(echo_of(made), b"x", timeout=0.1, service="pricing")


async def test_call_says_unavailable_when_nobody_listens() -> None:
    async with grpc_server("127.0.0.1:0", servicers=a_servicer(echo), readiness=Readiness()) as port:
        pass

    async with asyncio.timeout(20), channel(f"127.0.0.1:{port}") as made:
        with pytest.raises(UnavailableError, match="pricing is unavailable"):
            await call(echo_of(made), b"x", timeout=5, service="pricing")


class OutOfStockError(Exception):
    """As another package has it, by shape."""

    reason = "InsufficientCapacity"
    retry = "elsewhere"
    action = "Allow more types."


class BrokenError(SawhorseError):
    reason = "Broken"
    retry = Retry.NEVER


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (InvalidRequestError("zones is empty"), "INVALID_ARGUMENT"),
        (BrokenError("no subnets"), "FAILED_PRECONDITION"),
        (OutOfStockError("no capacity"), "RESOURCE_EXHAUSTED"),
        (RemoteError("gone", code="NOT_FOUND", retry=Retry.NEVER), "NOT_FOUND"),
        (ExceptionGroup("one", [BrokenError("no subnets")]), "FAILED_PRECONDITION"),
        (ValueError("secret detail"), "INTERNAL"),
    ],
)
async def test_what_a_servicer_raises_becomes_a_status_and_one_log_line(raised: Exception, code: str) -> None:
    async def fails(request: bytes, context: Any) -> bytes:
        raise raised

    with capture_logs() as logs:
        async with serving(fails) as made:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await echo_of(made)(b"x")

    assert caught.value.code().name == code
    assert len([line for line in logs if line["event"] == "rpc failed"]) == 1
    assert "\n" not in (caught.value.details() or "")


async def test_an_unknown_error_keeps_its_detail_in_the_log() -> None:
    async def fails(request: bytes, context: Any) -> bytes:
        raise ValueError("secret detail")

    async with serving(fails) as made:
        with pytest.raises(RemoteError) as caught:
            await call(echo_of(made), b"x", service="pricing")

    assert str(caught.value) == "pricing: internal error in Echo; its service has logged it"
    assert (caught.value.reason, caught.value.retry) == ("InternalError", Retry.BACKOFF)


async def test_a_temporary_failure_is_tried_again_within_the_deadline() -> None:
    attempts: list[bytes] = []

    async def works_the_third_time(request: bytes, context: Any) -> bytes:
        attempts.append(request)
        if len(attempts) < 3:
            raise UnavailableError("redis is away")
        return b"done"

    async with serving(works_the_third_time) as made:
        answer = await call(echo_of(made), b"x", timeout=10)

    assert (answer, len(attempts)) == (b"done", 3)


async def test_reason_and_retry_reach_the_caller() -> None:
    async def fails(request: bytes, context: Any) -> bytes:
        raise OutOfStockError("no capacity")

    async with serving(fails) as made:
        with pytest.raises(RemoteError, match=r"no capacity\. Allow more types\.") as caught:
            await call(echo_of(made), b"x")

    assert (caught.value.reason, caught.value.retry) == ("InsufficientCapacity", Retry.ELSEWHERE)


async def test_a_request_that_makes_no_sense_reaches_the_caller_as_such() -> None:
    async def fails(request: bytes, context: Any) -> bytes:
        raise InvalidRequestError("zones is empty")

    async with serving(fails) as made:
        with pytest.raises(InvalidRequestError, match="zones is empty"):
            await call(echo_of(made), b"x")


async def test_a_status_that_the_servicer_chose_itself_stays() -> None:
    async def aborts(request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such pod")
        return b""

    async with serving(aborts) as made:
        with pytest.raises(RemoteError, match="no such pod") as caught:
            await call(echo_of(made), b"x")

    assert caught.value.code == "NOT_FOUND"


async def yields_two(request: bytes, context: Any) -> AsyncIterator[bytes]:
    yield b"1"
    yield b"2"


async def writes_two(request: bytes, context: Any) -> None:
    await context.write(b"1")
    await context.write(b"2")


@pytest.mark.parametrize("behaviour", [yields_two, writes_two])
async def test_streams_pass_through_in_both_styles(behaviour: Any) -> None:
    async with serving(behaviour, streams=True) as made:
        answers = [answer async for answer in made.unary_stream(f"/{SERVICE}/Echo")(b"x", timeout=10)]

    assert answers == [b"1", b"2"]


async def test_a_stream_that_fails_ends_with_the_status_of_its_error() -> None:
    async def yields_then_fails(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"1"
        raise BrokenError("no subnets")

    async with serving(yields_then_fails, streams=True) as made:
        stream = made.unary_stream(f"/{SERVICE}/Echo")(b"x", timeout=10)
        first = await stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()

    assert first == b"1"
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_an_unknown_method_is_unimplemented() -> None:
    async with serving() as made:
        with pytest.raises(RemoteError) as caught:
            await call(made.unary_unary(f"/{SERVICE}/Nothing"), b"x")

    assert caught.value.code == "UNIMPLEMENTED"


async def test_calls_are_counted_by_status() -> None:
    metrics = Metrics()

    async def odd_fails(request: bytes, context: Any) -> bytes:
        if request == b"odd":
            raise BrokenError("no subnets")
        return request

    async with serving(odd_fails, metrics=metrics) as made:
        await call(echo_of(made), b"even")
        with pytest.raises(RemoteError):
            await call(echo_of(made), b"odd")

    text = generate_latest(metrics.registry).decode()
    for code in ("OK", "FAILED_PRECONDITION"):
        labels = f'code="{code}",method="Echo",service="{SERVICE}"'
        assert f"sawhorse_grpc_requests_total{{{labels}}} 1.0" in text


async def test_a_call_in_flight_at_the_stop_may_finish_within_the_grace() -> None:
    began = asyncio.Event()

    async def takes_a_while(request: bytes, context: Any) -> bytes:
        began.set()
        await asyncio.sleep(0.2)
        return b"finished"

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        server = grpc_server(
            "127.0.0.1:0", servicers=a_servicer(takes_a_while), readiness=Readiness(), grace=timedelta(seconds=10)
        )
        async with server as port:
            made = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
            answer = group.create_task(call(echo_of(made), b"x"))
            await began.wait()
        await answer
        await made.close()

    assert answer.result() == b"finished"


async def test_a_port_that_is_taken_is_a_settings_problem() -> None:
    async with grpc_server("127.0.0.1:0", servicers={}, readiness=Readiness()) as port:
        with pytest.raises(SettingsError, match=f"--grpc-address: cannot listen on 127.0.0.1:{port}"):
            async with grpc_server(f"127.0.0.1:{port}", servicers={}, readiness=Readiness()):
                pass


async def test_plain_text_beyond_this_machine_is_refused_unless_allowed() -> None:
    with pytest.raises(SettingsError, match=r"refusing to listen without TLS at 0\.0\.0\.0:0"):
        async with grpc_server("0.0.0.0:0", servicers={}, readiness=Readiness()):
            pass
    with pytest.raises(SettingsError, match=r"refusing to connect without TLS at pricing:8090"):
        async with channel("pricing:8090"):
            pass
    async with grpc_server("0.0.0.0:0", servicers={}, readiness=Readiness(), insecure_allowed=True) as port:
        assert port > 0
