"""Writes TOML: the standard library reads it only, and Bottlerocket's settings are all that we write. Pure."""

import json
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def write_toml(document: Mapping[str, Any]) -> str:
    """A document of strings, numbers, booleans, times, lists and maps as TOML. Keys are sorted.

    Raises:
        TypeError: a value that TOML does not have.
    """
    lines: list[str] = []
    _table(document, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n" if lines else ""


def _table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping)}
    nested = {k: v for k, v in table.items() if isinstance(v, Mapping)}
    if path and (plain or not nested):
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(plain[key])}" for key in sorted(plain)]
    for key in sorted(nested):
        _table(nested[key], (*path, key), lines)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _string(value)
        case int():
            return str(value)
        case float():
            return repr(value)  # nan and inf are spelled the same
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():
            return "[" + ", ".join(_value(v) for v in value) + "]"
        case Mapping():  # inside a list
            return "{" + ", ".join(f"{_key(k)} = {_value(value[k])}" for k in sorted(value)) + "}"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _string(text)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, but for surrogate pairs and DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
