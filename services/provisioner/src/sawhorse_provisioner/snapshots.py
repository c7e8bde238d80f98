"""From the cluster state to what planning reads: pods that want a place, capacity that is there or coming, pools."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from sawhorse_model.cluster import PersistentVolumeClaim
from sawhorse_model.instances import CapacityType, InstanceType
from sawhorse_model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, INTERRUPTED_AT, ZONE
from sawhorse_model.labels import NODEPOOL as NODEPOOL_LABEL
from sawhorse_model.meta import find_condition
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import LAUNCHED, NodeClaim
from sawhorse_model.nodepool import NodePool
from sawhorse_model.pod import Pod
from sawhorse_model.requirements import Requirements
from sawhorse_model.resources import NODES, add, largest
from sawhorse_model.taints import NO_SCHEDULE, Taint, is_ephemeral
from sawhorse_provisioner.alike import Alike
from sawhorse_provisioner.catalog_client import ResolvedTypes
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.daemon_pods import as_they_run
from sawhorse_provisioner.expectations import by_target
from sawhorse_provisioner.pods import group_pods, is_evictable, is_reschedulable, opts_out
from sawhorse_scheduling.reservations import promised_to
from sawhorse_scheduling.snapshot import ExistingNode, Pool, Snapshot, SolveOptions, Volumes
from sawhorse_scheduling.volumes import claim_keys, uses_volumes

log = structlog.get_logger(__name__)

# Free instances of reservations are looked up this often.
_COUNTED_EVERY = timedelta(minutes=1)
_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", NO_SCHEDULE)


@dataclass(frozen=True, slots=True)
class Frozen:
    """A snapshot with what committing its plan needs to know.

    `pods` are all pods of the snapshot by key. `expected` maps those that an earlier plan gave a place, which stands,
    to that node or claim: they count there and are not planned again. `doomed` maps those that are still bound to a
    going node to its claim (empty text: a node without one), as they were. `dying` are the interrupted claims whose
    pods are among these.
    """

    version: int
    snapshot: Snapshot
    pods: Mapping[str, Pod]
    doomed: Mapping[str, str]
    pools: Mapping[str, NodePool]
    dying: frozenset[str] = frozenset()
    expected: Mapping[str, str] = field(default_factory=dict)


def freeze(
    state: ClusterState,
    resolved: Mapping[str, ResolvedTypes],
    options: SolveOptions,
    now: datetime,
    alike: Alike | None = None,
) -> Frozen:
    """The world now. Nodes are read before pods: a race then plans too little, which the next round heals.

    Args:
        resolved: what each NodeClass, by name, makes of the catalogue; pools of other classes are left out.
        alike: kept by the caller from snapshot to snapshot.
    """
    version = state.version
    alike = alike if alike is not None else Alike()
    alike.begin()
    nodes = tuple(existing_capacity(state, resolved, alike))
    pending, doomed = wanting_pods(state, now)
    wanting = {pod.meta.key: pod for pod in (*pending, *(pod for pod, _ in doomed))}
    expected = state.expected.assign(state, wanting.values())
    coming = by_target(expected, wanting)
    nodes = tuple(replace(n, pods=(*n.pods, *more)) if (more := _coming_to(n, coming)) else n for n in nodes)
    planned = {k: pod for k, pod in wanting.items() if k not in expected and not state.expected.is_patient(pod)}
    pools = {pool.nodepool.meta.name: pool for pool in usable_pools(state, resolved)}
    snapshot = Snapshot(
        pods=group_pods(planned.values()),
        nodes=nodes,
        pools=tuple(pools.values()),
        daemons=as_they_run(state.daemon_sets(), state.pods()),
        namespaces=state.namespaces(),
        options=options,
        volumes=used_volumes(state, (*planned.values(), *(pod for node in nodes for pod in node.pods))),
        services=state.services() if options.default_spread else (),
        workloads=state.workloads() if options.default_spread else (),
        reservations_taken=reservations_taken(state, options, now),
    )
    return Frozen(
        version=version,
        snapshot=snapshot,
        pods=planned,
        doomed={pod.meta.key: claim for pod, claim in doomed},
        pools={name: pool.nodepool for name, pool in pools.items()},
        dying=frozenset(claim.meta.name for claim in state.interrupted()),
        expected=expected,
    )


def reservations_taken(state: ClusterState, options: SolveOptions, now: datetime) -> dict[str, int]:
    """Instances of reservations that claims have taken, and that the catalogue still counts as free: id → number.

    It counts once a minute. So claims that are not launched count, and those that were launched within a minute.
    """
    taken: dict[str, int] = {}
    label = next(iter(options.reservation_labels), "")
    for claim in state.claims() if label else ():
        if state.is_going(claim):
            continue
        launched = find_condition(claim.conditions, LAUNCHED)
        ids = promised_to(claim, label)
        if claim.provider_id and launched is not None and launched.last_transition is not None:
            ids = (claim.meta.labels.get(label, ""),) if now - launched.last_transition < _COUNTED_EVERY else ()
        for key in filter(None, ids):
            taken[key] = taken.get(key, 0) + 1
    return taken


def used_volumes(state: ClusterState, pods: Iterable[Pod]) -> Volumes:
    """The claims that these pods use, with what says where they can be and how many a node takes."""
    claims: dict[str, PersistentVolumeClaim] = {}
    for pod in pods:
        if uses_volumes(pod):
            for key in claim_keys(pod, pod.meta.name):
                claim = state.volume_claim(key)
                if claim is not None:
                    claims[key] = claim
    if not claims:
        return Volumes()
    volumes, classes = state.volumes(), state.storage_classes()
    return Volumes(
        claims=claims,
        volumes={c.volume_name: volumes[c.volume_name] for c in claims.values() if c.volume_name in volumes},
        classes={name: classes[name] for c in claims.values() if (name := c.storage_class or "") in classes},
        limits={name: node.limits for name, node in state.csi_nodes().items() if node.limits},
    )


def _coming_to(node: ExistingNode, coming: Mapping[str, Sequence[Pod]]) -> Sequence[Pod]:
    return (*coming.get(node.name, ()), *(coming.get(node.claim, ()) if node.claim != node.name else ()))


def wanting_pods(state: ClusterState, now: datetime) -> tuple[list[Pod], list[tuple[Pod, str]]]:
    """Pods that wait for a node, and pods of nodes that are going, each with the name of that node's claim."""
    pending = [p for p in state.pods() if p.is_provisionable and not opts_out(p)]
    doomed: list[tuple[Pod, str]] = []
    budgets = state.budgets()
    for node in state.nodes():
        if not state.is_node_going(node):
            continue
        claim = state.claim_of(node)
        if claim is None and not state.is_ours(node):
            continue
        dies = claim is not None and INTERRUPTED_AT in claim.meta.annotations
        name = claim.meta.name if claim is not None else ""
        for pod in state.pods_on(node.meta.name):
            # An interrupted machine dies whatever budgets say: every pod of it needs a place.
            if is_evictable(pod) if dies else is_reschedulable(pod, budgets, now):
                doomed.append((pod, name))
    return pending, doomed


