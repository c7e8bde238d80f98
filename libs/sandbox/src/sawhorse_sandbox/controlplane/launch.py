"""Starts and stops the real control plane. Every wait has a bound; no process outlives a failed start or a stop."""

import base64
import secrets
import shutil
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import structlog

from sawhorse_sandbox.controlplane.assets import missing_binaries
from sawhorse_sandbox.controlplane.parts import (
    Layout,
    Ports,
    apiserver_command,
    controller_manager_command,
    etcd_command,
    scheduler_command,
    write_files,
    write_kubeconfig,
)
from sawhorse_sandbox.processes import (
    Child,
    ChildError,
    Probe,
    free_ports,
    log_tail,
    start_child,
    stop_in_reverse,
    wait_until_ready,
)

log = structlog.get_logger(__name__)

ATTEMPTS = 4  # each with new ports; a port is lost to another process only between choosing and binding it
STOP_GRACE = 5.0  # seconds for each part; the API server hangs on to its watches, and its data is thrown away
_REQUEST = aiohttp.ClientTimeout(total=5)


class ControlPlaneError(Exception):
    """The control plane cannot be started or has lost a part. One line, then the end of the part's log."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane. As an async context manager it stops itself at the end."""

    directory: Path
    kubeconfig: Path  # of an administrator; CA and token are inside
    url: str
    token: str
    version: str  # gitVersion of the API server, e.g. v1.36.3
    children: tuple[Child, ...]  # in order of their start

    @property
    def pids(self) -> dict[str, int]:
        """Return the process ids by name: etcd, kube-apiserver, kube-scheduler, kube-controller-manager."""
        return {child.name: child.pid for child in self.children}

    def check(self) -> None:
        """Raise ControlPlaneError when a part has died."""
        for child in self.children:
            if not child.is_running():
                raise ControlPlaneError(f"{child.name} has died{log_tail(child.log)}")

    async def stop(self) -> None:
        """End all parts, the last started first, and wait for them. May be repeated."""
        await stop_in_reverse(self.children, grace=STOP_GRACE)
        log.debug("control plane stopped", directory=str(self.directory))

    async def __aenter__(self) -> Self:
        """Return itself: it runs already."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()


async def start_control_plane(
    directory: Path, assets: Path, *, timeout: float = 90.0, apiserver_flags: Sequence[str] = ()
) -> ControlPlane:
    """Start etcd, API server, scheduler and controller manager on loopback; returns when all are healthy.

    Takes about 4 s alone on two cores. The namespaces `default`, `kube-system` and `kube-node-lease` exist then.

    Args:
        directory: made if absent; keys, logs, kubeconfig and data go there. An earlier run's data there is removed.
        assets: the folder of the four binaries, see `find_assets`.
        timeout: seconds for each part to become healthy.
        apiserver_flags: more flags of kube-apiserver, such as an audit policy.
    Raises:
        ControlPlaneError: names the part, with the end of its log.
    """
    if missing := missing_binaries(assets):
        raise ControlPlaneError(f"{assets} lacks {', '.join(missing)}; run `make kube-assets`")
    layout = _prepare(directory)
    for attempt in range(1, ATTEMPTS + 1):
        children: list[Child] = []
        try:
            return await _start(layout, assets, children, timeout, apiserver_flags)
        except BaseException as err:
            await stop_in_reverse(children, grace=STOP_GRACE)
            if not isinstance(err, ChildError):
                raise
            if attempt == ATTEMPTS or not any(_lost_its_port(child) for child in children):
                raise ControlPlaneError(f"the control plane did not start: {err}") from err
            log.info("a port was taken, starting again with others", attempt=attempt)
    raise AssertionError("the last attempt returns or raises")


def _prepare(directory: Path) -> Layout:
    layout = Layout(directory.absolute())
    layout.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return layout


async def _start(
    layout: Layout, assets: Path, children: list[Child], timeout: float, apiserver_flags: Sequence[str]
) -> ControlPlane:
    """Start each part and add it to `children` at once, so that the caller can end it whatever happens next."""
    for stale in (layout.etcd_data, layout.certificates):
        shutil.rmtree(stale, ignore_errors=True)
    ports = Ports(*free_ports(5))
    token = secrets.token_urlsafe(24)
    write_files(layout, token)
    url = f"https://127.0.0.1:{ports.apiserver}"

    def start(name: str, command: list[str | Path]) -> Child:
        layout.log(name).unlink(missing_ok=True)
        child = start_child(name, command, log=layout.log(name))
        children.append(child)
        return child

    async with aiohttp.ClientSession(timeout=_REQUEST) as http:
        etcd = start("etcd", etcd_command(assets, layout, ports))
        await wait_until_ready(etcd, _says(http, f"http://127.0.0.1:{ports.etcd}/health", b"true"), timeout=timeout)

        apiserver = start("kube-apiserver", [*apiserver_command(assets, layout, ports), *apiserver_flags])
        ready = _says(http, f"{url}/readyz", b"ok", token=token)
        await wait_until_ready(apiserver, ready, timeout=timeout, interval=0.1)
        # Made by the API server itself, but after it calls itself ready.
        for name in ("default", "kube-system", "kube-node-lease"):
            there = _says(http, f"{url}/api/v1/namespaces/{name}", b"Active", token=token)
            await wait_until_ready(apiserver, there, timeout=timeout)
        certificate = layout.serving_certificate.read_bytes()
        write_kubeconfig(layout, url, token, base64.b64encode(certificate).decode())

        scheduler = start("kube-scheduler", scheduler_command(assets, layout, ports))
        manager = start("kube-controller-manager", controller_manager_command(assets, layout, ports))
        for child, port in ((scheduler, ports.scheduler), (manager, ports.controller_manager)):
            healthy = _says(http, f"https://127.0.0.1:{port}/healthz", b"ok")
            await wait_until_ready(child, healthy, timeout=timeout)
        version = await _fetch_version(url, token, layout.serving_certificate)
    log.info("control plane is ready", version=version, url=url)
    return ControlPlane(
        directory=layout.directory,
        kubeconfig=layout.kubeconfig,
        url=url,
        token=token,
        version=version,
        children=tuple(children),
    )


def _says(http: aiohttp.ClientSession, url: str, word: bytes, *, token: str | None = None) -> Probe:
    """Return a probe: the address answers 200 with `word` in its text. Certificates are not looked at: loopback."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def probe() -> bool:
        try:
            async with http.get(url, headers=headers, ssl=False) as answer:
                return answer.status == 200 and word in await answer.read()
        except aiohttp.ClientError:
            return False

    return probe


async def _fetch_version(url: str, token: str, certificate: Path) -> str:
    """Return gitVersion, over a connection that trusts the kubeconfig's CA only: this proves that it is the right one.

    Raises:
        ControlPlaneError: no answer, or one that is not a version.
    """
    context = ssl.create_default_context(cafile=str(certificate))
    connector = aiohttp.TCPConnector(ssl=context)
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with (
            aiohttp.ClientSession(connector=connector, headers=headers, timeout=_REQUEST) as http,
            http.get(f"{url}/version") as answer,
        ):
            return str((await answer.json())["gitVersion"])
    except (aiohttp.ClientError, TimeoutError, KeyError, ValueError) as err:
        raise ControlPlaneError(f"{url}/version cannot be read: {err!r}") from err


def _lost_its_port(child: Child) -> bool:
    return "address already in use" in log_tail(child.log, lines=200)
