"""Manifests and a catalogue to a planning snapshot: replicas expanded, nodes and claims with their pods."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, overload

from sawhorse_catalog.aws.resolve import Resolution
from sawhorse_console.manifests_input import Manifests, Workload
from sawhorse_console.plan_classes import reservations_taken, told_of_class
from sawhorse_console.plan_volumes import claims_of_pods, given_volumes, own_claims
from sawhorse_model import aws
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import NODEPOOL
from sawhorse_model.meta import find_condition
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodepool import NodePool
from sawhorse_model.pod import Pod
from sawhorse_model.requirements import Requirements
from sawhorse_model.resources import NODES, add, largest
from sawhorse_model.taints import Taint, is_ephemeral
from sawhorse_scheduling.snapshot import ExistingNode, PodGroup, Pool, Snapshot, SolveOptions

ACCELERATORS = frozenset({aws.NVIDIA_GPU, aws.AMD_GPU, aws.GAUDI, aws.NEURON, aws.NEURON_CORE})
CORDON = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How to plan, as the command's options say. The defaults are those of the offline command: no slack."""

    time_limit: float | None = None  # seconds
    slack: float = 0.0  # part of a new node's cpu and memory that is left free
    fixed_cost: float = SolveOptions().fixed_cost  # per node and hour, in planning only
    max_pods_per_node: int | None = None
    minimize_expected: bool = False
    ignore_preferences: bool = False
    min_values_strict: bool = True


class Catalog(Protocol):
    """A catalogue, from a file or built in."""

    def resolve(self, node_class: aws.EC2NodeClass | None) -> Resolution:
        """The instance types as a NodeClass sees them."""
        ...


@dataclass(frozen=True, slots=True)
class ReplicaNames(Sequence[str]):
    """Names `<prefix><n>` for n from `start`, made when asked for."""

    prefix: str
    length: int
    start: int = 0

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        numbers = range(self.start, self.start + self.length)
        if isinstance(index, slice):
            return tuple(f"{self.prefix}{n}" for n in numbers[index])
        return f"{self.prefix}{numbers[index]}"


@dataclass(slots=True)
class _Cluster:
    """Where the given pods are. `on`: node name → pods there."""

    waiting: list[Pod] = field(default_factory=list)
    on: dict[str, list[Pod]] = field(default_factory=dict)
    live: dict[tuple[str, str], int] = field(default_factory=dict)  # (kind, namespace/name) of a workload → its pods


def build_snapshot(
    manifests: Manifests, catalog: Catalog, tuning: Tuning | None = None
) -> tuple[Snapshot, tuple[str, ...]]:
    """Put a snapshot together; also what to warn about.

    Raises:
        ManifestError: an EC2NodeClass has a field that cannot be read.
    """
    tuning = tuning or Tuning()
    warnings: list[str] = []
    types = _resolve_classes(manifests, catalog, warnings)
    cluster = _place_pods(manifests, warnings)
    nodes = [*_nodes(manifests, cluster), *_in_flight(manifests, types)]
    pools = []
    for pool in manifests.nodepools:
        found = types.get(pool.meta.name)
        if found is not None:
            labels = {aws.NODECLASS_LABEL: pool.template.node_class_ref.name}
            pools.append(Pool(pool, found, _usage(pool, nodes), labels))
    volumes = given_volumes(manifests)
    claims = dict(volumes.claims)
    groups = [*_waiting_groups(cluster.waiting)]
    for pod in cluster.waiting:
        claims_of_pods((pod.meta.key,), manifests.ephemeral.get(pod.meta.key, {}), volumes, claims)
    for workload, names in _lacking(manifests, cluster):
        claims_of_pods(names, workload.ephemeral, volumes, claims)
        groups += own_claims(workload, names, volumes, claims) if workload.claims else [PodGroup(workload.pod, names)]
    snapshot = Snapshot(
        pods=tuple(groups),
        nodes=tuple(nodes),
        pools=tuple(pools),
        daemons=tuple(manifests.daemonsets),
        namespaces=tuple(manifests.namespaces),
        options=SolveOptions(
            well_known=aws.WELL_KNOWN,
            exotic=ACCELERATORS,
            exotic_labels=aws.EXOTIC_LABELS,
            hints=aws.HINTS,
            attachments=aws.ATTACHMENTS,
            reservation_labels=aws.RESERVATION_LABELS,
            ignore_preferences=tuning.ignore_preferences,
            min_values_strict=tuning.min_values_strict,
            fixed_cost=tuning.fixed_cost,
            slack=tuning.slack,
            max_pods_per_node=tuning.max_pods_per_node,
            minimize_expected=tuning.minimize_expected,
            time_limit_seconds=tuning.time_limit,
        ),
        volumes=replace(volumes, claims=claims),
        reservations_taken=reservations_taken(manifests.claims),
    )
    return snapshot, tuple(warnings)


