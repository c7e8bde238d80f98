"""Why pods with affinity or anti-affinity over domains found no place."""

from sawhorse_scheduling.affinity import shared_claim
from sawhorse_scheduling.classes import PodClass
from sawhorse_scheduling.plan import Reason
from sawhorse_scheduling.topology import Topology


def bundle_reasons(bundle: PodClass) -> list[Reason]:
    """That pods have to share a node, and why they cannot."""
    if bundle.refusal is not None:
        return [bundle.refusal]
    number = sum(part.count for part in bundle.parts)
    message = f"{number} pods must share a node by their affinity over kubernetes.io/hostname, and none holds them all"
    return [Reason("", "CoLocationUnsatisfiable", message)]


def affinity_reasons(topology: Topology, members: PodClass) -> list[Reason]:
    """What the class asked of the pods around it, and where such pods are."""
    reasons = []
    for use in topology.near[members.index]:
        counts = topology.existing_counts[use.group]
        claim = shared_claim(topology.groups[use.group].matcher)
        if claim:
            message = (
                f"pods that use the volume claim {claim} must be in one {use.key}, and none has room for all of them"
            )
            reasons.append(Reason("", "VolumesConflict", message))
            continue
        there = ", ".join(f"{value}: {n}" for value, n in sorted(counts.items()) if n) or "none"
        hint = "" if use.own else "; it does not match its own terms, so it cannot be the first"
        if use.group in topology.unsettled:
            hint = "; a matching pod is on a node of which this label is not known yet"
        message = f"it must be near pods by {use.key}, and no domain has them and room (running there: {there}{hint})"
        reasons.append(Reason("", "AffinityUnsatisfiable", message))
    if members.held:
        hosts = ", ".join(members.held[:5])
        message = f"it must share a node with pods that run on {hosts}, and there is no room for it"
        reasons.append(Reason("", "AffinityUnsatisfiable", message))
    forbidden = topology.forbidden[members.index]
    rules = topology.apart.rules
    keys = {rules[r].key for r in (*topology.apart.owned[members.index], *topology.apart.meant[members.index])}
    for key in sorted(keys | forbidden.keys()):
        taken = ", ".join(sorted(forbidden[key].values)) if key in forbidden else ""
        known = f"pods that run keep it from {taken}" if taken else "planned pods take every domain"
        message = f"anti-affinity over {key} leaves no domain for it ({known})"
        reasons.append(Reason("", "AntiAffinityUnsatisfiable", message))
    return reasons
