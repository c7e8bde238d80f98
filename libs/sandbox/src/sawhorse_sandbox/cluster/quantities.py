"""Kubernetes quantities as integers: cpu in millicores, all else in whole units (bytes, pods, devices), rounded up.

Written apart from the project's own parser on purpose: the double must not share its mistakes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation

Amounts = Mapping[str, int]

_SUFFIXES: Mapping[str, Decimal] = {
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
}


@functools.lru_cache(maxsize=4096)
def _number(text: str) -> Decimal:
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            number, times = text[: -len(suffix)], factor
            break
    else:
        number, times = text, Decimal(1)
    try:
        return Decimal(number) * times
    except InvalidOperation as err:
        raise ValueError(f"not a quantity: {text!r}") from err


def amount(resource: str, quantity: str | int | float) -> int:
    """Raises ValueError for what is no quantity."""
    number = _number(str(quantity))
    return math.ceil(number * 1000) if resource == "cpu" else math.ceil(number)


def amounts(quantities: Mapping[str, str | int | float] | None) -> dict[str, int]:
    return {name: amount(name, quantity) for name, quantity in (quantities or {}).items()}


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    result: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            result[name] = result.get(name, 0) + value
    return result


def largest(parts: Iterable[Amounts]) -> dict[str, int]:
    """The maximum of each resource on its own."""
    result: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            result[name] = max(result.get(name, 0), value)
    return result
