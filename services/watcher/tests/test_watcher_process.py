"""The watcher as a process on the real control plane and a real Redis: start, follow, flush, hand over, stop."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sawhorse_kube.api import WatchEvent
from sawhorse_kube.client import KubeClient, connect_kube
from sawhorse_kube.errors import GoneError
from sawhorse_kube.kinds import EC2_NODECLASS, LEASE, MIRRORED, NODECLAIM, POD, Kind
from sawhorse_runtime.metrics import Metrics
from sawhorse_sandbox.controlplane import ControlPlane
from sawhorse_sandbox.processes import Child, start_child, stop_child
from sawhorse_state.connection import State
from sawhorse_state.mirror import Mirror
from sawhorse_state.wake import Wake
from sawhorse_testing.eventually import eventually
from sawhorse_testing.kube_contract import a_claim, a_pod
from sawhorse_watcher.feed import Feed
from sawhorse_watcher.instruments import Instruments

pytestmark = [pytest.mark.integration, pytest.mark.real, pytest.mark.timeout(180)]

KINDS = [kind.name for kind in (*MIRRORED, EC2_NODECLASS)]


@dataclass
class Watcher:
    """A running process."""

    child: Child
    ready_file: Path

    async def ready(self) -> dict[str, int]:
        def there() -> bool:
            assert self.child.is_running(), self.child.log.read_text()
            return self.ready_file.exists()

        await eventually(there, seconds=30, what="the ready file")
        ports: dict[str, int] = json.loads(self.ready_file.read_text())
        return ports

    async def stopped(self) -> int:
        self.child.process.send_signal(signal.SIGTERM)
        await eventually(lambda: not self.child.is_running(), seconds=15)
        return int(self.child.process.returncode)


class Starter:
    """Starts watchers for one test's cluster name; ends them all."""

    def __init__(self, plane: ControlPlane, state: State, redis_url: str, directory: Path) -> None:
        self._plane = plane
        self._state = state
        self._directory = directory
        parts = urlsplit(redis_url)
        self._redis = f"redis://{parts.hostname}:{parts.port}/0"
        (directory / "password").write_text(parts.password or "")
        self.all: list[Watcher] = []

    def start(self, *flags: str) -> Watcher:
        number = len(self.all)
        ready_file = self._directory / f"ready-{number}.json"
        command = [
            sys.executable,
            *("-m", "sawhorse_watcher"),
            *("--cluster-name", self._state.cluster),
            *("--redis-url", self._redis, "--redis-password-file", self._directory / "password"),
            *("--kubeconfig", self._plane.kubeconfig),
            *("--bind-address", "127.0.0.1", "--metrics-port", "0", "--health-probe-port", "0"),
            *("--grpc-address", "127.0.0.1:0", "--ready-file", ready_file),
            *("--leader-election-namespace", self._state.cluster),
            *flags,
        ]
        watcher = Watcher(start_child("watcher", command, log=self._directory / f"log-{number}"), ready_file)
        self.all.append(watcher)
        return watcher


@pytest.fixture
async def kube(real_plane: ControlPlane, state: State) -> AsyncIterator[KubeClient]:
    async with connect_kube(kubeconfig=real_plane.kubeconfig) as made:
        namespace = next(kind for kind in MIRRORED if kind.name == "Namespace")
        await made.create(namespace, {"metadata": {"name": state.cluster}})
        yield made


@pytest.fixture
async def watchers(
    real_plane: ControlPlane, state: State, redis_url: str, kube: KubeClient, tmp_path: Path
) -> AsyncIterator[Starter]:
    starter = Starter(real_plane, state, redis_url, tmp_path)
    yield starter
    for watcher in starter.all:
        await stop_child(watcher.child, grace=5)


@asynccontextmanager
async def reading(state: State) -> AsyncIterator[Mirror]:
    stop = asyncio.Event()
    mirror = Mirror(state, KINDS)
    async with asyncio.TaskGroup() as group:
        group.create_task(mirror.run(stop))
        yield mirror
        stop.set()


def has_pod(mirror: Mirror, state: State, name: str) -> Callable[[], bool]:
    return lambda: mirror.synced and mirror.get("Pod", f"{state.cluster}/{name}") is not None


async def lease_of(kube: KubeClient, state: State) -> Any:
    return (await kube.get(LEASE, "sawhorse-watcher", state.cluster))["spec"]


