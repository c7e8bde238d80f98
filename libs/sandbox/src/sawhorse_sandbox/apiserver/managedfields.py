"""Who set which field: the sets behind metadata.managedFields, and server-side apply on top of them. Pure.

A field set has the form of `fieldsV1`: `f:` names a field, `k:` an item of a keyed list, `v:` a member of a set, `.`
the item itself, and an empty map is a leaf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sawhorse_sandbox.apiserver.errors import ApiError
from sawhorse_sandbox.apiserver.shapes import Shape, item_key

FieldSet = dict[str, Any]

_UNTRACKED = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
    }
)


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes, and how: one entry of managedFields."""

    name: str
    operation: str  # Update or Apply
    api_version: str
    subresource: str = ""

    def owns(self, entry: Mapping[str, Any]) -> bool:
        return (
            entry.get("manager") == self.name
            and entry.get("operation") == self.operation
            and entry.get("subresource", "") == self.subresource
        )

    def entry(self, fields: FieldSet, time: str) -> dict[str, Any]:
        made: dict[str, Any] = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        if self.subresource:
            made["subresource"] = self.subresource
        return made


def tracked(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an object whose fields have managers."""
    part = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
    part["metadata"] = {name: v for name, v in (obj.get("metadata") or {}).items() if name not in _UNTRACKED}
    if not part["metadata"]:
        del part["metadata"]
    return part


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _item_name(item: Any, shape: Shape) -> str:
    if not isinstance(item, Mapping):
        return "v:" + _json(item)
    return "k:" + _json({key: item.get(key, "TCP" if key == "protocol" else "") for key in shape.keys})


def field_set(value: Any, shape: Shape) -> FieldSet:
    """Every field of `value`."""
    if isinstance(value, Mapping) and not shape.is_atomic_map:
        return {"f:" + name: field_set(inner, shape.field(name)) for name, inner in value.items()}
    if isinstance(value, list):
        if shape.keys:
            item = shape.item()
            return {_item_name(inner, shape): {".": {}, **field_set(inner, item)} for inner in value}
        if shape.is_set:
            return {"v:" + _json(inner): {} for inner in value}
    return {}


def changed(old: Any, new: Any, shape: Shape) -> FieldSet | None:
    """The fields of `new` that are not so in `old`; None where there are none. Removals do not show."""
    if old == new:
        return None
    if isinstance(new, Mapping) and isinstance(old, Mapping) and not shape.is_atomic_map:
        found: FieldSet = {}
        for name, inner in new.items():
            part = (
                field_set(inner, shape.field(name)) if name not in old else changed(old[name], inner, shape.field(name))
            )
            if part is not None:
                found["f:" + name] = part
        return found or None
    if isinstance(new, list) and isinstance(old, list) and shape.keys:
        held = {item_key(inner, shape.keys): inner for inner in old}
        found = {}
        for inner in new:
            identity = item_key(inner, shape.keys)
            if identity not in held:
                found[_item_name(inner, shape)] = {".": {}, **field_set(inner, shape.item())}
            elif (part := changed(held[identity], inner, shape.item())) is not None:
                found[_item_name(inner, shape)] = part
        return found or None
    if isinstance(new, list) and isinstance(old, list) and shape.is_set:
        return {"v:" + _json(inner): {} for inner in new if inner not in old} or None
    return field_set(new, shape)


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    result = dict(one)
    for name, inner in other.items():
        result[name] = union(result[name], inner) if name in result else inner
    return result


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """The fields of `one` that are not in `other`."""
    result: FieldSet = {}
    for name, inner in one.items():
        if name not in other:
            result[name] = inner
        elif inner and not other[name]:  # an empty map owns itself, not what others put into it
            result[name] = {key: value for key, value in inner.items() if key != "."}
        elif inner and (rest := difference(inner, other[name])):
            result[name] = rest
    return result


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for name in one.keys() & other.keys() - {"."}:
        if not one[name] and not other[name]:
            result[name] = {}
        elif rest := intersection(one[name], other[name]):
            result[name] = rest
    return result


def existing(fields: FieldSet, value: Any, shape: Shape) -> FieldSet:
    """The part of a field set that `value` still has."""
    if not fields:
        return {}
    inside = _children(value, shape)
    result: FieldSet = {}
    for name, inner in fields.items():
        if name == ".":
            result[name] = inner
        elif name in inside:
            below, its_shape = inside[name]
            rest = existing(inner, below, its_shape)
            if rest or not inner:
                result[name] = rest
    return result


def _children(value: Any, shape: Shape) -> dict[str, tuple[Any, Shape]]:
    if isinstance(value, Mapping):
        return {"f:" + name: (inner, shape.field(name)) for name, inner in value.items()}
    if isinstance(value, list):
        return {_item_name(inner, shape): (inner, shape.item()) for inner in value}
    return {}


def removed(fields: FieldSet, value: Any, shape: Shape) -> Any:
    """`value` without the fields of a set; an item of a keyed list goes when nothing but its keys would stay."""
    if isinstance(value, Mapping):
        result: dict[str, Any] = {}
        for name, inner in value.items():
            part = fields.get("f:" + name)
            if part is None:
                result[name] = inner
            elif part:
                rest = removed(part, inner, shape.field(name))
                if rest not in ({}, []):
                    result[name] = rest
        return result
    if isinstance(value, list):
        kept: list[Any] = []
        for inner in value:
            part = fields.get(_item_name(inner, shape))
            if part is None:
                kept.append(inner)
            elif part and "." not in part:
                kept.append(removed(part, inner, shape.item()))
        return kept
    return value


def record(old: Mapping[str, Any] | None, new: dict[str, Any], manager: Manager, shape: Shape, time: str) -> None:
    """Note in `new` that `manager` made it out of `old`: what it changed is its own now, and nobody else's."""
    before = tracked(old) if old is not None else {}
    after = tracked(new)
    entries = list((old or {}).get("metadata", {}).get("managedFields") or [])
    touched = changed(before, after, shape) or {}
    if old is not None and (lost := changed(after, before, shape)):  # removals show from the other side
        entries = _only_existing(entries, after, shape) if lost != touched else entries
    new["metadata"]["managedFields"] = _assigned(entries, touched, manager, time)


def _only_existing(entries: list[dict[str, Any]], after: Any, shape: Shape) -> list[dict[str, Any]]:
    kept = ({**entry, "fieldsV1": existing(entry["fieldsV1"], after, shape)} for entry in entries)
    return [entry for entry in kept if entry["fieldsV1"]]


def _assigned(entries: list[dict[str, Any]], touched: FieldSet, manager: Manager, time: str) -> list[dict[str, Any]]:
    if not touched:
        return entries
    result: list[dict[str, Any]] = []
    mine: FieldSet = {}
    for entry in entries:
        if manager.owns(entry):
            mine = entry["fieldsV1"]
        elif rest := difference(entry["fieldsV1"], touched):
            result.append({**entry, "fieldsV1": rest})
    result.append(manager.entry(union(mine, touched), time))
    return result


def apply(
    current: Mapping[str, Any] | None,
    config: Mapping[str, Any],
    manager: Manager,
    shape: Shape,
    time: str,
    *,
    force: bool,
) -> dict[str, Any]:
    """Server-side apply: `config` merged into `current`, with managedFields set.

    What the manager applied before and leaves out now is removed, unless someone else owns it too.

    Raises:
        ApiError: 409 when another manager holds a field that would change and `force` is off.
    """
    wanted = tracked(config)
    base = dict(current) if current is not None else {}
    entries = list(base.get("metadata", {}).get("managedFields") or [])
    before = tracked(base)
    applied = field_set(wanted, shape)
    merged = _merge(before, wanted, shape)
    touched = changed(before, merged, shape) or {}
    others = [entry for entry in entries if not manager.owns(entry)]
    if not force:
        _refuse_conflicts(others, intersection(touched, applied))
    mine: FieldSet = next((entry["fieldsV1"] for entry in entries if manager.owns(entry)), {})
    dropped = difference(mine, applied)
    for entry in others:
        dropped = difference(dropped, entry["fieldsV1"])
    if dropped:
        merged = removed(dropped, merged, shape)
    result = {**base, **config, **merged}
    for name in before.keys() - merged.keys():
        del result[name]
    kept_metadata = {name: v for name, v in base.get("metadata", {}).items() if name in _UNTRACKED}
    given_metadata = {name: v for name, v in config.get("metadata", {}).items() if name in _UNTRACKED}
    result["metadata"] = {**kept_metadata, **given_metadata, **merged.get("metadata", {})}
    left = [{**entry, "fieldsV1": difference(entry["fieldsV1"], touched)} for entry in others]
    previous = next((entry for entry in entries if manager.owns(entry)), None)
    own = previous if previous is not None and previous["fieldsV1"] == applied else manager.entry(applied, time)
    result["metadata"]["managedFields"] = [entry for entry in left if entry["fieldsV1"]] + [own]
    return result


def _merge(target: Any, config: Any, shape: Shape) -> Any:
    if isinstance(config, Mapping) and isinstance(target, Mapping) and not shape.is_atomic_map:
        merged = dict(target)
        for name, value in config.items():
            merged[name] = _merge(target.get(name), value, shape.field(name))
        return merged
    if isinstance(config, list) and isinstance(target, list):
        if shape.keys:
            held = {item_key(item, shape.keys): item for item in target}
            for item in config:
                identity = item_key(item, shape.keys)
                held[identity] = _merge(held.get(identity), item, shape.item())
            return list(held.values())
        if shape.is_set:
            return [*target, *(value for value in config if value not in target)]
    return config


def _refuse_conflicts(others: list[dict[str, Any]], claimed: FieldSet) -> None:
    causes = []
    for entry in others:
        for path in _paths(intersection(entry["fieldsV1"], claimed)):
            message = f'conflict with "{entry["manager"]}"'
            causes.append({"reason": "FieldManagerConflict", "message": message, "field": path})
    if causes:
        listed = ", ".join(f"{cause['field']}: {cause['message']}" for cause in causes)
        count = "1 conflict" if len(causes) == 1 else f"{len(causes)} conflicts"
        message = f"Apply failed with {count}: {listed}"
        raise ApiError(409, "Conflict", message, details={"causes": causes})


def _paths(fields: FieldSet, prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, inner in fields.items():
        path = f"{prefix}.{name[2:]}" if name.startswith("f:") else f"{prefix}[{name[2:]}]"
        found.extend(_paths(inner, path) if inner else [path])
    return found
