"""Health over HTTP, readiness, and the ready file."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sawhorse_runtime.errors import SettingsError
from sawhorse_runtime.health import Ports, Readiness, serve_http
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.ready import announce_ready, write_ready_file


@dataclass(frozen=True)
class AnyPorts:
    bind_address: str = "127.0.0.1"
    metrics_port: int = 0
    health_probe_port: int = 0


async def get(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
        session.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text()


async def test_readyz_lists_what_is_missing_until_all_checks_pass() -> None:
    readiness = Readiness(["mirror", "catalogue"])

    async with serve_http(AnyPorts(), readiness, Metrics().registry) as ports:
        first = await get(ports.health, "/readyz")
        readiness.set("mirror", True)
        readiness.set("catalogue", False, "no prices yet")
        second = await get(ports.health, "/readyz")
        readiness.set("catalogue", True)
        third = await get(ports.health, "/readyz")
        readiness.set("mirror", False, "redis is away")
        fourth = await get(ports.health, "/readyz")

    assert (first[0], [entry["name"] for entry in json.loads(first[1])]) == (503, ["catalogue", "mirror"])
    assert (second[0], json.loads(second[1])) == (503, [{"name": "catalogue", "why": "no prices yet"}])
    assert (third[0], json.loads(third[1])) == (200, [])
    assert (fourth[0], json.loads(fourth[1])) == (503, [{"name": "mirror", "why": "redis is away"}])


async def test_a_process_that_is_not_ready_is_alive_all_the_same() -> None:
    async with serve_http(AnyPorts(), Readiness(["never"]), Metrics().registry) as ports:
        status, _ = await get(ports.health, "/healthz")

    assert status == 200


async def test_metrics_are_served_on_their_own_port() -> None:
    metrics = Metrics()
    metrics.counter("karpenter_nodes_drained_total", "Drains.", ["nodepool"]).labels("a").inc()

    async with serve_http(AnyPorts(), Readiness(), metrics.registry) as ports:
        status, text = await get(ports.metrics, "/metrics")
        elsewhere, _ = await get(ports.health, "/metrics")

    assert (status, elsewhere) == (200, 404)
    assert 'karpenter_nodes_drained_total{nodepool="a"} 1.0' in text


async def test_a_port_that_is_taken_says_which_setting_to_change() -> None:
    async with serve_http(AnyPorts(), Readiness(), Metrics().registry) as ports:
        taken = AnyPorts(metrics_port=ports.metrics)

        with pytest.raises(SettingsError, match=f"--metrics-port: cannot listen on 127.0.0.1:{ports.metrics}"):
            async with serve_http(taken, Readiness(), Metrics().registry):
                pass


async def test_a_stopping_process_is_never_ready_again() -> None:
    readiness = Readiness(["mirror"])

    readiness.close()
    readiness.set("mirror", True)

    assert not readiness.is_ready
    assert list(readiness.missing()) == ["stopping"]


async def test_those_who_wait_for_readiness_wake_when_the_last_check_passes() -> None:
    readiness = Readiness(["a", "b"])

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiter = group.create_task(readiness.wait_ready())
        readiness.set("a", True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        early = waiter.done()
        readiness.set("b", True)

    assert not early
    assert waiter.done()


def test_the_ready_file_tells_pid_and_ports(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"

    write_ready_file(str(file), grpc=8090, ports=Ports(metrics=1, health=2))

    assert json.loads(file.read_text()) == {"pid": os.getpid(), "grpc": 8090, "metrics": 1, "health": 2}
    assert list(tmp_path.iterdir()) == [file]


def test_no_ready_file_is_written_where_none_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    write_ready_file("", grpc=None, ports=Ports(metrics=1, health=2))

    assert list(tmp_path.iterdir()) == []


def test_a_ready_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--ready-file"):
        write_ready_file(str(tmp_path / "none" / "ready"), grpc=None, ports=Ports(metrics=1, health=2))


@pytest.mark.looptime
async def test_the_ready_file_is_there_from_ready_to_stop_and_a_stale_one_is_removed(
    tmp_path: Path, looptime: Any
) -> None:
    file = tmp_path / "ready.json"
    file.write_text("stale")
    readiness, stop = Readiness(["mirror"]), asyncio.Event()
    there: list[bool] = []

    async with asyncio.TaskGroup() as group:
        loop = announce_ready(str(file), readiness, grpc=None, ports=Ports(metrics=1, health=2))
        task = group.create_task(loop(stop))
        await asyncio.sleep(1)
        there.append(file.exists())
        readiness.set("mirror", True)
        await asyncio.sleep(1)
        there.append(json.loads(file.read_text())["grpc"] is None)
        stop.set()
        await task
        there.append(file.exists())

    assert there == [False, True, False]
