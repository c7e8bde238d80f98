"""Wires the fake kubelets: one instance list, one watch of Nodes, one of pods, for all machines together."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import msgspec
import structlog

from sawhorse_sandbox.kubelet.api import ApiError, KubeApi, connect, load_kubeconfig
from sawhorse_sandbox.kubelet.cloudnodes import CloudNodes
from sawhorse_sandbox.kubelet.instances import InstanceFeed
from sawhorse_sandbox.kubelet.machines import Machines, Node
from sawhorse_sandbox.kubelet.node import Instance
from sawhorse_sandbox.kubelet.pods import Pod
from sawhorse_sandbox.kubelet.reflector import Reflector
from sawhorse_sandbox.kubelet.settings import KubeletSettings
from sawhorse_sandbox.kubelet.workloads import Workloads

log = structlog.get_logger(__name__)


async def run_kubelets(settings: KubeletSettings, stop: asyncio.Event) -> None:
    """Play a kubelet for every running instance until `stop` is set; Nodes and pods stay as they are then.

    Starts before or after either side is up: both are tried until they answer.

    Raises:
        KubeconfigError: the kubeconfig cannot be used.
    """
    access = load_kubeconfig(settings.kubeconfig)
    async with (
        connect(access, parallel=settings.parallel) as api,
        aiohttp.ClientSession() as http,
        asyncio.TaskGroup() as group,
    ):
        fleet = group.create_task(_run(settings, api, http), name="kubelets")
        await stop.wait()
        fleet.cancel()


async def _run(settings: KubeletSettings, api: KubeApi, http: aiohttp.ClientSession) -> None:
    version = await _wait_for_version(api)
    nodes: Reflector[Node] = Reflector(api, "/api/v1/nodes", Node, lambda *change: machines.on_node(*change))
    pods: Reflector[Pod] = Reflector(api, "/api/v1/pods", Pod, lambda *change: workloads.on_pod(*change))
    machines = Machines(
        api,
        settings,
        kubelet_version=version,
        nodes=nodes.items,
        on_change=lambda node: workloads.on_node(node),
    )
    workloads = Workloads(api, settings, machines=machines, pods=pods.items)
    cloud = CloudNodes(api, nodes.items, settings.node_delete_delay)

    def on_list(instances: Mapping[str, Instance]) -> None:
        machines.apply(instances)
        cloud.apply(instances)

    feed = InstanceFeed(http, settings.aws_endpoint, settings.poll_interval, on_list)
    async with asyncio.TaskGroup() as group:
        group.create_task(nodes.run(), name="nodes")
        group.create_task(pods.run(), name="pods")
        # Nodes first: an instance that has its Node already need not boot again.
        await nodes.synced.wait()
        group.create_task(feed.run(), name="instances")
        group.create_task(machines.work.run(), name="machines")
        group.create_task(workloads.work.run(), name="workloads")
        group.create_task(cloud.run(), name="cloud-nodes")
        await pods.synced.wait()
        await feed.synced.wait()
        log.info("kubelets are ready", version=version)
        if settings.directory is not None:
            _announce(settings.directory)


async def _wait_for_version(api: KubeApi) -> str:
    attempts = 0
    while True:
        try:
            return str(msgspec.json.decode(await api.request("GET", "/version"), type=dict[str, object])["gitVersion"])
        except (ApiError, msgspec.DecodeError, KeyError) as err:
            if attempts % 40 == 0:
                log.warning("api server does not answer yet", error=repr(err))
            attempts += 1
            await asyncio.sleep(0.25)


def _announce(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    draft = directory / ".kubelets.ready.draft"
    draft.write_text(f"{os.getpid()}\n")
    draft.replace(directory / "kubelets.ready")
