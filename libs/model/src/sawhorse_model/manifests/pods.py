"""Pods from API JSON, with their effective requests."""

from collections.abc import Mapping, Sequence
from typing import Any

from sawhorse_model.manifests import fields
from sawhorse_model.manifests.fields import Raw
from sawhorse_model.pod import (
    HostPort,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    PreferredTerm,
    TopologySpread,
)
from sawhorse_model.resources import PODS, add, largest


def parse_pod(raw: Raw) -> Pod:
    """Read a Pod.

    Raises:
        ManifestError: naming the field.
    """
    meta = fields.meta(raw, default_namespace="default")
    data = fields.mapping(raw, "spec", "")
    status = fields.mapping(raw, "status", "")
    scheduled = next((c for c in fields.items(status, "conditions", "status") if c.get("type") == "PodScheduled"), {})
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    nominated = fields.text(status, "nominatedNodeName", "status")
    return Pod(
        meta=meta,
        spec=parse_pod_spec(data, "spec", statuses=fields.items(status, "containerStatuses", "status")),
        node_name=fields.text(data, "nodeName", "spec"),
        phase=fields.text(status, "phase", "status") or "Pending",
        ready=ready,
        unschedulable=scheduled.get("reason") == "Unschedulable",
        gated=bool(data.get("schedulingGates")),
        nominated_node=nominated,
        nominated_by=_nominator(raw) if nominated else "",
        started=fields.timestamp(status, "startTime", "status"),
    )


def parse_pod_spec(data: Raw, path: str, *, statuses: Sequence[Raw] = ()) -> PodSpec:
    """Read the part of a pod spec that placement depends on. `statuses` are for in-place resize."""
    affinity = fields.mapping(data, "affinity", path)
    node = fields.mapping(affinity, "nodeAffinity", f"{path}.affinity")
    where = f"{path}.affinity.nodeAffinity"
    required = fields.mapping(node, "requiredDuringSchedulingIgnoredDuringExecution", where)
    required_at = f"{where}.requiredDuringSchedulingIgnoredDuringExecution"
    preferred_at = f"{where}.preferredDuringSchedulingIgnoredDuringExecution"
    claims, ephemeral = _volumes(data, path)
    return PodSpec(
        requests={**effective_requests(data, path, statuses=statuses), PODS: 1},
        node_selector=fields.string_map(data, "nodeSelector", path),
        required_terms=tuple(
            selector_term(t, f"{required_at}.nodeSelectorTerms[{i}]")
            for i, t in enumerate(fields.items(required, "nodeSelectorTerms", required_at))
        ),
        preferred_terms=tuple(
            PreferredTerm(
                fields.integer(t, "weight", f"{preferred_at}[{i}]", 1),
                selector_term(
                    fields.mapping(t, "preference", f"{preferred_at}[{i}]"), f"{preferred_at}[{i}].preference"
                ),
            )
            for i, t in enumerate(fields.items(node, "preferredDuringSchedulingIgnoredDuringExecution", where))
        ),
        tolerations=fields.tolerations(data, path),
        spread=tuple(
            _spread(s, f"{path}.topologySpreadConstraints[{i}]")
            for i, s in enumerate(fields.items(data, "topologySpreadConstraints", path))
        ),
        affinity=_pod_terms(fields.mapping(affinity, "podAffinity", path), f"{path}.affinity.podAffinity"),
        anti_affinity=_pod_terms(
            fields.mapping(affinity, "podAntiAffinity", path),
            f"{path}.affinity.podAntiAffinity",
        ),
        host_ports=_host_ports(data, path),
        claims=claims,
        ephemeral_claims=ephemeral,
        resource_claims=bool(data.get("resourceClaims")),
        priority=fields.integer(data, "priority", path),
        priority_class=fields.text(data, "priorityClassName", path),
        scheduler=fields.text(data, "schedulerName", path) or "default-scheduler",
        grace_seconds=fields.integer(data, "terminationGracePeriodSeconds", path, 30),
        runtime_class=fields.text(data, "runtimeClassName", path),
    )


def effective_requests(data: Raw, path: str, *, statuses: Sequence[Raw] = ()) -> dict[str, int]:
    """What the pod takes from its node, without the pod itself.

    The larger of the running sum (containers and sidecars) and of each start phase (an init container beside the
    sidecars before it), plus overhead. Pod-level cpu and memory replace the sum. During a resize the larger of
    asked and allocated counts.
    """
    allocated = {str(s.get("name")): s for s in statuses}
    running: dict[str, int] = {}
    for index, container in enumerate(fields.items(data, "containers", path)):
        running = add(running, _container(container, f"{path}.containers[{index}]", allocated))
    sidecars: dict[str, int] = {}
    phases: list[Mapping[str, int]] = []
    for index, container in enumerate(fields.items(data, "initContainers", path)):
        asked = _container(container, f"{path}.initContainers[{index}]", allocated)
        if container.get("restartPolicy") == "Always":
            sidecars = add(sidecars, asked)
            phases.append(sidecars)
        else:
            phases.append(add(sidecars, asked))
    total = largest([add(running, sidecars), *phases])
    pod_level = _requests(fields.mapping(data, "resources", path), f"{path}.resources")
    return add({**total, **pod_level}, fields.resources(data, "overhead", path))


