"""A small client of the Kubernetes API for the fake kubelets: raw JSON over aiohttp, with the kubeconfig's identity.

It knows no kinds. Every request is bounded in time and at most `parallel` run at once; watches do not count.
"""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

MERGE_PATCH = "application/merge-patch+json"
_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=15, sock_connect=5)
_WATCH_SECONDS = 240
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_WATCH_SECONDS + 30)


class ApiError(Exception):
    """The API server refused, or could not be reached (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class KubeconfigError(ValueError):
    """The kubeconfig cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is and who we are."""

    url: str
    token: str | None
    tls: ssl.SSLContext | bool  # False: certificates are not checked


def load_kubeconfig(path: Path) -> Access:
    """Return the current context's access. Tokens and client certificates are understood, exec plugins are not.

    Raises:
        KubeconfigError: unreadable, or without a server.
    """
    try:
        config = yaml.safe_load(path.read_text())
        current = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
        cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == current["cluster"])
        user = next((u["user"] or {} for u in config.get("users") or () if u["name"] == current.get("user")), {})
        url = str(cluster["server"]).rstrip("/")
        return Access(url=url, token=user.get("token"), tls=_tls(path.parent, cluster, user))
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration, ValueError) as err:
        raise KubeconfigError(f"kubeconfig {path} cannot be used: {err!r}") from err


def _tls(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext | bool:
    if cluster.get("insecure-skip-tls-verify"):
        return False
    data, file = cluster.get("certificate-authority-data"), cluster.get("certificate-authority")
    context = ssl.create_default_context(
        cadata=base64.b64decode(data).decode() if data else None, cafile=str(folder / file) if file else None
    )
    if "client-certificate" in user and "client-key" in user:
        context.load_cert_chain(folder / user["client-certificate"], folder / user["client-key"])
    return context


class KubeApi:
    """Requests to one API server. Made by `connect`."""

    def __init__(self, http: aiohttp.ClientSession, access: Access, parallel: int) -> None:
        self._http = http
        self._access = access
        self._slots = asyncio.Semaphore(parallel)

    async def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> bytes:
        """Return the answer's text.

        Raises:
            ApiError: any status from 400 on; 0 when no answer came.
        """
        headers = {"Content-Type": content_type} if body is not None else {}
        data = msgspec.json.encode(body) if body is not None else None
        try:
            async with (
                self._slots,
                self._http.request(
                    method,
                    self._access.url + path,
                    data=data,
                    headers=headers,
                    ssl=self._access.tls,
                    timeout=_REQUEST_TIMEOUT,
                ) as answer,
            ):
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as err:
            raise ApiError(0, f"{method} {path}: {err!r}") from err
        if answer.status >= 400:
            raise ApiError(answer.status, f"{method} {path}: {text[:300].decode(errors='replace')}")
        return text

    async def patch(self, path: str, body: object) -> bytes:
        """Apply a JSON merge patch: lists are replaced whole, null removes."""
        return await self.request("PATCH", path, body, content_type=MERGE_PATCH)

    async def watch(self, path: str, resource_version: str) -> AsyncIterator[bytes]:
        """Yield the event lines after `resource_version` until the server ends the stream.

        Raises:
            ApiError: the watch cannot be opened (410: list again), or the connection broke (0).
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        url = self._access.url + path
        try:
            async with self._http.get(url, params=query, ssl=self._access.tls, timeout=_WATCH_TIMEOUT) as answer:
                if answer.status >= 400:
                    text = (await answer.read())[:300].decode(errors="replace")
                    raise ApiError(answer.status, f"watch {path}: {text}")
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line.strip():
                            yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as err:
            raise ApiError(0, f"watch {path}: {err!r}") from err


@asynccontextmanager
async def connect(access: Access, *, parallel: int) -> AsyncIterator[KubeApi]:
    """Yield a client; its connections are closed at the end."""
    headers = {"Authorization": f"Bearer {access.token}"} if access.token else {}
    connector = aiohttp.TCPConnector(limit=parallel + 8)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as http:
        yield KubeApi(http, access, parallel)
