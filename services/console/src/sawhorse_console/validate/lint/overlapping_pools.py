"""Pools of equal weight that serve the same pods: which one gets them is an accident of names."""

from collections.abc import Iterator

from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.instances import usable_types
from sawhorse_console.validate.lint.subject import POOL, Subject, Surroundings

_SHOWN = 5


def overlapping_pools(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Pools later in the files with the same weight and taints, compatible requirements and a type in common."""
    if subject.kind != POOL or not subject.is_ours or "replicas" in subject.spec:
        return
    later = surroundings.subjects[_index(subject, surroundings) + 1 :]
    rivals = [s for s in later if s.kind == POOL and s.is_ours and s.name != subject.name and _rival(subject, s)]
    if not rivals:
        return
    mine = usable_types(subject, surroundings)
    names = [s.name for s in rivals if mine & usable_types(s, surroundings)]
    if names:
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        text = (
            f"pods may go to this pool as well as to {shown}, of the same weight; "
            "give one a higher weight, or keep them apart by taints or requirements"
        )
        yield Finding("OverlappingPools", "spec.weight", text)


def _index(subject: Subject, surroundings: Surroundings) -> int:
    return next(index for index, other in enumerate(surroundings.subjects) if other is subject)


def _rival(one: Subject, other: Subject) -> bool:
    if "replicas" in other.spec or one.spec.get("weight", 0) != other.spec.get("weight", 0):
        return False
    return _taints(one) == _taints(other) and one.requirements.intersects(other.requirements)


def _taints(subject: Subject) -> frozenset[tuple[str, str, str]]:
    """The taints that keep pods away; others do not separate pools."""
    return frozenset(
        (taint["key"], taint.get("value", ""), taint["effect"])
        for taint in subject.template.get("taints") or ()
        if taint["effect"] != "PreferNoSchedule"
    )