def _resolve_classes(
    manifests: Manifests, catalog: Catalog, warnings: list[str]
) -> dict[str, tuple[InstanceType, ...]]:
    """Instance types per pool name; pools that cannot be used are left out with a warning."""
    by_class: dict[str, tuple[InstanceType, ...]] = {}
    result: dict[str, tuple[InstanceType, ...]] = {}
    for pool in manifests.nodepools:
        ref = pool.template.node_class_ref
        if (ref.group or aws.GROUP, ref.kind or aws.KIND) != (aws.GROUP, aws.KIND):
            warnings.append(f"NodePool {pool.meta.name}: {ref.group}/{ref.kind} is not supported; the pool is not used")
            continue
        if ref.name not in by_class:
            given = manifests.nodeclasses.get(ref.name)
            if given is None:
                warnings.append(f"EC2NodeClass {ref.name} is not among the files; it counts as ready, with defaults")
                by_class[ref.name] = catalog.resolve(None).instance_types
            else:
                node_class = aws.parse_ec2_node_class(given)
                resolved = catalog.resolve(node_class)
                by_class[ref.name] = resolved.instance_types
                usual = catalog.resolve(None).excluded if resolved.excluded else {}
                warnings += told_of_class(node_class, resolved, usual)
        given = manifests.nodeclasses.get(ref.name)
        ready = find_condition(given.conditions, "Ready") if given is not None else None
        if ready is not None and ready.status == "False":
            warnings.append(
                f"NodePool {pool.meta.name}: EC2NodeClass {ref.name} is not ready "
                f"({ready.message or ready.reason}); the pool is not used"
            )
            continue
        result[pool.meta.name] = by_class[ref.name]
    return result


def _place_pods(manifests: Manifests, warnings: list[str]) -> _Cluster:
    """Sort the given pods into waiting and running ones, and count them for their owners."""
    cluster = _Cluster()
    leaving = {n.meta.name for n in manifests.nodes if n.meta.is_deleting}
    leaving |= {c.node_name for c in manifests.claims if c.meta.is_deleting and c.node_name}
    names = {node.meta.name for node in manifests.nodes}
    owners = {w.meta.key: w for w in manifests.workloads if w.kind == "Deployment"}
    parents = {w.meta.key: c.name for w in manifests.workloads if w.kind == "ReplicaSet" and (c := w.meta.controller())}
    homeless, gated = 0, 0
    for pod in manifests.pods:
        if pod.is_terminal:
            continue
        if pod.is_active:
            _count_for_owner(cluster, pod, owners, parents)
        if pod.node_name and pod.node_name not in leaving:
            cluster.on.setdefault(pod.node_name, []).append(pod)
            homeless += pod.node_name not in names
        elif pod.is_daemon or pod.is_mirror or not pod.is_active:
            continue
        elif pod.gated:
            gated += 1
        else:
            cluster.waiting.append(replace(pod, node_name=""))
    if homeless:
        warnings.append(f"{homeless} pods run on nodes that are not among the files; they count for their owners only")
    if gated:
        warnings.append(f"{gated} pods are held by scheduling gates and are not planned")
    return cluster


def _count_for_owner(
    cluster: _Cluster, pod: Pod, deployments: Mapping[str, Workload], parents: Mapping[str, str]
) -> None:
    controller = pod.meta.controller()
    if controller is None:
        return
    space = f"{pod.meta.namespace}/"
    found = [(controller.kind, space + controller.name)]
    if controller.kind == "ReplicaSet":
        # The ReplicaSet may not be among the files: its name is the Deployment's with a hash.
        parent = parents.get(space + controller.name) or controller.name.rpartition("-")[0]
        if space + parent in deployments:
            found.append(("Deployment", space + parent))
    for key in found:
        cluster.live[key] = cluster.live.get(key, 0) + 1


def _waiting_groups(pods: Sequence[Pod]) -> Iterator[PodGroup]:
    for pod in pods:
        yield PodGroup(pod, (pod.meta.key,))


