"""Pod affinity and anti-affinity over domains wider than a host.

Affinity terms of a pod are counted together, as kube-scheduler does: only pods that match all of them make a domain
near. The first of pods that match their own terms may open a domain while no such pod is anywhere. Being with the
others that use a volume claim is a demand of its own beside those terms. Anti-affinity works
in both directions; what bound pods forbid is known beforehand (`Topology.forbidden`), what planned pods forbid each
other is tallied while they are dealt out and checked on the finished plan.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sawhorse_model.labels import normalize
from sawhorse_model.pod import Pod, PodAffinityTerm
from sawhorse_scheduling.matching import AllOf, Matcher, is_hostname, term_matcher
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_scheduling.volumes import SHARED


@dataclass(frozen=True, slots=True)
class NearUse:
    """A class must be in a domain of `key` that has pods counted by the group; `own`: its pods count themselves.

    Uses with the same `demand` count the same pods over several keys: they hold together, or are opened together.
    """

    group: int
    key: str
    own: bool
    demand: int = 0


@dataclass(frozen=True, slots=True)
class Wish:
    """A preferred term: a positive weight draws towards domains with counted pods, a negative one away."""

    group: int
    key: str
    weight: int


@dataclass(frozen=True, slots=True)
class ApartRule:
    """Required anti-affinity over a label: no pod that `matcher` means in the domain of a pod that carries it."""

    key: str
    matcher: Matcher


@dataclass(frozen=True, slots=True)
class ApartRules:
    """All rules that planned pods carry, and per class which it carries and which mean it."""

    rules: tuple[ApartRule, ...] = ()
    owned: tuple[tuple[int, ...], ...] = ()
    meant: tuple[tuple[int, ...], ...] = ()


def is_wide(term: PodAffinityTerm) -> bool:
    """Whether a term is about something wider than a host."""
    return not is_hostname(term.topology_key)


def shares_claim(term: PodAffinityTerm) -> bool:
    """Whether a term was made up for pods that use one volume claim (`volumes.SHARED`)."""
    return bool(shared_claim(Matcher(None, term.selector)))


def shared_claim(matcher: Matcher | AllOf) -> str:
    """The claim (`namespace/name`) whose users a matcher means; empty when it means others."""
    matchers = matcher.matchers if isinstance(matcher, AllOf) else (matcher,)
    selectors = [m.selector for m in matchers if m.selector is not None]
    keys = [e.key for selector in selectors for e in selector.expressions if e.key.startswith(SHARED)]
    return keys[0].removeprefix(SHARED) if keys else ""


def near_matcher(pod: Pod, snapshot: Snapshot) -> AllOf:
    """Whom all required affinity terms of a pod mean, those over hosts included; not what it shares claims with."""
    terms = [t for t in pod.spec.affinity if not t.weight and not shares_claim(t)]
    return AllOf(tuple(term_matcher(t, pod.meta.namespace, snapshot) for t in terms))


def near_demands(pod: Pod, snapshot: Snapshot) -> list[tuple[AllOf, tuple[str, ...]]]:
    """What a pod must be near over domains, each by itself: whom it means, and the labels (sorted)."""
    wide = [t for t in pod.spec.affinity if not t.weight and is_wide(t)]
    keys = tuple(sorted({normalize(t.topology_key) for t in wide if not shares_claim(t)}))
    shared = [t for t in wide if shares_claim(t)]
    own = [(near_matcher(pod, snapshot), keys)] if keys else []
    return own + [
        (AllOf((term_matcher(t, pod.meta.namespace, snapshot),)), (normalize(t.topology_key),)) for t in shared
    ]


def by_demand(near: Sequence[NearUse]) -> list[list[NearUse]]:
    """The uses of each demand."""
    found: dict[int, list[NearUse]] = {}
    for use in near:
        found.setdefault(use.demand, []).append(use)
    return list(found.values())


def apart_rules_of(pod: Pod, snapshot: Snapshot) -> list[ApartRule]:
    """The required anti-affinity over domains that a pod carries."""
    return [
        ApartRule(normalize(t.topology_key), term_matcher(t, pod.meta.namespace, snapshot))
        for t in pod.spec.anti_affinity
        if not t.weight and is_wide(t)
    ]


def collect_apart(classes: Sequence[Sequence[Pod]], snapshot: Snapshot) -> ApartRules:
    """The rules of the classes' pods; a class that is not planned has none."""
    carried = [[rule for pod in pods for rule in apart_rules_of(pod, snapshot)] for pods in classes]
    rules = tuple(sorted({rule for found in carried for rule in found}, key=repr))
    place = {rule: i for i, rule in enumerate(rules)}
    return ApartRules(
        rules,
        tuple(tuple(sorted({place[rule] for rule in found})) for found in carried),
        tuple(
            tuple(i for i, rule in enumerate(rules) if any(rule.matcher.selects(pod) for pod in pods))
            for pods in classes
        ),
    )


