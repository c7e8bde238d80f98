"""Builders: valid objects with little in them; a test says only what it is about.

Quantities are given as Kubernetes texts ("2", "500m", "4Gi"); prices per hour.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sawhorse_model.cluster import DaemonSet, PersistentVolume, PersistentVolumeClaim, StorageClass
from sawhorse_model.instances import CapacityType, InstanceType, Offering, requirement_in
from sawhorse_model.labels import ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, OS, ZONE
from sawhorse_model.meta import ObjectMeta, OwnerReference
from sawhorse_model.nodepool import NodeClassRef, NodePool, NodeTemplate
from sawhorse_model.pod import NodeSelectorTerm, Pod, PodAffinityTerm, PodSpec, PreferredTerm, TopologySpread
from sawhorse_model.requirements import Operator, Requirement, Requirements, RequirementSpec
from sawhorse_model.resources import parse_resources
from sawhorse_model.selectors import LabelSelector, SelectorExpression
from sawhorse_model.taints import Taint
from sawhorse_scheduling.snapshot import ExistingNode, PodGroup, Pool, Volumes

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
RESERVATION_ID = "karpenter.k8s.aws/capacity-reservation-id"
RESERVATION_KIND = "karpenter.k8s.aws/capacity-reservation-type"
NODE_CLASS = NodeClassRef("karpenter.k8s.aws", "EC2NodeClass", "default")


def resources(**amounts: str | int) -> dict[str, int]:
    """A resource map; underscores in names become dashes, `gpu` is nvidia.com/gpu."""
    names = {"gpu": "nvidia.com/gpu"}
    return parse_resources({names.get(k, k.replace("_", "-")): v for k, v in amounts.items()})


def a_selector(**labels: str) -> LabelSelector:
    """A selector of these labels."""
    return LabelSelector(tuple(SelectorExpression(k, "In", (v,)) for k, v in sorted(labels.items())))


def a_spec(
    cpu: str = "100m", memory: str = "128Mi", *, more: Mapping[str, int] | None = None, **fields: Any
) -> PodSpec:
    """A pod spec that asks for cpu and memory."""
    return PodSpec(requests={**resources(cpu=cpu, memory=memory, pods=1), **(more or {})}, **fields)


def a_pod(name: str = "p", *, labels: Mapping[str, str] | None = None, namespace: str = "default", **spec: Any) -> Pod:
    """A waiting pod; other arguments as in `a_spec`."""
    return Pod(ObjectMeta(name, namespace, labels=labels or {}), a_spec(**spec), unschedulable=True)


def a_group(
    name: str = "web",
    count: int = 1,
    *,
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    **spec: Any,
) -> PodGroup:
    """Equal pods `<name>-<n>`, labelled app=<name> unless told otherwise; other arguments as in `a_spec`."""
    pod = a_pod(name, labels={"app": name} if labels is None else labels, namespace=namespace, **spec)
    return PodGroup(pod, tuple(f"{namespace}/{name}-{n}" for n in range(count)))


def a_spread(key: str = ZONE, *, app: str = "web", max_skew: int = 1, **fields: Any) -> TopologySpread:
    """A hard spread constraint over pods labelled app=<app>."""
    return TopologySpread(max_skew=max_skew, topology_key=key, selector=a_selector(app=app), **fields)


def keep_apart(key: str = HOSTNAME, *, app: str = "web", weight: int = 0) -> PodAffinityTerm:
    """An anti-affinity term against pods labelled app=<app>."""
    return PodAffinityTerm(topology_key=key, selector=a_selector(app=app), weight=weight)


def keep_near(key: str = ZONE, *, app: str = "web", weight: int = 0) -> PodAffinityTerm:
    """An affinity term to pods labelled app=<app>."""
    return PodAffinityTerm(topology_key=key, selector=a_selector(app=app), weight=weight)


def an_expression(key: str, operator: str, *values: str) -> RequirementSpec:
    """One requirement as users write it."""
    return RequirementSpec(key, Operator(operator), values)


def a_term(*expressions: RequirementSpec) -> NodeSelectorTerm:
    """A node selector term of these expressions."""
    return NodeSelectorTerm(expressions)


def a_wish(weight: int, *expressions: RequirementSpec) -> PreferredTerm:
    """A preferred node affinity term."""
    return PreferredTerm(weight, NodeSelectorTerm(expressions))


def a_type(
    name: str = "m6i.large",
    cpu: str = "2",
    memory: str = "8Gi",
    *,
    price: float = 0.1,
    spot: float | None = None,
    zones: Sequence[str] = ZONES,
    arch: str = "amd64",
    labels: Mapping[str, str] | None = None,
    unavailable: Iterable[tuple[str, str]] = (),
    **more: str | int,
) -> InstanceType:
    """An instance type on demand (and on spot when a price is given) in each zone; all of its capacity is allocatable.

    `unavailable` lists (zone, capacity type) out of capacity.
    """
    gone = set(unavailable)
    prices = {CapacityType.ON_DEMAND: price} | ({CapacityType.SPOT: spot} if spot is not None else {})
    offerings = tuple(
        Offering(zone, kind, amount, available=(zone, kind.value) not in gone)
        for zone in zones
        for kind, amount in prices.items()
    )
    requirements = [
        requirement_in(INSTANCE_TYPE, (name,)),
        requirement_in(ARCH, (arch,)),
        requirement_in(OS, ("linux",)),
        requirement_in(ZONE, zones),
        requirement_in(CAPACITY_TYPE, [kind.value for kind in prices]),
        *(Requirement.of(key, Operator.IN, (value,)) for key, value in (labels or {}).items()),
    ]
    held = resources(cpu=cpu, memory=memory, **{"pods": 110, **more})
    return InstanceType(name, Requirements(requirements), offerings, held, held)


def with_reservations(kind: InstanceType, counts: Mapping[str, int], *, zone: str = ZONES[0]) -> InstanceType:
    """The type with reservations in a zone, beside what can be bought: id → free instances."""
    price = min(o.price for o in kind.offerings if o.capacity_type is CapacityType.ON_DEMAND) * 1e-7
    held = (Offering(zone, CapacityType.RESERVED, price, n > 0, "", key, n) for key, n in counts.items())
    kinds = {*kind.requirements[CAPACITY_TYPE].values, CapacityType.RESERVED.value}
    labels = [
        requirement_in(CAPACITY_TYPE, kinds),
        requirement_in(RESERVATION_ID, counts),
        requirement_in(RESERVATION_KIND, ["default"]),
    ]
    plain = kind.requirements.without(CAPACITY_TYPE, RESERVATION_ID, RESERVATION_KIND).values()
    return replace(kind, requirements=Requirements((*plain, *labels)), offerings=(*kind.offerings, *held))


def a_nodepool(
    name: str = "default",
    *,
    requirements: Sequence[RequirementSpec] = (),
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    **fields: Any,
) -> NodePool:
    """A NodePool."""
    template = NodeTemplate(NODE_CLASS, tuple(requirements), labels or {}, taints=tuple(taints))
    return NodePool(ObjectMeta(name), template, **fields)


def a_pool(
    types: Sequence[InstanceType], name: str = "default", *, usage: Mapping[str, int] | None = None, **fields: Any
) -> Pool:
    """A pool of these types; other arguments as in `a_nodepool`."""
    return Pool(a_nodepool(name, **fields), tuple(types), usage=usage or {})


def a_node(
    name: str = "node-1",
    cpu: str = "4",
    memory: str = "16Gi",
    *,
    zone: str = ZONES[0],
    labels: Mapping[str, str] | None = None,
    pool: str = "default",
    pods: Sequence[Pod] = (),
    **fields: Any,
) -> ExistingNode:
    """An initialised node."""
    known = {HOSTNAME: name, ZONE: zone, NODEPOOL: pool, ARCH: "amd64", OS: "linux", CAPACITY_TYPE: "on-demand"}
    return ExistingNode(
        name=name,
        labels={**known, **(labels or {})},
        allocatable=resources(cpu=cpu, memory=memory, pods=110),
        pods=tuple(pods),
        nodepool=pool,
        **fields,
    )


def bound(pod: Pod, node: str = "node-1") -> Pod:
    """The same pod, running on a node."""
    return replace(pod, node_name=node, phase="Running", unschedulable=False)


def a_claim(
    name: str = "data",
    *,
    volume: str = "",
    storage_class: str | None = "gp3",
    namespace: str = "default",
    **fields: Any,
) -> PersistentVolumeClaim:
    """A volume claim: bound to `volume` where one is named, else waiting under a storage class."""
    done = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    meta = ObjectMeta(name, namespace, annotations=done)
    phase = fields.pop("phase", "Bound" if volume else "Pending")
    return PersistentVolumeClaim(meta, phase, volume, storage_class, **fields)


def a_volume(
    name: str = "pv", *, zone: str = "", driver: str = "ebs.csi.aws.com", local: bool = False, **fields: Any
) -> PersistentVolume:
    """A volume, in a zone where one is named."""
    terms = (a_term(an_expression("topology.ebs.csi.aws.com/zone", "In", zone)),) if zone else ()
    return PersistentVolume(ObjectMeta(name), driver, local, fields.pop("terms", terms), **fields)


def a_storage_class(
    name: str = "gp3", *, binding_mode: str = "WaitForFirstConsumer", zones: Sequence[str] = (), **fields: Any
) -> StorageClass:
    """A storage class of EBS volumes."""
    topologies = tuple(a_term(an_expression(ZONE, "In", zone)) for zone in zones)
    return StorageClass(ObjectMeta(name), fields.pop("provisioner", "ebs.csi.aws.com"), binding_mode, topologies)


def volumes_of(*things: Any, limits: Mapping[str, Mapping[str, int]] | None = None) -> Volumes:
    """Claims, volumes and storage classes of a snapshot; `limits`: node → driver → volumes."""
    return Volumes(
        claims={t.meta.key: t for t in things if isinstance(t, PersistentVolumeClaim)},
        volumes={t.meta.name: t for t in things if isinstance(t, PersistentVolume)},
        classes={t.meta.name: t for t in things if isinstance(t, StorageClass)},
        limits=limits or {},
    )


def a_daemonset(name: str = "agent", **spec: Any) -> DaemonSet:
    """A DaemonSet; other arguments as in `a_spec`."""
    meta = ObjectMeta(name, "kube-system", uid=f"uid-{name}")
    return DaemonSet(meta, Pod(ObjectMeta(name, "kube-system"), a_spec(**spec)))


def a_daemon_pod(daemonset: DaemonSet, node: str = "node-1") -> Pod:
    """A pod of a DaemonSet on a node."""
    owner = OwnerReference("apps/v1", "DaemonSet", daemonset.meta.name, daemonset.meta.uid, controller=True)
    meta = ObjectMeta(f"{daemonset.meta.name}-x", daemonset.meta.namespace, owners=(owner,))
    return Pod(meta, daemonset.template.spec, node_name=node, phase="Running")
