"""Required affinity by hostname: pods that must share a node are planned as one.

Pods that match their own term all follow the first, so the whole class goes on one node. Pods that must be near others
of the plan (a web server beside each cache) are shared out: each of those others takes its part along. What must be
together is a bundle: a class of its own, whose unit asks for the sum. Where such pods run already, the class is held to
their nodes instead. Pods that would only like to share a node are bundled in the same way where that is tried
(`gathering.py`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from types import MappingProxyType

from sawhorse_model.labels import HOSTNAME
from sawhorse_model.pod import Pod
from sawhorse_model.requirements import Operator, Requirement, Requirements
from sawhorse_model.resources import CPU, add
from sawhorse_scheduling.affinity import apart_rules_of, near_matcher
from sawhorse_scheduling.classes import Part, PodClass, together
from sawhorse_scheduling.company import liked_most
from sawhorse_scheduling.daemons import clash
from sawhorse_scheduling.hosts import APART, HostRule, pod_rules
from sawhorse_scheduling.matching import AllOf, is_hostname
from sawhorse_scheduling.plan import Reason
from sawhorse_scheduling.snapshot import Snapshot

CODE = "CoLocationUnsatisfiable"
_CHOICES = 64  # alternatives of a bundle that are looked at


def colocate(
    classes: Sequence[PodClass],
    snapshot: Snapshot,
    parted: frozenset[int] = frozenset(),
    gathered: Mapping[int, int] = MappingProxyType({}),
) -> tuple[PodClass, ...]:
    """The classes, those held together marked as `bundled`, and behind them the bundles.

    Args:
        parted: classes that would have to go along with others, where no place holds both.
        gathered: classes that would like to share a node, which is to be tried, with how many pods at most.
    """
    needs = {c.index: near_matcher(c.pod, snapshot) for c in classes if c.refusal is None and is_tied(c.pod)}
    liked = {index: liked_most(classes[index].pod, snapshot) for index in gathered if index not in needs}
    liking = {index: AllOf((matcher,)) for index, matcher in liked.items() if matcher is not None}
    if not needs and not liking:
        return tuple(classes)
    result = list(classes)
    anchors: dict[int, int] = {}  # class → the class that it goes along with; itself: all on one node
    for index, matcher in {**needs, **liking}.items():
        c = classes[index]
        running = _nodes_with(matcher, snapshot)
        if index in liking:
            anchor = _anchor(c, classes, {**needs, **liking}, snapshot) if running is None else None
            if anchor is not None:
                anchors[index] = anchor
            continue
        if running is not None:
            result[index] = _held_to(c, running)
            continue
        anchor = _anchor(c, classes, {**needs, **liking}, snapshot)
        if index in parted:
            message = f"no node holds it beside the pods that it must share one with ({_wanted(c)})"
            result[index] = replace(c, refusal=Reason("", CODE, message))
        elif anchor is not None:
            anchors[index] = anchor
        else:
            reason = f"no pod that it must share a node with is there or planned ({_wanted(c)})"
            result[index] = replace(c, refusal=Reason("", "AffinityUnsatisfiable", reason))
    rules = {rule for c in classes if c.refusal is None for rule in pod_rules(c.pod, snapshot)}
    for root, members in _by_root(anchors, result, liking.keys()).items():
        whole = anchors.get(root) == root
        units = -(-result[root].count // gathered.get(root, result[root].count)) if whole else result[root].count
        _bundle(result, root, members, sorted(rules, key=repr), snapshot, units=units, whole=whole)
    return tuple(result)


def stuck_followers(classes: Sequence[PodClass], placed: Mapping[int, int], *, every: bool) -> frozenset[int]:
    """Classes to part from those that they go along with, as the whole found no place.

    Of each such bundle the class that asks for most, so that the others may still find one; or `every` one.
    """
    found: set[int] = set()
    for c in classes:
        if c.parts and not c.whole and placed.get(c.index, 0) < c.count and len(c.parts) > 1:
            largest = sorted(c.parts[1:], key=lambda part: (-_asked(part), part.members))
            found.update(part.members for part in (largest if every else largest[:1]))
    return frozenset(found)


def _asked(part: Part) -> int:
    return part.count * part.pod.spec.requests.get(CPU, 0)


def _anchor(
    members: PodClass, classes: Sequence[PodClass], needs: Mapping[int, AllOf], snapshot: Snapshot
) -> int | None:
    """The class that this one goes along with; itself where its pods start a node of their own.

    Pods that are bound without waiting for others come first: once one of them is anywhere, nobody may start elsewhere.
    """
    matcher = needs[members.index]
    matching = [o for o in classes if o.refusal is None and o.index != members.index and matcher.selects(o.pod)]
    free = [o for o in matching if o.index not in needs]
    if free:

        def rank(other: PodClass) -> tuple[bool, int, int]:
            parts = (Part(other.index, 1, other.pod), Part(members.index, 1, members.pod))
            return not _conflict(parts, (), snapshot), other.count, -other.index

        return max(free, key=rank).index
    if not matcher.selects(members.pod):
        return max(matching, key=lambda o: (o.count, -o.index)).index if matching else None
    # Of classes that mean each other the first starts; one that means others one-sidedly follows those.
    for other in matching:
        if other.index < members.index or not needs[other.index].selects(members.pod):
            return other.index
    return members.index


def is_tied(pod: Pod) -> bool:
    """Whether a pod must share a node with others."""
    return any(not t.weight and is_hostname(t.topology_key) for t in pod.spec.affinity)


def _wanted(members: PodClass) -> str:
    term = next(t for t in members.pod.spec.affinity if not t.weight and is_hostname(t.topology_key))
    expressions = term.selector.expressions if term.selector is not None else ()
    return ", ".join(f"{e.key} {e.operator} {' '.join(e.values)}".strip() for e in expressions) or "an empty term"


def _nodes_with(matcher: AllOf, snapshot: Snapshot) -> list[str] | None:
    """Hostnames of nodes that run a pod which the terms mean; None when nobody runs one."""
    nodes = [n for n in snapshot.nodes if any(p.is_active and matcher.selects(p) for p in n.pods)]
    return [n.labels[HOSTNAME] for n in nodes if HOSTNAME in n.labels] if nodes else None


def _held_to(members: PodClass, hosts: Sequence[str]) -> PodClass:
    """The class, for existing nodes with these names only."""
    if not hosts:
        message = "the pods that it must share a node with are on nodes that have no name yet"
        return replace(members, refusal=Reason("", "AffinityUnsatisfiable", message))
    here = Requirements((Requirement.of(HOSTNAME, Operator.IN, hosts),))
    levels = []
    for level in members.levels:
        kept = tuple(both for choice in level if (both := together(choice, here)) is not None)
        if kept:
            levels.append(kept)
    if not levels:
        message = "its own requirements exclude the nodes with the pods that it must be near"
        return replace(members, refusal=Reason("", "RequirementsConflict", message))
    own = members.own_terms or members.required  # the domains of a spread are still all that these allow
    return replace(members, levels=tuple(levels), held=tuple(sorted(hosts)), own_terms=own)


def _by_root(anchors: Mapping[int, int], classes: list[PodClass], liking: Collection[int]) -> dict[int, list[int]]:
    """Classes by the one that they all follow in the end, that one included.

    Those that must and cannot, as in rings that nobody starts, are refused; those that would only like to are let go.
    """
    found: dict[int, list[int]] = {}
    for index in sorted(anchors):
        seen, at = [index], index
        while at in anchors and anchors[at] != at and anchors[at] not in seen:
            at = anchors[at]
            seen.append(at)
        ring = at in anchors and anchors[at] != at
        bad = ring or classes[at].refusal is not None or bool(classes[at].held)
        if bad and index in liking:
            continue
        if ring or classes[at].refusal is not None:
            message = f"the pods that it must share a node with have no place of their own ({_wanted(classes[index])})"
            _refuse(classes, index, "AffinityUnsatisfiable", message)
        elif classes[at].held:
            # Pods of the anchor join nodes that exist; which, is known once they run.
            message = "the pods that it must share a node with go to existing nodes first; it is planned when they run"
            _refuse(classes, index, "AffinityUnsatisfiable", message)
        else:
            found.setdefault(at, [at])
            if index != at:
                found[at].append(index)
    return found


def _refuse(classes: list[PodClass], index: int, code: str, message: str) -> None:
    classes[index] = replace(classes[index], refusal=Reason("", code, message))


def _bundle(
    result: list[PodClass],
    root: int,
    members: Sequence[int],
    rules: Sequence[HostRule],
    snapshot: Snapshot,
    *,
    units: int,
    whole: bool,
) -> None:
    """Append the bundles of some classes: `units` of them with even shares."""
    shares: dict[tuple[int, ...], int] = {}
    for unit in range(units):
        share = tuple(result[m].count // units + (unit < result[m].count % units) for m in members)
        shares[share] = shares.get(share, 0) + 1
    for share, count in shares.items():
        parts = tuple(Part(m, n, result[m].pod) for m, n in zip(members, share, strict=True) if n)
        conflict = _conflict(parts, rules, snapshot)
        bundle = _as_class(result, parts, len(result), count)
        reason = Reason("", CODE, conflict) if conflict else bundle.refusal
        result.append(replace(bundle, refusal=reason, whole=whole))
        for part in parts:
            old = result[part.members]
            result[part.members] = replace(old, bundled=(*old.bundled, bundle.index))


def _as_class(classes: Sequence[PodClass], parts: tuple[Part, ...], index: int, count: int) -> PodClass:
    first = classes[parts[0].members]
    specs = [part.pod.spec for part in parts]
    requests = add(*(spec.requests for part in parts for spec in (part.pod.spec,) * part.count))
    shared = tuple(t for t in specs[0].tolerations if all(t in s.tolerations for s in specs))
    spec = replace(
        specs[0],
        requests=requests,
        tolerations=shared,
        host_ports=tuple(port for s in specs for port in s.host_ports),
    )
    levels = first.levels if len(parts) == 1 else (_joined([classes[p.members].required for p in parts]),)
    refusal = None if levels[-1] else Reason("", CODE, "pods that must share a node have requirements that conflict")
    return PodClass(
        index=index,
        pod=replace(first.pod, spec=spec),
        groups=(),
        count=count,
        levels=levels if refusal is None else ((),),
        exotic=any(classes[p.members].exotic for p in parts),
        refusal=refusal,
        parts=parts,
    )


def _joined(required: Sequence[tuple[Requirements, ...]]) -> tuple[Requirements, ...]:
    found: dict[Requirements, None] = {}
    for _, choice in zip(range(_CHOICES), product(*required), strict=False):
        both: Requirements | None = Requirements()
        for one in choice:
            both = together(both, one) if both is not None else None
        if both is not None:
            found[both] = None
    return tuple(found)


def _conflict(parts: Sequence[Part], rules: Sequence[HostRule], snapshot: Snapshot) -> str:
    """Why these pods cannot share a node by their own rules; empty when they can."""
    for at, part in enumerate(parts):
        ports = part.pod.spec.host_ports
        if ports and (part.count > 1 or any(clash(ports, o.pod.spec.host_ports) for o in parts[at + 1 :])):
            return "pods that must share a node ask for the same host port"
        for rule in (*pod_rules(part.pod, snapshot), *_wide_anti(part.pod, snapshot)):
            meant = sum(o.count for o in parts if rule.matcher.selects(o.pod))
            alone = int(rule.limit == APART and rule.matcher.selects(part.pod))
            if meant > max(rule.limit, alone):
                return "pods that must share a node are kept apart by their own anti-affinity or spread over hosts"
    for rule in rules:
        if rule.limit != APART and sum(part.count for part in parts if rule.matcher.selects(part.pod)) > 1:
            return "several of the pods that must share a node are counted by a spread over hosts; that is not planned"
    return ""


def _wide_anti(pod: Pod, snapshot: Snapshot) -> list[HostRule]:
    """Anti-affinity over wider domains: it holds on a node as well."""
    return [HostRule(rule.matcher, APART) for rule in apart_rules_of(pod, snapshot)]
