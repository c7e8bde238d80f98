"""Follows the sandbox's list of EC2 instances. Decides nothing; an entry that cannot be read does not hide others."""

import asyncio
from collections.abc import Callable, Mapping
from typing import NoReturn

import aiohttp
import msgspec
import structlog

from sawhorse_sandbox.kubelet.node import Instance

log = structlog.get_logger(__name__)

_TIMEOUT = aiohttp.ClientTimeout(total=10, sock_connect=5)
_LOG_EVERY = 40  # failed polls in a row: ten seconds at the default interval


class InstanceFeed:
    """Polls the list; `on_list` is called with every list that was read whole."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        endpoint: str,
        interval: float,
        on_list: Callable[[Mapping[str, Instance]], None],
    ) -> None:
        self._http = http
        self._url = endpoint.rstrip("/") + "/sandbox/instances"
        self._interval = interval
        self._on_list = on_list
        self._odd: set[bytes] = set()
        self.failures = 0  # polls that failed since the last that did not
        self.synced = asyncio.Event()

    async def run(self) -> NoReturn:
        """Poll until cancelled. A list that cannot be had changes nothing: machines run on without it."""
        while True:
            try:
                found = await self._fetch()
            except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as err:
                if self.failures % _LOG_EVERY == 0:
                    log.warning("instance list cannot be read", url=self._url, error=repr(err))
                self.failures += 1
            else:
                self.failures = 0
                self._on_list(found)
                self.synced.set()
            await asyncio.sleep(self._interval)

    async def _fetch(self) -> dict[str, Instance]:
        async with self._http.get(self._url, timeout=_TIMEOUT) as answer:
            answer.raise_for_status()
            entries = msgspec.json.decode(await answer.read(), type=list[msgspec.Raw])
        found: dict[str, Instance] = {}
        for entry in entries:
            try:
                instance = msgspec.json.decode(entry, type=Instance)
            except msgspec.ValidationError as err:
                if bytes(entry) not in self._odd:
                    self._odd.add(bytes(entry))
                    log.warning("instance cannot be read", entry=bytes(entry)[:300].decode(), error=str(err))
                continue
            found[instance.instance_id] = instance
        return found