async def test_a_watcher_mirrors_the_cluster_wakes_the_provisioner_and_survives_a_flush(
    watchers: Starter, kube: KubeClient, state: State
) -> None:
    await kube.create(POD, a_pod(state.cluster, "before"))
    ports = await watchers.start().ready()

    async with reading(state) as mirror:
        await eventually(has_pod(mirror, state, "before"), seconds=30)
        wakes = Wake(state, "provisioner")
        await wakes.wait(timedelta(milliseconds=10))
        await kube.create(NODECLAIM, a_claim(f"{state.cluster}-claim"))
        await kube.create(POD, a_pod(state.cluster, "after"))
        await eventually(has_pod(mirror, state, "after"))
        reasons = await wakes.wait(timedelta(seconds=10))
        # What the mirror carries can be used for an optimistic lock.
        live = await kube.get(NODECLAIM, f"{state.cluster}-claim")
        assert mirror.all("NodeClaim")[live.meta.name] == live

        # The scheduler finds no node: its mark is what makes the pod ours.
        await eventually(lambda: mirror.all("Pod")[f"{state.cluster}/after"].is_provisionable, seconds=30)
        await state.redis.flushall()
        await eventually(has_pod(mirror, state, "after"), seconds=30)

    assert "nodeclaim-changed" in reasons
    async with aiohttp.ClientSession() as http:
        async with http.get(f"http://127.0.0.1:{ports['health']}/readyz") as ready:
            assert (ready.status, await ready.json()) == (200, [])
        async with http.get(f"http://127.0.0.1:{ports['metrics']}/metrics") as metrics:
            assert "sawhorse_watcher_leading 1.0" in await metrics.text()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports['grpc']}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_standby_takes_over_at_once_when_the_leader_is_asked_to_stop(
    watchers: Starter, kube: KubeClient, state: State
) -> None:
    leader = watchers.start()
    await leader.ready()
    standby = watchers.start()
    await standby.ready()
    first = await lease_of(kube, state)

    async with reading(state) as mirror:
        await eventually(lambda: mirror.synced, seconds=30)
        code = await leader.stopped()
        await kube.create(POD, a_pod(state.cluster, "late"))
        await eventually(has_pod(mirror, state, "late"), seconds=8)

    second = await lease_of(kube, state)
    assert code == 0
    assert second["holderIdentity"] not in ("", first["holderIdentity"])
    assert second["leaseTransitions"] > first["leaseTransitions"]
    assert not leader.ready_file.exists()


async def test_a_lone_watcher_that_stops_releases_its_lease(watchers: Starter, kube: KubeClient, state: State) -> None:
    watcher = watchers.start()
    await watcher.ready()

    code = await watcher.stopped()

    assert code == 0
    assert (await lease_of(kube, state)).get("holderIdentity", "") == ""


async def test_a_kubeconfig_that_is_not_there_is_one_line_and_exit_code_2(watchers: Starter) -> None:
    watcher = watchers.start("--kubeconfig", "/nowhere/kubeconfig")

    await eventually(lambda: not watcher.child.is_running(), seconds=20)

    text = watcher.child.log.read_text()
    assert watcher.child.process.returncode == 2
    assert "--kubeconfig: /nowhere/kubeconfig" in text
    assert "Traceback" not in text


class Forgetful(KubeClient):
    """The real client, whose watches of a kind fall behind when told."""

    def __init__(self, inner: KubeClient) -> None:
        super().__init__(inner._transport)
        self.gone: dict[str, asyncio.Event] = {}

    async def watch(
        self, kind: Kind, *, resource_version: str, timeout: timedelta = timedelta(minutes=5)
    ) -> AsyncIterator[WatchEvent]:
        gone = self.gone.setdefault(kind.name, asyncio.Event())
        async for event in super().watch(kind, resource_version=resource_version, timeout=timedelta(seconds=1)):
            if gone.is_set():
                gone.clear()
                raise GoneError("too old resource version")
            yield event


@dataclass
class AlwaysLeading:
    is_leading: bool = True

    async def advance_epoch(self, beyond: int) -> int:
        return beyond + 1


async def test_a_watch_that_fell_behind_lists_the_real_cluster_again(kube: KubeClient, state: State) -> None:
    forgetful, metrics, stop = Forgetful(kube), Metrics(), asyncio.Event()
    feed = Feed(
        forgetful,
        state,
        kinds=MIRRORED,
        node_classes=[EC2_NODECLASS],
        notify=lambda why: None,
        instruments=Instruments(metrics),
    )

    def relists() -> float:
        labels = {"kind": "Pod", "why": "gone"}
        return metrics.registry.get_sample_value("sawhorse_watcher_relists_total", labels) or 0

    async with reading(state) as mirror, asyncio.TaskGroup() as group:
        group.create_task(feed.lead(AlwaysLeading(), 1, stop))
        await kube.create(POD, a_pod(state.cluster, "a"))
        await eventually(has_pod(mirror, state, "a"), seconds=30)
        forgetful.gone["Pod"].set()
        await eventually(lambda: relists() == 1, seconds=15)
        await kube.delete(POD, "a", state.cluster, grace_seconds=0)
        await kube.create(POD, a_pod(state.cluster, "b"))

        await eventually(has_pod(mirror, state, "b"))
        assert mirror.get("Pod", f"{state.cluster}/a") is None
        stop.set()
