"""A small world in virtual time: Kubernetes, a cloud, kubelets, and replicas' terms over them, all in memory.

`World` is what tests script and look at. A term is wired as `main` wires it, but for the connections.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sawhorse_catalog.measured import memory_for
from sawhorse_cloud.errors import FailedOffering
from sawhorse_kube.kinds import MIRRORED, NODE, NODECLAIM, NODEPOOL, POD, nodeclass_kind
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import INSTANCE_TYPE, UNREGISTERED_TAINT, ZONE
from sawhorse_model.labels import NODEPOOL as NODEPOOL_LABEL
from sawhorse_model.meta import Condition, find_condition
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.resources import MEMORY, format_resources
from sawhorse_provisioner.catalog_client import ResolvedTypes
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.planning import Planner
from sawhorse_provisioner.settings import Settings
from sawhorse_provisioner.solver import InlineSolver
from sawhorse_provisioner.term import Surroundings, Term
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_runtime.failpoints import Failpoint, Steps
from sawhorse_runtime.metrics import Metrics
from sawhorse_scheduling.snapshot import SolveOptions
from sawhorse_scheduling.solve import solve
from sawhorse_testing.catalog import an_instance_type
from sawhorse_testing.cloud import HASH, HASH_VERSION_KEY, FakeCloud
from sawhorse_testing.kube import FakeKube
from sawhorse_testing.watched_mirror import WatchedMirror

T0 = datetime(2026, 11, 29, 10, 0, 0, tzinfo=UTC)

FAKE_CLASS = nodeclass_kind("fake.example", "v1", "FakeNodeClass", "fakenodeclasses")


def ending_reservations(node_class: NodeClass) -> Mapping[str, datetime | None]:
    """As a test wrote them into the fake's `spec.ending`: id → seconds after T0, or None."""
    ending: Mapping[str, float | None] = node_class.spec.get("ending") or {}
    return {key: T0 + timedelta(seconds=at) if at is not None else None for key, at in ending.items()}


WORDS = NodeClassWords(
    kind=FAKE_CLASS,
    finalizer="fake.example/termination",
    label="fake.example/nodeclass",
    hash=HASH,
    hash_version=HASH_VERSION_KEY,
    tagged="fake.example/tagged",
    well_known=frozenset(
        {
            "karpenter.k8s.aws/instance-category",
            "karpenter.k8s.aws/instance-family",
            "karpenter.k8s.aws/instance-generation",
            "karpenter.k8s.aws/instance-size",
            "karpenter.k8s.aws/instance-cpu",
            "karpenter.k8s.aws/instance-memory",
            "topology.k8s.aws/zone-id",
        }
    ),
    tagged_also=("fake.example/tagged-too",),
    plugins={"example.com/gpu": "the example device plugin"},
    reservation="fake.example/reservation-id",
    reservation_labels=("fake.example/reservation-id", "fake.example/reservation-type"),
    placement_group="fake.example/placement-group",
    partition="fake.example/partition",
    expiring=ending_reservations,
)

SMALL = an_instance_type("m5.large", cpu="2", memory="8Gi", price=0.10, spot_price=0.04)
LARGE = an_instance_type("m5.2xlarge", cpu="8", memory="32Gi", price=0.40, spot_price=0.16)


Link = Callable[[Any], Any]  # what a term reaches Kubernetes, cloud, catalogue and store through


