"""gRPC: the server, the channel and the call, each with the bounds that every service of ours wants.

Server: health, reflection, a deadline for every call, errors as one-line statuses, mutual TLS, graceful stop.
Channel: keepalive, retries while a service is unavailable, mutual TLS. Call: a deadline, and errors of our tree.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
import structlog
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sawhorse_runtime.backoff import seconds
from sawhorse_runtime.errors import (
    InvalidRequestError,
    RemoteError,
    Retry,
    SawhorseError,
    SettingsError,
    UnavailableError,
    one_line,
)
from sawhorse_runtime.health import Readiness
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.parsers import is_loopback, split_address
from sawhorse_runtime.rpc_guard import REASON_KEY, RETRY_KEY, Guard
from sawhorse_runtime.rpc_health import SERVICE_NAME as HEALTH
from sawhorse_runtime.rpc_health import ReadinessHealth

log = structlog.get_logger(__name__)

R = TypeVar("R")

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MOST_CALLS = 1000  # at once; more are refused at once, rather than held in memory
DEFAULT_DEADLINE = timedelta(seconds=30)
_SIZES = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)
_SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],  # a headless Service names all replicas, and any may answer
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
}
# The client's own deadline bounds all of these; what remains after it says whether a repeat can help.
_UNREACHABLE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
_WORTH_REPEATING = frozenset(
    {
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNKNOWN,
    }
)


class TlsSettings(Protocol):
    """The part of `CommonSettings` that `tls_from` reads."""

    @property
    def grpc_tls_cert_file(self) -> str: ...
    @property
    def grpc_tls_key_file(self) -> str: ...
    @property
    def grpc_tls_ca_file(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of one side of mutual TLS, PEM. Servers re-read them at each handshake, so they may be rotated."""

    cert_file: str
    key_file: str
    ca_file: str
    server_name: str = ""  # for a channel: the name in the server's certificate when it is not the address's host

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Key, certificate chain, authorities.

        Raises:
            SettingsError: with a line for each file that cannot be read.
        """
        contents: list[bytes] = []
        problems: list[str] = []
        files = {"key": self.key_file, "cert": self.cert_file, "ca": self.ca_file}
        for what, file in files.items():
            try:
                contents.append(Path(file).read_bytes())
            except OSError as err:
                problems.append(f"--grpc-tls-{what}-file: {file} cannot be read ({err.strerror}); check the path")
        if problems:
            raise SettingsError(problems)
        self._check()
        return contents[0], contents[1], contents[2]

    def _check(self) -> None:
        # grpc would fail later, at each handshake, with a word on its own log only.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_cert_chain(self.cert_file, self.key_file)
        except (ssl.SSLError, OSError) as err:
            raise SettingsError(
                f"--grpc-tls-cert-file: {self.cert_file} and {self.key_file} are no certificate with its key "
                f"({_ssl_reason(err)}); give PEM files of one pair"
            ) from err
        try:
            context.load_verify_locations(self.ca_file)
        except (ssl.SSLError, OSError) as err:
            raise SettingsError(
                f"--grpc-tls-ca-file: {self.ca_file} holds no certificate ({_ssl_reason(err)}); give a PEM file"
            ) from err


def tls_from(settings: TlsSettings) -> Tls | None:
    """The TLS files that the settings name; None when TLS is off."""
    if not settings.grpc_tls_cert_file:
        return None
    return Tls(settings.grpc_tls_cert_file, settings.grpc_tls_key_file, settings.grpc_tls_ca_file)


@asynccontextmanager
async def grpc_server(
    address: str,
    *,
    servicers: Mapping[str, Callable[[grpc.aio.Server], None]],
    readiness: Readiness,
    tls: Tls | None = None,
    insecure_allowed: bool = False,
    default_deadline: timedelta = DEFAULT_DEADLINE,
    deadlines: Mapping[str, timedelta | None] | None = None,
    grace: timedelta = timedelta(seconds=5),
    metrics: Metrics | None = None,
) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port that is listened on.

    Args:
        address: "host:port"; port 0 lets the system pick.
        servicers: full service name -> what adds its servicer, e.g.
            `{"sawhorse.catalog.v1.Catalog": lambda server: add_CatalogServicer_to_server(servicer, server)}`.
        readiness: what the health service answers from; also NOT_SERVING once the block has ended.
        tls: mutual TLS; None for plain text.
        insecure_allowed: allow plain text on an address that other machines reach.
        default_deadline: for calls whose client set none.
        deadlines: other defaults by full method ("/package.Service/Method"); None for no bound, e.g. a watch.
        grace: how long calls in flight may go on after the block; then they are cancelled.
        metrics: where calls are counted; nowhere unless given.
    Raises:
        SettingsError: plain text that is not allowed, an unreadable TLS file, a port that is taken.
    """
    _refuse_plain_text(address, tls, insecure_allowed, "listen")
    names = [*servicers, HEALTH, reflection.SERVICE_NAME]
    guard = Guard(
        default_deadline=default_deadline,
        deadlines=deadlines or {},
        exempt=(HEALTH, reflection.SERVICE_NAME),
        metrics=metrics,
    )
    server = grpc.aio.server(
        interceptors=[guard],
        maximum_concurrent_rpcs=MOST_CALLS,
        options=[
            *_SIZES,
            ("grpc.so_reuseport", 0),  # else two processes share a port in silence, each getting half of the calls
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),  # let our clients' keepalive in
            ("grpc.keepalive_permit_without_calls", 1),
        ],
    )
    for add in servicers.values():
        add(server)
    health = ReadinessHealth(readiness, servicers)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    reflection.enable_server_reflection(names, server)
    bound = _bind(server, address, tls)
    await server.start()
    log.info("grpc listening", address=address, port=bound, tls=tls is not None)
    try:
        yield bound
    finally:
        health.stop()
        await server.stop(grace.total_seconds())


