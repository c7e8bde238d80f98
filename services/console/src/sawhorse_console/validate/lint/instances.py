"""Which instance types of the built-in catalogue a pool can use. For lints."""

from sawhorse_console.validate.lint.subject import Subject, Surroundings
from sawhorse_model import aws, labels
from sawhorse_model.instances import CapacityType
from sawhorse_model.requirements import Requirements

# What depends on the account or on the launch: the catalogue is of one region and knows no reservations.
_ELSEWHERE = (
    labels.ZONE,
    labels.REGION,
    labels.NODEPOOL,
    aws.ZONE_ID,
    aws.TENANCY,
    aws.RESERVATION_ID,
    aws.RESERVATION_TYPE,
    aws.RESERVATION_INTERRUPTIBLE,
    aws.PLACEMENT_GROUP_ID,
    aws.PLACEMENT_GROUP_PARTITION,
)


def judged_by_type(requirements: Requirements) -> Requirements:
    """What of a pool's requirements an instance type alone can answer."""
    kept = [r for key, r in requirements.items() if key in aws.WELL_KNOWN and key not in _ELSEWHERE]
    bought = requirements.get(labels.CAPACITY_TYPE)
    if bought is not None and bought.has(CapacityType.RESERVED.value):
        kept = [r for r in kept if r.key != labels.CAPACITY_TYPE]
    return Requirements(kept)


def usable_types(subject: Subject, surroundings: Surroundings) -> frozenset[str]:
    """Names of the types that meet the requirements of a pool or claim. Worked out once for each."""
    known = surroundings.usable
    if id(subject) not in known:
        wanted = judged_by_type(subject.requirements)
        types = surroundings.types_for(subject)
        known[id(subject)] = frozenset(t.name for t in types if t.requirements.is_compatible(wanted))
    return known[id(subject)]
