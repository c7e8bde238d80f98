"""The verdict of an API server on one object: what it refuses and which fields it drops."""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sawhorse_console.manifests_input import MOST_REPLICAS
from sawhorse_console.validate.crds import CustomKind, custom_kinds
from sawhorse_console.validate.findings import Finding, error
from sawhorse_console.validate.metadata import check_metadata
from sawhorse_console.validate.rules import check_rules
from sawhorse_console.validate.structure import BLOCKING, check_structure, fill_defaults, make_checker, prune


@dataclass(frozen=True, slots=True)
class Verdict:
    """Refused when there are `errors`. `stored` is the object with defaults, as it would be kept."""

    errors: tuple[Finding, ...]
    unknown_fields: tuple[str, ...]
    stored: Mapping[str, Any]


def judge(kind: CustomKind, raw: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> Verdict:
    """Judge an object that is to be made, or that replaces `old`.

    The status is not judged: an API server drops it from what people write.
    """
    pruned, unknown = prune(kind.schema, _as_json(raw))
    pruned.pop("status", None)
    stored = fill_defaults(kind.schema, pruned)
    before = None if old is None else fill_defaults(kind.schema, prune(kind.schema, _as_json(old))[0])
    errors = list(check_metadata(stored.get("metadata")))
    errors += _check_scale(kind, stored)
    structure = list(check_structure(_checker(kind.kind), stored))
    errors += [finding for _, finding in structure]
    if not any(word in BLOCKING for word, _ in structure):
        errors += check_rules(kind.schema, stored, before)
    return Verdict(tuple(errors), tuple(unknown), stored)


def _check_scale(kind: CustomKind, stored: Mapping[str, Any]) -> Iterator[Finding]:
    """A number that the scale subresource sets has 32 bits there, whatever its own schema says."""
    value: Any = stored
    for step in kind.replicas:
        value = value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, int) and value > MOST_REPLICAS:
        yield error("Scale", ".".join(kind.replicas), f"{value} is too large; the most is {MOST_REPLICAS}")


@cache
def _checker(kind: str) -> Any:
    return make_checker(custom_kinds()[kind].schema)


def _as_json(value: Any) -> Any:
    """A value as kubectl sends it: YAML's unquoted dates are texts there, and 5.0 is the whole number 5."""
    if isinstance(value, Mapping):
        return {name: _as_json(below) for name, below in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
