"""`python -m sawhorse_sandbox.apiserver`: the embedded Kubernetes as a process. A test double; loopback only."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from sawhorse_sandbox.apiserver.kubeconfig import write_kubeconfig, write_private
from sawhorse_sandbox.apiserver.server import new_api, serve_api
from sawhorse_sandbox.cluster import run_cluster

_log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m sawhorse_sandbox.apiserver",
        description="An embedded Kubernetes for demo and tests: API server, scheduler and controllers. Loopback only.",
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one (default)")
    parser.add_argument("--directory", type=Path, required=True, help="where the kubeconfig is written")
    parser.add_argument("--ready-file", type=Path, required=True, help="JSON with port, pid and kubeconfig, once up")
    options = parser.parse_args(arguments)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(),
        ]
    )
    options.directory.mkdir(parents=True, exist_ok=True)
    asyncio.run(_serve(options.port, options.directory, options.ready_file))


async def _serve(port: int, directory: Path, ready_file: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    token = secrets.token_urlsafe(24)
    async with serve_api(new_api(), token, port) as serving:
        kubeconfig = (directory / "kubeconfig").resolve()
        write_kubeconfig(kubeconfig, serving.url, token)
        ready = {"port": serving.port, "pid": os.getpid(), "kubeconfig": str(kubeconfig)}
        write_private(ready_file, msgspec.json.encode(ready).decode())
        _log.info("embedded kubernetes serves", url=serving.url, kubeconfig=str(kubeconfig))
        await run_cluster(serving.api, stop)
    _log.info("embedded kubernetes stopped")


if __name__ == "__main__":
    main()
