"""Names, labels and annotations of an object, as every API server checks them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sawhorse_console.validate.findings import Finding, error

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
LONGEST_NAME, LONGEST_PART = 253, 63


def is_label_value(value: str) -> bool:
    """Whether a label may have this value."""
    return len(value) <= LONGEST_PART and _VALUE.fullmatch(value) is not None


def is_qualified_name(key: str) -> bool:
    """Whether a label, annotation or taint may have this key: `name` or `domain/name`."""
    domain, slash, name = key.rpartition("/")
    if slash and not is_subdomain(domain):
        return False
    return len(name) <= LONGEST_PART and _NAME_PART.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Whether an object may have this name (RFC 1123)."""
    return len(name) <= LONGEST_NAME and _SUBDOMAIN.fullmatch(name) is not None


def check_metadata(raw: Any) -> Iterator[Finding]:
    """What is wrong with `metadata`; that it is a map is the schema's to say."""
    if raw is None:
        yield _wrong("metadata", "is missing; give a name")
    if not isinstance(raw, Mapping):
        return
    yield from _check_name(raw)
    for key, value in _texts(raw, "labels"):
        where = f"metadata.labels[{key}]"
        if not is_qualified_name(key):
            yield _wrong(where, "is no label key; write a name such as team or example.com/team")
        if not isinstance(value, str):
            yield _wrong(where, f"{value!r} is not a text; put it in quotes")
        elif not is_label_value(value):
            yield _wrong(where, f"{value!r} is no label value; use up to 63 letters, digits, '-', '_' and '.'")
    for key, value in _texts(raw, "annotations"):
        where = f"metadata.annotations[{key}]"
        if not is_qualified_name(key.lower()):
            yield _wrong(where, "is no annotation key; write a name such as note or example.com/note")
        if not isinstance(value, str):
            yield _wrong(where, f"{value!r} is not a text; put it in quotes")
    for key in ("labels", "annotations"):
        if not isinstance(raw.get(key), Mapping | None):
            yield _wrong(f"metadata.{key}", "must be a map of texts")


def _check_name(raw: Mapping[str, Any]) -> Iterator[Finding]:
    name, generated = raw.get("name"), raw.get("generateName")
    if not name and not generated:
        yield _wrong("metadata.name", "is missing; name the object")
    elif not isinstance(name or generated, str):
        yield _wrong("metadata.name", f"{name or generated!r} is not a text; put it in quotes")
    elif not is_subdomain(name or f"{generated}x"):
        shown = name or generated
        yield _wrong("metadata.name", f"{shown!r} is no object name; use lower-case letters, digits, '-' and '.'")


def _texts(raw: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    found = raw.get(key)
    # A null is an empty text here.
    return (
        [(name, "" if value is None else value) for name, value in found.items()] if isinstance(found, Mapping) else []
    )


def _wrong(field: str, text: str) -> Finding:
    return error("Metadata", field, text)
