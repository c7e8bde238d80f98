"""The rules of built-in kinds that the project can break: names, labels, taints, pod specs, fixed fields. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sawhorse_sandbox.apiserver.errors import Cause, forbidden_field, invalid_value, required
from sawhorse_sandbox.apiserver.resources import Kind

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_POD_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_metadata(metadata: Mapping[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    name = metadata.get("name") or ""
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        found.append(invalid_value("metadata.name", name, _NAME_RULE))
    for key, value in (metadata.get("labels") or {}).items():
        found.extend(_check_label(key, value, "metadata.labels"))
    for key, value in (metadata.get("annotations") or {}).items():
        if not isinstance(value, str):
            found.append(invalid_value(f"metadata.annotations[{key}]", value, "must be a string"))
    for finalizer in metadata.get("finalizers") or ():
        if not _QUALIFIED.fullmatch(finalizer):
            found.append(invalid_value("metadata.finalizers", finalizer, "name part must be a qualified name"))
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                found.append(required(f"metadata.ownerReferences[{index}].{field}", "must not be empty"))
    return found


def _check_label(key: str, value: Any, path: str) -> Iterator[Cause]:
    if not _QUALIFIED.fullmatch(key) or len(key.rpartition("/")[2]) > 63:
        yield invalid_value(path, key, "name part must consist of alphanumeric characters, '-', '_' or '.'")
    if not isinstance(value, str) or len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
        yield invalid_value(path, value, "a valid label must be an empty string or consist of alphanumeric characters")


def _node(obj: Mapping[str, Any]) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate((obj.get("spec") or {}).get("taints") or ()):
        path = f"metadata.taints[{index}]"
        yield from _check_label(taint.get("key", ""), taint.get("value", ""), f"{path}.key")
        if taint.get("effect") not in _EFFECTS:
            listed = ", ".join(f'"{effect}"' for effect in _EFFECTS)
            message = f'Unsupported value: "{taint.get("effect", "")}": supported values: {listed}'
            yield Cause("FieldValueNotSupported", message, f"{path}.effect")
        identity = (taint.get("key", ""), taint.get("effect", ""))
        if identity in seen:
            yield Cause(
                "FieldValueDuplicate", f"Duplicate value: {identity!r}: taints must be unique by key and effect", path
            )
        seen.add(identity)


def _pod_spec(spec: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            name = container.get("name", "")
            if not name:
                yield required(f"{path}.{field}[{index}].name")
            elif name in names:
                yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.{field}[{index}].name")
            names.add(name)
            if not container.get("image"):
                yield required(f"{path}.{field}[{index}].image")
    yield from _tolerations(spec, path)
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        inside = f"{path}.topologySpreadConstraints[{index}]"
        for key in ("maxSkew", "topologyKey", "whenUnsatisfiable"):
            if not constraint.get(key):
                yield required(f"{inside}.{key}")


def _tolerations(spec: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        inside = f"{path}.tolerations[{index}]"
        exists = toleration.get("operator") == "Exists"
        if not toleration.get("key") and not exists:
            yield invalid_value(
                f"{inside}.operator", toleration.get("operator", ""), "must be Exists when `key` is empty"
            )
        if exists and toleration.get("value"):
            yield invalid_value(f"{inside}.operator", toleration, "value must be empty when `operator` is 'Exists'")
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid_value(f"{inside}.effect", toleration.get("effect", ""), why)


def _pod(obj: Mapping[str, Any]) -> Iterator[Cause]:
    yield from _pod_spec(obj.get("spec") or {}, "spec")


def _workload(obj: Mapping[str, Any]) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    replicas = spec.get("replicas")
    if isinstance(replicas, int) and replicas < 0:
        yield invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
    selector = spec.get("selector")
    if not selector:
        yield required("spec.selector")
    labels = (template.get("metadata") or {}).get("labels") or {}
    wanted = (selector or {}).get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        yield invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from _pod_spec(template.get("spec") or {}, "spec.template.spec")


def _budget(obj: Mapping[str, Any]) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        yield invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")


_CHECKS: Mapping[Kind, Callable[[Mapping[str, Any]], Iterator[Cause]]] = {
    ("", "nodes"): _node,
    ("", "pods"): _pod,
    ("apps", "deployments"): _workload,
    ("apps", "replicasets"): _workload,
    ("apps", "statefulsets"): _workload,
    ("apps", "daemonsets"): _workload,
    ("policy", "poddisruptionbudgets"): _budget,
}


def check(kind: Kind, obj: Mapping[str, Any]) -> list[Cause]:
    """What is wrong with an object of a built-in kind; empty when nothing is."""
    rule = _CHECKS.get(kind)
    return check_metadata(obj["metadata"]) + (list(rule(obj)) if rule is not None else [])


def check_change(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Cause]:
    """What may not change between two states of a built-in kind."""
    before = old.get("spec") or {}
    after = new.get("spec") or {}
    if before == after:
        return []
    if kind == ("", "pods"):
        return _check_pod_change(before, after)
    if kind == ("", "nodes") and before.get("providerID") and after.get("providerID") != before["providerID"]:
        return [forbidden_field("spec.providerID", 'node updates may not change providerID except from "" to valid')]
    if kind[0] == "apps" and before.get("selector") != after.get("selector"):
        return [invalid_value("spec.selector", after.get("selector"), "field is immutable")]
    return []


def _check_pod_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Cause]:
    lost = [
        toleration
        for toleration in before.get("tolerations") or ()
        if toleration not in (after.get("tolerations") or ())
    ]
    if _fixed(before, before) != _fixed(after, before) or lost:
        return [forbidden_field("spec", _POD_RULE)]
    gates = [gate.get("name") for gate in before.get("schedulingGates") or ()]
    added = [g for g in after.get("schedulingGates") or () if g.get("name") not in gates]
    return [forbidden_field("spec.schedulingGates", "only deletion is allowed")] if added else []


def _fixed(spec: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A pod's spec without what may change; a pod that was gated may also narrow where it goes."""
    free = {"tolerations", "activeDeadlineSeconds", "schedulingGates", "containers", "initContainers"}
    if before.get("terminationGracePeriodSeconds", 0) < 0:
        free.add("terminationGracePeriodSeconds")
    if before.get("schedulingGates"):
        free |= {"nodeSelector", "affinity"}
    fixed = {name: value for name, value in spec.items() if name not in free}
    for field in ("containers", "initContainers"):
        fixed[field] = [{k: v for k, v in c.items() if k != "image"} for c in spec.get(field) or ()]
    return fixed
