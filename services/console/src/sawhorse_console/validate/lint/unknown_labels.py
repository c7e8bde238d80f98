"""Labels that look like a well-known one and are none: such a requirement limits nothing."""

import difflib
from collections.abc import Iterator

from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.subject import Subject, Surroundings
from sawhorse_model.aws import NODECLASS_LABEL, WELL_KNOWN
from sawhorse_model.labels import domain, normalize

# Domains in which nobody invents labels of their own.
_OTHERS = ("kubernetes.io", "k8s.io", "karpenter.sh", "k8s.aws", "amazonaws.com")
_ALIKE = 0.85


def unknown_labels(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Keys that are a slip of the pen away from a label that instance types have."""
    for entry in subject.entries:
        meant = _meant(entry.key)
        if meant:
            text = f"unknown label {entry.key}: it limits no instance type; did you mean {meant}?"
            yield Finding("UnknownLabel", entry.field, text)


def _meant(key: str) -> str:
    """The well-known label that was probably meant; empty for a label of one's own."""
    if normalize(key) in WELL_KNOWN or key == NODECLASS_LABEL:
        return ""
    own, name = domain(key), key.rpartition("/")[2]
    foreign = not own or any(own == other or own.endswith(f".{other}") for other in _OTHERS)
    named = sorted(known for known in WELL_KNOWN if known.rpartition("/")[2] == name)
    if named and (foreign or name.startswith("instance-")):
        return named[0]
    close = difflib.get_close_matches(key, sorted(WELL_KNOWN), n=1, cutoff=_ALIKE)
    return close[0] if close else ""
