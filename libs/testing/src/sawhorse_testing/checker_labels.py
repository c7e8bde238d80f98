"""What labels, taints, ports and selectors mean, spelled out for the plan checker; the planner shares none of it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from sawhorse_model.instances import InstanceType, Offering
from sawhorse_model.labels import CAPACITY_TYPE, HOSTNAME, NODEPOOL, ZONE, normalize
from sawhorse_model.pod import HostPort, Pod, PodSpec
from sawhorse_model.requirements import Operator, Requirement, Requirements, RequirementSpec
from sawhorse_model.selectors import LabelSelector, SelectorExpression
from sawhorse_model.taints import Taint, Toleration
from sawhorse_scheduling.plan import PlannedNode
from sawhorse_scheduling.snapshot import ExistingNode, Pool, Snapshot

Labels = Mapping[str, str]
Ways = list[tuple[InstanceType, Labels]]
"""Ways to make a node: types, with the labels that it gets."""


@dataclass(slots=True)
class Host:
    """A node of the final state. `outcomes` are the label sets that it may end up with."""

    name: str
    outcomes: tuple[Labels, ...]
    taints: tuple[Taint, ...]
    bound: tuple[Pod, ...] = ()
    placed: list[Pod] = field(default_factory=list)

    def value(self, key: str) -> str | None:
        """A label's value when it is certain, HOSTNAME included."""
        if key == HOSTNAME:
            return self.name
        values = {outcome.get(key) for outcome in self.outcomes}
        return values.pop() if len(values) == 1 else None


def keys_read(snapshot: Snapshot) -> set[str]:
    """Labels that any rule in the snapshot reads: others cannot matter."""
    keys = {ZONE, CAPACITY_TYPE}
    keys |= {normalize(rule.topology_key) for rule in snapshot.options.default_spread}
    pods = [g.pod for g in snapshot.pods] + [p for n in snapshot.nodes for p in n.pods]
    for pod in pods:
        keys |= {normalize(k) for k in pod.spec.node_selector}
        terms = (*pod.spec.required_terms, *(wish.term for wish in pod.spec.preferred_terms))
        keys |= {normalize(e.key) for t in terms for e in t.expressions}
        keys |= {normalize(s.topology_key) for s in pod.spec.spread}
        keys |= {normalize(t.topology_key) for t in (*pod.spec.affinity, *pod.spec.anti_affinity)}
    keys |= {normalize(r.key) for p in snapshot.pools for r in p.nodepool.template.requirements if r.min_values}
    places = [t for v in snapshot.volumes.volumes.values() for t in v.terms]
    places += [t for c in snapshot.volumes.classes.values() for t in c.topologies]
    return keys | {normalize(e.key) for t in places for e in t.expressions}


def single_valued_keys(spec: PodSpec) -> frozenset[str]:
    """Labels other than the host's of which a node for this pod must have one certain value from the start."""
    keys = {normalize(s.topology_key) for s in spec.spread if s.when_unsatisfiable == "DoNotSchedule"}
    keys |= {normalize(t.topology_key) for t in (*spec.affinity, *spec.anti_affinity) if not t.weight}
    return frozenset(keys - {HOSTNAME})


def wants_several(pool: Pool, keys: Collection[str]) -> bool:
    """Whether a pool's minValues ask for more values of one of these labels than one node has."""
    return any((r.min_values or 0) > 1 and normalize(r.key) in keys for r in pool.nodepool.template.requirements)


def enough_values(snapshot: Snapshot, pool: Pool, ways: Ways) -> bool:
    """Whether ways to make a node satisfy the pool's minValues, where those are strict."""
    return not snapshot.options.min_values_strict or all(
        len({labels.get(normalize(spec.key)) for _, labels in ways}) >= (spec.min_values or 0)
        for spec in pool.nodepool.template.requirements
    )


def as_scheduled(pod: Pod, snapshot: Snapshot) -> Pod:
    """The pod with the cluster's default spread, where it has none and some Service or owner selects it."""
    if pod.spec.spread or not snapshot.options.default_spread:
        return pod
    wanted: dict[str, str] = {}
    for service in sorted(snapshot.services, key=lambda s: s.meta.key):
        own = service.selector if service.meta.namespace == pod.meta.namespace else None
        if own is not None and own.items() <= pod.meta.labels.items():
            wanted |= own
    expressions = [SelectorExpression(key, "In", (value,)) for key, value in sorted(wanted.items())]
    for workload in snapshot.workloads:
        owner = pod.meta.controller()
        if owner is None or workload.selector is None or workload.meta.namespace != pod.meta.namespace:
            continue
        if (owner.kind, owner.name) == (workload.kind, workload.meta.name):
            theirs = workload.selector.expressions
            if workload.kind == "ReplicationController":
                keys = {e.key for e in theirs}
                expressions = [e for e in expressions if e.key not in keys]
            expressions += theirs
    if not expressions:
        return pod
    selector = LabelSelector(tuple(expressions))
    spread = tuple(replace(rule, selector=selector) for rule in snapshot.options.default_spread)
    return replace(pod, spec=replace(pod.spec, spread=spread))


def is_one(requirement: Requirement) -> bool:
    """Whether exactly one value is allowed."""
    return not requirement.complement and len(requirement.values) == 1