@asynccontextmanager
async def channel(
    address: str, *, tls: Tls | None = None, insecure_allowed: bool = False
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a service, closed with the block. It connects at the first call and again when it must.

    Calls that fail with UNAVAILABLE are sent up to 4 times within their deadline: all our calls may be repeated.

    Raises:
        SettingsError: plain text that is not allowed, or an unreadable TLS file.
    """
    _refuse_plain_text(address, tls, insecure_allowed, "connect")
    options: list[tuple[str, Any]] = [
        *_SIZES,
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # The default grows to two minutes, long after a restarted service is back.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.enable_http_proxy", 0),  # an https_proxy in the environment is not meant for our own services
        ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ]
    if tls is None:
        made = grpc.aio.insecure_channel(address, options=options)
    else:
        key, cert, ca = tls.read()
        if tls.server_name:
            options.append(("grpc.ssl_target_name_override", tls.server_name))
        credentials = grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)
        made = grpc.aio.secure_channel(address, credentials, options=options)
    try:
        yield made
    finally:
        await made.close()


async def call(
    stub_method: Callable[..., Awaitable[R]], request: object, timeout: float | timedelta = 10.0, *, service: str = ""
) -> R:
    """Call a unary method of a stub with a deadline, retries included.

    Args:
        stub_method: e.g. `stub.ListInstanceTypes`.
        request: its message.
        timeout: seconds or a timedelta.
        service: what to call the service in errors, e.g. "pricing".
    Raises:
        UnavailableError: it cannot be reached, is not ready, or did not answer in time.
        InvalidRequestError: it says that the request makes no sense.
        RemoteError: it answered with another error; see `code`, `reason` and `retry`.
    """
    limit = seconds(timeout)
    try:
        return await stub_method(request, timeout=limit)
    except grpc.aio.AioRpcError as err:
        raise _ours(err, service or "the service", limit) from err


def _ours(err: grpc.aio.AioRpcError, service: str, limit: float) -> SawhorseError:
    code, details = err.code(), one_line(err.details() or "")
    sent = {key: value for key, value in err.trailing_metadata() or () if isinstance(value, str)}
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and REASON_KEY not in sent:
        details = f"no answer within {limit:g} s"
    if code in _UNREACHABLE:
        return UnavailableError(
            f"{service} is unavailable: {details}", action="Check that it runs and that its address is right."
        )
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidRequestError(details)
    retry = Retry.BACKOFF if code in _WORTH_REPEATING else Retry.NEVER
    if sent.get(RETRY_KEY) in set(Retry):
        retry = Retry(sent[RETRY_KEY])
    return RemoteError(f"{service}: {details}", code=code.name, reason=sent.get(REASON_KEY, ""), retry=retry)


def _ssl_reason(err: OSError) -> str:
    reason = getattr(err, "reason", None) or err.strerror or "unreadable"
    return str(reason).lower().replace("_", " ")


def _bind(server: grpc.aio.Server, address: str, tls: Tls | None) -> int:
    try:
        if tls is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, _server_credentials(tls))
    except RuntimeError as err:
        # grpc has put the cause on its own log only.
        raise SettingsError(f"--grpc-address: cannot listen on {address}; choose another port or address") from err
    return bound


def _server_credentials(tls: Tls) -> grpc.ServerCredentials:
    def configuration() -> grpc.ServerCertificateConfiguration:
        key, cert, ca = tls.read()
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=ca)

    last = configuration()

    def current() -> grpc.ServerCertificateConfiguration:
        # Called in a thread of grpc's at each handshake. Files in the middle of a rotation keep the last pair.
        nonlocal last
        try:
            last = configuration()
        except SettingsError as err:
            log.warning("tls files unreadable, keeping the last", error=str(err))
        return last

    return grpc.dynamic_ssl_server_credentials(last, current, require_client_authentication=True)


def _refuse_plain_text(address: str, tls: Tls | None, allowed: bool, what: str) -> None:
    try:
        host, _ = split_address(address)
    except ValueError as err:
        raise SettingsError(f"gRPC address: {err}") from err
    if tls is None and not allowed and not is_loopback(host):
        raise SettingsError(
            f"gRPC address: refusing to {what} without TLS at {address}, beyond this machine; "
            "set the --grpc-tls files, or allow it with --insecure-grpc"
        )