def usable_pools(state: ClusterState, resolved: Mapping[str, ResolvedTypes]) -> Iterable[Pool]:
    """Pools that may open nodes now, with their usage."""
    for nodepool in sorted(state.pools(), key=lambda p: p.meta.name):
        name = nodepool.meta.name
        if nodepool.replicas is not None or nodepool.meta.is_deleting or not nodepool.is_ready or state.is_held(name):
            continue
        types = resolved.get(nodepool.template.node_class_ref.name)
        if types is None:
            continue
        yield Pool(nodepool, types.instance_types, pool_usage(state, name, types.instance_types), types.node_labels)


def pool_usage(state: ClusterState, pool: str, types: Sequence[InstanceType] = ()) -> dict[str, int]:
    """Capacity of a pool's living nodes and claims in flight, `nodes` included.

    A claim that is not launched counts as the largest of the types that it may become: limits hold whatever comes.
    """
    by_name = {t.name: t for t in types}
    total: dict[str, int] = {NODES: 0}
    for claim in state.claims_of_pool(pool):
        if state.is_going(claim):
            continue
        nodes = state.nodes_of(claim.provider_id)
        if claim.provider_id:
            capacity = filled(nodes[0].capacity, claim.capacity) if nodes else dict(claim.capacity)
        else:
            capacity = largest(t.capacity for t in possible_types(claim, by_name))
        total = add(total, capacity, {NODES: 1})
    return total


def possible_types(claim: NodeClaim, by_name: Mapping[str, InstanceType]) -> list[InstanceType]:
    """The types that an unlaunched claim may still become, in the order in which it names them."""
    wanted = Requirements.from_specs(claim.requirements).intersection(Requirements.from_labels(claim.meta.labels))
    named = next((s.values for s in claim.requirements if s.key == INSTANCE_TYPE and s.operator == "In"), None)
    candidates = [by_name[n] for n in named if n in by_name] if named is not None else list(by_name.values())
    return [t for t in candidates if t.requirements.intersects(wanted)]


def existing_capacity(
    state: ClusterState, resolved: Mapping[str, ResolvedTypes], alike: Alike
) -> Iterable[ExistingNode]:
    """Nodes that stay, then claims that are on their way; each group by name."""
    prices = _prices(resolved)
    for node in sorted(state.nodes(), key=lambda n: n.meta.name):
        if state.is_node_going(node):
            continue
        claim = state.claim_of(node)
        pods = alike.of(p for p in state.pods_on(node.meta.name) if not p.is_terminal)
        if claim is None:
            if not _is_unfinished(state, node):
                yield _unmanaged(node, pods)
        else:
            yield _managed(node, claim, pods, prices)
    for claim in sorted(state.claims(), key=lambda c: c.meta.name):
        if state.is_going(claim) or state.nodes_of(claim.provider_id):
            continue
        coming = _in_flight(claim, resolved, prices)
        if coming is not None:
            yield coming


