"""Discovery: /version, /api, /apis and the resource lists, as far as clients ask. Test double; pure."""

from __future__ import annotations

from typing import Any

from sawhorse_sandbox.apiserver.resources import PODS, Resource, ResourceTable

GIT_VERSION = "v1.36.3-sandbox"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]

VERSION: dict[str, Any] = {
    "major": "1",
    "minor": "36",
    "gitVersion": GIT_VERSION,
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}


def api_versions() -> dict[str, Any]:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(table: ResourceTable) -> dict[str, Any]:
    names = sorted({resource.group for resource in table if resource.group})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(table, name) for name in names]}


def group(table: ResourceTable, name: str) -> dict[str, Any] | None:
    if not any(resource.group == name for resource in table):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(table, name)}


def _group(table: ResourceTable, name: str) -> dict[str, Any]:
    names = sorted({resource.version for resource in table if resource.group == name}, key=lambda v: (len(v), v))
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in names]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def resource_list(table: ResourceTable, group_name: str, version: str) -> dict[str, Any] | None:
    found = [r for r in table if (r.group, r.version) == (group_name, version)]
    if not found:
        return None
    entries: list[dict[str, Any]] = []
    for resource in sorted(found, key=lambda r: r.plural):
        entries.append(_entry(resource))
        entries.extend(_subresources(resource))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].api_version,
        "resources": entries,
    }


def _entry(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def _subresources(resource: Resource) -> list[dict[str, Any]]:
    def sub(name: str, kind: str, group_name: str, version: str, verbs: list[str]) -> dict[str, Any]:
        return {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "group": group_name,
            "version": version,
            "kind": kind,
            "verbs": verbs,
        }

    found = []
    if resource.status:
        found.append(sub("status", resource.kind, resource.group, resource.version, ["get", "patch", "update"]))
    if resource.scale:
        found.append(sub("scale", "Scale", "autoscaling", "v1", ["get", "patch", "update"]))
    if resource == PODS:
        found.append(sub("binding", "Binding", "", "v1", ["create"]))
        found.append(sub("eviction", "Eviction", "policy", "v1", ["create"]))
    return found
