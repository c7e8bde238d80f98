"""Patches and selectors of the Kubernetes API on plain JSON, as far as FakeKube needs them."""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sawhorse_kube.errors import InvalidError

# Lists that a strategic merge patch merges by this key; None: a set of plain values. All others are replaced.
_MERGE_KEYS: Mapping[str, str | None] = {
    "conditions": "type",
    "containers": "name",
    "ownerReferences": "uid",
    "finalizers": None,
}


def merge(target: Any, patch: Any, *, strategic: bool = False) -> Any:
    """A JSON merge patch: null removes, lists are replaced; with `strategic` the known lists are merged by key."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif strategic and isinstance(value, list) and key in _MERGE_KEYS:
            result[key] = _merge_list(result.get(key) or [], value, _MERGE_KEYS[key])
        else:
            result[key] = merge(result.get(key), value, strategic=strategic)
    return result


def _merge_list(old: Sequence[Any], new: Sequence[Any], key: str | None) -> list[Any]:
    if key is None:
        return [*old, *(v for v in new if v not in old)]
    result = [dict(v) for v in old]
    for entry in new:
        if "$patch" in entry:
            if entry["$patch"] != "delete":
                raise InvalidError(f"strategic merge: $patch {entry['$patch']!r} is not supported")
            result = [v for v in result if v.get(key) != entry.get(key)]
            continue
        found = next((v for v in result if v.get(key) == entry.get(key)), None)
        if found is None:
            result.append(dict(entry))
        else:
            found.update(entry)
    return result


def json_patch(target: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """A JSON patch: add, replace, remove and test.

    Raises:
        InvalidError: a path does not exist or a test fails: then nothing is changed.
    """
    result = copy.deepcopy(target)
    for operation in operations:
        parts = [p.replace("~1", "/").replace("~0", "~") for p in str(operation["path"]).split("/")[1:]]
        *parents, last = parts
        try:
            holder = result
            for part in parents:
                holder = holder[int(part)] if isinstance(holder, list) else holder[part]
            _apply(holder, last, operation)
        except (KeyError, IndexError, ValueError, TypeError) as err:
            raise InvalidError(f"json patch: {operation['op']} {operation['path']}: there is no such path") from err
    return result


def _apply(holder: Any, last: str, operation: Mapping[str, Any]) -> None:
    op, at = operation["op"], int(last) if isinstance(holder, list) and last != "-" else last
    if op == "test":
        if holder[at] != operation.get("value"):
            raise InvalidError(f"json patch: test of {operation['path']} failed", status=422)
    elif op == "remove":
        del holder[at]
    elif op == "add" and isinstance(holder, list):
        holder.insert(len(holder) if at == "-" else int(at), copy.deepcopy(operation["value"]))
    elif op in ("add", "replace"):
        if op == "replace" and at not in holder:
            raise KeyError(at)
        holder[at] = copy.deepcopy(operation["value"])
    else:
        raise InvalidError(f"json patch: operation {op!r} is not supported")


_SET = re.compile(r"\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*")


def labels_match(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a selector in kubectl's spelling: `a=b,c!=d,e in (f,g),h notin (i),j,!k`."""
    return all(_label_matches(part.strip(), labels) for part in re.split(r",(?![^(]*\))", selector) if part.strip())


def _label_matches(part: str, labels: Mapping[str, str]) -> bool:
    if found := _SET.fullmatch(part):
        values = {v.strip() for v in found[3].split(",")}
        inside = labels.get(found[1]) in values
        return inside if found[2] == "in" else not inside
    if "!=" in part:
        key, _, value = part.partition("!=")
        return labels.get(key.strip()) != value.strip()
    if "=" in part:
        key, _, value = part.replace("==", "=").partition("=")
        return labels.get(key.strip()) == value.strip()
    return part[1:].strip() not in labels if part.startswith("!") else part in labels


def fields_match(selector: str, raw: Mapping[str, Any]) -> bool:
    """Whether an object satisfies a field selector: `spec.nodeName=a,status.phase!=b`."""
    for part in filter(None, (p.strip() for p in selector.split(","))):
        negative = "!=" in part
        path, _, wanted = part.replace("!=", "=").replace("==", "=").partition("=")
        value: Any = raw
        for step in path.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if (str(value if value is not None else "") == wanted) is negative:
            return False
    return True
