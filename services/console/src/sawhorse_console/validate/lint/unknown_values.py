"""Values of well-known labels that no instance type has."""

import difflib
from collections.abc import Iterator, Mapping
from functools import cache

from sawhorse_catalog.aws.families import FAMILIES
from sawhorse_catalog.aws.labels import TENANCIES, fact_labels
from sawhorse_catalog.builtin import builtin_facts
from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.subject import Subject, Surroundings
from sawhorse_model import aws, labels
from sawhorse_model.instances import CapacityType
from sawhorse_model.labels import normalize


@cache
def known_values() -> Mapping[str, frozenset[str]]:
    """The values of each label that only the catalogue can give. Zones are not among them: accounts differ."""
    found: dict[str, set[str]] = {}
    for facts in builtin_facts():
        for key, value in fact_labels(facts).items():
            found.setdefault(key, set()).add(value)
    for key in (aws.INSTANCE_FLEX, aws.INSTANCE_ENCRYPTION, aws.NITRO_SANDBOX, aws.RESERVATION_INTERRUPTIBLE):
        found[key] = {"true", "false"}
    found[labels.OS] = {"linux", "windows"}
    found[labels.WINDOWS_BUILD] = {f.windows_build for f in FAMILIES.values() if f.windows_build}
    found[labels.CAPACITY_TYPE] = {str(kind) for kind in CapacityType}
    found[aws.TENANCY] = set(TENANCIES)
    found[aws.RESERVATION_TYPE] = {"default", "capacity-block"}
    return {key: frozenset(values) for key, values in found.items()}


def unknown_values(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Listed values, to take or to avoid, that the built-in catalogue does not know."""
    for entry in subject.entries:
        known = known_values().get(normalize(entry.key))
        if known is None or entry.operator not in ("In", "NotIn"):
            continue
        unknown = [value for value in entry.values if value not in known]
        if unknown:
            listed = ", ".join(f"{value!r}{_hint(value, known)}" for value in unknown)
            text = f"no instance type of the built-in catalogue has {entry.key} {listed}; check the spelling"
            yield Finding("UnknownValue", entry.field, text)


def _hint(value: str, known: frozenset[str]) -> str:
    if value.isdecimal():  # one number is no misspelling of another
        return ""
    close = difflib.get_close_matches(value.lower(), sorted(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
