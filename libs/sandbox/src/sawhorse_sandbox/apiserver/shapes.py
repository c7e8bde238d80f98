"""How lists and maps merge: which lists are keyed, which are sets, which are replaced whole. Pure.

Strategic merge, server-side apply and managed fields all walk an object together with its shape. Built-in kinds follow
a table by field name, made from the markers in Kubernetes' own API types; custom resources follow their schema.
Trap: a Node's `spec.taints` is atomic in the real API, so it is replaced by every kind of merge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

_KEYED: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "allocatedResourcesStatus": ("name",),
    "claims": ("name",),
    "conditions": ("type",),
    "containers": ("name",),
    "drivers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_SETS = frozenset({"finalizers", "podCIDRs"})
_ATOMIC_MAPS = frozenset(
    {"selector", "labelSelector", "namespaceSelector", "nodeSelector", "nodeAffinity", "scopeSelector"}
)


class Shape(Protocol):
    """What a walker needs to know about the value in hand."""

    @property
    def keys(self) -> tuple[str, ...]:
        """For a keyed list its keys, the first one being the key of strategic merge; else empty."""
        ...

    @property
    def is_set(self) -> bool: ...

    @property
    def is_atomic_map(self) -> bool: ...

    def field(self, name: str) -> Shape: ...

    def item(self) -> Shape: ...


@dataclass(frozen=True, slots=True)
class BuiltinShape:
    """A built-in kind, by the names of the field in hand and of the one above it."""

    name: str = ""
    parent: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        if self.name == "ports":
            return ("port", "protocol") if self.parent == "spec" else ("containerPort", "protocol")
        return _KEYED.get(self.name, ())

    @property
    def is_set(self) -> bool:
        return self.name in _SETS

    @property
    def is_atomic_map(self) -> bool:
        return self.name in _ATOMIC_MAPS

    def field(self, name: str) -> BuiltinShape:
        return BuiltinShape(name, self.name)

    def item(self) -> BuiltinShape:
        return self


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """A custom resource, by its structural schema; its metadata is built in."""

    schema: Mapping[str, Any]
    root: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        if self.schema.get("x-kubernetes-list-type") != "map":
            return ()
        return tuple(self.schema.get("x-kubernetes-list-map-keys") or ())

    @property
    def is_set(self) -> bool:
        return self.schema.get("x-kubernetes-list-type") == "set"

    @property
    def is_atomic_map(self) -> bool:
        return self.schema.get("x-kubernetes-map-type") == "atomic"

    def field(self, name: str) -> Shape:
        if self.root and name == "metadata":
            return BuiltinShape("metadata")
        found = (self.schema.get("properties") or {}).get(name)
        if found is None:
            extra = self.schema.get("additionalProperties")
            found = extra if isinstance(extra, Mapping) else {}
        return SchemaShape(found)

    def item(self) -> Shape:
        items = self.schema.get("items")
        return SchemaShape(items if isinstance(items, Mapping) else {})


def item_key(item: Any, keys: tuple[str, ...]) -> tuple[str, ...]:
    """What tells the items of a keyed list apart; `protocol` has a default, so it may be left out."""
    if not isinstance(item, Mapping):
        return (repr(item),)
    return tuple(str(item.get(key, "TCP" if key == "protocol" else "")) for key in keys)