def _container(container: Raw, path: str, allocated: Mapping[str, Raw]) -> dict[str, int]:
    asked = _requests(fields.mapping(container, "resources", path), f"{path}.resources")
    status = allocated.get(str(container.get("name")))
    if not status:
        return asked
    held = fields.resources(status, "allocatedResources", "status.containerStatuses")
    actual = fields.resources(
        fields.mapping(status, "resources", "status.containerStatuses"),
        "requests",
        "status.containerStatuses.resources",
    )
    return largest([asked, held, actual])


def _requests(data: Raw, path: str) -> dict[str, int]:
    # The API server copies limits into missing requests; manifests on disk have not been there.
    return {**fields.resources(data, "limits", path), **fields.resources(data, "requests", path)}


def selector_term(raw: Raw, path: str) -> NodeSelectorTerm:
    """Read one node selector term."""
    return NodeSelectorTerm(
        fields.requirements(raw, "matchExpressions", path),
        fields.requirements(raw, "matchFields", path),
    )


def _spread(raw: Raw, path: str) -> TopologySpread:
    minimum = raw.get("minDomains")
    return TopologySpread(
        max_skew=fields.integer(raw, "maxSkew", path, 1, low=1),
        topology_key=fields.text(raw, "topologyKey", path),
        when_unsatisfiable=fields.text(raw, "whenUnsatisfiable", path) or "DoNotSchedule",
        selector=fields.selector(raw, "labelSelector", path),
        min_domains=fields.integer(raw, "minDomains", path, 1, low=1) if minimum is not None else None,
        node_affinity_policy=fields.text(raw, "nodeAffinityPolicy", path) or "Honor",
        node_taints_policy=fields.text(raw, "nodeTaintsPolicy", path) or "Ignore",
        match_label_keys=fields.texts(raw, "matchLabelKeys", path),
    )


def _pod_terms(raw: Raw, path: str) -> tuple[PodAffinityTerm, ...]:
    terms = []
    for index, entry in enumerate(fields.items(raw, "requiredDuringSchedulingIgnoredDuringExecution", path)):
        terms.append(_pod_term(entry, f"{path}.required[{index}]", 0))
    for index, entry in enumerate(fields.items(raw, "preferredDuringSchedulingIgnoredDuringExecution", path)):
        where = f"{path}.preferred[{index}]"
        weight = fields.integer(entry, "weight", where, 1, low=1, high=100)
        terms.append(_pod_term(fields.mapping(entry, "podAffinityTerm", where), where, weight))
    return tuple(terms)


def _pod_term(raw: Raw, path: str, weight: int) -> PodAffinityTerm:
    return PodAffinityTerm(
        topology_key=fields.text(raw, "topologyKey", path),
        selector=fields.selector(raw, "labelSelector", path),
        namespaces=fields.texts(raw, "namespaces", path),
        namespace_selector=fields.selector(raw, "namespaceSelector", path),
        weight=weight,
    )


def _host_ports(data: Raw, path: str) -> tuple[HostPort, ...]:
    ports = []
    for index, container in enumerate(fields.items(data, "containers", path)):
        where = f"{path}.containers[{index}]"
        for port in fields.items(container, "ports", where):
            number = fields.integer(port, "hostPort", f"{where}.ports", 0, low=0, high=65535)
            if number:
                protocol = fields.text(port, "protocol", where) or "TCP"
                ports.append(HostPort(number, protocol, fields.text(port, "hostIP", where)))
    return tuple(ports)


def _volumes(data: Raw, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    claims, ephemeral = [], []
    for index, volume in enumerate(fields.items(data, "volumes", path)):
        where = f"{path}.volumes[{index}]"
        if volume.get("persistentVolumeClaim") is not None:
            claims.append(fields.text(fields.mapping(volume, "persistentVolumeClaim", where), "claimName", where))
        elif volume.get("ephemeral") is not None:
            ephemeral.append(fields.text(volume, "name", where))
    return tuple(claims), tuple(ephemeral)


def _nominator(raw: Raw) -> str:
    """The field manager that owns status.nominatedNodeName; empty when the object does not tell."""
    entries: Any = fields.mapping(raw, "metadata", "").get("managedFields") or ()
    for entry in entries:
        owned = (entry.get("fieldsV1") or {}).get("f:status") or {}
        if "f:nominatedNodeName" in owned:
            return str(entry.get("manager", ""))
    return ""
