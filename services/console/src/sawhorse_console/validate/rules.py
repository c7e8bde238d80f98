"""The rules across fields (`x-kubernetes-validations`), evaluated by a CEL library.

Kubernetes adds functions to CEL; those that our rules call and the library lacks are given to it here. Rules that
compare with the object before a change (`oldSelf`) count only where that object is known.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import cel

from sawhorse_console.validate.findings import Finding, error
from sawhorse_console.validate.patterns import re2

Schema = Mapping[str, Any]


def _find(text: str, pattern: str) -> str:
    match = re2(pattern).search(text)
    return match.group() if match else ""


def _lower_ascii(text: str) -> str:
    return "".join(chr(ord(sign) + 32) if "A" <= sign <= "Z" else sign for sign in text)


# What Kubernetes' CEL has and the library has not.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {"find": _find, "lowerAscii": _lower_ascii}


@lru_cache(maxsize=1024)
def _program(rule: str) -> cel.Program:
    return cel.compile(rule)


def holds(rule: str, value: Any, old: Any = None) -> bool:
    """Whether a rule holds for a value; a rule that cannot be evaluated does not, as on the server.

    Raises:
        ValueError: the rule is not CEL.
    """
    program = _program(rule)
    context = cel.Context()
    for name, function in FUNCTIONS.items():
        context.add_function(name, function)
    try:
        context.add_variable("self", value)
        if old is not None:
            context.add_variable("oldSelf", old)
        return program.execute(context) is True
    except Exception:  # whatever the library raises: int('abc'), a missing key, a number beyond 64 bits
        return False


def check_rules(schema: Schema, value: Any, old: Any = None, path: str = "") -> Iterator[Finding]:
    """Every rule that a value and what is below it break, with the message of the CRD.

    Args:
        value: with defaults filled in, and valid by the schema.
        old: the object before the change; None when it is made.
    """
    if value is None:
        return
    for rule in schema.get("x-kubernetes-validations") or ():
        if old is None and "oldSelf" in rule["rule"]:
            continue
        if not holds(rule["rule"], value, old):
            yield error("Rule", path, rule["message"])
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, Mapping):
            # Items of a list have no identity, so none is compared with an older one.
            for index, item in enumerate(value):
                yield from check_rules(items, item, None, f"{path}[{index}]")
    if isinstance(value, Mapping):
        before = old if isinstance(old, Mapping) else {}
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, below in value.items():
            child = properties.get(name, extra)
            if isinstance(child, Mapping):
                yield from check_rules(child, below, before.get(name), f"{path}.{name}" if path else name)
