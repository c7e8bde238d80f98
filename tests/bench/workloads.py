"""The benchmark's workloads as planning snapshots: the files in `data`, and four made from them.

- `million`: plain-ondemand with a hundred times the replicas.
- `mixed`: constrained-spot with four DaemonSets, three pools with weights and limits, half of the cheapest offerings
  out of capacity, and 200 nodes that are part full.
- `thousand`: constrained-spot on a cluster of 1,000 nodes with 20 pods each.
- `day2`: plain-ondemand planned, then ten rounds in which deployments grow, shrink and roll out at random; each round's
  new pods find the nodes of the rounds before, and nodes that ran empty are gone.

All randomness is seeded: a workload is the same in every run.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sawhorse_catalog.files import parse_catalog_file
from sawhorse_console.manifests_input import Manifests, read_manifests
from sawhorse_console.plan_snapshot import build_snapshot
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.labels import CAPACITY_TYPE, HOSTNAME, NODEPOOL, ZONE
from sawhorse_model.pod import Pod
from sawhorse_model.requirements import Operator, RequirementSpec
from sawhorse_model.resources import CPU, MEMORY, add, subtract
from sawhorse_scheduling.plan import Plan, PlannedNode
from sawhorse_scheduling.snapshot import ExistingNode, PodGroup, Pool, Snapshot
from sawhorse_testing.builders import a_daemonset, bound

DATA = Path(__file__).parent / "data"
CATALOGUES = {"plain": "cmr", "constrained": "cmr", "openb": "gpu", "diverse": "diverse"}
FILES = (
    "plain-ondemand",
    "plain-spot",
    "constrained-ondemand",
    "constrained-spot",
    "openb-ondemand",
    "openb-spot",
    "diverse-5000",
    "diverse-20000",
)
MADE = ("mixed", "million", "thousand", "day2")
ROUNDS = 10  # of day2


def workload(name: str) -> Snapshot:
    """A workload that is one plan: of a file, `mixed`, `million` or `thousand`."""
    made = {"mixed": mixed, "million": million, "thousand": thousand}
    return made[name]() if name in made else snapshot_of(name)


def snapshot_of(name: str, scale: int = 1) -> Snapshot:
    """A workload file with its catalogue, replicas multiplied."""
    catalog = parse_catalog_file((DATA / f"catalog-{CATALOGUES[name.split('-')[0]]}.json").read_bytes())
    manifests: Manifests = read_manifests([DATA / f"{name}.json"])
    if scale != 1:
        manifests.workloads = [replace(w, replicas=w.replicas * scale) for w in manifests.workloads]
    return build_snapshot(manifests, catalog)[0]


def million() -> Snapshot:
    """Plain-ondemand, a hundred times."""
    return snapshot_of("plain-ondemand", scale=100)


def mixed() -> Snapshot:
    """See the module."""
    chance = random.Random(5)
    snapshot = snapshot_of("constrained-spot")
    (pool,) = snapshot.pools
    types = _half_the_cheapest_gone(pool.instance_types)
    return replace(
        snapshot,
        pools=(
            _pool(pool, types, "reserved-budget", 50, ("on-demand",), {CPU: 400_000}),
            _pool(pool, types, "spot", 10, ("spot",), {CPU: 4_000_000, MEMORY: 16 * 2**40}),
            _pool(pool, types, "fallback", 0, ("spot", "on-demand"), {}),
        ),
        nodes=tuple(_part_full(snapshot, types, chance, number) for number in range(200)),
        daemons=(
            a_daemonset("network", cpu="50m", memory="64Mi"),
            a_daemonset("logs", cpu="100m", memory="200Mi"),
            a_daemonset("metrics", cpu="20m", memory="50Mi"),
            a_daemonset("spot-handler", cpu="10m", memory="32Mi", node_selector={CAPACITY_TYPE: "spot"}),
        ),
    )


def thousand() -> Snapshot:
    """See the module."""
    chance = random.Random(7)
    snapshot = snapshot_of("constrained-spot")
    (pool,) = snapshot.pools
    types = [t for t in pool.instance_types if 6_000 <= t.allocatable[CPU] <= 16_000]
    plain = [replace(g.pod, spec=replace(g.pod.spec, spread=(), affinity=(), anti_affinity=())) for g in snapshot.pods]
    nodes = []
    for number in range(1000):
        name, kind = f"old-{number}", chance.choice(types)
        offering = chance.choice(kind.offerings)
        pods: list[Pod] = []
        left = dict(kind.allocatable)
        for missing in range(20, 0, -1):
            # No pod takes more than its even part of what is left, so that all have room.
            fitting = [
                p for p in plain if all(n * missing <= left.get(resource, 0) for resource, n in p.spec.requests.items())
            ]
            pods.append(bound(chance.choice(fitting), name))
            left = subtract(left, pods[-1].spec.requests)
        nodes.append(_node(name, kind, offering.zone, offering.capacity_type, "old", tuple(pods), offering.price))
    return replace(snapshot, nodes=tuple(nodes))


def _half_the_cheapest_gone(types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
    """Of the cheaper half of all offerings, by price per core, every other one is out of capacity."""

    def per_core(entry: tuple[InstanceType, Offering]) -> float:
        kind, offering = entry
        return offering.price / max(kind.allocatable.get(CPU, 1), 1)

    offers = sorted(((kind, offer) for kind in types for offer in kind.offerings), key=per_core)
    gone = {(kind.name, o.zone, o.capacity_type) for kind, o in offers[: len(offers) // 2 : 2]}
    return tuple(
        replace(
            kind,
            offerings=tuple(
                replace(o, available=o.available and (kind.name, o.zone, o.capacity_type) not in gone)
                for o in kind.offerings
            ),
        )
        for kind in types
    )


def _pool(
    pool: Pool,
    types: tuple[InstanceType, ...],
    name: str,
    weight: int,
    capacity_types: tuple[str, ...],
    limits: dict[str, int],
) -> Pool:
    template = pool.nodepool.template
    kept = tuple(r for r in template.requirements if r.key != CAPACITY_TYPE)
    wants = RequirementSpec(CAPACITY_TYPE, Operator.IN, capacity_types)
    nodepool = replace(
        pool.nodepool,
        meta=replace(pool.nodepool.meta, name=name),
        template=replace(template, requirements=(*kept, wants)),
        weight=weight,
        limits=limits,
    )
    return replace(pool, nodepool=nodepool, instance_types=types)


def _part_full(snapshot: Snapshot, types: tuple[InstanceType, ...], chance: random.Random, number: int) -> ExistingNode:
    """A node between a third and two thirds full of pods like those that wait, without their rules on others."""
    kind = chance.choice([t for t in types if 4_000 <= t.allocatable[CPU] <= 32_000])
    offering = chance.choice(kind.offerings)
    name = f"old-{number}"
    until = chance.uniform(0.33, 0.66)
    pods: list[Pod] = []
    for group in chance.choices(snapshot.pods, k=60):
        plain = replace(group.pod, spec=replace(group.pod.spec, spread=(), affinity=(), anti_affinity=()))
        used = add(*(pod.spec.requests for pod in (*pods, plain)))
        if any(amount > until * kind.allocatable.get(resource, 0) for resource, amount in used.items()):
            break
        pods.append(bound(plain, name))
    return _node(name, kind, offering.zone, offering.capacity_type, "fallback", tuple(pods), offering.price)


def _node(
    name: str,
    kind: InstanceType,
    zone: str,
    capacity_type: CapacityType,
    pool: str,
    pods: tuple[Pod, ...],
    price: float,
) -> ExistingNode:
    labels = {
        **kind.requirements.labels(),
        HOSTNAME: name,
        ZONE: zone,
        CAPACITY_TYPE: str(capacity_type),
        NODEPOOL: pool,
    }
    return ExistingNode(
        name=name,
        labels=labels,
        allocatable=kind.allocatable,
        pods=pods,
        nodepool=pool,
        capacity=kind.capacity,
        price_per_hour=price,
    )


class Day2:
    """A cluster whose deployments change at random, round by round."""

    def __init__(self) -> None:
        self._chance = random.Random(2)
        self._base = snapshot_of("plain-ondemand")
        self._wanted = [group.count for group in self._base.pods]
        self._types = {kind.name: kind for pool in self._base.pools for kind in pool.instance_types}
        self._running: dict[str, tuple[int, Pod]] = {}  # pod → its deployment and itself
        self._on: dict[str, list[str]] = {}  # node → its pods
        self._nodes: dict[str, ExistingNode] = {}
        self._made = 0

    def rounds(self) -> Iterator[Snapshot]:
        """The first day, then ten rounds; `apply` each plan before the next."""
        yield self._snapshot()
        for _ in range(ROUNDS):
            self._change()
            yield self._snapshot()

    def apply(self, plan: Plan) -> None:
        """Make the planned nodes and put the pods where the plan has them."""
        deployments = {name: index for index, group in enumerate(self._pending) for name in group.names}
        for planned in plan.new_nodes:
            self._make(planned)
            self._bind(f"n{self._made}", planned.pods, deployments)
        for filled in plan.existing_nodes:
            self._bind(filled.name, filled.pods, deployments)

    @property
    def price_per_hour(self) -> float:
        """Of all nodes that there are."""
        return sum(node.price_per_hour for node in self._nodes.values())

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    def _make(self, planned: PlannedNode) -> None:
        self._made += 1
        name, kind = f"n{self._made}", self._types[planned.instance_type]
        self._nodes[name] = _node(
            name, kind, planned.zone, planned.capacity_type, planned.nodepool, (), planned.price_per_hour
        )
        self._on[name] = []

    def _bind(self, node: str, pods: tuple[str, ...], deployments: dict[str, int]) -> None:
        for name in pods:
            index = deployments[name]
            self._running[name] = index, bound(self._base.pods[index].pod, node)
        self._on[node] += pods

    def _change(self) -> None:
        """A tenth of the deployments grow, a tenth shrink, a twentieth are rolled out: all their pods are new."""
        everyone = range(len(self._wanted))
        tenth = len(self._wanted) // 10
        for index in self._chance.sample(everyone, tenth):
            self._wanted[index] = int(self._wanted[index] * self._chance.uniform(1.2, 2.0)) + 1
        for index in self._chance.sample(everyone, tenth):
            self._wanted[index] = int(self._wanted[index] * self._chance.uniform(0.3, 0.8))
        rolled = set(self._chance.sample(everyone, tenth // 2))
        have = [0] * len(self._wanted)
        gone = set()
        for name in self._chance.sample(sorted(self._running), len(self._running)):
            index, _ = self._running[name]
            if index in rolled or have[index] >= self._wanted[index]:
                gone.add(name)
            else:
                have[index] += 1
        for name in gone:
            del self._running[name]
        self._on = {node: kept for node, pods in self._on.items() if (kept := [p for p in pods if p not in gone])}
        self._nodes = {node: self._nodes[node] for node in self._on}

    def _snapshot(self) -> Snapshot:
        have = [0] * len(self._wanted)
        for index, _ in self._running.values():
            have[index] += 1
        names = self._fresh_names(have)
        self._pending = tuple(PodGroup(group.pod, names[index]) for index, group in enumerate(self._base.pods))
        nodes = [
            replace(node, pods=tuple(self._running[pod][1] for pod in self._on[name]))
            for name, node in self._nodes.items()
        ]
        return replace(self._base, pods=self._pending, nodes=tuple(nodes))

    def _fresh_names(self, have: list[int]) -> list[tuple[str, ...]]:
        found = []
        for index, group in enumerate(self._base.pods):
            missing = max(self._wanted[index] - have[index], 0)
            stem = f"{group.pod.meta.key}-r{self._chance.randrange(10**9)}"
            found.append(tuple(f"{stem}-{number}" for number in range(missing)))
        return found
