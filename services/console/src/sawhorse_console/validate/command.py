"""`sawhorse validate`: manifests in, an API server's verdict and our advice out. Offline; it only reads files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import msgspec

from sawhorse_console.manifests_files import Document, Problem, read_documents
from sawhorse_console.validate.crds import CustomKind, custom_kinds
from sawhorse_console.validate.findings import Finding, Located, Severity, error
from sawhorse_console.validate.judge import judge
from sawhorse_console.validate.lint import Subject, Surroundings, lint

VALID, REFUSED, WRONG_INPUT = 0, 1, 2


@dataclass(slots=True)
class Report:
    """What was found. `notable` counts what --strict refuses: unknown fields and kinds that are skipped."""

    objects: int = 0
    found: list[Located] = field(default_factory=list)
    notable: int = 0

    def count(self, severity: Severity) -> int:
        """How many findings are of this severity."""
        return sum(located.finding.severity is severity for located in self.found)

    def to_raw(self) -> dict[str, Any]:
        """The report in the format of `-o json`."""
        return {
            "apiVersion": "sawhorse.dev/v1",
            "kind": "Validation",
            "valid": not self.count(Severity.ERROR),
            "objects": self.objects,
            "findings": [located.to_raw() for located in self.found],
        }


def run_validate(
    files: Sequence[Path],
    *,
    against: Sequence[Path],
    strict: bool,
    output: str,
    now: datetime,
    stdout: TextIO,
    stderr: TextIO,
) -> int:
    """Judge the NodePools, NodeClaims and EC2NodeClasses of manifest files and print what is wrong with them.

    Args:
        against: files with the objects as they are now; with them rules about changes are judged too.
        strict: refuse unknown fields and kinds that are skipped.
        output: `table` or `json`.
        now: when images count as old.
    Returns:
        0: an API server takes all of them, 1: it refuses some, 2: the input cannot be used (one line per problem on
        stderr).
    """
    problems: list[Problem] = []
    documents = read_documents(files, problems)
    before = {_key(document): document.raw for document in read_documents(against, problems)}
    report = validate(documents, before, strict=strict, now=now)
    for problem in problems:
        stderr.write(" ".join(str(problem).split()) + "\n")
    if output == "json":
        stdout.write(msgspec.json.encode(report.to_raw()).decode() + "\n")
    else:
        _write_lines(report, stdout)
    if problems or (strict and report.notable):
        return WRONG_INPUT
    return REFUSED if report.count(Severity.ERROR) else VALID


def validate(
    documents: Iterable[Document], before: Mapping[tuple[str, str], Mapping[str, Any]], *, strict: bool, now: datetime
) -> Report:
    """Judge documents: every object by itself, then those that are accepted beside each other."""
    report = Report()
    accepted: list[tuple[Document, Subject]] = []
    skipped: set[str] = set()
    notable = Severity.ERROR if strict else Severity.WARNING
    for document in documents:
        kind = custom_kinds().get(document.kind)
        if kind is None or (document.api_version and document.api_version.rpartition("/")[0] != kind.group):
            if document.kind not in skipped:
                text = f"kind {document.kind} has no rules here; such objects are skipped"
                report.found.append(Located(document.file, document.label, Finding("Skipped", "", text, notable)))
                report.notable += 1
            skipped.add(document.kind)
            continue
        report.objects += 1
        if document.api_version != kind.api_version:
            report.found.append(Located(document.file, document.label, _wrong_version(document, kind)))
            continue
        verdict = judge(kind, document.raw, before.get(_key(document)))
        report.notable += len(verdict.unknown_fields)
        unknown = [
            Finding("UnknownField", path, "is no field of this kind and would be dropped; check the spelling", notable)
            for path in verdict.unknown_fields
        ]
        report.found += [Located(document.file, document.label, found) for found in (*verdict.errors, *unknown)]
        if not verdict.errors:
            name = document.raw["metadata"].get("name") or ""
            accepted.append((document, Subject(document.kind, name, verdict.stored)))
    surroundings = Surroundings([subject for _, subject in accepted], now)
    for document, subject in accepted:
        report.found += [Located(document.file, document.label, found) for found in lint(subject, surroundings)]
    return report


def _key(document: Document) -> tuple[str, str]:
    meta = document.raw.get("metadata")
    name = meta.get("name") if isinstance(meta, Mapping) else None
    return document.kind, name if isinstance(name, str) else ""


def _wrong_version(document: Document, kind: CustomKind) -> Finding:
    if not document.api_version:
        return error("Metadata", "apiVersion", f"is missing; write {kind.api_version}")
    return error("Metadata", "apiVersion", f"{document.api_version} is not served; convert it to {kind.api_version}")


def _write_lines(report: Report, stdout: TextIO) -> None:
    for located in report.found:
        stdout.write(f"{located}\n")
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    stdout.write(
        f"{_counted(report.objects, 'object')}: {_counted(errors, 'error')}, {_counted(warnings, 'warning')}\n"
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
