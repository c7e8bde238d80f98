"""Pods as classes: pods with equal wishes are one class with a count, whatever their names.

Labels count only through the selectors that read them (`match` of the key), so ten deployments that differ in name
and image alone are one class. Classes are sorted, largest first, by a key that does not depend on input order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from sawhorse_model.labels import normalize
from sawhorse_model.pod import NodeSelectorTerm, Pod, PodSpec
from sawhorse_model.requirements import Operator, Requirement, Requirements, RequirementSpec
from sawhorse_model.resources import CPU, MEMORY
from sawhorse_scheduling.arrays import IntArray
from sawhorse_scheduling.matching import AllOf, Matcher, spread_selector, term_matcher
from sawhorse_scheduling.plan import Reason
from sawhorse_scheduling.selection import Selection
from sawhorse_scheduling.snapshot import PodGroup, Snapshot
from sawhorse_scheduling.volumes import Wants

_WISHES = 4  # as many preferences are looked at in every combination
_NEGATIVE = frozenset({Operator.NOT_IN, Operator.DOES_NOT_EXIST})


@dataclass(frozen=True, slots=True)
class Part:
    """So many pods of a class in each unit of a bundle."""

    members: int
    count: int
    pod: Pod


@dataclass(frozen=True, slots=True, eq=False)
class PodClass:
    """Equal pods, or equal bundles of pods that must share a node (`parts`; `pod` then stands for a whole unit).

    `levels` are what they want of a node, most wishes first; the last level is what they require. Each level is a
    choice (OR) of requirements. `refusal` is set when the class cannot be placed whatever there is.
    """

    index: int
    pod: Pod
    groups: tuple[int, ...]  # indexes in Snapshot.pods, in serving order
    count: int
    levels: tuple[tuple[Requirements, ...], ...]
    exotic: bool
    refusal: Reason | None = None
    parts: tuple[Part, ...] = ()  # of a bundle
    whole: bool = False  # a bundle that all of its pods start together; else its first part waits for nobody
    bundled: tuple[int, ...] = ()  # bundles that hold the class's pods: it is not planned by itself
    own_terms: tuple[Requirements, ...] = ()  # what the pod itself requires, where volumes or company narrow that
    held: tuple[str, ...] = ()  # hostnames of the only nodes that it may be on

    @property
    def is_planned(self) -> bool:
        """Whether it is placed by itself: not refused, and not as part of a bundle."""
        return self.refusal is None and not self.bundled

    @property
    def members(self) -> tuple[Part, ...]:
        """What one unit is made of."""
        return self.parts or (Part(self.index, 1, self.pod),)

    def selected(self, matcher: Matcher | AllOf) -> int:
        """How many pods of one unit a matcher means."""
        return sum(part.count for part in self.members if matcher.selects(part.pod))

    @property
    def required(self) -> tuple[Requirements, ...]:
        """The hard part: one of these must hold."""
        return self.levels[-1]


class ClassSelection:
    """How many pods of one unit of each class a matcher means."""

    def __init__(self, classes: Sequence[PodClass]) -> None:
        """Rows of the answers are the classes in this order."""
        parts = [(row, part) for row, members in enumerate(classes) for part in members.members]
        self._size = len(classes)
        self._row = np.array([row for row, _ in parts], dtype=np.int64)
        self._count = np.array([part.count for _, part in parts], dtype=np.int64)
        self._selection = Selection([part.pod for _, part in parts])

    def of(self, matcher: Matcher | AllOf) -> IntArray:
        """(C,) pods."""
        meant = self._selection.of(matcher)
        counts = np.zeros(self._size, dtype=np.int64)
        np.add.at(counts, self._row[meant], self._count[meant])
        return counts


def term_requirements(selector: dict[str, str], specs: Sequence[RequirementSpec]) -> Requirements | None:
    """A node selector and one affinity term together, or None where no label value can satisfy them.

    The algebra writes "nothing is allowed" and "must not exist" the same way, so a contradiction such as zone a and
    zone b would otherwise match a node without the label.
    """
    entries = [Requirement.of(key, Operator.IN, (value,)) for key, value in selector.items()]
    entries += [Requirement.from_spec(spec) for spec in specs]
    together = Requirements(entries)
    positive = {normalize(key) for key in selector}
    positive |= {normalize(spec.key) for spec in specs if spec.operator not in _NEGATIVE}
    if any(together[key].operator is Operator.DOES_NOT_EXIST for key in positive):
        return None
    return together


def fault_of(term: NodeSelectorTerm) -> str:
    """What is wrong with a term's expressions; empty when they can be read."""
    try:
        for expression in term.expressions:
            Requirement.from_spec(expression)
    except ValueError as error:
        return str(error)
    return ""


def required_terms(spec: PodSpec) -> tuple[Requirements, ...]:
    """What a pod requires of its node: a choice; empty when nothing can satisfy it.

    An affinity term without expressions, or with one that cannot be read, matches no node, as in the API.
    """
    selector = dict(spec.node_selector)
    terms = spec.required_terms or (NodeSelectorTerm(),)
    choices = (
        term_requirements(selector, term.expressions)
        for term in terms
        if (term.expressions or not spec.required_terms) and not fault_of(term)
    )
    return tuple(dict.fromkeys(choice for choice in choices if choice is not None))


