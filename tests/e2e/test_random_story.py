"""Random numbers of pods and sizes: all pods run, also after a spot warning, and nothing is left over.

The seed is new in every run and is part of each failure; SAWHORSE_SEED repeats one.
"""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from sawhorse_console.demo.manifests import node_class, node_pool
from sawhorse_kube.client import KubeClient, connect_kube
from sawhorse_kube.kinds import EC2_NODECLASS, NODE, NODECLAIM, NODEPOOL, POD, raw_kind
from sawhorse_model.node import Node
from sawhorse_model.pod import Pod
from sawhorse_sandbox.world import World, start_world
from sawhorse_testing.eventually import eventually

pytestmark = pytest.mark.e2e

DEPLOYMENT = raw_kind("Deployment", "apps", "v1", "deployments", namespaced=True)
NAMESPACE = "default"


def deployments(chance: random.Random) -> list[dict[str, Any]]:
    """Three to six deployments of one to fifteen pods each; some spread over zones, some on one architecture."""
    made = []
    for number in range(chance.randint(3, 6)):
        name = f"app-{number}"
        requests = {
            "cpu": f"{chance.choice((50, 100, 250, 700, 1500, 3000))}m",
            "memory": f"{chance.choice((64, 200, 512, 1500, 6000))}Mi",
        }
        spec: dict[str, Any] = {
            "terminationGracePeriodSeconds": chance.randint(1, 4),
            "containers": [{"name": "app", "image": "example.test/app", "resources": {"requests": requests}}],
        }
        if chance.random() < 0.4:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": chance.randint(1, 2),
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": name}},
                },
            ]
        if chance.random() < 0.3:
            spec["nodeSelector"] = {"kubernetes.io/arch": chance.choice(("amd64", "arm64"))}
        labels = {"app": name}
        made.append(
            {
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "replicas": chance.randint(1, 15),
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": spec},
                },
            },
        )
    return made


async def running(kube: KubeClient) -> list[Pod]:
    """Pods that run and are not on their way out."""
    pods = (await kube.list(POD, namespace=NAMESPACE)).objects
    return [p for p in pods if p.phase == "Running" and p.ready and not p.meta.is_deleting]


async def leaked(world: World, kube: KubeClient) -> list[str]:
    """Living machines that no NodeClaim names."""
    known = {c.instance_id for c in (await kube.list(NODECLAIM)).objects}
    alive = [i for i in await world.aws.instances() if i["state"] not in ("terminated", "shutting-down")]
    return [i["instanceId"] for i in alive if i["instanceId"] not in known]


async def test_whatever_pods_come_they_run_and_survive_a_spot_warning(
    column: str, assets: Path | None, tmp_path: Path
) -> None:
    seed = int(os.environ.get("SAWHORSE_SEED") or random.SystemRandom().randint(1, 10**6))
    workloads = deployments(random.Random(seed))
    wanted = sum(w["spec"]["replicas"] for w in workloads)
    said = f"SAWHORSE_SEED={seed}, {wanted} pods"
    async with (
        start_world(tmp_path, column=column, assets=assets) as world,  # type: ignore[arg-type]
        connect_kube(kubeconfig=world.kubeconfig) as kube,
    ):
        await world.start_services()
        await kube.create(EC2_NODECLASS, node_class(world.cluster, world.account.role_name))
        await kube.create(NODEPOOL, node_pool())
        for workload in workloads:
            await kube.create(DEPLOYMENT, workload)

        async def all_run() -> bool:
            return len(await running(kube)) == wanted

        await eventually(all_run, seconds=120, what=f"all pods run; {said}")
        pods = await running(kube)
        nodes: list[Node] = list((await kube.list(NODE)).objects)
        doomed = max(nodes, key=lambda n: (sum(p.node_name == n.meta.name for p in pods), n.meta.name))

        await world.aws.interrupt(doomed.provider_id.rsplit("/", 1)[-1])

        async def node_gone() -> bool:
            return all(n.meta.name != doomed.meta.name for n in (await kube.list(NODE)).objects)

        async def nothing_leaked() -> bool:
            return not await leaked(world, kube)

        await eventually(node_gone, seconds=120, what=f"the warned node goes; {said}")
        await eventually(all_run, seconds=90, what=f"all pods run again; {said}")
        await eventually(nothing_leaked, seconds=90, what=f"no machine is left over; {said}")

        async def claims_settled() -> bool:
            claims = (await kube.list(NODECLAIM)).objects
            return all(c.is_initialized and not c.meta.is_deleting for c in claims)

        await eventually(claims_settled, seconds=90, what=f"every NodeClaim has its node; {said}")
        assert len(await running(kube)) == wanted, said
