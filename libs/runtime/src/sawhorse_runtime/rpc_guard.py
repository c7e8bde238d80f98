"""The interceptor round every call of a server: a deadline, errors as statuses of one line, and counts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import grpc
import structlog

from sawhorse_runtime.errors import (
    Failure,
    InvalidRequestError,
    RemoteError,
    Retry,
    SawhorseError,
    as_failure,
    describe,
    leaves,
)
from sawhorse_runtime.metrics import Metrics

log = structlog.get_logger(__name__)
T = TypeVar("T")

REASON_KEY = "sawhorse-reason"
"""Trailing metadata of a failed call: the stable word of the error."""
RETRY_KEY = "sawhorse-retry"
"""Trailing metadata of a failed call: a word of `Retry`."""

_NO_DEADLINE_SECONDS = 10 * 365 * 86_400.0  # grpc states "none" as a moment centuries away


class Guard(grpc.aio.ServerInterceptor):
    """Bounds, translates and counts the calls of a server.

    Args:
        default_deadline: for calls whose client set none.
        deadlines: other defaults by full method ("/package.Service/Method"); None for no bound, e.g. a watch.
        exempt: full service names left alone, whose streams live as long as the client wants.
        metrics: where calls are counted; nowhere unless given.
    """

    def __init__(
        self,
        *,
        default_deadline: timedelta,
        deadlines: Mapping[str, timedelta | None],
        exempt: Collection[str],
        metrics: Metrics | None,
    ) -> None:
        self._default = default_deadline
        self._deadlines = dict(deadlines)
        self._exempt = frozenset(exempt)
        self._wrapped: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self._calls = self._seconds = None
        if metrics is not None:
            self._calls = metrics.counter(
                "sawhorse_grpc_requests_total", "gRPC calls answered, by status.", ("service", "method", "code")
            )
            self._seconds = metrics.histogram(
                "sawhorse_grpc_request_duration_seconds", "How long gRPC calls took.", ("service", "method")
            )

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = handler_call_details.method
        known = self._wrapped.get(method)
        if known is not None:
            return known
        handler = await continuation(handler_call_details)
        # None: no such method; grpc answers UNIMPLEMENTED. Not kept, so a client cannot fill our memory with names.
        if handler is None or _service(method) in self._exempt:
            return handler
        self._wrapped[method] = self._wrap(method, handler)
        return self._wrapped[method]

    def _wrap(self, method: str, handler: Any) -> grpc.RpcMethodHandler[Any, Any]:
        make, behaviour = {
            (False, False): (grpc.unary_unary_rpc_method_handler, handler.unary_unary),
            (True, False): (grpc.stream_unary_rpc_method_handler, handler.stream_unary),
            (False, True): (grpc.unary_stream_rpc_method_handler, handler.unary_stream),
            (True, True): (grpc.stream_stream_rpc_method_handler, handler.stream_stream),
        }[handler.request_streaming, handler.response_streaming]

        async def answer(request: Any, context: Any) -> Any:
            return await self._run(method, context, lambda: behaviour(request, context))

        async def stream(request: Any, context: Any) -> None:
            await self._run(method, context, lambda: _write_all(behaviour(request, context), context))

        wrapped: grpc.RpcMethodHandler[Any, Any] = make(
            stream if handler.response_streaming else answer,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
        return wrapped

    async def _run(self, method: str, context: Any, body: Callable[[], Awaitable[T]]) -> T:
        began = time.monotonic()
        limit = self._limit(method, context)
        cancelled = False
        try:
            async with asyncio.timeout(limit) as deadline:
                return await body()
        except asyncio.CancelledError:
            cancelled = True  # the client went away, its deadline passed, or the grace at stop did
            raise
        except grpc.aio.AbortError:
            raise  # the servicer has chosen its status itself
        except Exception as exc:
            late = isinstance(exc, TimeoutError) and deadline.expired()
            return await _abort(method, context, _LateError(f"no answer within {limit:g} s") if late else exc)
        finally:
            code = grpc.StatusCode.CANCELLED.name if cancelled else _code_of(context)
            self._count(method, code, time.monotonic() - began)

    def _limit(self, method: str, context: Any) -> float | None:
        remaining = context.time_remaining()
        if remaining is not None and remaining < _NO_DEADLINE_SECONDS:
            return None  # the client's own deadline: grpc cancels the handler when it passes
        limit = self._deadlines.get(method, self._default)
        return None if limit is None else limit.total_seconds()

    def _count(self, method: str, code: str, seconds: float) -> None:
        if self._calls is None or self._seconds is None:
            return
        service, name = _service(method), method.rpartition("/")[2]
        self._calls.labels(service, name, code).inc()
        self._seconds.labels(service, name).observe(seconds)


class _LateError(SawhorseError):
    """A handler took longer than the default deadline."""

    reason = "DeadlineExceeded"
    retry = Retry.BACKOFF


async def _write_all(answers: Any, context: Any) -> None:
    if not hasattr(answers, "__aiter__"):
        await answers  # the servicer writes to the context itself
        return
    async with contextlib.aclosing(answers):
        async for one in answers:
            await context.write(one)


async def _abort(method: str, context: Any, exc: Exception) -> NoReturn:
    """End the call with the status for `exc`, logging it once.

    Raises:
        grpc.aio.AbortError: always.
    """
    inner = list(leaves(exc))
    cause = inner[0] if len(inner) == 1 else exc  # a TaskGroup wraps even a single error
    failure = as_failure(cause)
    if failure is None:
        log.error("rpc failed", method=method, code="INTERNAL", exc_info=exc)
        # What it was may hold anything; the person who can mend it has the log.
        what = f"internal error in {method.rpartition('/')[2]}; its service has logged it"
        await context.abort(grpc.StatusCode.INTERNAL, what, ((REASON_KEY, "InternalError"), (RETRY_KEY, Retry.BACKOFF)))
        raise AssertionError("abort returned")
    code = status_for(cause, failure)
    line = describe(cause)
    log.warning("rpc failed", method=method, code=code.name, reason=failure.reason, error=line)
    reason = failure.reason.encode("ascii", "replace").decode()  # metadata takes no other text
    await context.abort(code, line, ((REASON_KEY, reason), (RETRY_KEY, str(failure.retry))))
    raise AssertionError("abort returned")


def status_for(exc: BaseException, failure: Failure) -> grpc.StatusCode:
    """The gRPC status that tells a client the same as the error's retry word."""
    if isinstance(exc, _LateError):
        return grpc.StatusCode.DEADLINE_EXCEEDED
    if isinstance(exc, RemoteError):
        return grpc.StatusCode[exc.code]  # passed on as it came
    if isinstance(exc, InvalidRequestError):
        return grpc.StatusCode.INVALID_ARGUMENT
    if failure.retry == Retry.NEVER:
        return grpc.StatusCode.FAILED_PRECONDITION
    if failure.retry == Retry.ELSEWHERE:
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    return grpc.StatusCode.UNAVAILABLE


def _code_of(context: Any) -> str:
    code = context.code()
    if isinstance(code, grpc.StatusCode):
        return code.name
    # A servicer may set a bare number; none at all is OK.
    return next((status.name for status in grpc.StatusCode if status.value[0] == code), "OK")


def _service(method: str) -> str:
    return method.strip("/").rpartition("/")[0]
