"""Real processes killed at their steps on the real control plane, and started again: nothing is lost, nothing twice.

One world for the module. Each test brings a workload of two pods that need a node each, and takes it away again, so
that the end of nodes is part of every story. Interruptions and faults: `test_crash_interruptions.py`.
"""

import pytest

from sawhorse_kube.kinds import NODE
from sawhorse_testing.crash_cluster import PODS, Cluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest.mark.parametrize("failpoint", ["token:after", "template:after", "fleet:after"])
async def test_a_provisioner_that_is_killed_launches_no_machine_twice(cluster: Cluster, failpoint: str) -> None:
    await cluster.restart("provisioner", failpoint)
    await cluster.deploy()
    await cluster.killed("provisioner")

    await cluster.settled()
    assert len(await cluster.machines()) == PODS


async def test_a_provisioner_that_is_killed_while_a_node_ends_leaves_nothing_behind(cluster: Cluster) -> None:
    await cluster.deploy()
    await cluster.settled()
    await cluster.restart("provisioner", "instance:after")
    await cluster.kube.delete(NODE, (await cluster.kube.list(NODE)).objects[0].meta.name)
    await cluster.killed("provisioner")

    await cluster.settled()
    assert len(await cluster.machines()) == PODS + 1


async def test_a_watcher_that_is_killed_while_it_begins_is_followed_by_one_that_lists_anew(cluster: Cluster) -> None:
    await cluster.restart("watcher", "synced:before", wait=False)
    await cluster.deploy()
    await cluster.killed("watcher")

    await cluster.settled()
    assert len(await cluster.machines()) == PODS


async def test_a_watcher_that_is_killed_after_it_saw_a_change_loses_no_pod(cluster: Cluster) -> None:
    await cluster.restart("watcher", "seen:after", wait=False)
    await cluster.deploy()
    await cluster.killed("watcher")

    await cluster.settled()
    assert len(await cluster.machines()) == PODS


@pytest.mark.parametrize("failpoint", ["fetched:after", "published:after"])
async def test_pricing_that_is_killed_while_it_publishes_comes_back_with_a_catalogue(
    cluster: Cluster, failpoint: str
) -> None:
    await cluster.world.stop_service("pricing")
    async with cluster.redis() as client:
        await client.flushall()
    await cluster.start("pricing", failpoint, wait=False)
    await cluster.killed("pricing")
    await cluster.deploy()

    await cluster.settled()
    assert len(await cluster.machines()) == PODS
