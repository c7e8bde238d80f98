"""Volumes: which claims a pod may use, where they let it be, and how many a node takes.

Counts per driver are resources of the planner's own (`ATTACHABLE` + driver): pods ask for them, nodes that exist have
what CSINode says, new nodes an estimate per instance type. A claim is counted once per pod that uses it on new nodes,
and once per node for pods that run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from sawhorse_model.cluster import PersistentVolume, PersistentVolumeClaim, StorageClass
from sawhorse_model.instances import AttachEstimate, InstanceType
from sawhorse_model.labels import HOSTNAME, INSTANCE_TYPE, ZONE, normalize
from sawhorse_model.pod import NodeSelectorTerm, Pod, PodAffinityTerm
from sawhorse_model.requirements import Requirement, Requirements, RequirementSpec
from sawhorse_model.selectors import LabelSelector, SelectorExpression
from sawhorse_scheduling.arrays import ATTACHABLE, UNBOUNDED
from sawhorse_scheduling.plan import Reason
from sawhorse_scheduling.snapshot import ExistingNode, PodGroup, Snapshot, Volumes

BOUND = "pv.kubernetes.io/bind-completed"
WAIT = "WaitForFirstConsumer"
SHARED = "volume-claims.planner/"  # label by which pods find the others that use the same unbound claim
# Labels of the same meaning that drivers put on nodes under names of their own.
_ZONES = frozenset({"topology.ebs.csi.aws.com/zone", "topology.gke.io/zone"})
_ANYWHERE = frozenset({"efs.csi.aws.com", "nfs.csi.k8s.io", "fsx.csi.aws.com", "s3.csi.aws.com"})
_COMBINATIONS = 64

_FIXED = Requirements()


@dataclass(frozen=True, slots=True)
class Wants:
    """What a pod's volumes ask: one of `choices` of its node, and so many attachments of each driver."""

    choices: tuple[Requirements, ...] = (_FIXED,)
    drivers: tuple[tuple[str, int], ...] = ()
    shared: tuple[str, ...] = ()  # unbound claims; the first of their pods decides the zone
    refusal: Reason | None = None


def claim_keys(pod: Pod, name: str) -> list[str]:
    """The claims that a pod of this name uses, as `namespace/name`."""
    short = name.rpartition("/")[2]
    names = [*pod.spec.claims, *(f"{short}-{volume}" for volume in pod.spec.ephemeral_claims)]
    return [f"{pod.meta.namespace}/{claim}" for claim in dict.fromkeys(names)]


def uses_volumes(pod: Pod) -> bool:
    """Whether any rule of this module is about the pod."""
    return bool(pod.spec.claims or pod.spec.ephemeral_claims)


def wants_of(group: PodGroup, volumes: Volumes) -> Wants:
    """What the volumes of a group's pods ask; groups whose pods differ in that are refused."""
    if not uses_volumes(group.pod):
        return Wants()
    names = group.names if group.pod.spec.ephemeral_claims else group.names[:1]
    named = frozenset(f"{group.pod.meta.namespace}/{claim}" for claim in group.pod.spec.claims)
    try:
        found = {_wants(claim_keys(group.pod, name), volumes, named) for name in names}
    except ValueError as error:
        return Wants(refusal=Reason("", "VolumeClaimUnusable", f"where its volumes can be cannot be read: {error}"))
    refused = [w for w in found if w.refusal is not None]
    if refused:
        return min(refused, key=lambda w: w.refusal.message if w.refusal is not None else "")
    if len(found) > 1:
        return Wants(refusal=Reason("", "VolumesDiffer", "pods that are alike have volumes in different places"))
    return found.pop()


def _wants(keys: Sequence[str], volumes: Volumes, named: frozenset[str]) -> Wants:
    """`named` are the claims that other pods may use too; those of ephemeral volumes belong to one pod."""
    choices: list[tuple[Requirements, ...]] = []
    drivers: dict[str, int] = {}
    shared = []
    for key in keys:
        claim = volumes.claims.get(key)
        fault = _fault(key, claim, volumes)
        if fault is not None or claim is None:
            return Wants(refusal=fault)
        driver = _driver(claim, volumes)
        if driver:
            drivers[driver] = drivers.get(driver, 0) + 1
        if claim.volume_name:
            choices.append(_bound_places(volumes.volumes[claim.volume_name]))
        else:
            choices.append(_places(volumes.classes[claim.storage_class or ""].topologies))
            if driver not in _ANYWHERE and key in named:
                shared.append(key)
    return Wants(_combined(choices), tuple(sorted(drivers.items())), tuple(shared))


