"""Requirements on one label that no value meets together."""

from collections.abc import Iterator, Mapping, Sequence

from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.subject import Entry, Subject, Surroundings
from sawhorse_model.requirements import Operator

_EXCLUDING = (Operator.NOT_IN, Operator.DOES_NOT_EXIST)


def contradictions(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Labels whose entries, template labels included, leave no value."""
    for key, entries in contradictory(subject).items():
        places = ", ".join(entry.field for entry in entries[:-1])
        text = f"no value of {key} meets this and {places}; no node can be made, change one of them"
        yield Finding("Contradiction", entries[-1].field, text)


def contradictory(subject: Subject) -> Mapping[str, Sequence[Entry]]:
    """The labels that are left without a value, each with its entries."""
    by_key: dict[str, list[Entry]] = {}
    for entry in subject.entries:
        by_key.setdefault(entry.requirement.key, []).append(entry)
    return {key: entries for key, entries in by_key.items() if _is_contradiction(subject, key, entries)}


def _is_contradiction(subject: Subject, key: str, entries: Sequence[Entry]) -> bool:
    # An empty rest is fine where everybody only excludes: the label is then absent.
    asked = any(entry.requirement.operator not in _EXCLUDING for entry in entries)
    return len(entries) > 1 and asked and subject.requirements[key].operator is Operator.DOES_NOT_EXIST
