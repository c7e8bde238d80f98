"""Pending pods as metrics show them: the zone that each is held to, and how many cannot be planned at all. Pure."""

from collections import Counter

from sawhorse_model.labels import ZONE
from sawhorse_scheduling.classes import required_terms, together
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import PodGroup, Snapshot, Volumes
from sawhorse_scheduling.volumes import wants_of

FLEXIBLE, NOWHERE = "flexible", "none"
# Codes of pods that are refused before anything is tried: nothing in the cluster would help them.
REFUSED = frozenset(
    {
        "InvalidRequirement",
        "MatchFieldsNotSupported",
        "ResourceClaimsNotSupported",
        "VolumeClaimMissing",
        "VolumeClaimUnusable",
        "VolumeClaimUnbound",
        "VolumesDiffer",
    }
)


def by_effective_zone(snapshot: Snapshot) -> Counter[str]:
    """Pods by the one zone that their rules and volumes leave, `flexible` with more, `none` without any."""
    found: Counter[str] = Counter()
    for group in snapshot.pods:
        found[effective_zone(group, snapshot.volumes)] += group.count
    return found


def effective_zone(group: PodGroup, volumes: Volumes) -> str:
    """The zone of a group's pods, in the words of `by_effective_zone`."""
    wants = wants_of(group, volumes)
    if wants.refusal is not None:
        return NOWHERE
    zones: set[str] = set()
    for term in required_terms(group.pod.spec):
        for place in wants.choices:
            both = together(term, place)
            if both is None:
                continue
            zone = both.get(ZONE)
            if zone is None or zone.complement:
                return FLEXIBLE
            zones |= zone.values
    return zones.pop() if len(zones) == 1 else FLEXIBLE if zones else NOWHERE


def ignored(plan: Plan) -> int:
    """How many pods were refused before the plan was made."""
    return sum(len(left.pods) for left in plan.unschedulable if all(r.code in REFUSED for r in left.reasons))
