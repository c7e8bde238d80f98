"""Selector terms of which a part is ignored.

An API server refuses mixed terms only where every term of the list is mixed; one clean term lets the others through.
"""

from collections.abc import Iterator

from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.subject import CLASS, Subject, Surroundings

# Per list: the fields that stand alone, in the order in which they win.
_ALONE = {
    "subnetSelectorTerms": ("id",),
    "securityGroupSelectorTerms": ("id", "name"),
    "capacityReservationSelectorTerms": ("id",),
}


def selector_terms(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Terms that mix a field that stands alone with others."""
    if subject.kind != CLASS:
        return
    for part, alone in _ALONE.items():
        for index, term in enumerate(subject.spec.get(part) or ()):
            winner = next((field for field in alone if field in term), "")
            ignored = [field for field in term if field != winner]
            if winner and ignored:
                text = f"only {winner} counts here, {' and '.join(ignored)} would be ignored; make it two terms"
                yield Finding("MixedTerm", f"spec.{part}[{index}]", text)
