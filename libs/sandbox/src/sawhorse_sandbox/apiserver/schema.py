"""Structural schemas of custom resources: prune, default, validate. Pure; CEL rules are not evaluated.

The order is the real server's: unknown fields are dropped, defaults filled in, then the result is validated.
Patterns are searched for, not anchored, as RE2 does with an unanchored pattern.
"""

from __future__ import annotations

import copy
import datetime
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sawhorse_sandbox.apiserver.errors import Cause, invalid_value, required

Schema = Mapping[str, Any]

_ROOT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def prune(value: Any, schema: Schema, *, root: bool = False, path: str = "") -> list[str]:
    """Drop, in place, every field that the schema does not know; `root` keeps apiVersion, kind and metadata.

    Returns:
        The paths that were dropped.
    """
    dropped: list[str] = []
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, Mapping):
            for index, item in enumerate(value):
                dropped += prune(item, items, path=f"{path}[{index}]")
        return dropped
    if not isinstance(value, dict):
        return dropped
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    keep_unknown = schema.get("x-kubernetes-preserve-unknown-fields") is True or extra is True
    embedded = root or schema.get("x-kubernetes-embedded-resource") is True
    for name in list(value):
        if embedded and name in _ROOT_FIELDS:
            continue
        if name in properties:
            dropped += prune(value[name], properties[name], path=_join(path, name))
        elif isinstance(extra, Mapping):
            dropped += prune(value[name], extra, path=_join(path, name))
        elif not keep_unknown:
            del value[name]
            dropped.append(_join(path, name))
    return dropped


def apply_defaults(value: Any, schema: Schema) -> None:
    """Fill in, in place, what is absent, or null where null is not allowed."""
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, Mapping):
            for item in value:
                apply_defaults(item, items)
        return
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    for name, field in properties.items():
        unset = name not in value or (value[name] is None and not field.get("nullable"))
        if unset and "default" in field:
            value[name] = copy.deepcopy(field["default"])
        elif unset:
            value.pop(name, None)
        if name in value:
            apply_defaults(value[name], field)
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        for name in value.keys() - properties.keys():
            apply_defaults(value[name], extra)


def validate(value: Any, schema: Schema, path: str = "") -> list[Cause]:
    """Every rule that `value` breaks, in the order of the fields; empty when it is valid."""
    return list(_check(value, schema, path))


