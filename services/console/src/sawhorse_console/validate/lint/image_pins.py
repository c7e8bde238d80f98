"""Image aliases pinned to a release that is old, or that is none."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.subject import CLASS, Subject, Surroundings

_OLD = timedelta(days=365)
_DATED = ("al2", "al2023")
_SEMVER = re.compile(r"v?\d+\.\d+\.\d+", re.ASCII)


def image_pins(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Pins older than a year, whose images AWS withdraws, and versions that cannot be a release."""
    if subject.kind != CLASS:
        return
    for index, term in enumerate(subject.spec.get("amiSelectorTerms") or ()):
        family, _, version = term.get("alias", "").partition("@")
        problem = "" if version in ("", "latest") else _problem(family, version, surroundings.now)
        if problem:
            yield Finding("ImagePin", f"spec.amiSelectorTerms[{index}].alias", problem)


def _problem(family: str, version: str, now: datetime) -> str:
    if family == "bottlerocket":
        return "" if _SEMVER.fullmatch(version) else f"{version!r} is no release; write one such as 1.44.0 or latest"
    if family not in _DATED:
        return ""
    try:
        released = datetime.strptime(version, "v%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        return f"{version!r} is no release; write one such as v20250915 or latest"
    age = now - released
    if age < _OLD:
        return ""
    return f"the image of {released:%Y-%m-%d} is {age.days} days old and gets no more fixes; pin a newer release"
