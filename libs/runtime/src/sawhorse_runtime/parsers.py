"""Parsers of setting values: text in, value out, `ValueError` with "what; what to do" when it makes no sense.

A parser's name, in capitals, is what `--help` shows as the kind of value.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit

T = TypeVar("T")
Parser = Callable[[str], T]


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


O = TypeVar("O", bound=_Ordered)  # noqa: E741  a type variable, beside T

_MICROSECONDS = {"us": 1, "µs": 1, "μs": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_PART = re.compile(r"(\d+)(?:\.(\d+))?(us|µs|μs|ms|s|m|h)")
_LONGEST = timedelta(days=365 * 100)


def text(value: str) -> str:
    """The text as it is."""
    return value


def path(value: str) -> str:
    """A file path as text, so that "" can mean off; `~` is not expanded."""
    if "\0" in value:
        raise ValueError("a path holds no NUL byte; give a plain path")
    return value


def boolean(value: str) -> bool:
    """Only `true` and `false`: "yes", "1" and "True" are as often a mistake as meant."""
    if value not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false; write true or false")
    return value == "true"


def integer(value: str) -> int:
    """A whole number in digits, with an optional sign."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        raise ValueError(f"{value!r} is not a whole number; write digits, like 10")
    return int(value)


def number(value: str) -> float:
    """A finite decimal number."""
    if not re.fullmatch(r"[+-]?([0-9]{1,18}(\.[0-9]{1,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,2})?", value):
        raise ValueError(f"{value!r} is not a number; write it like 0.075")
    return float(value)


def duration(value: str) -> timedelta:
    """A length of time as Go writes it: "1h30m", "1.5h", "10s", "500ms", "0". Never negative; at least 1 µs."""
    if value == "0":
        return timedelta(0)
    total = position = 0
    while position < len(value):
        part = _PART.match(value, position)
        if part is None:
            break
        whole, fraction, unit = part.group(1), part.group(2) or "", part.group(3)
        # In integers: floats would turn 0.1s into 99999 or 100001 microseconds somewhere.
        total += int(whole + fraction) * _MICROSECONDS[unit] // 10 ** len(fraction)
        position = part.end()
    if position == 0 or position < len(value):
        raise ValueError(f"{value!r} is not a duration; write it like 1h30m, 10s or 500ms")
    if total > _LONGEST // timedelta(microseconds=1):
        raise ValueError(f"{value!r} is longer than 100 years; write a shorter duration")
    return timedelta(microseconds=total)


def port(value: str) -> int:
    """A TCP port to listen on, 0 to 65535; 0 lets the system pick."""
    if not re.fullmatch(r"[0-9]{1,5}", value) or int(value) > 65535:
        raise ValueError(f"{value!r} is not a port; write a number from 0 to 65535")
    return int(value)


def address(value: str) -> str:
    """ "host:port" as text; IPv6 hosts in brackets. See `split_address`."""
    split_address(value)
    return value


def split_address(value: str) -> tuple[str, int]:
    """Host (without brackets) and port of a "host:port".

    Raises:
        ValueError: it is not one.
    """
    host, colon, port_text = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host.partition("%")[0])
        except ValueError:
            colon = ""
    elif not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?", host):
        colon = ""
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port_text) or int(port_text) > 65535:
        raise ValueError(f"{value!r} is not host:port; write it like 127.0.0.1:8082 or [::1]:8082")
    return host, int(port_text)


def is_loopback(host: str) -> bool:
    """Does `host` (a name or an address, no port) never leave this machine?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url(value: str) -> str:
    """An absolute http or https URL as text."""
    if urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).netloc:
        raise ValueError(f"{value!r} is not an absolute URL; write it like https://host:port")
    return value


def redis_url(value: str) -> str:
    """A redis://, rediss:// or unix:// URL without a password: flags and environment are seen by many."""
    parts = urlsplit(value)
    if parts.scheme not in ("redis", "rediss", "unix") or not (parts.netloc or parts.path.strip("/")):
        raise ValueError("not a Redis URL; write it like redis://host:6379/0")
    if parts.password is not None or "password" in parse_qs(parts.query):
        raise ValueError("a password stands in the URL; put it in a file and name it in --redis-password-file")
    return value


def words(value: str) -> tuple[str, ...]:
    """A comma list; blanks around words and empty words are dropped."""
    return tuple(word for word in (part.strip() for part in value.split(",")) if word)


def choice(*allowed: str) -> Parser[str]:
    """One of `allowed`, spelled exactly so."""

    def parse(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"{value!r} is not one of the allowed words; write {_or(allowed)}")
        return value

    parse.__name__ = "|".join(allowed)
    return parse


def optional(parser: Parser[str]) -> Parser[str]:
    """What `parser` takes, or "" for off."""

    def parse(value: str) -> str:
        return parser(value) if value else ""

    parse.__name__ = parser.__name__
    return parse


def at_least(parser: Parser[O], minimum: str) -> Parser[O]:
    """What `parser` takes, not below `minimum` (text that `parser` takes)."""
    lowest = parser(minimum)

    def parse(value: str) -> O:
        parsed = parser(value)
        if parsed < lowest:
            raise ValueError(f"{value!r} is too small; write at least {minimum}")
        return parsed

    parse.__name__ = parser.__name__
    return parse


def _or(allowed: tuple[str, ...]) -> str:
    return allowed[0] if len(allowed) == 1 else ", ".join(allowed[:-1]) + " or " + allowed[-1]
