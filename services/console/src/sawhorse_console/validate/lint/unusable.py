"""What an API server takes and the autoscaler refuses at run time: the pool then makes no nodes."""

from collections.abc import Iterator

from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.subject import CLASS, Subject, Surroundings
from sawhorse_console.validate.metadata import is_label_value, is_qualified_name
from sawhorse_model.aws import NODECLASS_LABEL


def unusable(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Values that no label can have, taints that are there twice, labels that the autoscaler sets itself."""
    if subject.kind == CLASS or not subject.is_ours:
        return
    for entry in subject.entries:
        if entry.key == NODECLASS_LABEL:
            yield Finding("ReservedLabel", entry.field, f"{entry.key} is set by the autoscaler; remove it")
        if not is_qualified_name(entry.key):
            yield Finding("LabelValue", entry.field, f"{entry.key!r} is no label key; no node can carry it")
        for value in entry.values:
            if not is_label_value(value):
                text = f"{value!r} is no label value; use up to 63 letters, digits, '-', '_' and '.'"
                yield Finding("LabelValue", entry.field, text)
    yield from _twice(subject)
    for name, amount in (subject.spec.get("limits") or {}).items():
        if str(amount).startswith("-"):
            yield Finding("NegativeLimit", f"spec.limits.{name}", f"{amount} is negative; use zero or more")


def _twice(subject: Subject) -> Iterator[Finding]:
    seen: dict[tuple[str, str], str] = {}
    for part in ("taints", "startupTaints"):
        for index, taint in enumerate(subject.template.get(part) or ()):
            where = f"{subject.template_path}.{part}[{index}]"
            identity = (taint["key"], taint["effect"])
            if identity in seen:
                text = f"{taint['key']}:{taint['effect']} is there twice (also in {seen[identity]}); keep one"
                yield Finding("DuplicateTaint", where, text)
            seen.setdefault(identity, where)
