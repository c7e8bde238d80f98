"""The embedded world: Redis, AWS, Kubernetes and kubelets, and the services in it, each as a process of its own.

A test double of a cluster on AWS. `start_world` puts up either column of it: the embedded Kubernetes, or a real control
plane from its binaries. It decides nothing about what services do: they find the parts through settings only.
"""

import asyncio
import importlib.util
import json
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import aiohttp

from sawhorse_sandbox.apiserver import start_embedded_kube
from sawhorse_sandbox.aws import AwsSandbox, SeededAccount, seed_account, start_aws
from sawhorse_sandbox.controlplane import start_control_plane
from sawhorse_sandbox.crds import apply_crds
from sawhorse_sandbox.kubelet.api import load_kubeconfig
from sawhorse_sandbox.processes import Child, ChildError, start_child, stop_child, wait_until_ready
from sawhorse_sandbox.redis import RedisSandbox, start_redis

Column = Literal["embedded", "assets"]

REGION = "us-east-1"
START_SECONDS = 60.0
STOP_SECONDS = 25.0  # a service's own drain time and some more

# Services in the order of their start; all may start at once, readiness sorts itself out.
SERVICES = ("watcher", "pricing", "provisioner", "interruption")


@dataclass(frozen=True, slots=True)
class Service:
    """A running service. `ports` are those it really listens on: grpc, metrics, health."""

    name: str
    child: Child
    ports: Mapping[str, int]

    @property
    def grpc_address(self) -> str:
        """Where its gRPC answers."""
        return f"127.0.0.1:{self.ports['grpc']}"


@dataclass(slots=True)
class World:
    """What is running. `services` grows as they are started."""

    directory: Path
    cluster: str
    column: Column
    redis: RedisSandbox
    aws: AwsSandbox
    account: SeededAccount
    kubeconfig: Path
    kube_url: str
    kubelet: Child
    services: dict[str, Service] = field(default_factory=dict)
    kubeconfigs: dict[str, Path] = field(default_factory=dict)  # by service: its own rights, not the administrator's

    @property
    def redis_password_file(self) -> Path:
        """Holds the password alone."""
        return self.directory / "redis-password"

    @property
    def environment(self) -> dict[str, str]:
        """What a service needs in its environment to find the sandbox's AWS; gRPC's C core is kept quiet."""
        return {**os.environ, **self.aws.environment, "GRPC_VERBOSITY": "NONE", "SAWHORSE_TESTING": "1"}

    def arguments(self, name: str) -> list[str]:
        """A service's flags in this world."""
        flags = [
            f"--cluster-name={self.cluster}",
            f"--redis-url=redis://127.0.0.1:{self.redis.port}/0",
            f"--redis-password-file={self.redis_password_file}",
            "--grpc-address=127.0.0.1:0",
            "--bind-address=127.0.0.1",
            "--metrics-port=0",
            "--health-probe-port=0",
            f"--ready-file={self.ready_file(name)}",
        ]
        aws = [f"--aws-region={self.aws.region}", f"--aws-endpoint-url={self.aws.endpoint_url}"]
        kube = [f"--kubeconfig={self.kubeconfigs.get(name, self.kubeconfig)}"]
        match name:
            case "watcher":
                return [*flags, *kube]
            case "pricing":
                return [*flags, *aws]
            case "provisioner":
                return [*flags, *kube, *aws, f"--pricing-address={self.services['pricing'].grpc_address}"]
            case "interruption":
                queue = f"--interruption-queue={self.account.queue_name}"
                return [*flags, *kube, *aws, queue, f"--pricing-address={self.services['pricing'].grpc_address}"]
            case _:
                raise ValueError(f"no such service: {name}")

    def ready_file(self, name: str) -> Path:
        """Written by the service when it is ready."""
        return self.directory / f"{name}-ready.json"

    async def start_service(
        self,
        name: str,
        *,
        extra: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        timeout: float = START_SECONDS,
        wait: bool = True,
    ) -> Service:
        """Start a service and wait until it says that it is ready.

        Args:
            extra: more flags; a flag given twice counts as given last.
            env: more of the environment.
            wait: False returns at once; `ports` is empty then.
        Raises:
            ChildError: it ended or was not ready in time.
        """
        ready_file = self.ready_file(name)
        ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", f"sawhorse_{name}.main", *self.arguments(name), *extra]
        if importlib.util.find_spec(f"sawhorse_{name}.__main__") is not None:
            command[2] = f"sawhorse_{name}"
        child = start_child(name, command, log=self.directory / f"{name}.log", env={**self.environment, **(env or {})})
        self.services[name] = Service(name, child, {})
        if wait:
            await wait_until_ready(child, lambda: asyncio.to_thread(ready_file.exists), timeout=timeout)
            found = json.loads(ready_file.read_text())
            ports = {key: int(found[key]) for key in ("grpc", "metrics", "health") if found.get(key) is not None}
            self.services[name] = Service(name, child, ports)
        return self.services[name]

    async def start_services(
        self, *, extra: Mapping[str, Sequence[str]] | None = None, without: Collection[str] = ()
    ) -> None:
        """Start all four at the same time. Pricing first: two others take its address.

        Args:
            extra: more flags by service.
            without: names of those that are not started; interruption can be left out.
        """
        flags = extra or {}
        pricing = await self.start_service("pricing", extra=flags.get("pricing", ()), wait=False)
        watcher = await self.start_service("watcher", extra=flags.get("watcher", ()), wait=False)
        await self._await_ready(pricing)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._await_ready(watcher))
            for name in ("provisioner", "interruption"):
                if name not in without:
                    group.create_task(self.start_service(name, extra=flags.get(name, ())))

    async def _await_ready(self, service: Service) -> None:
        ready_file = self.ready_file(service.name)
        await wait_until_ready(service.child, lambda: asyncio.to_thread(ready_file.exists), timeout=START_SECONDS)
        found = json.loads(ready_file.read_text())
        ports = {key: int(found[key]) for key in ("grpc", "metrics", "health") if found.get(key) is not None}
        self.services[service.name] = Service(service.name, service.child, ports)

    async def stop_service(self, name: str) -> None:
        """End a service gracefully; killed when its grace has passed. May be repeated."""
        service = self.services.pop(name, None)
        if service is not None:
            await stop_child(service.child, grace=STOP_SECONDS)

    async def stop_services(self) -> None:
        """End all services at the same time: none may wait for another."""
        async with asyncio.TaskGroup() as group:
            for name in list(self.services):
                group.create_task(self.stop_service(name))


