"""Structural schemas: unknown fields dropped, defaults filled in, the rest checked by a JSON Schema library.

The order is an API server's. What such schemas mean beyond JSON Schema (`x-kubernetes-…`, `nullable`, number formats,
RE2) is told to the library here. Pure.
"""

import datetime
import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import jsonschema
import jsonschema.validators

from sawhorse_console.validate.findings import Finding, error
from sawhorse_console.validate.patterns import HINTS, re2

Schema = Mapping[str, Any]

_ROOT = frozenset({"apiVersion", "kind", "metadata"})
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(z|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)
_WORDS = {
    "object": "a map",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (int, "a number"),
    (float, "a number"),
    (str, "a text"),
    (list, "a list"),
    (Mapping, "a map"),
)
# An API server evaluates no rules on an object whose shape is wrong in one of these ways.
BLOCKING = frozenset({"type", "required", "enum", "maxLength", "maxItems", "maxProperties"})


def prune(schema: Schema, value: Any, path: str = "") -> tuple[Any, list[str]]:
    """A copy of `value` without the fields that the schema does not know, and their paths."""
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, Mapping):
            return deepcopy(value), []
        results = [prune(items, item, f"{path}[{index}]") for index, item in enumerate(value)]
        return [kept for kept, _ in results], [gone for _, below in results for gone in below]
    if not isinstance(value, Mapping):
        return value, []
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    keeps = schema.get("x-kubernetes-preserve-unknown-fields") is True or extra is True
    result: dict[str, Any] = {}
    dropped: list[str] = []
    for name, below in value.items():
        where = f"{path}.{name}" if path else name
        child = properties.get(name, extra)
        if not path and name in _ROOT:
            result[name] = deepcopy(below)
        elif isinstance(child, Mapping):
            result[name], gone = prune(child, below, where)
            dropped += gone
        elif keeps:
            result[name] = deepcopy(below)
        else:
            dropped.append(where)
    return result, dropped


def fill_defaults(schema: Schema, value: Any) -> Any:
    """A copy with defaults where fields are absent; a null that is not allowed counts as absent."""
    if isinstance(value, list):
        items = schema.get("items")
        return [fill_defaults(items, item) for item in value] if isinstance(items, Mapping) else value
    if not isinstance(value, Mapping):
        return value
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    result: dict[str, Any] = {}
    for name, below in value.items():
        child = properties.get(name, extra)
        if not isinstance(child, Mapping):
            result[name] = below
        elif below is not None or child.get("nullable"):
            result[name] = fill_defaults(child, below)
    for name, child in properties.items():
        if name not in result and "default" in child:
            result[name] = fill_defaults(child, deepcopy(child["default"]))
    return result


def make_checker(schema: Schema) -> Any:
    """The library's checker for a schema. Making one takes milliseconds: keep it."""
    return _Validator(to_json_schema(schema), format_checker=_FORMATS)


def check_structure(checker: Any, value: Any) -> Iterator[tuple[str, Finding]]:
    """Every place where a pruned and defaulted value breaks a checker's schema, with the schema's word for it."""
    for problem in checker.iter_errors(value):
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem.absolute_path)
        yield str(problem.validator), _told(problem, path.lstrip("."))


def to_json_schema(schema: Schema) -> dict[str, Any]:
    """An openAPIV3Schema as JSON Schema; words that only this module's checker knows keep their names."""
    out = {word: value for word, value in schema.items() if word not in _STRUCTURE}
    if schema.get("x-kubernetes-int-or-string"):
        out.pop("anyOf", None)
        out["type"] = ["integer", "string"]
    if schema.get("nullable"):
        out["type"] = [schema["type"], "null"]
    if "properties" in schema:
        out["properties"] = {name: to_json_schema(child) for name, child in schema["properties"].items()}
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), Mapping):
            out[word] = to_json_schema(schema[word])
    return out


_STRUCTURE = frozenset({"properties", "items", "additionalProperties", "nullable", "default", "description"})