def open_labels(requirements: Requirements, keys: Collection[str]) -> list[Labels]:
    """What labels of the users' own may become: a claim is given one value of each, which one is left open."""
    values = {}
    for key in sorted(set(keys) & requirements.keys()):
        wanted = requirements[key]
        numbers = [wanted.low, wanted.high, *range(len(wanted.values) + 1)]
        made_up = [str(n) for n in numbers if n is not None and wanted.has(str(n))][:1]
        values[key] = made_up if wanted.complement else sorted(wanted.values)
    return (
        [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
        if all(values.values())
        else [{}]
    )


def offered(offer: Offering, node: PlannedNode) -> bool:
    """Whether a planned node may get this offering. One in a reservation gets an instance of that one, or none."""
    zone, kind = node.requirements.get(ZONE), node.requirements.get(CAPACITY_TYPE)
    return (
        offer.available
        and (offer.reservation_id if offer.capacity_type == "reserved" else "") == node.reservation_id
        and (zone is None or zone.has(offer.zone))
        and (kind is None or kind.has(offer.capacity_type.value))
    )


def bought_as(offer: Offering, labels: Labels, snapshot: Snapshot) -> dict[str, str]:
    """A type's labels as a node has them that is bought this way."""
    names = snapshot.options.reservation_labels
    kept = dict(labels) if offer.capacity_type == "reserved" else {k: v for k, v in labels.items() if k not in names}
    if offer.capacity_type == "reserved":
        kept |= dict.fromkeys(names[:1], offer.reservation_id)
    return {**kept, ZONE: offer.zone, CAPACITY_TYPE: offer.capacity_type.value}


def existing_outcomes(node: ExistingNode) -> tuple[Labels, ...]:
    """The label sets that a node, or a claim in flight, may turn out to have."""
    if not node.instance_types:
        asked = {k: next(iter(r.values)) for k, r in node.requirements.items() if is_one(r)}
        return ({**asked, **node.labels},)
    asked = {k: next(iter(r.values)) for k, r in node.requirements.items() if is_one(r)}
    found = []
    for kind in node.instance_types:
        for offer in kind.offerings:
            labels = {**type_labels(kind), **asked}
            labels |= {ZONE: offer.zone, CAPACITY_TYPE: offer.capacity_type.value}
            labels |= node.labels
            if offer.available and all(r.has(labels[k]) for k, r in node.requirements.items() if k in labels):
                found.append(labels)
    return tuple(found) or (dict(node.labels),)


def type_labels(kind: InstanceType) -> dict[str, str]:
    """The labels that an instance type is certain to bring."""
    return {k: next(iter(r.values)) for k, r in kind.requirements.items() if is_one(r)}


def pool_labels(pool: Pool) -> dict[str, str]:
    """The labels that every node of a pool carries."""
    template = pool.nodepool.template
    single = {normalize(r.key): r.values[0] for r in template.requirements if r.operator == "In" and len(r.values) == 1}
    return {**single, **pool.class_labels, **template.labels, NODEPOOL: pool.nodepool.meta.name}


def choices(spec: PodSpec) -> list[list[RequirementSpec]]:
    """What a pod requires: any one of these lists of expressions."""
    own = [RequirementSpec(k, Operator.IN, (v,)) for k, v in spec.node_selector.items()]
    if not spec.required_terms:
        return [own]
    return [own + list(term.expressions) for term in spec.required_terms if term.expressions]


def serves(spec: PodSpec, labels: Labels) -> bool:
    """Whether labels satisfy a pod's node selector and required node affinity."""
    return any(all(holds(e, labels.get(normalize(e.key))) for e in choice) for choice in choices(spec))


def holds(want: RequirementSpec, value: str | None) -> bool:
    """What one operator says about a label's value; None: the label is not there."""
    match str(want.operator):
        case "In":
            return value is not None and value in want.values
        case "NotIn":
            return value is None or value not in want.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            if value is None or not value.lstrip("-").isdigit():
                return False
            number, bound = int(value), int(want.values[0])
            return {"Gt": number > bound, "Gte": number >= bound, "Lt": number < bound, "Lte": number <= bound}[
                operator
            ]


def kept_off(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first NoSchedule or NoExecute taint that is not tolerated."""
    for taint in taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(t.tolerates(taint) for t in tolerations):
            return taint
    return None


def daemon_tolerations() -> tuple[Toleration, ...]:
    """What the DaemonSet controller adds to its pods."""
    words = ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    return tuple(Toleration(f"node.kubernetes.io/{w}", "Exists") for w in (*words, "network-unavailable"))


def total_requests(specs: Sequence[PodSpec]) -> dict[str, int]:
    """The sum of effective requests."""
    total: dict[str, int] = {}
    for spec in specs:
        for name, amount in spec.requests.items():
            total[name] = total.get(name, 0) + amount
    return total


def ports_clash(mine: Sequence[HostPort], theirs: Sequence[HostPort]) -> bool:
    """Whether two lists of host ports cannot be on one node."""
    anywhere = ("", "0.0.0.0", "::")
    return any(
        a.port == b.port and a.protocol == b.protocol and (a.ip == b.ip or a.ip in anywhere or b.ip in anywhere)
        for a in mine
        for b in theirs
    )


def own_selector(selector: LabelSelector | None, keys: Sequence[str], pod: Pod) -> LabelSelector | None:
    """A spread rule's selector with the pod's values of matchLabelKeys."""
    own = {k: pod.meta.labels[k] for k in keys if k in pod.meta.labels}
    return None if selector is None else selector.with_labels(own)


def selects(selector: LabelSelector | None, namespaces: tuple[str, ...] | None, pod: Pod) -> bool:
    """Whether a selector in these namespaces (None: all) means a pod."""
    if selector is None or (namespaces is not None and pod.meta.namespace not in namespaces):
        return False
    return selector.matches(pod.meta.labels)


def within_limits(pool: Pool, kind: InstanceType) -> bool:
    """Whether one more node of a type keeps the pool's limits."""
    return all(
        pool.usage.get(name, 0) + (1 if name == "nodes" else kind.capacity.get(name, 0)) <= limit
        for name, limit in pool.nodepool.limits.items()
    )
