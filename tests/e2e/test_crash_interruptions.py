"""Real processes killed, paused and told to stop on the real control plane while nodes go or all fails.

One world for the module, as in `test_crash_processes.py`.
"""

import asyncio
import os
import signal

import pytest

from sawhorse_kube.client import KubeClient
from sawhorse_kube.errors import NotFoundError
from sawhorse_kube.kinds import LEASE, NODECLAIM
from sawhorse_sandbox.processes import stop_child
from sawhorse_testing.crash_cluster import PODS, Cluster
from sawhorse_testing.eventually import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
LEASES = {"watcher": "sawhorse-watcher", "provisioner": "sawhorse-provisioner"}


@pytest.mark.parametrize("failpoint", ["cordoned:after", "deleted:after"])
async def test_an_interruption_service_that_is_killed_replaces_a_node_exactly_once(
    cluster: Cluster, failpoint: str
) -> None:
    await cluster.deploy()
    await cluster.settled()
    doomed = (await cluster.kube.list(NODECLAIM)).objects[0]
    await cluster.restart("interruption", failpoint)
    await cluster.world.aws.interrupt(doomed.instance_id, "spot")
    await cluster.killed("interruption")

    await eventually(lambda: _is_gone(cluster.kube, doomed.meta.name), seconds=120)
    await cluster.settled()
    assert len(await cluster.machines()) == PODS + 1


async def test_a_provisioner_that_stood_still_while_another_took_over_does_no_harm_when_it_wakes(
    cluster: Cluster,
) -> None:
    paused = cluster.world.services["provisioner"].child
    await cluster.deploy()
    await eventually(lambda: _has_claims(cluster.kube), seconds=30)
    os.kill(paused.pid, signal.SIGSTOP)
    try:
        await cluster.start("provisioner")
        await cluster.settled()
        os.kill(paused.pid, signal.SIGCONT)
        await asyncio.sleep(5)  # long enough for it to do whatever it was about to do
        await cluster.settled()
        assert paused.is_running()
    finally:
        os.kill(paused.pid, signal.SIGCONT)
        await stop_child(paused, grace=20)


async def test_pods_get_their_nodes_though_redis_is_flushed_and_ec2_throttles_and_fails(cluster: Cluster) -> None:
    errors = [{"action": "CreateFleet", "code": "InternalError", "times": 2, "status": 500}]
    await cluster.world.aws.control({"throttle": {"*": 0.5}, "errors": errors})
    try:
        await cluster.deploy()
        await eventually(lambda: _has_claims(cluster.kube), seconds=30)
        async with cluster.redis() as client:
            await client.flushall()
        await asyncio.sleep(5)
    finally:
        await cluster.world.aws.control({"throttle": {}, "errors": []})

    await cluster.settled(120)  # the pauses between tries have grown meanwhile
    assert len(await cluster.machines()) == PODS


async def _has_claims(kube: KubeClient) -> bool:
    return bool((await kube.list(NODECLAIM)).objects)


async def _is_gone(kube: KubeClient, claim: str) -> bool:
    try:
        await kube.get(NODECLAIM, claim)
    except NotFoundError:
        return True
    return False


@pytest.mark.parametrize("name", ["watcher", "provisioner", "interruption", "pricing"])
async def test_a_service_that_is_told_to_stop_ends_in_time_with_code_0_and_holds_no_lease(
    cluster: Cluster, name: str
) -> None:
    child = cluster.world.services[name].child
    child.process.send_signal(signal.SIGTERM)

    await eventually(lambda: not child.is_running(), seconds=20, what=f"{name} ended")
    assert child.process.returncode == 0, child.log.read_text()[-2000:]
    if name in LEASES:
        lease = await cluster.kube.get(LEASE, LEASES[name], "kube-system")
        assert not lease["spec"].get("holderIdentity")
