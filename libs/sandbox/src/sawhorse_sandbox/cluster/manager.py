"""All controllers and the scheduler over one API, as tasks of one group."""

from __future__ import annotations

import asyncio

from sawhorse_sandbox.apiserver.operations import Api
from sawhorse_sandbox.cluster.budgets import Budgets
from sawhorse_sandbox.cluster.daemons import DaemonSets
from sawhorse_sandbox.cluster.garbage import ContentFinalizer, OwnerGarbage, PodGarbage
from sawhorse_sandbox.cluster.loops import Reconciler, Worker
from sawhorse_sandbox.cluster.nodes import NodeLifecycle, TaintEviction
from sawhorse_sandbox.cluster.scheduler import Scheduler
from sawhorse_sandbox.cluster.workloads import Deployments, ReplicaSets


def all_reconcilers(api: Api) -> tuple[Reconciler, ...]:
    return (
        Scheduler(api),
        Deployments(api),
        ReplicaSets(api),
        DaemonSets(api),
        NodeLifecycle(api),
        TaintEviction(api),
        PodGarbage(api),
        OwnerGarbage(api),
        ContentFinalizer(api),
        Budgets(api),
    )


async def run_cluster(api: Api, stop: asyncio.Event) -> None:
    """Run everything until `stop` is set. Work in hand is never half done: each look is one step of the loop."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(Worker(api.store, reconciler).run(), name=reconciler.name)
            for reconciler in all_reconcilers(api)
        ]
        await stop.wait()
        for task in tasks:
            task.cancel()