def _levels(spec: PodSpec, *, ignore_preferences: bool) -> tuple[tuple[Requirements, ...], ...]:
    """All preferences together, then fewer of them by the weight that they have together, then none."""
    strict = required_terms(spec)
    if ignore_preferences or not strict:
        return (strict,)
    wishes = sorted(
        (p for p in spec.preferred_terms if p.term.expressions and not p.term.match_fields and not fault_of(p.term)),
        key=lambda p: -p.weight,
    )
    # Of many, only all, all but one, and each alone are looked at.
    sizes = sorted({len(wishes), len(wishes) - 1, 1} - {0}) if len(wishes) > _WISHES else range(1, len(wishes) + 1)
    kept_together = [kept for size in sizes for kept in combinations(wishes, size)]
    levels: list[tuple[Requirements, ...]] = []
    for some in sorted(kept_together, key=lambda some: -sum(wish.weight for wish in some)):
        wish = term_requirements({}, [e for one in some for e in one.term.expressions])
        choices = () if wish is None else tuple(together(choice, wish) for choice in strict)
        kept = tuple(choice for choice in choices if choice is not None)
        if kept and kept not in levels:
            levels.append(kept)
    return (*levels, strict)


def together(left: Requirements, right: Requirements) -> Requirements | None:
    """Both, or None where they exclude each other."""
    both = left.intersection(right)
    for key in left.keys() & right.keys():
        positive = left[key].operator not in _NEGATIVE or right[key].operator not in _NEGATIVE
        if positive and both[key].operator is Operator.DOES_NOT_EXIST:
            return None
    return both


def _refusal(spec: PodSpec) -> Reason | None:
    """Rules that this planner does not know yet: such pods are reported, never placed as if the rule were absent."""
    if spec.resource_claims:
        return Reason("", "ResourceClaimsNotSupported", "it uses resource claims (DRA), which are not planned yet")
    if any(term.match_fields for term in spec.required_terms):
        return Reason("", "MatchFieldsNotSupported", "its node affinity uses matchFields, which are not planned")
    fault = next(filter(None, map(fault_of, spec.required_terms)), "")
    if fault:
        return Reason("", "InvalidRequirement", f"its node affinity cannot be read: {fault}")
    if not required_terms(spec):
        return Reason("", "RequirementsConflict", "its own node selector and node affinity exclude each other")
    return None


def group_classes(
    snapshot: Snapshot, matchers: Sequence[Matcher], wants: Sequence[Wants] | None = None
) -> tuple[PodClass, ...]:
    """Group the snapshot's pods.

    Args:
        matchers: all selectors in play, in any stable order.
        wants: what each group's volumes ask; None: none uses volumes.
    """
    wants = wants or tuple(Wants() for _ in snapshot.pods)
    options = snapshot.options
    by_key: dict[str, list[int]] = {}
    selection = Selection([group.pod for group in snapshot.pods])
    meant = np.array([selection.of(matcher) for matcher in matchers], dtype=np.bool_)
    told = np.where(meant.reshape(len(matchers), -1).T, "1", "0").tolist() if matchers else [()] * len(snapshot.pods)
    for index, group in enumerate(snapshot.pods):
        if group.count:
            by_key.setdefault(_key(group.pod, wants[index], snapshot, "".join(told[index])), []).append(index)

    def size(key: str) -> tuple[int, int, str]:
        requests = snapshot.pods[by_key[key][0]].pod.spec.requests
        return (-requests.get(CPU, 0), -requests.get(MEMORY, 0), key)

    classes = []
    for index, key in enumerate(sorted(by_key, key=size)):
        groups = tuple(sorted(by_key[key], key=lambda g: _first_name(snapshot.pods[g])))
        pod = snapshot.pods[groups[0]].pod
        places = wants[groups[0]]
        refusal = places.refusal or _refusal(pod.spec)
        levels = () if refusal else _levels(pod.spec, ignore_preferences=options.ignore_preferences)
        levels = tuple(kept for level in levels if (kept := _placed(level, places.choices)))
        if refusal is None and not levels:
            message = "its volumes and its own node selector and affinity have no place in common"
            refusal = Reason("", "VolumesConflict", message)
        classes.append(
            PodClass(
                index=index,
                pod=pod,
                groups=groups,
                count=sum(snapshot.pods[g].count for g in groups),
                levels=levels if refusal is None else ((),),
                exotic=any(pod.spec.requests.get(name, 0) > 0 for name in options.exotic),
                refusal=refusal,
                own_terms=required_terms(pod.spec) if places.choices != Wants().choices else (),
            ),
        )
    return tuple(classes)


def _first_name(group: PodGroup) -> str:
    return group.names[0]


def _placed(level: tuple[Requirements, ...], places: tuple[Requirements, ...]) -> tuple[Requirements, ...]:
    """A level's choices where volumes are; the first place comes first."""
    found = (together(choice, place) for place in places for choice in level)
    return tuple(dict.fromkeys(both for both in found if both is not None))


def _key(pod: Pod, wants: Wants, snapshot: Snapshot, meant: str) -> str:
    """A text that is equal for pods with equal wishes, and the same in every run.

    Args:
        meant: whether each selector in play means the pod.
    """
    spec = pod.spec
    scoped = bool(spec.spread or spec.affinity or spec.anti_affinity)
    namespace, labels = pod.meta.namespace, pod.meta.labels
    parts = (
        sorted((name, value) for name, value in spec.requests.items() if value),
        sorted(spec.node_selector.items()),
        spec.required_terms,
        spec.preferred_terms,
        sorted(map(repr, spec.tolerations)),
        [(s, spread_selector(s, labels)) for s in spec.spread],
        [(t.topology_key, t.weight, term_matcher(t, namespace, snapshot)) for t in (*spec.affinity,)],
        [(t.topology_key, t.weight, term_matcher(t, namespace, snapshot)) for t in (*spec.anti_affinity,)],
        sorted(map(repr, spec.host_ports)),
        (wants.choices, wants.refusal),
        spec.resource_claims,
        namespace if scoped else "",
        meant,
    )
    return repr(parts)
