"""The connection to Redis: one client per process, keys with the cluster's prefix, errors of our tree."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import redis.asyncio as redis
from redis.asyncio.retry import Retry as RedisRetry
from redis.backoff import ExponentialBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from sawhorse_state.errors import StateUnavailableError

CALL_SECONDS = 5.0
_CONNECTIONS = 64
_ACTION = "Check that Redis runs, and --redis-url and its password file."


class State:
    """A client and the keys of one cluster. Made by `connect_state`."""

    def __init__(self, client: redis.Redis, cluster: str, where: str) -> None:
        # Any: the client's annotations cannot tell whether answers are bytes (ours are) or text.
        self.redis: Any = client
        self.cluster = cluster
        self._where = where
        self._prefix = f"sawhorse:{{{cluster}}}:"

    def key(self, name: str) -> str:
        """The full key of a name such as `mirror:Pod`."""
        return self._prefix + name

    async def do(self, what: str, call: Awaitable[Any], *, seconds: float = CALL_SECONDS) -> Any:
        """Await one command of `redis` with a bound.

        Args:
            what: what it is for, to be read in errors: "read the mirror".
            seconds: the bound; more than the block time of a blocking command.
        Raises:
            StateUnavailableError: it failed.
        """
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError as err:
            raise StateUnavailableError(
                f"{what}: Redis at {self._where} did not answer within {seconds:g} s", action=_ACTION
            ) from err
        except (AuthenticationError, NoPermissionError) as err:
            raise StateUnavailableError(f"{what}: Redis at {self._where} refuses us ({err})", action=_ACTION) from err
        except (RedisError, OSError) as err:
            raise StateUnavailableError(
                f"{what}: Redis at {self._where}: {err or type(err).__name__}", action=_ACTION
            ) from err

    async def eval(self, what: str, script: str, keys: Sequence[str], args: Sequence[str | bytes | int]) -> Any:
        """Run a Lua script by EVAL.

        Args:
            keys: names without the prefix.
        """
        full = [self.key(k) for k in keys]
        return await self.do(what, self.redis.eval(script, len(full), *full, *args))

    async def ping(self) -> None:
        """Ask whether Redis answers.

        Raises:
            StateUnavailableError: it does not.
        """
        await self.do("ping", self.redis.ping())

    async def wait_blocked(self, what: str, call: Awaitable[Any], block: timedelta) -> Any:
        """Await a command that blocks for `block` at most on the server's side."""
        return await self.do(what, call, seconds=block.total_seconds() + CALL_SECONDS)


@asynccontextmanager
async def connect_state(url: str, cluster: str, *, password: str = "") -> AsyncIterator[State]:
    """A `State` for the block. It connects at the first call and again when it must.

    Args:
        url: redis://, rediss:// or unix://; it may hold a password.
        cluster: name of the Kubernetes cluster, part of every key.
        password: instead of one in the URL.
    Raises:
        StateUnavailableError: the URL makes no sense.
    """
    if not cluster or set(cluster) & set("{}"):
        raise ValueError(f"a cluster name is not empty and holds no braces, got {cluster!r}")
    parts = urlsplit(url)
    where = f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path
    more = {"password": password} if password else {}
    try:
        pool = redis.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=CALL_SECONDS,
            socket_timeout=None,  # `State.do` bounds each call; blocking reads are longer than others
            socket_connect_timeout=CALL_SECONDS,
            socket_keepalive=True,
            health_check_interval=15,
            protocol=2,  # answers have one shape on every server and version
            retry=RedisRetry(ExponentialBackoff(cap=0.5, base=0.05), 2),
            **more,
        )
    except (ValueError, RedisError) as err:
        raise StateUnavailableError(f"the Redis URL makes no sense ({err})", action=_ACTION) from err
    client = redis.Redis.from_pool(pool)
    try:
        yield State(client, cluster, where)
    finally:
        await client.aclose()