async def _start_kube(
    stack: AsyncExitStack, column: Column, directory: Path, assets: Path | None, flags: Sequence[str]
) -> tuple[Path, str]:
    if column == "embedded":
        embedded = await stack.enter_async_context(await start_embedded_kube(directory))
        return embedded.kubeconfig, embedded.url
    if assets is None:
        raise ChildError("the real control plane's binaries are missing; run `make kube-assets`")
    plane = await stack.enter_async_context(await start_control_plane(directory, assets, apiserver_flags=flags))
    return plane.kubeconfig, plane.url


@asynccontextmanager
async def start_world(
    directory: Path,
    *,
    cluster: str = "sandbox",
    column: Column = "embedded",
    assets: Path | None = None,
    kubelet_flags: Sequence[str] = (),
    apiserver_flags: Sequence[str] = (),
) -> AsyncIterator[World]:
    """Put up the world without services; everything is gone at the end of the block.

    Args:
        directory: logs, kubeconfig and ready files; must exist.
        assets: folder of the real control plane's binaries, for the column "assets".
        apiserver_flags: more flags of the real kube-apiserver; the embedded one has none of them.
    Raises:
        ChildError, ControlPlaneError: a part did not start; quotes the end of its log.
    """
    password = secrets.token_urlsafe(16)
    password_file = directory / "redis-password"
    password_file.touch(mode=0o600)
    password_file.write_text(password)
    async with AsyncExitStack() as stack:
        redis, aws = await _start_both(stack, directory, password)
        account = await seed_account(aws.endpoint_url, cluster, aws.region)
        kube_directory = directory / "kube"
        kube_directory.mkdir(exist_ok=True)
        kubeconfig, url = await _start_kube(stack, column, kube_directory, assets, apiserver_flags)
        access = load_kubeconfig(kubeconfig)
        headers = {"Authorization": f"Bearer {access.token}"}
        connector = aiohttp.TCPConnector(ssl=access.tls)
        async with aiohttp.ClientSession(
            headers=headers, connector=connector, timeout=aiohttp.ClientTimeout(total=10)
        ) as http:
            await apply_crds(http, access.url)
        kubelet = await _start_kubelet(stack, directory, kubeconfig, aws.endpoint_url, kubelet_flags)
        world = World(
            directory=directory,
            cluster=cluster,
            column=column,
            redis=redis,
            aws=aws,
            account=account,
            kubeconfig=kubeconfig,
            kube_url=url,
            kubelet=kubelet,
        )
        stack.push_async_callback(world.stop_services)
        yield world


async def _start_both(stack: AsyncExitStack, directory: Path, password: str) -> tuple[RedisSandbox, AwsSandbox]:
    aws = await stack.enter_async_context(await start_aws(directory, region=REGION))
    redis = await stack.enter_async_context(await start_redis(directory, password=password))
    return redis, aws


async def _start_kubelet(
    stack: AsyncExitStack, directory: Path, kubeconfig: Path, aws_endpoint: str, flags: Sequence[str]
) -> Child:
    ready = directory / "kubelets.ready"
    ready.unlink(missing_ok=True)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "sawhorse_sandbox.kubelet",
        f"--kubeconfig={kubeconfig}",
        f"--aws-endpoint={aws_endpoint}",
        f"--directory={directory}",
        *flags,
    ]
    child = start_child("kubelet", command, log=directory / "kubelet.log")
    stack.push_async_callback(stop_child, child, grace=5.0)
    await wait_until_ready(child, lambda: asyncio.to_thread(ready.exists), timeout=20.0)
    return child


def remove_directory(directory: Path) -> None:
    """Delete a world's directory after it has ended."""
    shutil.rmtree(directory, ignore_errors=True)
