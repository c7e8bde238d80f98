"""Kubernetes quantities as exact integers. Knows the text format, no resource names.

A quantity such as `250m`, `1.5Gi` or `2e3` is parsed without floating point. `parse_quantity` gives an exact
Fraction in base units; `milli` and `whole` round up, as the API does when a value is finer than its unit.
"""

import math
import re
from fractions import Fraction

_SUFFIXES: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_PATTERN = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?\d{1,3}))?")

# Beyond this no real resource goes; the bound keeps "1e999" from becoming a thousand-digit integer.
LARGEST = 2**63 - 1


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""


def parse_quantity(text: str | int | float) -> Fraction:
    """Return the exact value in base units (cores, bytes, pieces).

    JSON numbers are accepted as the API accepts them; a float is read by its shortest decimal text.

    Raises:
        QuantityError: not a quantity, or beyond the range of a signed 64-bit integer.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise QuantityError(f"{text!r} is not a quantity")
    match = _PATTERN.fullmatch(str(text).strip())
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity such as 250m, 2 or 1.5Gi")
    sign, digits, suffix, exponent = match.groups()
    value = Fraction(digits) * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""])
    if value > LARGEST:
        raise QuantityError(f"{text!r} is larger than any resource can be")
    return -value if sign == "-" else value


def milli(text: str | int | float) -> int:
    """Return thousandths, rounded up: the unit of cpu (millicores)."""
    return math.ceil(parse_quantity(text) * 1000)


def whole(text: str | int | float) -> int:
    """Return whole base units, rounded up: bytes, pods, devices."""
    return math.ceil(parse_quantity(text))


def format_milli(value: int) -> str:
    """Write millicores the short way: `2` for 2000, `250m` for 250."""
    return str(value // 1000) if value % 1000 == 0 else f"{value}m"


def format_bytes(value: int) -> str:
    """Write bytes with the largest binary suffix that divides them exactly."""
    if value:
        for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
            unit = int(_SUFFIXES[suffix])
            if value % unit == 0:
                return f"{value // unit}{suffix}"
    return str(value)