def _lacking(manifests: Manifests, cluster: _Cluster) -> Iterator[tuple[Workload, Sequence[str]]]:
    """The pods that workloads still lack. Names are `<workload>-<n>`, never one that is taken."""
    deployments = {w.meta.key for w in manifests.workloads if w.kind == "Deployment"}
    taken: dict[str, set[str]] = {}
    for pod in manifests.pods:
        taken.setdefault(pod.meta.key.rpartition("-")[0], set()).add(pod.meta.key)
    used: dict[str, int] = {}
    for workload in sorted(manifests.workloads, key=lambda w: (w.meta.key, w.kind)):
        key, controller = workload.meta.key, workload.meta.controller()
        if workload.kind == "ReplicaSet" and controller is not None:
            if f"{workload.meta.namespace}/{controller.name}" in deployments:
                continue  # the Deployment fills up for it
        lacking = workload.replicas - cluster.live.get((workload.kind, key), 0)
        if lacking <= 0:
            continue
        start = used.get(key, 0)
        names: Sequence[str] = ReplicaNames(f"{key}-", lacking, start)
        used[key] = start + lacking
        clashing = taken.get(key)
        if clashing:
            free = (name for name in ReplicaNames(f"{key}-", lacking + len(clashing), start) if name not in clashing)
            names = tuple(name for name, _ in zip(free, range(lacking), strict=False))
            used[key] += len(clashing)
        yield workload, names


def _nodes(manifests: Manifests, cluster: _Cluster) -> Iterator[ExistingNode]:
    claims = {c.provider_id: c for c in manifests.claims if c.provider_id}
    by_name = {c.node_name: c for c in manifests.claims if c.node_name}
    for node in manifests.nodes:
        claim = claims.get(node.provider_id) or by_name.get(node.meta.name)
        if node.meta.is_deleting or (claim is not None and claim.meta.is_deleting):
            continue
        yield _existing(node, claim, cluster.on.get(node.meta.name, []))


def _existing(node: Node, claim: NodeClaim | None, pods: Sequence[Pod]) -> ExistingNode:
    initialized = claim is None or node.is_initialized
    taints, allocatable, capacity = list(node.taints), dict(node.allocatable), dict(node.capacity)
    if node.unschedulable and not any(t.key == CORDON.key for t in taints):
        taints.append(CORDON)
    if claim is not None and not initialized:
        taints = [t for t in taints if not is_ephemeral(t) and t not in claim.startup_taints]
        # Until the kubelet has reported everything, what the claim promises fills the gaps.
        allocatable = {**claim.allocatable, **{k: v for k, v in allocatable.items() if v}}
        capacity = {**claim.capacity, **{k: v for k, v in capacity.items() if v}}
    return ExistingNode(
        name=node.meta.name,
        labels=node.meta.labels,
        allocatable=allocatable,
        taints=tuple(taints),
        pods=tuple(pods),
        initialized=initialized,
        nodepool=node.meta.labels.get(NODEPOOL, ""),
        claim=claim.meta.name if claim is not None else "",
        capacity=capacity or allocatable,
    )


def _in_flight(manifests: Manifests, types: Mapping[str, tuple[InstanceType, ...]]) -> Iterator[ExistingNode]:
    """Claims without a node: what they are, or what they may still become."""
    names = {node.meta.name for node in manifests.nodes}
    providers = {node.provider_id for node in manifests.nodes if node.provider_id}
    for claim in manifests.claims:
        if claim.meta.is_deleting or claim.node_name in names or (claim.provider_id and claim.provider_id in providers):
            continue
        wants = Requirements.from_specs(claim.requirements)
        launched = bool(claim.allocatable)
        possible = tuple(
            t for t in types.get(claim.nodepool, ()) if t.requirements.intersects(wants) and t.cheapest(wants)
        )
        least = {
            name: min(t.allocatable.get(name, 0) for t in possible) for name in largest(t.allocatable for t in possible)
        }
        yield ExistingNode(
            name=claim.meta.name,
            labels=claim.meta.labels,
            allocatable=claim.allocatable if launched else least,
            taints=claim.taints,
            initialized=False,
            nodepool=claim.nodepool,
            claim=claim.meta.name,
            capacity=claim.capacity if launched else largest(t.capacity for t in possible),
            requirements=wants,
            instance_types=() if launched else possible,
            reserved={} if launched or possible else claim.requests,
        )


def _usage(pool: NodePool, nodes: Sequence[ExistingNode]) -> dict[str, int]:
    mine = [node for node in nodes if node.nodepool == pool.meta.name]
    return {**add(*(node.capacity for node in mine)), NODES: len(mine)}