class LoopClock:
    """The loop's time as a Clock: virtual under looptime."""

    def now(self) -> datetime:
        return T0 + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return 0.0  # a test without a loop: time stands still

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class FakeMemory:
    """Measured memory as `sawhorse_state.memory` keeps it: the lowest of each kind."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, str], int] = {}
        self.puts = 0
        self.error: Exception | None = None

    async def put(self, instance_type: str, image: str, kubelet_hash: str, memory_bytes: int) -> int:
        self.puts += 1
        if self.error is not None:
            raise self.error
        key = (instance_type, image, kubelet_hash)
        self.known[key] = min(memory_bytes, self.known.get(key, memory_bytes))
        return self.known[key]


@dataclass
class FakeCatalog:
    """The catalogue: a fixed list of types, less what was reported, with the memory that nodes reported."""

    types: tuple[InstanceType, ...] = (SMALL, LARGE)
    reported: list[FailedOffering] = field(default_factory=list)
    error: Exception | None = None
    memory: FakeMemory = field(default_factory=FakeMemory)
    _marked: set[tuple[str, str, str]] = field(default_factory=set)

    async def resolve(self, node_class: NodeClass) -> ResolvedTypes:
        if self.error is not None:
            raise self.error
        measured = memory_for(node_class.spec, ("image-1",), self.memory.known)
        types = tuple(
            replace(
                _with_memory(t, measured.get(t.name)),
                offerings=tuple(
                    replace(o, available=o.available and (o.capacity_type.value, t.name, o.zone) not in self._marked)
                    for o in t.offerings
                ),
            )
            for t in self.types
        )
        version = f"{len(self._marked)}-{sorted(measured.items())}"
        return ResolvedTypes(version, types, {WORDS.label: node_class.meta.name}, frozenset(measured))

    async def report_unavailable(self, failed: Sequence[FailedOffering]) -> None:
        if self.error is not None:
            raise self.error
        self.reported += failed
        self._marked |= {(f.capacity_type, f.instance_type, f.zone) for f in failed}


def _with_memory(kind: InstanceType, measured: int | None) -> InstanceType:
    if measured is None:
        return kind
    more = measured - kind.capacity[MEMORY]
    return replace(
        kind,
        capacity={**kind.capacity, MEMORY: measured},
        allocatable={**kind.allocatable, MEMORY: kind.allocatable[MEMORY] + more},
    )


class FakeStore:
    """The small stores of Redis; `holders` says who drains which node."""

    def __init__(self) -> None:
        self.index: dict[str, str] = {}
        self.placements: dict[str, list[Any]] = {}
        self.journal: list[Mapping[str, Any]] = []
        self.holders: dict[str, str] = {}
        self.error: Exception | None = None

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    async def put(self, key: str, value: Any) -> None:
        self._check()
        if isinstance(value, str):
            self.index[key] = value
        else:
            self.placements[key] = list(value)

    async def drop(self, instance_id: str) -> None:
        self._check()
        self.index.pop(instance_id, None)

    async def append(self, record: Mapping[str, Any]) -> str:
        self._check()
        self.journal.append(record)
        return str(len(self.journal))

    async def holder(self, node: str) -> str:
        self._check()
        return self.holders.get(node, "")


@dataclass
class Replica:
    """One process of the service that leads."""

    term: Term
    around: Surroundings
    state: ClusterState
    mirror: WatchedMirror
    metrics: Metrics
    planner: Planner
    stop: asyncio.Event  # set: the term hands over

    def count(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@dataclass
class World:
    """Kubernetes, cloud and kubelets; terms come and go over them.

    Args:
        join_after: seconds from a machine's launch to its Node; None: machines never join.
        ready_after: seconds from the Node to Ready.
        node_memory: instance type → bytes that its nodes report; what the catalogue says where there is none.
        not_offered: resources that nodes never report: their device plugin does not run.
    """

    clock: LoopClock = field(default_factory=LoopClock)
    cloud: FakeCloud = field(default_factory=lambda: FakeCloud(epoch=T0))
    catalog: FakeCatalog = field(default_factory=FakeCatalog)
    store: FakeStore = field(default_factory=FakeStore)
    join_after: float | None = 2.0
    ready_after: float = 1.0
    node_memory: dict[str, int] = field(default_factory=dict)
    not_offered: set[str] = field(default_factory=set)
    node_taints: list[dict[str, str]] = field(
        default_factory=lambda: [{"key": UNREGISTERED_TAINT, "effect": "NoExecute"}]
    )
    settings: dict[str, Any] = field(default_factory=dict)
    kube: FakeKube = field(init=False)

    def __post_init__(self) -> None:
        self.kube = FakeKube(now=self.clock.now, pods_end_at_once=True)

    # Objects

    def node_class(self, name: str = "default", *, ready: bool = False, **spec: Any) -> NodeClass:
        """A NodeClass; the service judges it unless it is put as ready."""
        raw: dict[str, Any] = {"metadata": {"name": name}, "spec": spec}
        if ready:
            raw["status"] = {"conditions": [ready_condition()]}
        made: NodeClass = self.kube.put(FAKE_CLASS, raw)
        return made

    def pool(
        self,
        name: str = "default",
        *,
        node_class: str = "default",
        ready: bool = False,
        limits: Mapping[str, str] | None = None,
        requirements: Sequence[Mapping[str, Any]] = (),
        weight: int = 0,
        template: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Any:
        """A NodePool of a NodeClass."""
        ref = {"group": FAKE_CLASS.group, "kind": FAKE_CLASS.name, "name": node_class}
        raw: dict[str, Any] = {
            "metadata": {"name": name},
            "spec": {
                "template": {
                    "metadata": {"labels": dict(labels or {})},
                    "spec": {"nodeClassRef": ref, "requirements": list(requirements), **(template or {})},
                },
                "limits": dict(limits or {}),
                "weight": weight,
            },
        }
        if ready:
            raw["status"] = {"conditions": [ready_condition()]}
        return self.kube.put(NODEPOOL, raw)

    def pod(
        self,
        name: str,
        *,
        cpu: str = "1",
        memory: str = "1Gi",
        node: str = "",
        selector: Mapping[str, str] | None = None,
        owner: str = "ReplicaSet",
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Any:
        """A pod that waits, or runs on a node."""
        status: dict[str, Any] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        if not node:
            reason = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            status = {"phase": "Pending", "conditions": [reason]}
        return self.kube.put(
            POD,
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "labels": dict(labels or {"app": name.rsplit("-", 1)[0]}),
                    "annotations": dict(annotations or {}),
                    "ownerReferences": [
                        {
                            "apiVersion": "apps/v1",
                            "kind": owner,
                            "name": "owner",
                            "uid": "uid-owner",
                            "controller": True,
                        }
                    ],
                },
                "spec": {
                    "nodeSelector": dict(selector or {}),
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
                    "terminationGracePeriodSeconds": 5,
                    **({"nodeName": node} if node else {}),
                    **spec,
                },
                "status": status,
            },
        )

    def bind(self, pod: str, node: str) -> None:
        """What kube-scheduler and kubelet do with a pod."""
        raw = dict(self.kube.raw(POD, pod, "default"))
        raw["spec"] = {**raw["spec"], "nodeName": node}
        raw["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.kube.put(POD, raw)

    def claims(self) -> list[NodeClaim]:
        """All NodeClaims, by name."""
        return [NODECLAIM.parse(self.kube.raw(NODECLAIM, n)) for n in self.kube.names(NODECLAIM)]

    def claim(self) -> NodeClaim:
        """The only NodeClaim."""
        (claim,) = self.claims()
        return claim

    def nodes(self) -> list[Node]:
        """All Nodes, by name."""
        return [NODE.parse(self.kube.raw(NODE, n)) for n in self.kube.names(NODE)]

    def node(self) -> Node:
        """The only Node."""
        (node,) = self.nodes()
        return node

    def condition(self, claim: NodeClaim, kind: str) -> Condition:
        """A condition of a claim as it is now."""
        found = find_condition(NODECLAIM.parse(self.kube.raw(NODECLAIM, claim.meta.name)).conditions, kind)
        assert found is not None, f"{claim.meta.name} has no condition {kind}"
        return found

    def events(self, reason: str) -> list[str]:
        """Messages of the Events of a reason."""
        return [e.message for e in self.kube.events if e.reason == reason]

    def set_node_ready(self, name: str, ready: bool = True) -> None:
        """What its kubelet, or the lack of one, makes of a Node."""
        raw = dict(self.kube.raw(NODE, name))
        raw["status"] = {**raw["status"], "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]}
        self.kube.put(NODE, raw)

    # Processes

    async def kubelets(self) -> None:
        """Machines that run become Nodes, and Nodes become Ready."""
        joined: dict[str, float] = {}
        while True:
            now = self.clock.monotonic()
            for instance in self.cloud.alive():
                launched = (instance.launched - T0).total_seconds() if instance.launched else 0.0
                if self.join_after is None or now < launched + self.join_after:
                    continue
                if instance.id not in joined:
                    joined[instance.id] = now
                    if all(n.provider_id != instance.provider_id for n in self.nodes()):
                        self.join(instance.id)
                elif now >= joined[instance.id] + self.ready_after and f"node-{instance.id}" in self.kube.names(NODE):
                    if not NODE.parse(self.kube.raw(NODE, f"node-{instance.id}")).is_ready:
                        self.set_node_ready(f"node-{instance.id}")
            await asyncio.sleep(0.25)

    def join(self, instance_id: str, name: str = "") -> None:
        """A machine's kubelet registers its Node, not Ready yet."""
        instance = self.cloud.instances[instance_id]
        kind = next(t for t in self.catalog.types if t.name == instance.instance_type)
        kind = _with_memory(kind, self.node_memory.get(kind.name))
        reports = [
            {k: v for k, v in amounts.items() if k not in self.not_offered}
            for amounts in (kind.capacity, kind.allocatable)
        ]
        name = name or f"node-{instance_id}"
        self.kube.put(
            NODE,
            {
                "metadata": {
                    "name": name,
                    "labels": {
                        "kubernetes.io/hostname": name,
                        INSTANCE_TYPE: instance.instance_type,
                        ZONE: instance.zone,
                        NODEPOOL_LABEL: instance.tags.get(NODEPOOL_LABEL, ""),
                    },
                },
                "spec": {"providerID": instance.provider_id, "taints": list(self.node_taints)},
                "status": {
                    "capacity": format_resources(reports[0]),
                    "allocatable": format_resources(reports[1]),
                    "conditions": [{"type": "Ready", "status": "False"}],
                },
            },
        )

    @asynccontextmanager
    async def leading(
        self, *, act: bool = True, failpoint: Failpoint | None = None, link: Link = lambda part: part
    ) -> AsyncIterator[Replica]:
        """A replica that leads for the block; leaving it is a crash: nothing is finished, its memory is gone.

        Without `act` it only follows the mirror: the test starts its term. `failpoint` is told of every step.
        """
        mirror, metrics, stop = WatchedMirror(self.kube, (*MIRRORED, FAKE_CLASS)), Metrics(), asyncio.Event()
        kube, cloud, catalog, store = link(self.kube), link(self.cloud), link(self.catalog), link(self.store)
        state = ClusterState(mirror, words=WORDS, clock=self.clock, nomination=timedelta(seconds=20))
        options = SolveOptions(well_known=WORDS.well_known)
        planner = Planner(state=state, catalog=catalog, solver=InlineSolver(solve), options=options, clock=self.clock)
        around = Surroundings(
            kube=kube,
            cloud=cloud,
            catalog=catalog,
            state=state,
            planner=planner,
            index=store,
            heartbeats=store,
            memory=self.catalog.memory,
            placements=store,
            journal=store,
            instruments=Instruments(metrics),
            metrics=metrics,
            clock=self.clock,
            words=WORDS,
            settings=replace(Settings(cluster_name="test"), **self.settings),
            steps=Steps(failpoint),
        )
        term = Term(around)
        mirror.subscribe(term.changed)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(mirror.run(), name="mirror"),
                group.create_task(self.kubelets(), name="kubelets"),
            ]
            if act:
                tasks.append(group.create_task(term.run(stop), name="term"))
            try:
                yield Replica(term, around, state, mirror, metrics, planner, stop)
            finally:
                for task in tasks:
                    task.cancel()

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Let virtual time pass until something is so."""
        deadline = self.clock.monotonic() + seconds
        while not condition():
            assert self.clock.monotonic() < deadline, f"not so within {seconds:g} s: {inspect.getsource(condition)}"
            await asyncio.sleep(max(0.1, seconds / 500))


def ready_condition(kind: str = "Ready") -> dict[str, Any]:
    """A condition that is True at the first generation."""
    return {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-11-29T10:00:00Z",
    }


@pytest.fixture
def world() -> World:
    """An empty world."""
    return World()
