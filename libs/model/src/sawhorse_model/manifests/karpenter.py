"""NodePool, NodeClaim and NodeClass from API JSON and back."""

from datetime import timedelta
from typing import Any

from sawhorse_model.manifests import fields
from sawhorse_model.manifests.fields import ManifestError, Raw
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.nodepool import Budget, Disruption, NodeClassRef, NodePool, NodeTemplate
from sawhorse_model.resources import format_resources


def _ref(raw: Raw, path: str) -> NodeClassRef:
    data = fields.mapping(raw, "nodeClassRef", path)
    where = f"{path}.nodeClassRef"
    ref = NodeClassRef(
        fields.text(data, "group", where), fields.text(data, "kind", where), fields.text(data, "name", where)
    )
    if not ref.name:
        raise ManifestError(f"{where}.name", "is missing; name the NodeClass")
    return ref


def parse_nodepool(raw: Raw) -> NodePool:
    """Read a NodePool with the API's defaults.

    Raises:
        ManifestError: naming the field.
    """
    spec = fields.mapping(raw, "spec", "")
    template = fields.mapping(spec, "template", "spec")
    metadata = fields.mapping(template, "metadata", "spec.template")
    data = fields.mapping(template, "spec", "spec.template")
    path = "spec.template.spec"
    status = fields.mapping(raw, "status", "")
    grace = fields.text(data, "terminationGracePeriod", path)
    return NodePool(
        meta=fields.meta(raw),
        template=NodeTemplate(
            node_class_ref=_ref(data, path),
            requirements=fields.requirements(data, "requirements", path),
            labels=fields.string_map(metadata, "labels", "spec.template.metadata"),
            annotations=fields.string_map(metadata, "annotations", "spec.template.metadata"),
            taints=fields.taints(data, "taints", path),
            startup_taints=fields.taints(data, "startupTaints", path),
            expire_after=fields.duration_or_never(data, "expireAfter", path, timedelta(hours=720)),
            termination_grace_period=fields.parse_duration(grace, f"{path}.terminationGracePeriod") if grace else None,
        ),
        disruption=_disruption(spec),
        limits=fields.resources(spec, "limits", "spec"),
        weight=fields.integer(spec, "weight", "spec", 0, low=0, high=100),
        replicas=fields.integer(spec, "replicas", "spec", 0, low=0) if spec.get("replicas") is not None else None,
        conditions=fields.conditions(status),
        resources=fields.resources(status, "resources", "status"),
        node_class_observed_generation=fields.integer(status, "nodeClassObservedGeneration", "status"),
    )


def _disruption(spec: Raw) -> Disruption:
    if spec.get("disruption") is None:
        return Disruption()
    data = fields.mapping(spec, "disruption", "spec")
    path = "spec.disruption"
    budgets: tuple[Budget, ...] = (Budget(),)
    if data.get("budgets") is not None:
        budgets = tuple(
            Budget(
                nodes=fields.text(b, "nodes", f"{path}.budgets[{i}]") or "10%",
                reasons=fields.texts(b, "reasons", f"{path}.budgets[{i}]") if b.get("reasons") is not None else None,
                schedule=b.get("schedule"),
                duration=b.get("duration"),
            )
            for i, b in enumerate(fields.items(data, "budgets", path))
        )
    return Disruption(
        policy=fields.text(data, "consolidationPolicy", path) or "WhenEmptyOrUnderutilized",
        consolidate_after=fields.duration_or_never(data, "consolidateAfter", path, timedelta(0)),
        budgets=budgets,
    )


def parse_nodeclaim(raw: Raw) -> NodeClaim:
    """Read a NodeClaim.

    Raises:
        ManifestError: naming the field.
    """
    spec = fields.mapping(raw, "spec", "")
    status = fields.mapping(raw, "status", "")
    grace = fields.text(spec, "terminationGracePeriod", "spec")
    return NodeClaim(
        meta=fields.meta(raw),
        node_class_ref=_ref(spec, "spec"),
        requirements=fields.requirements(spec, "requirements", "spec"),
        requests=fields.resources(fields.mapping(spec, "resources", "spec"), "requests", "spec.resources"),
        taints=fields.taints(spec, "taints", "spec"),
        startup_taints=fields.taints(spec, "startupTaints", "spec"),
        expire_after=fields.duration_or_never(spec, "expireAfter", "spec", timedelta(hours=720)),
        termination_grace_period=fields.parse_duration(grace, "spec.terminationGracePeriod") if grace else None,
        node_name=fields.text(status, "nodeName", "status"),
        provider_id=fields.text(status, "providerID", "status"),
        image_id=fields.text(status, "imageID", "status"),
        capacity=fields.resources(status, "capacity", "status"),
        allocatable=fields.resources(status, "allocatable", "status"),
        conditions=fields.conditions(status),
    )


def nodeclaim_to_raw(claim: NodeClaim) -> dict[str, Any]:
    """Write a new NodeClaim for the API: metadata and spec, no status. A name ending in `-` becomes generateName."""
    metadata: dict[str, Any] = {
        "labels": dict(claim.meta.labels),
        "annotations": dict(claim.meta.annotations),
        "finalizers": list(claim.meta.finalizers),
        "ownerReferences": [
            {
                "apiVersion": o.api_version,
                "kind": o.kind,
                "name": o.name,
                "uid": o.uid,
                "blockOwnerDeletion": o.block_owner_deletion,
            }
            for o in claim.meta.owners
        ],
    }
    metadata["generateName" if claim.meta.name.endswith("-") else "name"] = claim.meta.name
    ref = claim.node_class_ref
    spec: dict[str, Any] = {
        "requirements": [fields.requirement_to_raw(r) for r in claim.requirements],
        "nodeClassRef": {"group": ref.group, "kind": ref.kind, "name": ref.name},
        "resources": {"requests": format_resources(claim.requests)},
        "expireAfter": "Never" if claim.expire_after is None else fields.format_duration(claim.expire_after),
    }
    if claim.taints:
        spec["taints"] = [fields.taint_to_raw(t) for t in claim.taints]
    if claim.startup_taints:
        spec["startupTaints"] = [fields.taint_to_raw(t) for t in claim.startup_taints]
    if claim.termination_grace_period is not None:
        spec["terminationGracePeriod"] = fields.format_duration(claim.termination_grace_period)
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata, "spec": spec}


def parse_nodeclass(raw: Raw) -> NodeClass:
    """Read a NodeClass of any cloud: spec and status stay as they are."""
    group = fields.text(raw, "apiVersion", "").partition("/")[0]
    status = fields.mapping(raw, "status", "")
    return NodeClass(
        meta=fields.meta(raw),
        group=group,
        kind=fields.text(raw, "kind", ""),
        spec=fields.mapping(raw, "spec", ""),
        status=status,
        conditions=fields.conditions(status),
    )
