"""What the plan checker says about minValues: enough different values of a label stay open on every planned node."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from sawhorse_model.instances import InstanceType, Offering
from sawhorse_model.labels import CAPACITY_TYPE, ZONE, normalize
from sawhorse_model.pod import Pod
from sawhorse_model.requirements import Operator, Requirement, RequirementSpec
from sawhorse_scheduling.plan import PlannedNode
from sawhorse_scheduling.snapshot import Pool, Snapshot
from sawhorse_testing.checker_labels import Labels, choices, holds

Serving = Callable[[Pod, Pool, Sequence[RequirementSpec]], Iterator[tuple[InstanceType, Labels]]]
"""Types, with the labels that a node of them may get, on which a pod could run alone by one of its terms."""


def check_min_values(
    snapshot: Snapshot,
    node: PlannedNode,
    pool: Pool,
    listed: Sequence[InstanceType],
    offers: Mapping[str, Sequence[Offering]],
    placed: Sequence[Pod],
    serving: Serving,
) -> Iterator[str]:
    """By best effort, as many values stay open as the pod of the node that leaves the fewest would have by itself."""
    options = snapshot.options
    if not options.min_values_strict and (pool.nodepool.limits or node.reservation_id or options.slack):
        return  # what those leave decides, and a node for one pod may leave less
    for spec in pool.nodepool.template.requirements:
        key = normalize(spec.key)
        if not spec.min_values:
            continue
        if key == ZONE:
            values = {o.zone for found in offers.values() for o in found}
        elif key == CAPACITY_TYPE:
            values = {str(o.capacity_type) for found in offers.values() for o in found}
        else:
            values = {v for t in listed if (r := t.requirements.get(key)) is not None for v in r.values}
        least = spec.min_values
        if not options.min_values_strict:
            alone = [_values_for(pod, pool, key, node, serving) for pod in {id(p): p for p in placed}.values()]
            least = min([least, *alone])
        if len(values) < least:
            yield f"{node.name}: {len(values)} values of {key}, minValues is {spec.min_values}"


def _values_for(pod: Pod, pool: Pool, key: str, node: PlannedNode, serving: Serving) -> int:
    """How many values of a label a node for this pod alone could keep open, where its claim lets it be.

    A wish that the claim keeps holds as a requirement does: minValues are lowered before a pod's wishes are.
    """
    zone, kind = node.requirements.get_or_any(ZONE), node.requirements.get_or_any(CAPACITY_TYPE)
    counts = [
        len({labels.get(key) for _, labels in found})
        for term in choices(pod.spec)
        if (
            found := [
                (t, labels)
                for t, labels in serving(pod, pool, [*term, *_wishes_kept(pod, node)])
                if zone.has(labels[ZONE]) and kind.has(labels[CAPACITY_TYPE])
            ]
        )
    ]
    return min(counts, default=0)


def _wishes_kept(pod: Pod, node: PlannedNode) -> list[RequirementSpec]:
    """Expressions of the pod's preferred terms that hold for every value which the claim allows."""
    kept: list[RequirementSpec] = []
    for wish in pod.spec.preferred_terms:
        allowed = [(e, node.requirements.get(normalize(e.key))) for e in wish.term.expressions]
        if all(r is not None and _all_hold(e, r) for e, r in allowed):
            kept += wish.term.expressions
    return kept


def _all_hold(want: RequirementSpec, allowed: Requirement) -> bool:
    if not allowed.complement:
        return all(holds(want, value) for value in allowed.values)
    return want.operator == Operator.NOT_IN and set(want.values) <= set(allowed.values)