def _fault(key: str, claim: PersistentVolumeClaim | None, volumes: Volumes) -> Reason | None:
    """Why a claim keeps its pods from being planned for."""

    def refused(code: str, problem: str) -> Reason:
        return Reason("", code, f"volume claim {key} {problem}")

    if claim is None:
        return refused("VolumeClaimMissing", "does not exist")
    if claim.meta.is_deleting:
        return refused("VolumeClaimUnusable", "is being deleted")
    if claim.phase == "Lost":
        return refused("VolumeClaimUnusable", "has lost its volume")
    if claim.volume_name:
        volume = volumes.volumes.get(claim.volume_name)
        if volume is None or volume.meta.is_deleting:
            state = "does not exist" if volume is None else "is being deleted"
            return refused("VolumeClaimUnusable", f"is bound to volume {claim.volume_name}, which {state}")
        if BOUND not in claim.meta.annotations:
            return refused("VolumeClaimUnusable", f"is still being bound to volume {claim.volume_name}")
        return None
    if not claim.storage_class:
        return refused("VolumeClaimUnbound", "is not bound and names no storage class")
    kind = volumes.classes.get(claim.storage_class)
    if kind is None:
        return refused("VolumeClaimUnbound", f"names storage class {claim.storage_class}, which does not exist")
    if kind.binding_mode != WAIT:
        return refused(
            "VolumeClaimUnbound", f"is not bound yet, and its storage class {claim.storage_class} binds at once"
        )
    return None


def _driver(claim: PersistentVolumeClaim, volumes: Volumes) -> str:
    if claim.volume_name:
        volume: PersistentVolume | None = volumes.volumes.get(claim.volume_name)
        return volume.driver if volume is not None else ""
    kind: StorageClass | None = volumes.classes.get(claim.storage_class or "")
    return kind.provisioner if kind is not None else ""


def _bound_places(volume: PersistentVolume) -> tuple[Requirements, ...]:
    if not volume.local:
        return _places(volume.terms)
    # Data on a node's own disk is gone with the node: only what else the volume asks holds for a new one.
    kept = [NodeSelectorTerm(tuple(e for e in t.expressions if normalize(e.key) != HOSTNAME)) for t in volume.terms]
    return (Requirements(),) if any(not t.expressions for t in kept) else _places(kept)


def _places(terms: Sequence[NodeSelectorTerm]) -> tuple[Requirements, ...]:
    if not terms:
        return (Requirements(),)
    return tuple(Requirements(Requirement.from_spec(_spelt(e)) for e in term.expressions) for term in terms)


def _spelt(spec: RequirementSpec) -> RequirementSpec:
    return replace(spec, key=ZONE) if spec.key in _ZONES else spec


def _combined(choices: Sequence[tuple[Requirements, ...]]) -> tuple[Requirements, ...]:
    """One place for all volumes. Where none is common, all that was asked, which then fails with its own message."""
    found: dict[Requirements, None] = {}
    for _, picks in zip(range(_COMBINATIONS), product(*choices), strict=False):
        both = Requirements()
        if all(both.intersects(pick) for pick in picks) and _agree(picks):
            for pick in picks:
                both = both.intersection(pick)
            found[both] = None
    return tuple(found)


def _agree(picks: Sequence[Requirements]) -> bool:
    return all(a.intersects(b) for i, a in enumerate(picks) for b in picks[i + 1 :])


def estimated_limits(kind: InstanceType, estimates: Sequence[AttachEstimate]) -> dict[str, int]:
    """How many volumes a new node of a type takes, by driver; drivers that are not named are not limited."""
    return {estimate.driver: estimate.limit(kind) for estimate in estimates}


