"""Z02 over the real parts: what a node reports reaches the next answer of the catalogue, through Redis and gRPC."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sawhorse_catalog.aws import ResolveSettings
from sawhorse_catalog.snapshot import make_snapshot
from sawhorse_kube.kinds import EC2_NODECLASS
from sawhorse_model import aws
from sawhorse_model.labels import INSTANCE_TYPE
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.node import Node
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.resources import MEMORY
from sawhorse_pricing.grpc_api import SERVICE_NAME, WATCH_DEADLINES, CatalogApi, add_catalog_service
from sawhorse_pricing.instruments import Instruments
from sawhorse_pricing.refresh import Follower
from sawhorse_pricing.serving import Catalogue
from sawhorse_pricing.shared import RedisShared
from sawhorse_proto.catalog.v1.catalog_pb2_grpc import CatalogServiceStub
from sawhorse_provisioner.catalog_client import CatalogClient
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.main import AWS_WORDS
from sawhorse_provisioner.measuring import MemoryMeter
from sawhorse_runtime.clock import SystemClock
from sawhorse_runtime.health import Readiness
from sawhorse_runtime.metrics import Metrics
from sawhorse_runtime.rpc import channel, grpc_server
from sawhorse_state.connection import State
from sawhorse_state.memory import MeasuredMemory
from sawhorse_testing.catalog import ZONES, common_facts, common_prices
from sawhorse_testing.cloud_worlds import a_claim
from sawhorse_testing.state import a_redis, a_state

TYPE, IMAGE = "m6i.large", "ami-1"
HASHES = {aws.NODECLASS_HASH: "1", aws.NODECLASS_HASH_VERSION: "v1"}


class OneNodeClass:
    """A mirror with one NodeClass and nothing else."""

    synced, version = True, 1

    def __init__(self, node_class: NodeClass) -> None:
        self._node_class = node_class

    def all(self, kind: str) -> Mapping[str, Any]:
        return {self._node_class.meta.name: self._node_class} if kind == EC2_NODECLASS.name else {}

    def get(self, kind: str, key: str) -> Any:
        return self.all(kind).get(key)

    def pods_on(self, node_name: str) -> tuple[()]:
        return ()

    def subscribe(self, callback: Any) -> None:
        """Nothing changes."""

    def note_own(self, kind: str, obj: Any) -> None:
        """Nothing is written."""


def a_node_class(**kubelet: Any) -> NodeClass:
    """A NodeClass with one image in every zone."""
    zones = [{"id": f"subnet-{zone}", "zone": zone, "zoneID": ZONES[zone]} for zone in ZONES]
    requirements = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]
    return NodeClass(
        ObjectMeta("default", uid="u", generation=1, annotations=HASHES),
        aws.GROUP,
        aws.KIND,
        {"amiSelectorTerms": [{"alias": "al2023@latest"}], **({"kubelet": kubelet} if kubelet else {})},
        {"subnets": zones, "amis": [{"id": IMAGE, "name": "a", "requirements": requirements}]},
    )


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[State]:
    async with a_redis(tmp_path) as url, a_state(url) as connected:
        yield connected


@pytest.mark.integration
async def test_z02_what_a_node_reported_is_what_the_next_plan_is_told_also_after_a_restart(state: State) -> None:
    node_class = a_node_class(maxPods=20)
    cluster = ClusterState(
        OneNodeClass(node_class), words=AWS_WORDS, clock=SystemClock(), nomination=timedelta(seconds=20)
    )
    meter = MemoryMeter(memory=MeasuredMemory(state), state=cluster, words=AWS_WORDS, clock=SystemClock())
    claim = replace(
        a_claim("c", labels={INSTANCE_TYPE: TYPE}, annotations=HASHES, node_class=node_class), image_id=IMAGE
    )

    before = await asked_of_pricing(state, node_class)
    estimate = before.memory(TYPE)
    for less in (1, 2, 0):
        await meter.measure(claim, Node(ObjectMeta("n"), capacity={MEMORY: estimate + 500_000_000 - less}))
    after = await asked_of_pricing(state, node_class)
    other_settings = await asked_of_pricing(state, a_node_class(maxPods=30))

    assert after.memory(TYPE) == estimate + 499_999_998
    assert after.version != before.version
    assert (before.measured, after.measured) == (frozenset(), {TYPE})
    assert after.memory("m6i.xlarge") == before.memory("m6i.xlarge")
    assert other_settings.memory(TYPE) == estimate


class Answer:
    """What pricing said."""

    def __init__(self, resolved: Any) -> None:
        self.version: str = resolved.version
        self.measured: frozenset[str] = resolved.measured
        self._memory = {kind.name: kind.capacity[MEMORY] for kind in resolved.instance_types}

    def memory(self, name: str) -> int:
        return int(self._memory[name])


async def asked_of_pricing(state: State, node_class: NodeClass) -> Answer:
    """A pricing service that has just started, asked over gRPC as the provisioner asks it."""
    instruments, shared = Instruments(Metrics()), RedisShared(state)
    catalogue = Catalogue(settings=ResolveSettings(require_subnets=True), instruments=instruments)
    catalogue.take(make_snapshot(common_facts(), ZONES, common_prices(), region="us-west-2", fetched_at=1.0))
    follower = Follower(shared, catalogue, report=lambda ready, why: None)
    await follower.look_measured()
    api = CatalogApi(catalogue=catalogue, shared=shared, follower=follower, instruments=instruments)
    servicers = {SERVICE_NAME: partial(add_catalog_service, api)}
    async with (
        grpc_server("127.0.0.1:0", servicers=servicers, readiness=Readiness(), deadlines=WATCH_DEADLINES) as port,
        channel(f"127.0.0.1:{port}") as connected,
    ):
        client = CatalogClient(CatalogServiceStub(connected), EC2_NODECLASS)
        return Answer(await client.resolve(node_class))
