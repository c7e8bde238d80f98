"""A whole service as a process: settings, logs, health, gRPC, ready file, SIGTERM."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sawhorse_runtime.rpc import call, channel

SERVICE = '''
"""The smallest service."""
import asyncio
import sys
from contextlib import AsyncExitStack

from sawhorse_runtime.health import Readiness, serve_http
from sawhorse_runtime.logs import setup_logging
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.ready import announce_ready
from sawhorse_runtime.rpc import grpc_server, tls_from
from sawhorse_runtime.settings import CommonSettings, load_or_exit
from sawhorse_runtime.supervise import run_service, supervise


async def serve(settings, stop):
    metrics, readiness = Metrics(), Readiness(["mirror"])

    async def mirror(stop):
        readiness.set("mirror", True)
        await stop.wait()
        readiness.close()

    async with AsyncExitStack() as stack:
        ports = await stack.enter_async_context(serve_http(settings, readiness, metrics.registry))
        grpc = await stack.enter_async_context(
            grpc_server(
                settings.grpc_address,
                servicers={},
                readiness=readiness,
                tls=tls_from(settings),
                insecure_allowed=settings.insecure_grpc,
                metrics=metrics,
            )
        )
        announce = announce_ready(settings.ready_file, readiness, grpc=grpc, ports=ports)
        loops = {"mirror": mirror, "announce-ready": announce}
        await supervise(loops, stop=stop, drain=settings.drain_timeout)


def main():
    settings = load_or_exit(CommonSettings, prog="sawhorse-small", description="The smallest service.")
    setup_logging(settings.log_level, "small")
    return run_service(lambda stop: serve(settings, stop))


sys.exit(main())
'''


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "small.py"
    file.write_text(SERVICE)
    return file


async def start(script: Path, *argv: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, str(script), *argv, stdout=pipe, stderr=pipe)


async def read_when_there(file: Path) -> dict[str, Any]:
    """The ready file, once the process has written it. Bound it from outside."""
    while not file.exists():  # noqa: ASYNC110, ASYNC240  another process writes it: there is no event to wait for
        await asyncio.sleep(0.02)
    content: dict[str, Any] = json.loads(file.read_text())  # noqa: ASYNC240
    return content


async def test_a_service_announces_its_ports_and_stops_cleanly_on_sigterm(script: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ports = ["--grpc-address=127.0.0.1:0", "--metrics-port=0", "--health-probe-port=0", "--bind-address=127.0.0.1"]
    process = await start(script, "--cluster-name=c", "--ready-file", str(ready), *ports)

    try:
        async with asyncio.timeout(30):
            announced = await read_when_there(ready)
            async with channel(f"127.0.0.1:{announced['grpc']}") as made:
                health = await call(health_pb2_grpc.HealthStub(made).Check, health_pb2.HealthCheckRequest())
            process.send_signal(signal.SIGTERM)
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert announced["pid"] == process.pid
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert (process.returncode, err) == (0, b"")
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["grpc listening", "stopping"]
    assert not ready.exists()


async def test_a_service_with_wrong_settings_lists_them_and_exits_2(script: Path) -> None:
    process = await start(script, "--metrics-port=x", "--grpc-adress=a:1")

    async with asyncio.timeout(30):
        out, err = await process.communicate()

    assert (process.returncode, out) == (2, b"")
    assert [line.split(": ")[1] for line in err.decode().splitlines()[:-1]] == [
        "--grpc-adress",
        "--cluster-name",
        "--metrics-port",
    ]
