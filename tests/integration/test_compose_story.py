"""The compose file's processes without an engine: the sandbox's own programs, the services with the file's environment.

Only addresses differ: loopback ports in place of the network's names. A container adds isolation, nothing else.
"""

import asyncio
import json
import os
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from sawhorse_kube.client import connect_kube
from sawhorse_kube.kinds import NAMESPACE, NODEPOOL
from sawhorse_sandbox.processes import Child, free_ports, log_tail, start_child, stop_child, wait_until_ready
from sawhorse_sandbox.redis import start_redis

ROOT = Path(__file__).resolve().parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
PROGRAMS = ROOT / "deploy/images/sandbox"
STORY_SECONDS = 150.0

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(300)]


@dataclass(frozen=True, slots=True)
class Sandbox:
    """serve.py, running."""

    child: Child
    shared: Path
    kube_port: int
    aws_port: int


@asynccontextmanager
async def start_sandbox(directory: Path) -> AsyncIterator[Sandbox]:
    shared = directory / "world"
    shared.mkdir()
    kube_port, aws_port = free_ports(2)
    command = [sys.executable, PROGRAMS / "serve.py", *SERVICES["sandbox"]["command"], "--host=127.0.0.1"]
    command += [f"--kube-port={kube_port}", f"--aws-port={aws_port}", f"--shared={shared}"]
    child = start_child("sandbox", command, log=directory / "sandbox.log")
    try:
        await wait_until_ready(child, lambda: asyncio.to_thread((shared / "ready").exists), timeout=60.0)
        yield Sandbox(child, shared, kube_port, aws_port)
    finally:
        await stop_child(child, grace=15.0)


@pytest.mark.integration
async def test_the_sandbox_serves_a_cluster_with_our_kinds_and_ends_when_told(tmp_path: Path) -> None:
    async with start_sandbox(tmp_path) as sandbox:
        async with connect_kube(kubeconfig=sandbox.shared / "kubeconfig") as kube:
            pools = await kube.list(NODEPOOL)
            namespaces = await kube.list(NAMESPACE)
        calls = await asyncio.to_thread(fetch, f"http://127.0.0.1:{sandbox.aws_port}/sandbox/calls")

    assert list(pools.objects) == []
    assert len(namespaces.objects) >= 4
    assert calls["CreateQueue"] == 2
    assert sandbox.child.process.returncode == 0, log_tail(sandbox.child.log)
    assert not (sandbox.shared / "ready").exists()


@pytest.mark.e2e
async def test_the_story_passes_with_the_compose_files_environment(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "redis-password").write_text("only-for-this-test\n")
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(await start_redis(tmp_path, password="only-for-this-test"))
        sandbox = await stack.enter_async_context(start_sandbox(tmp_path))
        addresses = {
            "redis:6379": f"127.0.0.1:{redis.port}",
            "sandbox:4566": f"127.0.0.1:{sandbox.aws_port}",
            "/run/secrets": str(secrets),
            "/world": str(sandbox.shared),
        }

        async def start(name: str) -> int:
            """Start a service, wait until /readyz says so, and return its gRPC port."""
            given = {key: str(value) for key, value in SERVICES[name]["environment"].items()}
            for old, new in addresses.items():
                given = {key: value.replace(old, new) for key, value in given.items()}
            ready = tmp_path / f"{name}-ready.json"
            ours = {
                "GRPC_ADDRESS": "127.0.0.1:0",
                "METRICS_PORT": "0",
                "HEALTH_PROBE_PORT": "0",
                "READY_FILE": str(ready),
            }
            command = [sys.executable, "-m", f"sawhorse_{name}"]
            child = start_child(name, command, log=tmp_path / f"{name}.log", env={**os.environ, **given, **ours})
            stack.push_async_callback(stop_child, child, grace=25.0)
            await wait_until_ready(child, lambda: asyncio.to_thread(ready.exists), timeout=60.0)
            ports = json.loads(ready.read_text())
            assert await asyncio.to_thread(fetch, f"http://127.0.0.1:{ports['health']}/readyz") == []
            return int(ports["grpc"])

        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(start("watcher"))
            pricing = group.create_task(start("pricing"))
        assert watcher.result() > 0
        addresses["pricing:7401"] = f"127.0.0.1:{pricing.result()}"
        async with asyncio.TaskGroup() as group:
            group.create_task(start("provisioner"))
            group.create_task(start("interruption"))

        command = [sys.executable, PROGRAMS / "story.py", *SERVICES["story"]["command"], "--json"]
        command += [f"--kubeconfig={sandbox.shared}/kubeconfig", f"--aws-endpoint=http://{addresses['sandbox:4566']}"]
        command += [
            f"--redis={addresses['redis:6379']}",
            f"--pricing={addresses['pricing:7401']}",
            f"--secrets={secrets}",
        ]
        story = start_child("story", command, log=tmp_path / "story.log")
        stack.push_async_callback(stop_child, story, grace=5.0)
        deadline = time.monotonic() + STORY_SECONDS
        while await asyncio.to_thread(story.is_running):
            assert time.monotonic() < deadline, log_tail(story.log)
            await asyncio.sleep(0.2)

    report = json.loads(story.log.read_text().splitlines()[-1])
    assert story.process.returncode == 0, report["error"]
    assert report["ok"] is True
    assert report["podsRunning"] == report["pods"] == 80
    assert report["interruption"]["secondsToTerminated"] is not None


def fetch(url: str) -> Any:
    """The JSON that a loopback server answers with."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read())
