"""The cluster's default spread: what kube-scheduler adds to pods that ask for no spread themselves.

Only in memory, as the scheduler does it: constraints from its configuration (`podTopologySpread.defaultConstraints`),
with a selector deduced from the Services, ReplicationControllers, ReplicaSets and StatefulSets of the pod.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sawhorse_model.cluster import Workload
from sawhorse_model.pod import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY, Pod, TopologySpread
from sawhorse_model.selectors import LabelSelector, SelectorExpression
from sawhorse_scheduling.snapshot import PodGroup, Snapshot

_FIELDS = frozenset(
    ("maxSkew", "topologyKey", "whenUnsatisfiable", "minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy")
)
_INNER = frozenset({"defaultConstraints"})


def parse_default_spread(text: str) -> tuple[TopologySpread, ...]:
    """Read `{"podTopologySpread": {"defaultConstraints": [...]}}`; an empty text is none.

    Raises:
        ValueError: says which field is wrong and what it may be.
    """
    if not text.strip():
        return ()
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error}") from None
    inner = _only(_only(data, "", {"podTopologySpread"}).get("podTopologySpread", {}), "podTopologySpread", _INNER)
    given = inner.get("defaultConstraints", [])
    if not isinstance(given, list):
        raise ValueError("podTopologySpread.defaultConstraints: must be a list")
    found = tuple(_constraint(raw, f"defaultConstraints[{i}]") for i, raw in enumerate(given))
    pairs = [(c.topology_key, c.when_unsatisfiable) for c in found]
    if len(set(pairs)) < len(pairs):
        raise ValueError("defaultConstraints: topologyKey and whenUnsatisfiable are given twice; keep one")
    return found


def _only(raw: Any, where: str, known: frozenset[str] | set[str]) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError(f"{where or 'it'}: must be an object")
    unknown = sorted(set(raw) - known)
    if unknown:
        place = f"{where}.{unknown[0]}" if where else unknown[0]
        raise ValueError(f"{place}: is not known; known are {', '.join(sorted(known))}")
    return raw


def _constraint(raw: Any, where: str) -> TopologySpread:
    entry = _only(raw, where, _FIELDS)
    skew, key = entry.get("maxSkew"), entry.get("topologyKey")
    when = entry.get("whenUnsatisfiable", DO_NOT_SCHEDULE)
    if not isinstance(skew, int) or isinstance(skew, bool) or skew < 1:
        raise ValueError(f"{where}.maxSkew: must be a whole number above 0")
    if not isinstance(key, str) or not key:
        raise ValueError(f"{where}.topologyKey: must be a label's name")
    if when not in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY):
        raise ValueError(f"{where}.whenUnsatisfiable: must be {DO_NOT_SCHEDULE} or {SCHEDULE_ANYWAY}")
    fewest = entry.get("minDomains")
    if fewest is not None and (not isinstance(fewest, int) or fewest < 1):
        raise ValueError(f"{where}.minDomains: must be a whole number above 0")
    affinity, taints = entry.get("nodeAffinityPolicy", "Honor"), entry.get("nodeTaintsPolicy", "Ignore")
    for name, policy in (("nodeAffinityPolicy", affinity), ("nodeTaintsPolicy", taints)):
        if policy not in ("Honor", "Ignore"):
            raise ValueError(f"{where}.{name}: must be Honor or Ignore")
    return TopologySpread(skew, key, when, min_domains=fewest, node_affinity_policy=affinity, node_taints_policy=taints)


def with_default_spread(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the default constraints on every waiting pod that has none and whose selector is known."""
    constraints = snapshot.options.default_spread
    if not constraints:
        return snapshot
    owners = {(w.kind, w.meta.key): w for w in snapshot.workloads}
    pods = []
    for group in snapshot.pods:
        selector = None if group.pod.spec.spread else deduced_selector(group.pod, snapshot, owners)
        if selector is None:
            pods.append(group)
            continue
        spread = tuple(replace(c, selector=selector) for c in constraints)
        spec = replace(group.pod.spec, spread=spread)
        pods.append(PodGroup(replace(group.pod, spec=spec), group.names))
    return replace(snapshot, pods=tuple(pods))


def deduced_selector(pod: Pod, snapshot: Snapshot, owners: Mapping[tuple[str, str], Workload]) -> LabelSelector | None:
    """The selector that the scheduler makes up for a pod; None when nothing selects it."""
    labels: dict[str, str] = {}
    for service in sorted(snapshot.services, key=lambda s: s.meta.key):
        chosen = service.selector
        if chosen is None or service.meta.namespace != pod.meta.namespace:
            continue
        if all(pod.meta.labels.get(key) == value for key, value in chosen.items()):
            labels.update(chosen)
    more: tuple[SelectorExpression, ...] = ()
    controller = pod.meta.controller()
    owner = owners.get((controller.kind, f"{pod.meta.namespace}/{controller.name}")) if controller else None
    if owner is not None and owner.selector is not None:
        if owner.kind == "ReplicationController":
            labels.update({e.key: e.values[0] for e in owner.selector.expressions if e.values})
        else:
            more = owner.selector.expressions
    expressions = tuple(SelectorExpression(k, "In", (v,)) for k, v in sorted(labels.items()))
    return LabelSelector((*expressions, *more)) if expressions or more else None
