"""A small world in virtual time: a queue, Kubernetes, and replicas of the service over them, all in memory.

`World` is what tests script and look at; `Replica` is one service, wired as `main` wires it but for the connections.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sawhorse_cloud.cloud import Instance, InstanceState
from sawhorse_interruption.acks import Acks, Burials
from sawhorse_interruption.cache import Cache, NoCache
from sawhorse_interruption.consumer import Consumer, Limits
from sawhorse_interruption.draining import Draining
from sawhorse_interruption.effects import Effects
from sawhorse_interruption.handler import Describe, Handler
from sawhorse_interruption.held import Handle
from sawhorse_interruption.index import ClaimIndex, MirrorView
from sawhorse_interruption.instruments import Instruments
from sawhorse_interruption.marking import Marker, Report
from sawhorse_interruption.precedence import Precedence
from sawhorse_interruption.steps import Failpoint, Steps
from sawhorse_kube.errors import KubeUnavailableError
from sawhorse_kube.events import EventRecorder
from sawhorse_kube.kinds import NODE, NODECLAIM, POD
from sawhorse_model.labels import REPLACEMENT_READY
from sawhorse_model.manifests import format_time, parse_time
from sawhorse_runtime.metrics import Metrics
from sawhorse_testing.kube import FakeKube
from sawhorse_testing.queue import FakeQueue, QueueHandle

T0 = datetime(2026, 11, 29, 10, 15, 30, tzinfo=UTC)


class LoopClock:
    """The loop's time as a Clock: virtual under looptime."""

    def now(self) -> datetime:
        return T0 + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def envelope(
    instance_id: str = "i-1",
    *,
    time: datetime = T0,
    id: str = "e-1",
    detail_type: str = "EC2 Spot Instance Interruption Warning",
    source: str = "aws.ec2",
    **detail: Any,
) -> str:
    """A message as EventBridge sends it; a spot warning unless told otherwise."""
    return json.dumps(
        {
            "version": "0",
            "id": id,
            "detail-type": detail_type,
            "source": source,
            "account": "111122223333",
            "time": format_time(time),
            "region": "eu-west-1",
            "resources": [f"arn:aws:ec2:eu-west-1b:instance/{instance_id}"],
            "detail": detail or {"instance-id": instance_id, "instance-action": "terminate"},
        }
    )


def state_change(instance_id: str, state: str, *, id: str) -> str:
    """A state-change notification."""
    return envelope(
        id=id,
        detail_type="EC2 Instance State-change Notification",
        **{"instance-id": instance_id, "state": state},
    )


class Crash(BaseException):
    """A process that dies: not an Exception, so that no handler of errors survives it."""


def crash_at(step: str, when: str) -> Failpoint:
    """A failpoint that crashes there."""

    def failpoint(at: Any, side: Any) -> None:
        if (at, side) == (step, when):
            raise Crash

    return failpoint


class Outage:
    """Kubernetes as a replica sees it that cannot reach it, until `down` is False."""

    def __init__(self, kube: FakeKube) -> None:
        self._kube = kube
        self.down = True

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise KubeUnavailableError("no answer")
        return getattr(self._kube, name)


