"""Faults of AWS end to end on the real control plane: each is told where a person looks, and harms nobody else.

One world without the Pricing API, from its first moment. Each fault has a NodePool and an EC2NodeClass of its own;
the pool `steady` is the bystander that must go on working. Nothing is tidied up between the tests: the last one takes
everything away and finds nothing left.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import redis.asyncio

from sawhorse_cloud_aws.calls import client
from sawhorse_kube.client import KubeClient, connect_kube
from sawhorse_kube.kinds import EC2_NODECLASS, NODE, NODECLAIM, NODEPOOL, POD, raw_kind
from sawhorse_model.labels import ZONE
from sawhorse_model.meta import Condition, find_condition
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_sandbox.world import World, start_world
from sawhorse_testing.eventually import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

CLUSTER = "faults"
NAMESPACE = "default"
EVENT = raw_kind("Event", "", "v1", "events", namespaced=True)
WITHOUT_PRICING = {"action": "GetProducts", "code": "AccessDeniedException", "message": "no way there", "times": 10_000}
WITHOUT_SSM = {"action": "GetParameter", "code": "AccessDeniedException", "message": "no way there", "times": 10_000}
PROVISIONER = (
    "--batch-idle-duration=300ms",
    "--node-class-refresh-interval=5s",
    "--garbage-collection-interval=3s",
    "--garbage-collection-age=6s",
)
TYPES = ("c5.large", "c5a.large", "m5.large", "m5a.large", "m6i.large", "r5.large")
ALIVE = ("pending", "running", "stopping", "stopped")


@dataclass
class Faults:
    """The world, and what a test does in it."""

    world: World
    kube: KubeClient
    pods: set[str] = field(default_factory=set)

    async def pool(self, name: str, types: Sequence[str] = TYPES, **spec: Any) -> None:
        """A NodeClass and a NodePool of on-demand machines under one name."""
        discovery = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
        found = {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": self.world.account.role_name,
            "subnetSelectorTerms": discovery,
            "securityGroupSelectorTerms": discovery,
            **spec,
        }
        await self.kube.create(EC2_NODECLASS, {"metadata": {"name": name}, "spec": found})
        requirements = [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(types)},
        ]
        reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name}
        template = {"spec": {"nodeClassRef": reference, "requirements": requirements}}
        await self.kube.create(NODEPOOL, {"metadata": {"name": name}, "spec": {"template": template}})

    async def pod(self, pool: str, number: int = 1) -> str:
        """A pod that needs most of a machine of the pool; returns its name."""
        name = f"{pool}-{number}"
        requests = {"cpu": "1500m", "memory": "1Gi"}
        container = {"name": "app", "image": "example.test/app", "resources": {"requests": requests}}
        spec = {
            "nodeSelector": {"karpenter.sh/nodepool": pool},
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        await self.kube.create(POD, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
        self.pods.add(name)
        return name

    async def runs(self, *names: str, seconds: float = 60.0) -> None:
        """Wait until these pods run."""

        async def all_run() -> bool:
            pods = (await self.kube.list(POD, namespace=NAMESPACE)).objects
            return set(names) <= {p.meta.name for p in pods if p.phase == "Running"}

        await eventually(all_run, seconds=seconds, what=f"{', '.join(names)} run")

    async def claims(self, pool: str) -> list[NodeClaim]:
        """Those of a pool that are not on their way out."""
        listed = (await self.kube.list(NODECLAIM)).objects
        return [c for c in listed if c.nodepool == pool and not c.meta.is_deleting]

    async def machines(self) -> dict[str, Mapping[str, Any]]:
        """Living machines by id."""
        return {i["instanceId"]: i for i in await self.world.aws.instances() if i["state"] in ALIVE}

    async def nothing_leaked(self) -> None:
        """Wait until every machine has a claim and every claim a machine."""

        async def even() -> bool:
            listed = (await self.kube.list(NODECLAIM)).objects
            return sorted(await self.machines()) == sorted(c.instance_id for c in listed)

        await eventually(even, seconds=40, what="machines and claims are as many")

    async def condition(self, node_class: str, kind: str) -> Condition | None:
        found = await self.kube.get(EC2_NODECLASS, node_class)
        return find_condition(found.conditions, kind)

    async def warning(self, reason: str, part: str, seconds: float = 75.0) -> str:
        """Wait for a Warning about a NodeClaim with this reason whose message holds `part`; returns the message."""
        told = ""

        async def said() -> bool:
            nonlocal told
            for event in (await self.kube.list_raw(EVENT)).objects:
                about = event["involvedObject"]["kind"] == "NodeClaim" and event["type"] == "Warning"
                if about and event["reason"] == reason and part in event["message"]:
                    told = event["message"]
            return bool(told)

        await eventually(said, seconds=seconds, what=f"an event {reason} with {part!r}")
        return told

    async def metric(self, service: str, name: str) -> float:
        """A metric of a service; 0 where it is not told."""
        address = f"http://127.0.0.1:{self.world.services[service].ports['metrics']}/metrics"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http, http.get(address) as answer:
            text = await answer.text()
        found = re.search(rf"^{re.escape(name)} ([0-9.e+]+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    async def marks(self) -> list[str]:
        """Offerings that are set aside, as `capacity type:type:zone…`."""
        password = self.world.redis_password_file.read_text()
        store = redis.asyncio.Redis(port=self.world.redis.port, password=password, decode_responses=True)
        try:
            (index,) = [key async for key in store.scan_iter("*unavailable", _type="zset")] or [""]
            return sorted(await store.zrange(index, 0, -1)) if index else []
        finally:
            await store.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, real_assets: Path) -> AsyncIterator[Faults]:
    directory: Path = tmp_path_factory.mktemp("faults")
    async with (
        start_world(directory, cluster=CLUSTER, column="assets", assets=real_assets) as world,
        connect_kube(kubeconfig=world.kubeconfig) as kube,
    ):
        await world.aws.control({"errors": [WITHOUT_PRICING]})
        await world.start_services(extra={"provisioner": PROVISIONER}, without=("interruption",))
        faults = Faults(world, kube)
        await faults.pool("steady")
        yield faults


@pytest_asyncio.fixture(loop_scope="module")
async def faults(shared: Faults) -> AsyncIterator[Faults]:
    yield shared
    await shared.world.aws.control(
        {"errors": [WITHOUT_PRICING], "throttle": {}, "outOfCapacity": [], "fullSubnets": [], "dying": 0}
    )


async def test_without_the_pricing_api_the_shipped_prices_serve_and_metrics_say_so(faults: Faults) -> None:
    await faults.runs(await faults.pod("steady"))

    assert await faults.metric("pricing", "sawhorse_catalog_static_prices") == 1
    assert await faults.metric("pricing", 'sawhorse_catalog_price_fallbacks_total{prices="on-demand"}') >= 1
    assert await faults.metric("pricing", "sawhorse_catalog_instance_types") > 1000


async def test_with_half_of_all_calls_throttled_pods_still_run_and_no_offering_is_marked(faults: Faults) -> None:
    await faults.world.aws.control({"throttle": {"*": 0.5}})

    await faults.runs(*[await faults.pod("steady", number) for number in (2, 3)], seconds=90)

    assert await faults.marks() == []
    await faults.nothing_leaked()


async def test_with_half_of_the_types_sold_out_the_others_serve_and_only_those_are_marked(faults: Faults) -> None:
    sold_out = TYPES[:3]
    await faults.pool("half")
    await faults.world.aws.control({"outOfCapacity": [{"type": name} for name in sold_out]})

    await faults.runs(await faults.pod("half"), await faults.pod("steady", 4))

    marked = await faults.marks()
    (claim,) = await faults.claims("half")
    assert (await faults.machines())[claim.instance_id]["type"] in TYPES[3:]
    assert {mark.split(":")[1] for mark in marked} <= set(sold_out)
    assert marked
    await faults.nothing_leaked()


async def test_without_ssm_a_new_alias_waits_and_says_why_and_known_images_go_on(faults: Faults) -> None:
    await faults.world.aws.control({"errors": [WITHOUT_PRICING, WITHOUT_SSM]})
    await faults.pool("late", amiSelectorTerms=[{"alias": "bottlerocket@latest"}])
    waiting = await faults.pod("late")

    async def told() -> bool:
        unknown = await faults.condition("late", "AMIsReady")
        kept = await faults.condition("steady", "AMIsReady")
        ready = await faults.condition("steady", "Ready")
        return (
            unknown is not None
            and (unknown.status, unknown.reason) == ("Unknown", "LookupFailed")
            and "GetParameter" in unknown.message
            and kept is not None
            and (kept.status, kept.reason) == ("True", "LookupFailed")
            and ready is not None
            and ready.status == "True"
        )

    await eventually(told, seconds=40, what="both classes tell of the look-up")
    await faults.runs(await faults.pod("steady", 5))
    assert await faults.claims("late") == []

    await faults.world.aws.control({"errors": [WITHOUT_PRICING]})
    await faults.runs(waiting)
    await faults.nothing_leaked()


async def test_a_subnet_without_free_addresses_is_named_and_other_subnets_serve(faults: Faults) -> None:
    zone, subnet = faults.world.account.subnets[0]
    await faults.world.aws.control({"fullSubnets": [subnet]})
    await faults.pool("narrow", subnetSelectorTerms=[{"id": subnet}])

    waiting = await faults.pod("narrow")
    told = await faults.warning("InsufficientCapacityError", subnet)
    await faults.runs(await faults.pod("steady", 6))

    assert "free address" in told
    nodes = {n.meta.name: n for n in (await faults.kube.list(NODE)).objects}
    pods = {p.meta.name: p for p in (await faults.kube.list(POD, namespace=NAMESPACE)).objects}
    assert not pods[waiting].node_name
    assert nodes[pods["steady-6"].node_name].meta.labels[ZONE] != zone
    await faults.kube.delete(POD, waiting, NAMESPACE)
    await faults.nothing_leaked()


async def test_a_machine_that_dies_while_joining_is_told_and_replaced(faults: Faults) -> None:
    await faults.pool("frail")
    await faults.world.aws.control({"dying": 1})

    pod = await faults.pod("frail")
    told = await faults.warning("InstanceGone", "i-")
    await faults.runs(pod)

    (claim,) = await faults.claims("frail")
    assert claim.instance_id not in told
    await faults.nothing_leaked()


async def test_when_everything_is_taken_away_nothing_is_left(faults: Faults) -> None:
    for pod in (await faults.kube.list(POD, namespace=NAMESPACE)).objects:
        await faults.kube.delete(POD, pod.meta.name, NAMESPACE)
    for kind in (NODEPOOL, NODECLAIM, EC2_NODECLASS):
        for each in (await faults.kube.list(kind)).objects:
            await faults.kube.delete(kind, each.meta.name)

    async def gone() -> bool:
        listed = [(await faults.kube.list(kind)).objects for kind in (NODECLAIM, NODE, NODEPOOL, EC2_NODECLASS)]
        return not any(listed) and not await faults.machines()

    await eventually(gone, seconds=75, what="claims, nodes, pools, classes and machines are gone")
    with pytest.MonkeyPatch.context() as environment:
        for name, value in faults.world.aws.environment.items():
            environment.setenv(name, value)
        region, address = faults.world.aws.region, faults.world.aws.endpoint_url
        async with client("ec2", region=region, endpoint_url=address) as ec2:
            templates = (await ec2.describe_launch_templates())["LaunchTemplates"]
        async with client("iam", region=region, endpoint_url=address) as iam:
            profiles = (await iam.list_instance_profiles())["InstanceProfiles"]
    assert [t["LaunchTemplateName"] for t in templates] == []
    assert [p["InstanceProfileName"] for p in profiles if p["Path"].startswith("/karpenter/")] == []