@dataclass(frozen=True, slots=True)
class Spot:
    """Where pods of classes are in a finished plan: labels that are certain there, pods per class."""

    labels: Mapping[str, str]
    load: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Breach:
    """Pods of a class in a domain where its rules forbid them."""

    members: int
    key: str
    value: str
    count: int


def unmet_near(
    near: Sequence[Sequence[NearUse]],
    counted_by: Sequence[Mapping[int, int]],
    existing: Sequence[Mapping[str, int]],
    spots: Iterable[Spot],
) -> Iterator[Breach]:
    """Pods that kube-scheduler could bind in no order, because what they must be near never comes to be there.

    Args:
        near: per class, its required terms.
        counted_by: per class, the groups that count its pods, with how many of one unit.
        existing: per group, value → bound pods.
    """
    keys = sorted({use.key for uses in near for use in uses})
    if not keys:
        return
    counts = [dict(c) for c in existing]
    groups = {use.group: use.key for uses in near for use in uses}
    waiting: dict[tuple[int, tuple[str | None, ...]], int] = {}
    for spot in spots:
        values = tuple(spot.labels.get(key) for key in keys)
        for members, number in spot.load.items():
            waiting[members, values] = waiting.get((members, values), 0) + number
    where = {key: i for i, key in enumerate(keys)}

    def admit(entry: tuple[int, tuple[str | None, ...]]) -> None:
        members, values = entry
        number = waiting.pop(entry)
        for group in counted_by[members]:
            value = values[where[groups[group]]] if group in groups else None
            if value is not None:
                counts[group][value] = counts[group].get(value, 0) + number

    demands = {members: by_demand(near[members]) for members, _ in waiting}

    def holds(uses: Sequence[NearUse], values: tuple[str | None, ...]) -> bool:
        return all(counts[u.group].get(values[where[u.key]] or "", 0) > 0 for u in uses)

    def ready(entry: tuple[int, tuple[str | None, ...]]) -> bool:
        members, values = entry
        return all(holds(uses, values) for uses in demands[members])

    def opens(entry: tuple[int, tuple[str | None, ...]]) -> bool:
        members, values = entry
        return all(
            holds(uses, values)
            or all(u.own and values[where[u.key]] is not None and not any(counts[u.group].values()) for u in uses)
            for uses in demands[members]
        )

    def order(entry: tuple[int, tuple[str | None, ...]]) -> tuple[int, tuple[str, ...]]:
        return entry[0], tuple(v or "" for v in entry[1])

    while waiting:
        found = [entry for entry in sorted(waiting, key=order) if ready(entry)]
        if not found:
            found = [entry for entry in sorted(waiting, key=lambda e: (-waiting[e], order(e))) if opens(entry)][:1]
        if not found:
            break
        for entry in found:
            admit(entry)
    for members, values in sorted(waiting, key=order):
        use = near[members][0]
        yield Breach(members, use.key, values[where[use.key]] or "", waiting[members, values])


def unmet_apart(apart: ApartRules, spots: Iterable[Spot]) -> Iterator[Breach]:
    """Planned pods that are in one domain though a rule of one of them forbids it."""
    if not apart.rules:
        return
    there: dict[tuple[int, str], dict[int, int]] = {}  # (rule, value) → pods per class that it concerns
    for spot in spots:
        for members, number in spot.load.items():
            for rule in {*apart.owned[members], *apart.meant[members]}:
                value = spot.labels.get(apart.rules[rule].key)
                if value is not None:
                    found = there.setdefault((rule, value), {})
                    found[members] = found.get(members, 0) + number
    for (rule, value), load in sorted(there.items()):
        meant = sum(n for members, n in load.items() if rule in apart.meant[members])
        for members, number in sorted(load.items()):
            if rule not in apart.owned[members]:
                continue
            own = int(rule in apart.meant[members])
            if meant > own:
                alone = own and meant == number
                yield Breach(members, apart.rules[rule].key, value, number - 1 if alone else number)
