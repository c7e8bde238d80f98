"""Volumes of a plan, pod by pod; part of the plan checker."""

from collections.abc import Iterator, Mapping, Sequence

from sawhorse_model.cluster import PersistentVolumeClaim
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import HOSTNAME, INSTANCE_TYPE, ZONE, normalize
from sawhorse_model.pod import NodeSelectorTerm, Pod
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_testing.checker_labels import Host, Labels, holds

EBS = "ebs.csi.aws.com"
_ZONE_NAMES = ("topology.ebs.csi.aws.com/zone", "topology.gke.io/zone")
_UNTIED = ("efs.csi.aws.com", "nfs.csi.k8s.io", "fsx.csi.aws.com", "s3.csi.aws.com")


def check_volumes(snapshot: Snapshot, plan: Plan, hosts: Sequence[Host]) -> Iterator[str]:
    """Claims are usable, nodes are where volumes can be, and no node has more than it takes."""
    pods = {name: group.pod for group in snapshot.pods for name in group.names}
    placed = {n.name: n.pods for n in plan.new_nodes} | {n.name: n.pods for n in plan.existing_nodes}
    zones: dict[str, set[str | None]] = {}
    for host in hosts:
        claims: set[str] = set()
        for name in placed.get(host.name, ()):
            for key in _claims(pods[name], name) if name in pods else ():
                claims.add(key)
                claim = snapshot.volumes.claims.get(key)
                if claim is None or not _is_usable(snapshot, claim):
                    yield f"{name} on {host.name}: its volume claim {key} cannot be used"
                    continue
                yield from _place(snapshot, host, name, claim)
                if not claim.volume_name and driver_of(snapshot, key) not in _UNTIED:
                    zones.setdefault(key, set()).add(host.value(ZONE))
        if claims:
            yield from _counts(snapshot, plan, host, claims)
    for key, found in zones.items():
        if len(found) > 1:
            yield f"pods that share the unbound claim {key} are in {sorted(map(str, found))}"


def _claims(pod: Pod, name: str) -> list[str]:
    own = [*pod.spec.claims, *(f"{name.split('/')[-1]}-{volume}" for volume in pod.spec.ephemeral_claims)]
    return [f"{pod.meta.namespace}/{claim}" for claim in own]


def _is_usable(snapshot: Snapshot, claim: PersistentVolumeClaim) -> bool:
    if claim.meta.is_deleting or claim.phase == "Lost":
        return False
    if claim.volume_name:
        volume = snapshot.volumes.volumes.get(claim.volume_name)
        done = "pv.kubernetes.io/bind-completed" in claim.meta.annotations
        return volume is not None and not volume.meta.is_deleting and done
    kind = snapshot.volumes.classes.get(claim.storage_class or "")
    return kind is not None and kind.binding_mode == "WaitForFirstConsumer"


def _place(snapshot: Snapshot, host: Host, name: str, claim: PersistentVolumeClaim) -> Iterator[str]:
    if claim.volume_name:
        volume = snapshot.volumes.volumes[claim.volume_name]
        terms, local = volume.terms, volume.local
    else:
        terms, local = snapshot.volumes.classes[claim.storage_class or ""].topologies, False
    for labels in host.outcomes:
        if terms and not any(_term_holds(term, labels, local) for term in terms):
            yield f"{name} on {host.name}: its volume claim {claim.meta.key} cannot be there"
            return


def _term_holds(term: NodeSelectorTerm, labels: Labels, local: bool) -> bool:
    for want in term.expressions:
        key = ZONE if want.key in _ZONE_NAMES else normalize(want.key)
        if not (local and key == HOSTNAME) and not holds(want, labels.get(key)):
            return False
    return True


def driver_of(snapshot: Snapshot, key: str) -> str:
    """The CSI driver of a claim, empty when it cannot be told."""
    claim = snapshot.volumes.claims.get(key)
    if claim is None:
        return ""
    if claim.volume_name:
        volume = snapshot.volumes.volumes.get(claim.volume_name)
        return volume.driver if volume is not None else ""
    kind = snapshot.volumes.classes.get(claim.storage_class or "")
    return kind.provisioner if kind is not None else ""


def _counts(snapshot: Snapshot, plan: Plan, host: Host, claims: set[str]) -> Iterator[str]:
    there = {key for pod in host.bound for key in _claims(pod, pod.meta.key)}
    drivers: dict[str, int] = {}
    for key in claims | there:
        driver = driver_of(snapshot, key)
        drivers[driver] = drivers.get(driver, 0) + 1
    for driver, limit in _limits(snapshot, plan, host).items():
        if drivers.get(driver, 0) > limit:
            yield f"{host.name}: {drivers[driver]} volumes of {driver}, it takes {limit}"


def _limits(snapshot: Snapshot, plan: Plan, host: Host) -> Mapping[str, int]:
    said = snapshot.volumes.limits.get(host.name)
    if said is not None:
        return said
    known = {kind.name: kind for pool in snapshot.pools for kind in pool.instance_types}
    new = next((n for n in plan.new_nodes if n.name == host.name), None)
    if new is not None:
        return {EBS: min(_most(known[name]) for name in new.instance_types)}
    node = next(n for n in snapshot.nodes if n.name == host.name)
    kinds = [known[node.labels[INSTANCE_TYPE]]] if node.labels.get(INSTANCE_TYPE) in known else node.instance_types
    return {} if node.initialized or not kinds else {EBS: min(_most(kind) for kind in kinds)}


def _most(kind: InstanceType) -> int:
    """Volumes that EBS attaches to a new machine, estimated."""
    values = {key.rpartition("/")[2]: r.values for key, r in kind.requirements.items() if not r.complement}
    if "xen" in values.get("instance-hypervisor", ()):
        return 38
    cards = max((int(v) for v in values.get("instance-gpu-count", ()) if v.isdigit()), default=0)
    return max(25 - (2 if values.get("instance-local-nvme") else 0) - cards, 1)