def _is_unfinished(state: ClusterState, node: Node) -> bool:
    """A node that was made for us and whose claim is gone or not known: it will go or get its claim, soon."""
    return state.is_ours(node) and not node.is_registered


def _unmanaged(node: Node, pods: tuple[Pod, ...]) -> ExistingNode:
    return ExistingNode(
        name=node.meta.name,
        labels=_with_hostname(node.meta.labels, node.meta.name),
        allocatable=node.allocatable,
        taints=_effective(node),
        pods=pods,
        nodepool=node.meta.labels.get(NODEPOOL_LABEL, ""),
        capacity=node.capacity,
    )


def _managed(
    node: Node, claim: NodeClaim, pods: tuple[Pod, ...], prices: Mapping[tuple[str, str, str], float]
) -> ExistingNode:
    if node.is_registered:
        labels, taints = node.meta.labels, _effective(node)
    else:
        labels, taints = claim.meta.labels, claim.taints
    if not node.is_initialized:
        startup = {(t.key, t.effect) for t in claim.startup_taints}
        taints = tuple(t for t in taints if not is_ephemeral(t) and (t.key, t.effect) not in startup)
        allocatable, capacity = filled(node.allocatable, claim.allocatable), filled(node.capacity, claim.capacity)
    else:
        allocatable, capacity = dict(node.allocatable), dict(node.capacity)
    return ExistingNode(
        name=node.meta.name,
        labels=_with_hostname(labels, node.meta.name),
        allocatable=allocatable,
        taints=taints,
        pods=pods,
        initialized=node.is_initialized,
        nodepool=claim.nodepool,
        claim=claim.meta.name,
        capacity=capacity,
        price_per_hour=price_of(labels, prices),
    )


def _in_flight(
    claim: NodeClaim, resolved: Mapping[str, ResolvedTypes], prices: Mapping[tuple[str, str, str], float]
) -> ExistingNode | None:
    base = ExistingNode(
        name=claim.meta.name,
        labels=claim.meta.labels,
        allocatable=claim.allocatable,
        taints=claim.taints,
        initialized=False,
        nodepool=claim.nodepool,
        claim=claim.meta.name,
        capacity=claim.capacity,
        price_per_hour=price_of(claim.meta.labels, prices),
    )
    if claim.provider_id:
        return base
    known = resolved.get(claim.node_class_ref.name)
    if known is None:
        return None  # what it will be cannot be told; it counts again when its NodeClass resolves
    types = [t for t in possible_types(claim, {t.name: t for t in known.instance_types}) if _covers(t, claim.requests)]
    if not types:
        return None
    least = {
        name: min(t.allocatable.get(name, 0) for t in types)
        for name in dict.fromkeys(n for t in types for n in t.allocatable)
    }
    return replace(
        base,
        allocatable=least,
        capacity=largest(t.capacity for t in types),
        requirements=Requirements.from_specs(claim.requirements),
        instance_types=tuple(types),
    )


def _covers(kind: InstanceType, requests: Mapping[str, int]) -> bool:
    return all(value <= kind.allocatable.get(name, 0) for name, value in requests.items())


def filled(reported: Mapping[str, int], estimated: Mapping[str, int]) -> dict[str, int]:
    """What a node reports; where it reports nothing (yet), what was estimated."""
    return {**reported, **{name: value for name, value in estimated.items() if not reported.get(name)}}


def _effective(node: Node) -> tuple[Taint, ...]:
    if node.unschedulable and _UNSCHEDULABLE not in node.taints:
        return (*node.taints, _UNSCHEDULABLE)
    return node.taints


def _with_hostname(labels: Mapping[str, str], name: str) -> Mapping[str, str]:
    return labels if HOSTNAME in labels else {**labels, HOSTNAME: name}


def _prices(resolved: Mapping[str, ResolvedTypes]) -> dict[tuple[str, str, str], float]:
    known: dict[tuple[str, str, str], float] = {}
    for answer in {id(r.instance_types): r for r in resolved.values()}.values():
        for kind in answer.instance_types:
            for o in kind.offerings:
                if o.capacity_type is not CapacityType.RESERVED:
                    known[kind.name, o.zone, o.capacity_type.value] = o.price
    return known


def price_of(labels: Mapping[str, str], prices: Mapping[tuple[str, str, str], float]) -> float:
    """Price per hour of what a node's labels say it is; 0 when unknown."""
    return prices.get((labels.get(INSTANCE_TYPE, ""), labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, "")), 0.0)


def price_table(resolved: Mapping[str, ResolvedTypes]) -> dict[tuple[str, str, str], float]:
    """Price per hour by instance type, zone and capacity type."""
    return _prices(resolved)


def nomination_window(batch_max: timedelta) -> timedelta:
    """How long a node counts as expected by a pending pod."""
    return max(2 * batch_max, timedelta(seconds=10))
