"""Pools and claims that no instance type serves."""

from collections.abc import Iterator

from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.contradictions import contradictory
from sawhorse_console.validate.lint.instances import judged_by_type
from sawhorse_console.validate.lint.subject import CLASS, Subject, Surroundings
from sawhorse_model.requirements import Requirements


def fits_nothing(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Requirements that all instance types of the built-in catalogue fail, with what to look at."""
    if subject.kind == CLASS or not subject.is_ours:
        return
    # What contradicts itself is another lint's, and says nothing about types.
    wanted = judged_by_type(subject.requirements).without(*contradictory(subject))
    types = surroundings.types_for(subject)
    if any(t.requirements.is_compatible(wanted) for t in types):
        return
    where = f"{subject.template_path}.requirements"
    if not types:
        text = (
            f"EC2NodeClass {subject.template['nodeClassRef']['name']} rules out every instance type; look at its spec"
        )
        yield Finding("FitsNoType", where, text)
        return
    alone = [key for key in wanted if not any(t.requirements.is_compatible(Requirements([wanted[key]])) for t in types)]
    blame = f"look at {', '.join(sorted(alone))}" if alone else "each alone is met: widen one of them"
    yield Finding("FitsNoType", where, f"no instance type of the built-in catalogue meets all of them; {blame}")
