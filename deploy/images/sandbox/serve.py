"""The embedded cluster as one container: Kubernetes, AWS and kubelets. Redis and the services run beside it.

A test double for trying Sawhorse out; it is no place for real workloads. It writes a kubeconfig for the others into a
shared folder, then a file `ready`.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from relay import relay

from sawhorse_sandbox.apiserver import start_embedded_kube
from sawhorse_sandbox.apiserver.kubeconfig import write_kubeconfig
from sawhorse_sandbox.aws import seed_account, start_aws
from sawhorse_sandbox.crds import CrdError, apply_crds
from sawhorse_sandbox.processes import Child, ChildError, start_child, stop_child, wait_until_ready

WATCH_SECONDS = 1.0
KUBELET_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How it runs. `host` is the name under which other containers reach this one."""

    cluster: str
    region: str
    host: str
    kube_port: int
    aws_port: int
    shared: Path


def read_options(arguments: list[str]) -> Options:
    """Return the options; wrong use ends the program with exit code 2."""
    parser = argparse.ArgumentParser(prog="serve.py", description=__doc__)
    parser.add_argument("--cluster", default="sandbox", help="name of the cluster and of its queue")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--host", default="sandbox", help="name of this container on the network")
    parser.add_argument("--kube-port", type=int, default=6443)
    parser.add_argument("--aws-port", type=int, default=4566)
    parser.add_argument("--shared", type=Path, default=Path("/world"), help="folder for `kubeconfig` and `ready`")
    return Options(**vars(parser.parse_args(arguments)))


async def run(options: Options, stop: asyncio.Event) -> None:
    """Serve until `stop` is set.

    Raises:
        ChildError: a part did not start or has died; quotes its log.
        CrdError: a kind was refused.
        OSError: a port is taken or the shared folder cannot be written.
    """
    ready = options.shared / "ready"
    ready.unlink(missing_ok=True)
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sandbox-")))
        aws = await stack.enter_async_context(await start_aws(directory, region=options.region))
        await seed_account(aws.endpoint_url, options.cluster, options.region)
        kube = await stack.enter_async_context(await start_embedded_kube(directory / "kube"))
        headers = {"Authorization": f"Bearer {kube.token}"}
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=10)) as http:
            await apply_crds(http, kube.url)
        kubelets = await _start_kubelets(stack, directory, kube.kubeconfig, aws.endpoint_url)
        for port, url in ((options.kube_port, kube.url), (options.aws_port, aws.endpoint_url)):
            await stack.enter_async_context(relay(("0.0.0.0", port), ("127.0.0.1", int(url.rsplit(":", 1)[1]))))
        write_kubeconfig(options.shared / "kubeconfig", f"http://{options.host}:{options.kube_port}", kube.token)
        ready.write_text(json.dumps({"cluster": options.cluster, "queue": options.cluster}))
        print(f"sandbox: Kubernetes on {options.kube_port}, AWS on {options.aws_port}", flush=True)
        try:
            await _watch((aws.child, kube.child, kubelets), stop)
        finally:
            ready.unlink(missing_ok=True)


async def _start_kubelets(stack: AsyncExitStack, directory: Path, kubeconfig: Path, aws_endpoint: str) -> Child:
    ready = directory / "kubelets.ready"
    command: list[str | Path] = [sys.executable, "-m", "sawhorse_sandbox.kubelet", f"--kubeconfig={kubeconfig}"]
    command += [f"--aws-endpoint={aws_endpoint}", f"--directory={directory}"]
    child = start_child("kubelets", command, log=directory / "kubelet.log")
    stack.push_async_callback(stop_child, child, grace=5.0)
    await wait_until_ready(child, lambda: asyncio.to_thread(ready.exists), timeout=KUBELET_SECONDS)
    return child


async def _watch(children: tuple[Child, ...], stop: asyncio.Event) -> None:
    """Return when told to stop; a part that dies takes the container with it, so that it is started anew."""
    while not stop.is_set():
        for child in children:
            if not child.is_running():
                raise ChildError(f"{child.name} has died")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WATCH_SECONDS):
                await stop.wait()


async def _main(options: Options) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await run(options, stop)
    except (ChildError, CrdError, OSError) as err:
        print(f"sandbox: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(read_options(sys.argv[1:]))))