def _check(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    if value is None and schema.get("nullable"):
        return
    wrong = _wrong_type(value, schema)
    if wrong is not None:
        shown = "null" if value is None else _type_name(value)
        yield Cause(
            "FieldValueTypeInvalid",
            f'Invalid value: "{shown}": {path} in body must be of type {wrong}: "{shown}"',
            path,
        )
        return
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        listed = ", ".join(f'"{choice}"' for choice in allowed)
        yield Cause("FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}', path)
    if isinstance(value, str):
        yield from _check_string(value, schema, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _check_number(value, schema, path)
    elif isinstance(value, list):
        yield from _check_list(value, schema, path)
    elif isinstance(value, dict):
        yield from _check_map(value, schema, path)
    yield from _check_junctors(value, schema, path)


def _wrong_type(value: Any, schema: Schema) -> str | None:
    """The name of the type it should have, or None when it is right."""
    if schema.get("x-kubernetes-int-or-string"):
        fine = isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
        return None if fine else "integer,string"
    wanted = schema.get("type")
    if not wanted:
        return None
    if isinstance(value, bool) and wanted != "boolean":
        return str(wanted)
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return None
    return None if isinstance(value, _TYPES[wanted]) else str(wanted)


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((name for name, kinds in _TYPES.items() if isinstance(value, kinds)), "unknown")


@functools.lru_cache(maxsize=512)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _check_string(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    if (least := schema.get("minLength")) is not None and len(value) < least:
        yield invalid_value(path, value, f"{path} in body should be at least {least} chars long")
    if (most := schema.get("maxLength")) is not None and len(value) > most:
        yield Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", path)
    pattern = schema.get("pattern")
    if pattern is not None and _pattern(pattern).search(value) is None:
        yield invalid_value(path, value, f"{path} in body should match '{pattern}'")
    if schema.get("format") == "date-time" and not _is_time(value):
        yield invalid_value(path, value, f'{path} in body must be of type date-time: "{value}"')


def _is_time(value: str) -> bool:
    try:
        return datetime.datetime.fromisoformat(value.replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False


def _check_number(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    if (low := schema.get("minimum")) is not None:
        exclusive = schema.get("exclusiveMinimum") is True
        if value < low or (exclusive and value == low):
            word = "greater than" if exclusive else "greater than or equal to"
            yield invalid_value(path, value, f"{path} in body should be {word} {low}")
    if (high := schema.get("maximum")) is not None:
        exclusive = schema.get("exclusiveMaximum") is True
        if value > high or (exclusive and value == high):
            word = "less than" if exclusive else "less than or equal to"
            yield invalid_value(path, value, f"{path} in body should be {word} {high}")
    if (step := schema.get("multipleOf")) and value % step:
        yield invalid_value(path, value, f"{path} in body should be a multiple of {step}")
    bits = {"int32": 31, "int64": 63}.get(str(schema.get("format")))
    if bits is not None and not -(2**bits) <= value < 2**bits:
        yield invalid_value(path, value, f"{path} in body must be of type {schema['format']}")


def _check_list(value: Sequence[Any], schema: Schema, path: str) -> Iterator[Cause]:
    if (least := schema.get("minItems")) is not None and len(value) < least:
        yield invalid_value(path, len(value), f"{path} in body should have at least {least} items")
    if (most := schema.get("maxItems")) is not None and len(value) > most:
        yield Cause("FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items", path)
    items = schema.get("items")
    if isinstance(items, Mapping):
        for index, item in enumerate(value):
            yield from _check(item, items, f"{path}[{index}]")
    yield from _check_duplicates(value, schema, path)


def _check_duplicates(value: Sequence[Any], schema: Schema, path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("set", "map") and not schema.get("uniqueItems"):
        return
    keys = schema.get("x-kubernetes-list-map-keys") or () if kind == "map" else ()
    seen: list[Any] = []
    for index, item in enumerate(value):
        identity = [item.get(key) for key in keys] if keys and isinstance(item, Mapping) else item
        if identity in seen:
            yield Cause("FieldValueDuplicate", f"Duplicate value: {identity!r}", f"{path}[{index}]")
        seen.append(identity)


def _check_map(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[Cause]:
    for name in schema.get("required") or ():
        if name not in value:
            yield required(_join(path, name))
    if (least := schema.get("minProperties")) is not None and len(value) < least:
        yield invalid_value(path, len(value), f"{path} in body should have at least {least} properties")
    if (most := schema.get("maxProperties")) is not None and len(value) > most:
        yield Cause("FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items", path)
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for name, field in value.items():
        if name in properties:
            yield from _check(field, properties[name], _join(path, name))
        elif isinstance(extra, Mapping):
            yield from _check(field, extra, _join(path, name))


def _check_junctors(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    for part in schema.get("allOf") or ():
        yield from _check(value, part, path)
    choices = schema.get("anyOf") or ()
    if (
        choices
        and not schema.get("x-kubernetes-int-or-string")
        and all(validate(value, part, path) for part in choices)
    ):
        yield invalid_value(path, value, f"{path} in body must validate at least one schema (anyOf)")
    one_of = schema.get("oneOf") or ()
    if one_of and sum(not validate(value, part, path) for part in one_of) != 1:
        yield invalid_value(path, value, f"{path} in body must validate one and only one schema (oneOf)")
    forbidden = schema.get("not")
    if forbidden is not None and not validate(value, forbidden, path):
        yield invalid_value(path, value, f"{path} in body must not validate the schema (not)")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
