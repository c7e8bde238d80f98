"""CustomResourceDefinitions: checked, established at once, and turned into served resources. Test double."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sawhorse_sandbox.apiserver.errors import Cause, invalid_value, required
from sawhorse_sandbox.apiserver.resources import Resource
from sawhorse_sandbox.apiserver.storage import Object

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"  # finalizer: the instances go before the definition


def check_definition(obj: Mapping[str, Any]) -> list[Cause]:
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    found = [required(f"spec.names.{field}") for field in ("plural", "kind") if not names.get(field)]
    if not spec.get("group"):
        found.append(required("spec.group"))
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        found.append(invalid_value("spec.scope", spec.get("scope", ""), 'supported values: "Cluster", "Namespaced"'))
    versions = spec.get("versions") or ()
    if sum(bool(version.get("storage")) for version in versions) != 1:
        found.append(invalid_value("spec.versions", None, "must have exactly one version marked as storage version"))
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            found.append(required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required"))
    expected = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if obj["metadata"].get("name") != expected:
        found.append(
            invalid_value(
                "metadata.name", obj["metadata"].get("name"), f'must be spec.names.plural+"."+spec.group: {expected}'
            )
        )
    return found


def establish(obj: Object, now: str) -> None:
    """Fill in names and the status of a definition that is served from now on, in place."""
    names = obj["spec"]["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    obj["spec"].setdefault("conversion", {"strategy": "None"})
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if CLEANUP not in finalizers and "deletionTimestamp" not in obj["metadata"]:
        finalizers.append(CLEANUP)
    status = obj.setdefault("status", {})
    since = {c["type"]: c["lastTransitionTime"] for c in status.get("conditions") or ()}
    status["conditions"] = [
        _condition("NamesAccepted", "NoConflicts", "no conflicts found", since.get("NamesAccepted", now)),
        _condition(
            "Established", "InitialNamesAccepted", "the initial names have been accepted", since.get("Established", now)
        ),
    ]
    status["acceptedNames"] = dict(names)
    stored = next(version["name"] for version in obj["spec"]["versions"] if version.get("storage"))
    status["storedVersions"] = sorted({*(status.get("storedVersions") or ()), stored})


def _condition(kind: str, reason: str, message: str, since: str) -> Object:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since}


def resources_of(obj: Mapping[str, Any]) -> list[Resource]:
    """One resource for each served version."""
    spec = obj["spec"]
    names = spec["names"]
    return [
        Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            singular=names.get("singular") or names["kind"].lower(),
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            status="status" in (version.get("subresources") or {}),
            generation=True,
            custom=True,
            schema=version["schema"]["openAPIV3Schema"],
            list_kind_name=names.get("listKind", ""),
        )
        for version in spec["versions"]
        if version.get("served")
    ]