def with_volumes(snapshot: Snapshot) -> tuple[Snapshot, tuple[Wants, ...]]:
    """The snapshot with attachments as resources, and what each group's volumes want. Unchanged without volumes."""
    pods = [g.pod for g in snapshot.pods] + [pod for node in snapshot.nodes for pod in node.pods]
    if not any(map(uses_volumes, pods)):
        return snapshot, tuple(Wants() for _ in snapshot.pods)
    wants = tuple(wants_of(group, snapshot.volumes) for group in snapshot.pods)
    users: dict[str, int] = {}
    for group, want in zip(snapshot.pods, wants, strict=True):
        for key in want.shared:
            users[key] = users.get(key, 0) + group.count
    drivers = sorted({driver for want in wants for driver, _ in want.drivers})
    known = {kind.name: kind for pool in snapshot.pools for kind in pool.instance_types}
    estimates = snapshot.options.attachments
    return (
        replace(
            snapshot,
            pods=tuple(_asking(g, w, users) for g, w in zip(snapshot.pods, wants, strict=True)),
            nodes=tuple(_offering(node, drivers, known, snapshot) for node in snapshot.nodes),
            pools=tuple(
                replace(pool, instance_types=tuple(_holding(k, drivers, estimates) for k in pool.instance_types))
                for pool in snapshot.pools
            ),
        ),
        wants,
    )


def _asking(group: PodGroup, want: Wants, users: Mapping[str, int]) -> PodGroup:
    """The group with its attachments, and near the others that use the same claim while that has no volume yet."""
    if not want.drivers and not want.shared:
        return group
    spec, labels = group.pod.spec, dict(group.pod.meta.labels)
    near = []
    for key in want.shared:
        if users[key] > 1:
            labels[SHARED + key] = "yes"
            selector = LabelSelector((SelectorExpression(SHARED + key, "Exists", ()),))
            near.append(PodAffinityTerm(ZONE, selector))
    spec = replace(
        spec,
        requests={**spec.requests, **{ATTACHABLE + driver: n for driver, n in want.drivers}},
        affinity=(*spec.affinity, *near),
    )
    return PodGroup(replace(group.pod, spec=spec, meta=replace(group.pod.meta, labels=labels)), group.names)


def _holding(kind: InstanceType, drivers: Sequence[str], estimates: Sequence[AttachEstimate]) -> InstanceType:
    limits = estimated_limits(kind, estimates)
    return replace(
        kind, allocatable={**kind.allocatable, **{ATTACHABLE + d: limits.get(d, UNBOUNDED) for d in drivers}}
    )


def _offering(
    node: ExistingNode, drivers: Sequence[str], known: Mapping[str, InstanceType], snapshot: Snapshot
) -> ExistingNode:
    """A node with what is left of its attachments. Every driver that is in use there counts, as one may be over."""
    used = attached(node, snapshot.volumes)
    limits = limits_of(node, known, snapshot)
    more = {d: limits.get(d, UNBOUNDED) - len(used.get(d, ())) for d in {*drivers, *used}}
    return replace(node, allocatable={**node.allocatable, **{ATTACHABLE + d: left for d, left in more.items()}})


def attached(node: ExistingNode, volumes: Volumes) -> dict[str, set[str]]:
    """Per driver, the claims of a node's pods."""
    used: dict[str, set[str]] = {}
    for pod in node.pods:
        for key in claim_keys(pod, pod.meta.name) if uses_volumes(pod) else ():
            claim = volumes.claims.get(key)
            driver = _driver(claim, volumes) if claim is not None else ""
            if driver:
                used.setdefault(driver, set()).add(key)
    return used


def limits_of(node: ExistingNode, known: Mapping[str, InstanceType], snapshot: Snapshot) -> Mapping[str, int]:
    """What a node says of itself; while it has not, the estimate for what it is or may become."""
    said = snapshot.volumes.limits.get(node.name)
    if said is not None or node.initialized:
        return said or {}
    named = known.get(node.labels.get(INSTANCE_TYPE, ""))
    kinds = [named] if named is not None else list(node.instance_types)
    found: dict[str, int] = {}
    for kind in kinds:
        for driver, limit in estimated_limits(kind, snapshot.options.attachments).items():
            found[driver] = min(limit, found.get(driver, limit))
    return found
