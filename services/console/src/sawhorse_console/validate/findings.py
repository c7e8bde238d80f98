"""What validate has to say about an object: one finding is one line."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """An error is what an API server refuses; a warning is advice."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to say about a field: what is wrong and what to do.

    `code` is a stable word: `Structure`, `Rule`, `Metadata`, `UnknownField`, `Skipped` or that of a lint.
    """

    code: str
    field: str
    text: str
    severity: Severity = Severity.WARNING


@dataclass(frozen=True, slots=True)
class Located:
    """A finding with the file and the object it is about."""

    file: str
    object: str
    finding: Finding

    def __str__(self) -> str:
        found = self.finding
        parts = (str(found.severity), self.file, self.object, found.field, found.text)
        # Values in texts may hold line breaks; a finding is one line.
        return " ".join(": ".join(part for part in parts if part).split())

    def to_raw(self) -> dict[str, Any]:
        """The finding in the format of `-o json`."""
        found = self.finding
        return {
            "severity": str(found.severity),
            "code": found.code,
            "file": self.file,
            "object": self.object,
            "field": found.field,
            "message": found.text,
        }


def error(code: str, field: str, text: str) -> Finding:
    """What an API server refuses."""
    return Finding(code, field, text, Severity.ERROR)
