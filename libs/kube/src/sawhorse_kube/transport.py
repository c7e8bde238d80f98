"""HTTP to the API server: rate limit, deadlines, credentials, and errors of our tree. It knows no kinds."""

import asyncio
import gc
import ipaddress
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from sawhorse_kube.config import Access
from sawhorse_kube.errors import KubeUnavailableError, error_from

_READ_BUFFER = 2**21  # a watch line holds a whole object, 1.5 MiB at most
_ACTION = "Check that the API server runs and that its address is right."
_UNAUTHORIZED = 401


class RateLimit:
    """A token bucket: `qps` requests a second, `burst` at once after a pause."""

    def __init__(self, qps: float, burst: int) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"need qps > 0 and burst >= 1, got {qps} and {burst}")
        self._cost = 1 / qps
        self._slack = burst * self._cost
        self._due = float("-inf")  # loop time up to which tokens are spent

    async def take(self) -> None:
        """Wait for one token; callers are served in order."""
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now - self._slack) + self._cost
        if self._due > now:
            await asyncio.sleep(self._due - now)


class Transport:
    """Requests to one API server over pooled connections. Close it with `close`."""

    def __init__(self, access: Access, *, qps: float, burst: int, timeout: timedelta) -> None:
        self._access = access
        self._limit = RateLimit(qps, burst)
        self._timeout = timeout.total_seconds()
        connector = aiohttp.TCPConnector(
            limit=256, ssl=access.ssl if access.ssl is not None else True, socket_factory=_keepalive_socket
        )
        # A proxy from the environment is not meant for a server on this machine.
        self._session = aiohttp.ClientSession(
            connector=connector, read_bufsize=_READ_BUFFER, trust_env=not _is_loopback(access.url)
        )
        self._renewing = asyncio.Lock()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        what: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        eviction: bool = False,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Send one request and return the decoded JSON object.

        Args:
            what: verb, kind and object, for errors.
            timeout: seconds; the client's own unless given.
        Raises:
            KubeError: of the class that the answer stands for.
        """
        seconds = timeout if timeout is not None else self._timeout
        data = None if body is None else msgspec.json.encode(body)
        with _translated(what, seconds):
            async with asyncio.timeout(seconds):
                response = await self._open(method, path, params or {}, data, content_type, None)
                async with response:
                    answer = await response.read()
        if response.status >= 400:
            raise error_from(response.status, _status_object(answer), what, eviction=eviction)
        return _decode(answer, what)

    async def open_stream(
        self, path: str, *, what: str, params: Mapping[str, str], idle: timedelta
    ) -> aiohttp.ClientResponse:
        """Open a watch. The caller reads its `content` and closes it; `idle` bounds the wait for each chunk.

        Raises:
            KubeError: of the class that the answer stands for.
        """
        with _translated(what, self._timeout):
            async with asyncio.timeout(self._timeout):
                response = await self._open("GET", path, params, None, "", idle.total_seconds())
                if response.status < 400:
                    return response
                async with response:
                    answer = await response.read()
        raise error_from(response.status, _status_object(answer), what)

    async def _open(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        data: bytes | None,
        content_type: str,
        idle: float | None,
    ) -> aiohttp.ClientResponse:
        response = await self._send(method, path, params, data, content_type, idle)
        if response.status == _UNAUTHORIZED:
            # Tokens of credential plugins expire; the kubeconfig is read once more before we give up.
            response.close()
            async with self._renewing:
                await self._access.renew()
            response = await self._send(method, path, params, data, content_type, idle)
        return response

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        data: bytes | None,
        content_type: str,
        idle: float | None,
    ) -> aiohttp.ClientResponse:
        await self._limit.take()
        headers = {**await self._access.headers(), "Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = content_type
        return await self._session.request(
            method,
            self._access.url + path,
            params=params,
            data=data,
            headers=headers,
            proxy=self._access.proxy,
            server_hostname=self._access.server_name,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_read=idle),
        )


@contextmanager
def _translated(what: str, seconds: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError as err:
        raise KubeUnavailableError(f"{what}: no answer within {seconds:g} s", action=_ACTION) from err
    except (aiohttp.ClientError, OSError) as err:
        raise KubeUnavailableError(f"{what}: {err or type(err).__name__}", action=_ACTION) from err


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from running in the block, which must not await.

    A page of pods becomes a million small dicts at once; looking through them again and again as they appear takes
    several times as long as making them.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _decode(answer: bytes, what: str) -> dict[str, Any]:
    try:
        with collector_paused():
            value = msgspec.json.decode(answer)
    except msgspec.DecodeError as err:
        raise KubeUnavailableError(f"{what}: the answer is not JSON ({err})", action=_ACTION) from err
    if not isinstance(value, dict):
        raise KubeUnavailableError(f"{what}: the answer is not an object", action=_ACTION)
    return value


def _status_object(answer: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(answer)
    except msgspec.DecodeError:
        # Load balancers and not-yet-served APIs answer in plain text.
        return {"message": answer[:200].decode(errors="replace").strip()}
    return value if isinstance(value, dict) else {}


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _keepalive_socket(info: tuple[Any, ...]) -> socket.socket:
    """A socket that finds a dead peer in half a minute: a watch may be silent for long."""
    family, kind, proto = info[:3]
    made = socket.socket(family, kind, proto)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