def _pattern(validator: Any, pattern: str, value: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, str) and re2(pattern).search(value) is None:
        yield jsonschema.ValidationError("does not match")


def _unique(validator: Any, kind: str, value: Any, schema: Schema) -> Iterator[jsonschema.ValidationError]:
    """Lists that are sets, or maps by some keys, hold nothing twice."""
    if kind not in ("set", "map") or not isinstance(value, list):
        return
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    seen: list[Any] = []
    for index, item in enumerate(value):
        identity = [item.get(key) for key in keys] if kind == "map" and isinstance(item, Mapping) else item
        if identity in seen:
            yield jsonschema.ValidationError("is there twice", path=[index], instance=item)
        seen.append(identity)


_Validator: Any = jsonschema.validators.extend(
    jsonschema.Draft202012Validator, {"pattern": _pattern, "x-kubernetes-list-type": _unique}
)


def _is_int32(value: object) -> bool:
    return not isinstance(value, int) or -(2**31) <= value < 2**31


def _is_int64(value: object) -> bool:
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _is_time(value: object) -> bool:
    if not isinstance(value, str):
        return True
    day, sign, time = value.lower().partition("t")
    try:
        datetime.date.fromisoformat(day)
    except ValueError:
        return False
    return bool(sign) and len(day) == 10 and _TIME.fullmatch(time) is not None


_FORMATS = jsonschema.FormatChecker(formats=())
for _name, _check in (("int32", _is_int32), ("int64", _is_int64), ("date-time", _is_time)):
    _FORMATS.checks(_name)(_check)


def _told(problem: jsonschema.ValidationError, path: str) -> Finding:
    """A problem of the library in our words. `path` is where it is."""
    word, wanted, value = str(problem.validator), problem.validator_value, problem.instance
    if word == "required":
        name = next(name for name in wanted if problem.message.startswith(repr(name)))
        return error("Structure", f"{path}.{name}".lstrip("."), "is missing; set it")
    return error("Structure", path, _text(word, wanted, value))


def _text(word: str, wanted: Any, value: Any) -> str:
    match word:
        case "type":
            kinds = [wanted] if isinstance(wanted, str) else wanted
            if "string" in kinds and isinstance(value, bool | int | float):
                return f"{json.dumps(value)} is {_kind(value)}; put it in quotes"
            return f"is {_kind(value)}; write {' or '.join(_WORDS[k] for k in kinds if k in _WORDS)}"
        case "enum":
            return f"{value!r} is not allowed; use {_listed(wanted)}"
        case "pattern":
            return f"{value!r} is not allowed; write {HINTS.get(wanted, f'what matches {wanted}')}"
        case "format":
            return f"{value!r} is not allowed; write {_FORMAT_WORDS[wanted]}"
        case "minimum":
            return f"{value} is too small; the least is {wanted}"
        case "maximum":
            return f"{value} is too large; the most is {wanted}"
        case "minLength":
            return "is empty; write a text" if wanted == 1 else f"is too short; at least {wanted} characters"
        case "maxLength":
            return f"is too long; at most {wanted} characters"
        case "minItems":
            return f"has too few entries; give at least {wanted}"
        case "maxItems":
            return f"has {len(value)} entries; the most is {wanted}"
        case "maxProperties":
            return f"has {len(value)} entries; the most is {wanted}"
        case "x-kubernetes-list-type":
            return f"{value!r} is there twice; keep one"
    return f"breaks {word} {wanted!r} of the schema"


_FORMAT_WORDS = {
    "int32": "a number of 32 bits",
    "int64": "a number of 64 bits",
    "date-time": "a time such as 2026-01-31T12:00:00Z",
}


def _kind(value: Any) -> str:
    return "null" if value is None else next((word for kind, word in _TYPES if isinstance(value, kind)), "unreadable")


def _listed(values: list[Any]) -> str:
    *first, last = map(str, values)
    return f"{', '.join(first)} or {last}" if first else last
