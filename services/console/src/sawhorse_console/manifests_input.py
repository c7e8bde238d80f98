"""Kubernetes objects to a planning snapshot's parts: what is read, what is skipped, what is wrong.

Workloads keep their replicas as a count; no object is made per replica.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from sawhorse_console.manifests_files import Document, Problem, UnreadableError, read_documents
from sawhorse_console.manifests_known import unknown_fields
from sawhorse_console.manifests_lenient import read_leniently, with_odd
from sawhorse_model.aws import parse_ec2_node_class
from sawhorse_model.cluster import (
    CSINode,
    DaemonSet,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from sawhorse_model.manifests import PARSERS, ManifestError, template_pod
from sawhorse_model.manifests import fields as read
from sawhorse_model.meta import ObjectMeta, OwnerReference
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.nodepool import NodePool
from sawhorse_model.pod import Pod

MOST_REPLICAS = 2**31 - 1
MOST_PODS = 20_000_000  # of one workload: a plan names each pod, and memory has an end
MOST_OF_A_POD = 2**56  # of a resource, in its base unit; sums over a plan then stay far from 64 bits

# Kinds that are read, with the API group they must be of.
GROUPS = {
    "Pod": "",
    "Deployment": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    "ReplicaSet": "apps",
    "ReplicationController": "",
    "Job": "batch",
    "Node": "",
    "NodeClaim": "karpenter.sh",
    "NodePool": "karpenter.sh",
    "EC2NodeClass": "karpenter.k8s.aws",
    "PersistentVolumeClaim": "",
    "PersistentVolume": "",
    "StorageClass": "storage.k8s.io",
    "CSINode": "storage.k8s.io",
    "PodDisruptionBudget": "policy",
    "Namespace": "",
    "PriorityClass": "scheduling.k8s.io",
}
_VERSIONED = frozenset({"NodeClaim", "NodePool", "EC2NodeClass"})  # of these only v1 is understood
_TEMPLATED = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job"})


@dataclass(frozen=True, slots=True)
class Workload:
    """Something that keeps `replicas` pods like `pod`."""

    kind: str
    meta: ObjectMeta
    replicas: int
    pod: Pod
    claims: Mapping[str, str | None] = field(default_factory=dict)  # volumeClaimTemplates: name → storage class
    ephemeral: Mapping[str, str | None] = field(
        default_factory=dict
    )  # volumes made with each pod: name → storage class


@dataclass(slots=True)
class Manifests:
    """What was read. `notable` is what was passed over and --strict refuses; `doubtful` what can never hold.

    `ephemeral`: `namespace/name` of a pod → its volumes that are made with it → storage class.
    """

    pods: list[Pod] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)
    daemonsets: list[DaemonSet] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    claims: list[NodeClaim] = field(default_factory=list)
    nodepools: list[NodePool] = field(default_factory=list)
    nodeclasses: dict[str, NodeClass] = field(default_factory=dict)
    namespaces: list[Namespace] = field(default_factory=list)
    volume_claims: list[PersistentVolumeClaim] = field(default_factory=list)
    volumes: list[PersistentVolume] = field(default_factory=list)
    storage_classes: list[StorageClass] = field(default_factory=list)
    csi_nodes: list[CSINode] = field(default_factory=list)
    ephemeral: dict[str, Mapping[str, str | None]] = field(default_factory=dict)
    notable: list[Problem] = field(default_factory=list)
    doubtful: list[Problem] = field(default_factory=list)


def read_manifests(paths: Sequence[Path], *, strict: bool = False) -> Manifests:
    """Read manifest files and folders.

    Raises:
        UnreadableError: something cannot be read or makes no sense; all problems at once. With `strict` also for
            kinds that are skipped and fields that are not known.
    """
    problems: list[Problem] = []
    result = Manifests()
    skipped: dict[str, Document] = {}
    seen: dict[tuple[str, str], str] = {}
    for document in read_documents(paths, problems):
        reason = _skip(document)
        if reason:
            skipped.setdefault(reason, document)
            continue
        try:
            _add(result, document, seen, problems)
        except ManifestError as error:
            problems.append(Problem(document.file, document.label, error.field, error.problem))
        else:
            result.notable += [
                Problem(document.file, document.label, path, "is no field of this kind; it is ignored")
                for path in unknown_fields(document.kind, document.raw)
            ]
    result.notable += [Problem(d.file, d.label, "", reason) for reason, d in skipped.items()]
    if strict:
        problems += result.notable
    if problems:
        raise UnreadableError(problems)
    return result


def _skip(document: Document) -> str:
    """Why an object is passed over; empty when it is read."""
    group, _, version = document.api_version.rpartition("/")
    if document.kind == "ComputeClass":
        return "ComputeClass is not planned for yet; such objects are skipped"
    if document.kind not in GROUPS:
        return f"kind {document.kind} does not matter to planning; such objects are skipped"
    if document.api_version and group != GROUPS[document.kind]:
        return f"kind {document.kind} of {document.api_version} is not one that is planned with; skipped"
    if document.kind in _VERSIONED and document.api_version and version != "v1":
        return f"{document.api_version} {document.kind} is not read; convert it to {group}/v1"
    return ""


def _add(result: Manifests, document: Document, seen: dict[tuple[str, str], str], problems: list[Problem]) -> None:
    kind, raw = document.kind, document.raw
    parse = partial(_workload, kind) if kind in _TEMPLATED else PARSERS[kind]
    if kind == "NodePool":
        _check_keys(raw)
    parsed, odd = read_leniently(raw, parse)
    if odd:
        parsed = with_odd(parsed, odd)
        if parsed is None:
            raise ManifestError(odd[0].field, odd[0].problem)
        pool = kind == "NodePool"
        result.doubtful += [Problem(document.file, document.label, o.field, o.told(pool=pool)) for o in odd]
    _check_amounts(kind, parsed)
    if kind == "EC2NodeClass":
        parse_ec2_node_class(parsed)  # refuses what it cannot read
    meta: ObjectMeta = parsed.meta
    if not meta.name:
        generated = read.text(read.mapping(raw, "metadata", ""), "generateName", "metadata")
        if kind != "Pod" or not generated:
            raise ManifestError("metadata.name", "is missing; name the object")
        meta = replace(meta, name=f"{generated}{len(result.pods)}")
        parsed = replace(parsed, meta=meta)
    key = (kind, meta.key)
    if key in seen:
        text = f"is given twice (also in {seen[key]}); keep one"
        problems.append(Problem(document.file, document.label, "metadata.name", text))
        return
    seen[key] = document.file
    _KEEP.get(kind, _drop)(result, parsed)
    if kind == "Pod" and parsed.spec.ephemeral_claims:
        result.ephemeral[meta.key] = _ephemeral(read.mapping(raw, "spec", ""), "spec")


def _check_amounts(kind: str, parsed: Any) -> None:
    """Each figure may be one that exists, and still together they are more than planning can hold."""
    if isinstance(parsed, Workload) and parsed.replicas > MOST_PODS:
        field = "spec.parallelism" if kind == "Job" else "spec.replicas"
        raise ManifestError(field, f"{parsed.replicas} pods are more than one plan can name, which is {MOST_PODS}")
    pod = parsed if kind == "Pod" else getattr(parsed, "pod", None) or getattr(parsed, "template", None)
    if not isinstance(pod, Pod):
        return
    path = "spec" if kind == "Pod" else "spec.template.spec"
    for name, amount in pod.spec.requests.items():
        if amount > MOST_OF_A_POD:
            raise ManifestError(
                f"{path}.containers", f"ask together for {amount} of {name}, more than any node can have"
            )


def _check_keys(raw: Any) -> None:
    """A requirement without a key says nothing, and would be obeyed by saying nothing."""
    spec = read.mapping(read.mapping(read.mapping(raw, "spec", ""), "template", "spec"), "spec", "spec.template")
    for index, requirement in enumerate(read.items(spec, "requirements", "spec.template.spec")):
        path = f"spec.template.spec.requirements[{index}]"
        if not read.text(requirement, "key", path):
            raise ManifestError(f"{path}.key", "is missing; name the label")


def _drop(result: Manifests, parsed: Any) -> None:
    """Kinds that are checked for being readable and not needed further."""


def _keep_class(result: Manifests, parsed: NodeClass) -> None:
    result.nodeclasses[parsed.meta.name] = parsed


_KEEP: dict[str, Callable[[Manifests, Any], None]] = {
    "Pod": lambda result, parsed: result.pods.append(parsed),
    "DaemonSet": lambda result, parsed: result.daemonsets.append(parsed),
    "Node": lambda result, parsed: result.nodes.append(parsed),
    "NodeClaim": lambda result, parsed: result.claims.append(parsed),
    "NodePool": lambda result, parsed: result.nodepools.append(parsed),
    "Namespace": lambda result, parsed: result.namespaces.append(parsed),
    "PersistentVolumeClaim": lambda result, parsed: result.volume_claims.append(parsed),
    "PersistentVolume": lambda result, parsed: result.volumes.append(parsed),
    "StorageClass": lambda result, parsed: result.storage_classes.append(parsed),
    "CSINode": lambda result, parsed: result.csi_nodes.append(parsed),
    "EC2NodeClass": _keep_class,
    **dict.fromkeys(_TEMPLATED, lambda result, parsed: result.workloads.append(parsed)),
}


def _workload(kind: str, raw: Any) -> Workload:
    meta = read.meta(raw, default_namespace="default")
    spec = read.mapping(raw, "spec", "")
    if not spec.get("template"):
        raise ManifestError("spec.template", "is missing; a workload needs a pod template")
    pod = template_pod(spec, "spec", name=meta.name, namespace=meta.namespace)
    if kind == "Job":
        replicas = _running(raw, spec)
        owner_version = "batch/v1"
    else:
        replicas = read.integer(spec, "replicas", "spec", 1, low=0, high=MOST_REPLICAS)
        owner_version = "v1" if kind == "ReplicationController" else "apps/v1"
    claims = {}
    for index, item in enumerate(read.items(spec, "volumeClaimTemplates", "spec")):
        path = f"spec.volumeClaimTemplates[{index}]"
        name = read.text(read.mapping(item, "metadata", path), "name", f"{path}.metadata")
        claims[name] = _class_of(read.mapping(item, "spec", path), f"{path}.spec")
    owner = OwnerReference(owner_version, kind, meta.name, meta.uid, controller=True)
    pod = replace(pod, meta=replace(pod.meta, owners=(owner,)))
    template = read.mapping(read.mapping(spec, "template", "spec"), "spec", "spec.template")
    return Workload(kind, meta, replicas, pod, claims, _ephemeral(template, "spec.template.spec"))


def _ephemeral(spec: Any, path: str) -> dict[str, str | None]:
    """Generic ephemeral volumes of a pod: name → storage class."""
    found = {}
    for index, volume in enumerate(read.items(spec, "volumes", path)):
        where = f"{path}.volumes[{index}]"
        if volume.get("ephemeral") is not None:
            made = read.mapping(read.mapping(volume, "ephemeral", where), "volumeClaimTemplate", f"{where}.ephemeral")
            inner = f"{where}.ephemeral.volumeClaimTemplate"
            found[read.text(volume, "name", where)] = _class_of(read.mapping(made, "spec", inner), f"{inner}.spec")
    return found


def _class_of(claim: Any, path: str) -> str | None:
    """The storage class of a claim; None where the cluster's default is asked for."""
    return read.text(claim, "storageClassName", path) if claim.get("storageClassName") is not None else None


def _running(raw: Any, spec: Any) -> int:
    """How many pods of a Job run at a time from now on."""
    if spec.get("suspend"):
        return 0
    parallel = read.integer(spec, "parallelism", "spec", 1, low=0, high=MOST_REPLICAS)
    if spec.get("completions") is None:
        return parallel
    wanted = read.integer(spec, "completions", "spec", 1, low=0, high=MOST_REPLICAS)
    done = read.integer(read.mapping(raw, "status", ""), "succeeded", "status", 0, low=0)
    return min(parallel, max(wanted - done, 0))