@dataclass
class Replica:
    """One service. `handle` may be replaced before `running`, to plant a bug."""

    queue: QueueHandle
    consumer: Consumer
    draining: Draining
    effects: Effects
    index: ClaimIndex
    instruments: Instruments
    metrics: Metrics

    def count(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@dataclass
class World:
    """Queue, Kubernetes, kubelets and replicas.

    Args:
        stopping: seconds that a pod's containers take to end, by pod name.
        instances: what the cloud says about instances that it is asked about.
    """

    clock: LoopClock = field(default_factory=LoopClock)
    queue: FakeQueue = field(default_factory=lambda: FakeQueue(origin=T0))
    stopping: dict[str, float] = field(default_factory=dict)
    instances: dict[str, InstanceState] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    evicted: dict[str, float] = field(default_factory=dict)  # pod -> loop time at which it began to end
    ended: dict[str, float] = field(default_factory=dict)
    reported: list[tuple[tuple[str, str, str], str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kube = FakeKube(now=self.clock.now)
        self._numbers = itertools.count(1)

    def node(self, name: str = "n-1", *, instance_id: str = "i-1", joined: bool = True, **annotations: str) -> None:
        """A NodeClaim `<name>` with its instance and, when it has joined, its Node."""
        provider_id = f"aws:///eu-west-1b/{instance_id}" if instance_id else ""
        labels = {
            "karpenter.sh/nodepool": "default",
            "karpenter.sh/capacity-type": "spot",
            "node.kubernetes.io/instance-type": "m7g.large",
            "topology.kubernetes.io/zone": "eu-west-1b",
        }
        status: dict[str, Any] = {"providerID": provider_id} if provider_id else {}
        if joined:
            status["nodeName"] = name
        self.kube.put(
            NODECLAIM,
            {
                "metadata": {
                    "name": name,
                    "labels": labels,
                    "annotations": annotations,
                    "finalizers": ["karpenter.sh/termination"],
                },
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [],
                },
                "status": status,
            },
        )
        if joined:
            self.kube.put(NODE, {"metadata": {"name": name, "labels": labels}, "spec": {"providerID": provider_id}})

    def pod(
        self, name: str, node: str = "n-1", *, grace: int = 30, stops_after: float = 0.0, **annotations: str
    ) -> None:
        """A running pod on a node; `stops_after` seconds after it is told to end, it has."""
        self.stopping[name] = stops_after
        self.kube.put(
            POD,
            {
                "metadata": {"name": name, "namespace": "default", "annotations": annotations},
                "spec": {"nodeName": node, "terminationGracePeriodSeconds": grace, "containers": []},
                "status": {"phase": "Running"},
            },
        )

    def claim(self, name: str = "n-1") -> Mapping[str, Any]:
        """A NodeClaim as stored."""
        return self.kube.raw(NODECLAIM, name)

    def annotations(self, name: str = "n-1") -> Mapping[str, str]:
        """The annotations of a claim."""
        return self.claim(name)["metadata"].get("annotations") or {}

    def is_cordoned(self, name: str = "n-1") -> bool:
        """Whether taint, unschedulable and label are all there."""
        raw = self.kube.raw(NODE, name)
        taints = raw["spec"].get("taints") or []
        return (
            {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"} in taints
            and raw["spec"].get("unschedulable") is True
            and "node.kubernetes.io/exclude-from-external-load-balancers" in raw["metadata"]["labels"]
        )

    def is_deleting(self, name: str = "n-1") -> bool:
        """Whether the claim's deletion was asked for."""
        return "deletionTimestamp" in self.claim(name)["metadata"]

    def is_done(self, name: str = "n-1") -> bool:
        """Whether all lasting effects of a spot warning are there."""
        wanted = {"sawhorse.dev/drain-owner", "sawhorse.dev/interrupted-at"}
        return self.is_cordoned(name) and self.is_deleting(name) and wanted <= set(self.annotations(name))

    def replacement_ready(self, name: str = "n-1") -> None:
        """What the provisioner writes once the pods' new place is there."""
        raw = dict(self.claim(name))
        raw["metadata"] = {**raw["metadata"], "annotations": {**self.annotations(name), REPLACEMENT_READY: "true"}}
        self.kube.put(NODECLAIM, raw)

    def condition(self, kind: str, name: str = "n-1") -> str:
        """Status of a claim's condition; empty when it has none."""
        conditions = self.claim(name).get("status", {}).get("conditions") or []
        return next((c["status"] for c in conditions if c["type"] == kind), "")

    def reasons(self) -> list[str]:
        """Reasons of the Events about claims, in order."""
        return [e.reason for e in self.kube.events if e.kind is NODECLAIM]

    async def kubelets(self) -> None:
        """End pods as kubelets do: when their containers have stopped, or at the end of their grace."""
        while True:
            await asyncio.sleep(0.2)
            now = self.clock.monotonic()
            for key in self.kube.names(POD):
                namespace, name = key.split("/")
                metadata = self.kube.raw(POD, name, namespace)["metadata"]
                if "deletionTimestamp" not in metadata:
                    continue
                self.evicted.setdefault(name, now)
                killed = parse_time(metadata["deletionTimestamp"], "deletionTimestamp") <= self.clock.now()
                if killed or now - self.evicted[name] >= self.stopping.get(name, 0.0):
                    self.ended[name] = now
                    self.kube.end_pod(name, namespace)

    async def describe(self, instance_id: str) -> Instance | None:
        """What the cloud says; see `instances`."""
        self.asked.append(instance_id)
        state = self.instances.get(instance_id)
        if state is None:
            return None
        return Instance(instance_id, f"aws:///eu-west-1b/{instance_id}", state, "m7g.large", "eu-west-1b", "spot")

    async def report(self, offering: tuple[str, str, str], reason: str) -> None:
        """Pricing's ear."""
        self.reported.append((offering, reason))

    def replica(
        self,
        *,
        cache: Cache | None = None,
        mirror: MirrorView | None = None,
        failpoint: Failpoint | None = None,
        limits: Limits | None = None,
        describe: Describe | None = None,
        report: Report | None = None,
        planted: Callable[[Handle, QueueHandle], Handle] = lambda handle, queue: handle,
        kube: Any = None,
    ) -> Replica:
        """A service over this world. `planted` puts a bug round its handler."""
        held = cache if cache is not None else NoCache()
        api = kube if kube is not None else self.kube
        clock, metrics, steps, precedence = self.clock, Metrics(), Steps(failpoint), Precedence()
        instruments = Instruments(metrics)
        index = ClaimIndex(api, clock, held, mirror=mirror)
        recorder = EventRecorder(api, clock)
        draining = Draining(
            api,
            index,
            held,
            recorder,
            clock,
            instruments,
            precedence,
            identity=f"replica-{next(self._numbers)}",
            mirror=mirror,
            steps=steps,
        )
        marker = Marker(clock, held, report=report if report is not None else self.report)
        effects = Effects(
            api, index, recorder, marker, held, clock, instruments, on_doomed=draining.doomed, steps=steps
        )
        handler = Handler(
            effects,
            index,
            held,
            clock,
            precedence,
            unknown_after=timedelta(seconds=60),
            margin=timedelta(seconds=10),
            describe=describe if describe is not None else self.describe,
            steps=steps,
        )
        queue = self.queue.connect()
        consumer = Consumer(
            queue,
            planted(handler, queue),
            Acks(queue, held, clock, instruments, steps=steps),
            Burials(queue, clock, instruments),
            clock,
            instruments,
            limits=limits if limits is not None else Limits(),
            steps=steps,
        )
        return Replica(queue, consumer, draining, effects, index, instruments, metrics)

    @asynccontextmanager
    async def running(self, *replicas: Replica, drain: bool = True) -> AsyncIterator[asyncio.Event]:
        """Replicas and kubelets at work while the block runs; they stop cleanly after it."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            kubelets = group.create_task(self.kubelets())
            services = [group.create_task(r.consumer.run(stop)) for r in replicas]
            services += [group.create_task(r.draining.run(stop)) for r in replicas] if drain else []
            try:
                yield stop
            finally:
                stop.set()
            if services:
                await asyncio.wait(services)
            kubelets.cancel()

    async def until_crash(self, replica: Replica, *, within: float = 60.0) -> bool:
        """Run a replica until its failpoint kills it; whether it did. The queue hears nothing of it afterwards."""
        stop = asyncio.Event()

        async def consume() -> None:
            try:
                await replica.consumer.run(stop)
            finally:
                replica.queue.sever()

        try:
            async with asyncio.timeout(within):
                await consume()
        except TimeoutError:
            return False
        except BaseExceptionGroup as group:
            if group.subgroup(Crash) is None:
                raise
            return True
        return False

    async def settle(self, condition: Callable[[], bool], *, within: float = 60.0) -> float:
        """Wait until the condition holds; the loop time at which it did.

        Raises:
            TimeoutError: it never held.
        """
        async with asyncio.timeout(within):
            while not condition():  # noqa: ASYNC110  in virtual time, over state that tells nobody of its changes
                await asyncio.sleep(0.1)
        return self.clock.monotonic()


@pytest.fixture
def world() -> World:
    """An empty world."""
    return World()


@pytest.fixture
def limits() -> Callable[..., Limits]:
    """Limits, but for what a test says."""

    def make(**overrides: Any) -> Limits:
        return replace(Limits(), **overrides)

    return make


@pytest.fixture
def warning() -> Callable[..., str]:
    """See `envelope`."""
    return envelope


@pytest.fixture
def changed() -> Callable[..., str]:
    """See `state_change`."""
    return state_change


@pytest.fixture
def crashing() -> Callable[..., Failpoint]:
    """See `crash_at`."""
    return crash_at


@pytest.fixture
def outage(world: World) -> Callable[[], Outage]:
    """See `Outage`."""
    return lambda: Outage(world.kube)
