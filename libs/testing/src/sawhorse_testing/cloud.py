"""FakeCloud: the Cloud protocol in memory. It keeps the contract; a test scripts the world around it.

Scripted: offerings without capacity, errors to raise, latency, how late an instance shows up in look-ups, how many
machines a fleet gets, and how long an ending instance takes. Time is the running loop's, so virtual time works.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from sawhorse_cloud.cloud import Instance, InstanceState, Launched, LaunchResult, ResolvedNodeClass
from sawhorse_cloud.errors import (
    FailedOffering,
    InstanceNotFoundError,
    InsufficientCapacityError,
    NodeClassNotReadyError,
)
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.labels import CAPACITY_TYPE, INSTANCE_TYPE, LAUNCH_TOKEN, NODEPOOL, ZONE
from sawhorse_model.meta import Condition
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.requirements import Requirements
from sawhorse_model.resources import fits

HASH = "fake.example/nodeclass-hash"
HASH_VERSION_KEY = "fake.example/nodeclass-hash-version"
HASH_VERSION = "fake-v1"
DEPENDENTS = ("SubnetsReady", "ImagesReady")
_ORDER = (CapacityType.RESERVED, CapacityType.SPOT, CapacityType.ON_DEMAND)
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class FakeCloud:
    """See the module. Fields are the script; `calls` and `instances` are what a test looks at.

    Args:
        out_of_stock: instance type names, or (capacity type, type, zone) offerings, that never have capacity.
        latency: seconds that every call takes.
        launch_latency: seconds that a launch takes before the machines exist, and `answer_latency` after that.
        visible_after: seconds until look-ups by token and lists show a new instance.
        ending_seconds: how long an instance is shutting down.
        most_per_fleet: a fleet gets no more machines than this; None: as many as asked for.
        extra_per_fleet: machines that a fleet gives beyond what was asked.
        errors: method name → errors to raise by the next calls, in order.
        unresolved: NodeClass name → the condition that is False, e.g. ("SubnetsReady", "SubnetsNotFound", "why").
    """

    out_of_stock: set[str | tuple[str, str, str]] = field(default_factory=set)
    latency: float = 0.0
    launch_latency: float = 0.0
    answer_latency: float = 0.0
    visible_after: float = 0.0
    ending_seconds: float = 0.0
    most_per_fleet: int | None = None
    extra_per_fleet: int = 0
    epoch: datetime = _EPOCH
    errors: dict[str, list[Exception]] = field(default_factory=dict)
    unresolved: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    calls: list[tuple[str, object]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    _fleets: dict[str, LaunchResult] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)  # instance id → loop time of its launch
    _ending: dict[str, float] = field(default_factory=dict)  # instance id → loop time when it is gone

    def alive(self) -> list[Instance]:
        """Instances that cost money, in order of id."""
        self._settle()
        return [i for _, i in sorted(self.instances.items()) if not i.state.is_gone]

    def launches(self) -> list[str]:
        """Tokens of all launch calls, repeats included."""
        return [str(what) for method, what in self.calls if method == "launch"]

    def lose(self, instance_id: str) -> None:
        """The machine dies: nobody asked for it."""
        self.instances[instance_id] = replace(self.instances[instance_id], state=InstanceState.TERMINATED)

    def put(self, instance: Instance) -> None:
        """An instance that exists already, launched long ago."""
        self.instances[instance.id] = instance
        self._since[instance.id] = -1e9

    async def resolve_node_class(self, node_class: NodeClass) -> ResolvedNodeClass:
        """See Cloud."""
        await self._begin("resolve_node_class", node_class.meta.name)
        conditions = [Condition(kind, "True", kind) for kind in DEPENDENTS]
        if node_class.meta.name in self.unresolved:
            bad, reason, message = self.unresolved[node_class.meta.name]
            conditions = [Condition(bad, "False", reason, message) if c.type == bad else c for c in conditions]
            if bad not in DEPENDENTS:
                raise ValueError(f"{bad} is not a condition of the fake's NodeClass: {DEPENDENTS}")
        return ResolvedNodeClass(
            {"zones": ["a"]}, tuple(conditions), DEPENDENTS, f"hash-of-{node_class.meta.name}", HASH_VERSION
        )

    async def launch(
        self, token: str, claims: Sequence[NodeClaim], node_class: NodeClass, instance_types: Sequence[InstanceType]
    ) -> LaunchResult:
        """See Cloud."""
        await self._begin("launch", token)
        if token in self._fleets:
            return self._fleets[token]
        if not node_class.is_ready:
            raise NodeClassNotReadyError(f"NodeClass {node_class.meta.name} is not ready")
        await asyncio.sleep(self.launch_latency)
        ordered = sorted(claims, key=lambda c: c.meta.name)
        kind, offering, failed = self._pick(ordered[0], instance_types)
        count = len(ordered) if self.most_per_fleet is None else min(len(ordered), self.most_per_fleet)
        tags = {LAUNCH_TOKEN: token, NODEPOOL: ordered[0].nodepool, "nodeclass": node_class.meta.name}
        made = [self._start(kind, offering, tags) for _ in range(count + self.extra_per_fleet)]
        launched = {c.meta.name: _launched(node_class, i, kind) for c, i in zip(ordered[:count], made, strict=False)}
        result = LaunchResult(launched, failed, tuple(i.id for i in made[count:]))
        self._fleets[token] = result
        await asyncio.sleep(self.answer_latency)
        return result

    async def find_by_token(self, token: str) -> Sequence[Instance]:
        """See Cloud."""
        await self._begin("find_by_token", token)
        return [i for i in self._visible() if i.token == token and not i.state.is_gone]

    async def describe(self, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """See Cloud."""
        await self._begin("describe", tuple(instance_ids))
        self._settle()
        return {i: self.instances[i] for i in instance_ids if i in self.instances}

    async def list_instances(self) -> Sequence[Instance]:
        """See Cloud."""
        await self._begin("list_instances", None)
        return [i for i in self._visible() if i.state is not InstanceState.TERMINATED]

    async def terminate(self, instance_ids: Sequence[str]) -> None:
        """See Cloud."""
        await self._begin("terminate", tuple(instance_ids))
        for instance_id in instance_ids:
            known = self.instances.get(instance_id)
            if known is not None and not known.state.is_gone:
                self.instances[instance_id] = replace(known, state=InstanceState.SHUTTING_DOWN)
                self._ending[instance_id] = self._now() + self.ending_seconds
        self._settle()

    async def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """See Cloud."""
        await self._begin("tag", instance_id)
        known = self.instances.get(instance_id)
        if known is None:
            raise InstanceNotFoundError(f"no instance {instance_id}")
        self.instances[instance_id] = replace(known, tags={**known.tags, **tags})

    async def adopt(
        self,
        claims: Sequence[NodeClaim],
        instances: Sequence[Instance],
        node_class: NodeClass | None,
        instance_types: Sequence[InstanceType],
    ) -> Mapping[str, Launched]:
        """See Cloud."""
        await self._begin("adopt", tuple(c.meta.name for c in claims))
        by_name = {t.name: t for t in instance_types}
        return {
            c.meta.name: _launched(node_class, i, by_name.get(i.instance_type))
            for c, i in zip(claims, instances, strict=True)
        }

    async def release_node_class(self, node_class: NodeClass) -> None:
        """See Cloud."""
        await self._begin("release_node_class", node_class.meta.name)
        self.released.append(node_class.meta.name)

    async def collect_templates(self, in_use: Sequence[NodeClass]) -> int:
        """See Cloud. The fake makes no templates."""
        await self._begin("collect_templates", tuple(c.meta.name for c in in_use))
        return 0

    async def _begin(self, method: str, what: object) -> None:
        self.calls.append((method, what))
        if self.latency:
            await asyncio.sleep(self.latency)
        if waiting := self.errors.get(method):
            raise waiting.pop(0)

    def _pick(
        self, claim: NodeClaim, types: Iterable[InstanceType]
    ) -> tuple[InstanceType, Offering, tuple[FailedOffering, ...]]:
        wanted = Requirements.from_specs(claim.requirements).intersection(Requirements.from_labels(claim.meta.labels))
        usable = [
            (offering, kind)
            for kind in types
            if kind.requirements.intersects(wanted) and fits(claim.requests, kind.allocatable)
            for offering in kind.offerings
            if offering.available and offering.allowed_by(wanted)
        ]
        usable.sort(key=lambda p: (_ORDER.index(p[0].capacity_type), p[0].price, p[1].name, p[0].zone))
        # As EC2: one fleet asks for one capacity type.
        usable = [pair for pair in usable if pair[0].capacity_type is usable[0][0].capacity_type]
        failed = []
        for offering, kind in usable:
            key = (offering.capacity_type.value, kind.name, offering.zone)
            if key in self.out_of_stock or kind.name in self.out_of_stock:
                failed.append(FailedOffering(*key, "InsufficientInstanceCapacity"))
                continue
            return kind, offering, tuple(failed)
        raise InsufficientCapacityError(f"no capacity in any of {len(usable)} offerings", failed=failed)

    def _start(self, kind: InstanceType, offering: Offering, tags: Mapping[str, str]) -> Instance:
        instance_id = f"i-{len(self.instances) + 1:017x}"
        instance = Instance(
            id=instance_id,
            provider_id=f"fake:///{offering.zone}/{instance_id}",
            state=InstanceState.RUNNING,
            instance_type=kind.name,
            zone=offering.zone,
            capacity_type=offering.capacity_type.value,
            image_id="image-1",
            launched=self.epoch + timedelta(seconds=self._now()),
            tags=dict(tags),
            token=tags[LAUNCH_TOKEN],
        )
        self.instances[instance_id] = instance
        self._since[instance_id] = self._now()
        return instance

    def _visible(self) -> list[Instance]:
        self._settle()
        now = self._now()
        return [i for key, i in sorted(self.instances.items()) if now >= self._since[key] + self.visible_after]

    def _settle(self) -> None:
        now = self._now()
        for instance_id in [i for i, gone in self._ending.items() if gone <= now]:
            del self._ending[instance_id]
            self.instances[instance_id] = replace(self.instances[instance_id], state=InstanceState.TERMINATED)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _launched(node_class: NodeClass | None, instance: Instance, kind: InstanceType | None) -> Launched:
    labels = dict(kind.requirements.labels()) if kind is not None else {}
    labels |= {
        INSTANCE_TYPE: instance.instance_type,
        ZONE: instance.zone,
        CAPACITY_TYPE: instance.capacity_type,
        NODEPOOL: instance.tags.get(NODEPOOL, ""),
    }
    annotations = {}
    if node_class is not None:
        annotations = {HASH: f"hash-of-{node_class.meta.name}", HASH_VERSION_KEY: HASH_VERSION}
    return Launched(
        instance=instance,
        labels={k: v for k, v in labels.items() if v},
        capacity=dict(kind.capacity) if kind is not None else {},
        allocatable=dict(kind.allocatable) if kind is not None else {},
        annotations=annotations,
    )
