"""JSON patch, JSON merge patch and strategic merge patch. Pure: inputs stay as they are; a result may share parts."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from sawhorse_sandbox.apiserver.errors import ApiError, bad_request
from sawhorse_sandbox.apiserver.shapes import Shape, item_key

_DIRECTIVES = ("$setElementOrder/", "$retainKeys", "$deleteFromPrimitiveList/")


def _rejected(why: str) -> ApiError:
    return ApiError(422, "Invalid", f"the server rejected our request due to an error in our request: {why}")


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: null deletes, lists are replaced."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge(target: Any, patch: Any, shape: Shape) -> Any:
    """Kubernetes' merge: keyed lists merge by key, sets join, other lists are replaced; `$patch` directives work."""
    if isinstance(patch, Mapping):
        return _strategic_map(target, patch, shape)
    if isinstance(patch, list) and isinstance(target, list):
        if shape.keys:
            return _strategic_keyed(target, patch, shape)
        if shape.is_set:
            return [*target, *(value for value in patch if value not in target)]
    if isinstance(patch, list):
        return _without_directives(patch, shape)
    return patch


def _strategic_map(target: Any, patch: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    base = dict(target) if isinstance(target, Mapping) and directive != "replace" else {}
    for key, value in patch.items():
        if key == "$patch":
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            base[name] = [kept for kept in base.get(name) or [] if kept not in value]
        elif key.startswith(_DIRECTIVES):
            continue  # orders and kept keys only matter for lists whose order we keep anyway
        elif value is None:
            base.pop(key, None)
        elif isinstance(value, Mapping) and value.get("$patch") == "delete":
            base.pop(key, None)
        else:
            base[key] = strategic_merge(base.get(key), value, shape.field(key))
    return base


def _strategic_keyed(target: Sequence[Any], patch: Sequence[Any], shape: Shape) -> list[Any]:
    key = shape.keys[:1]
    if any(isinstance(item, Mapping) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    merged = {item_key(item, key): item for item in target}
    for item in patch:
        if not isinstance(item, Mapping) or key[0] not in item:
            raise bad_request(f"map: {item!r} does not contain declared merge key: {key[0]}")
        identity = item_key(item, key)
        if item.get("$patch") == "delete":
            merged.pop(identity, None)
        else:
            merged[identity] = strategic_merge(merged.get(identity), item, shape.item())
    return list(merged.values())


def _without_directives(patch: list[Any], shape: Shape) -> list[Any]:
    kept = [item for item in patch if not (isinstance(item, Mapping) and "$patch" in item)]
    return [strategic_merge(None, item, shape.item()) for item in kept]


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902. Raises ApiError 400 for what is no patch, 422 where an operation cannot be done."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list of operations")
    document = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, Mapping) or not isinstance(operation.get("path"), str):
            raise bad_request(f"not a JSON patch operation: {operation!r}")
        document = _operate(document, operation)
    return document


def _operate(document: Any, operation: Mapping[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation.get("op"):
        case "add":
            return _add(document, path, copy.deepcopy(operation.get("value")))
        case "remove":
            return _remove(document, path)
        case "replace":
            _get(document, path)
            value = copy.deepcopy(operation.get("value"))
            return value if not path else _add(_remove(document, path), path, value)
        case "move":
            source = _pointer(str(operation.get("from", "")))
            value = _get(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, copy.deepcopy(_get(document, _pointer(str(operation.get("from", ""))))))
        case "test":
            try:
                held = _get(document, path)
            except ApiError:
                held = None
            if held != operation.get("value"):
                raise _rejected(f"testing value {operation['path']} failed")
            return document
        case other:
            raise bad_request(f"unexpected kind of JSON patch operation: {other!r}")


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    if not text.startswith("/"):
        raise bad_request(f"not a JSON pointer: {text!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _index(container: list[Any], step: str, *, end: bool = False) -> int:
    if step == "-" and end:
        return len(container)
    if not step.isdigit() or int(step) >= len(container) + (1 if end else 0):
        raise _rejected(f"no list item {step!r}")
    return int(step)


def _get(document: Any, path: Sequence[str]) -> Any:
    value = document
    for step in path:
        if isinstance(value, list):
            value = value[_index(value, step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            raise _rejected(f"path /{'/'.join(path)} does not exist")
    return value


def _add(document: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    container = _get(document, path[:-1])
    if isinstance(container, list):
        container.insert(_index(container, path[-1], end=True), value)
    elif isinstance(container, dict):
        container[path[-1]] = value
    else:
        raise _rejected(f"path /{'/'.join(path)} is not inside a map or list")
    return document


def _remove(document: Any, path: Sequence[str]) -> Any:
    if not path:
        return None
    _get(document, path)
    container = _get(document, path[:-1])
    if isinstance(container, list):
        del container[_index(container, path[-1])]
    else:
        del container[path[-1]]
    return document
