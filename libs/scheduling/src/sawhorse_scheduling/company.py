"""Wishes about the pods on one's own node: preferred affinity and anti-affinity by hostname, soft spread over hosts.

On nodes that exist they order the places, as kube-scheduler scores them: the sum of weight × pods that a term means.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import numpy as np

from sawhorse_model.pod import DO_NOT_SCHEDULE, Pod
from sawhorse_scheduling.arrays import IntArray, any_along
from sawhorse_scheduling.classes import ClassSelection, PodClass
from sawhorse_scheduling.existing import NodeTable
from sawhorse_scheduling.matching import Matcher, is_hostname, spread_matcher, term_matcher
from sawhorse_scheduling.snapshot import Snapshot

SPREAD_WEIGHT = 100  # of a spread over hosts that may be broken, beside affinity terms (1 to 100)


@dataclass(frozen=True, slots=True, eq=False)
class Company:
    """Whom wishes by hostname mean (M matchers), how much each class wants of them, and where they are."""

    weights: IntArray  # (C, M) of one pod that is there; negative: rather not
    adds: IntArray  # (C, M) how many pods of one unit of the class each matcher means
    bound: IntArray  # (M, N) pods that run

    def liked_by(self, members: PodClass) -> list[int]:
        """Indexes of the classes that the class would like to be with."""
        wanted = np.flatnonzero(self.weights[members.index] > 0)
        return np.flatnonzero(any_along(self.adds[:, wanted] > 0, 1)).tolist() if len(wanted) else []


def host_wishes(pod: Pod, snapshot: Snapshot) -> list[tuple[Matcher, int]]:
    """Whom a pod would like on its node, and how much; a negative weight: rather not."""
    namespace, spec = pod.meta.namespace, pod.spec
    found = [
        (term_matcher(term, namespace, snapshot), sign * term.weight)
        for sign, terms in ((1, spec.affinity), (-1, spec.anti_affinity))
        for term in terms
        if term.weight and is_hostname(term.topology_key)
    ]
    soft = [s for s in spec.spread if s.when_unsatisfiable != DO_NOT_SCHEDULE and is_hostname(s.topology_key)]
    return found + [(spread_matcher(s, pod), -SPREAD_WEIGHT) for s in soft]


def liked_most(pod: Pod, snapshot: Snapshot) -> Matcher | None:
    """Whom a pod would like most to have on its node; None when it has no such wish."""
    wishes = [(matcher, weight) for matcher, weight in host_wishes(pod, snapshot) if weight > 0]
    return max(wishes, key=lambda wish: wish[1])[0] if wishes else None


def build_company(snapshot: Snapshot, classes: Sequence[PodClass], table: NodeTable) -> Company:
    """Read the wishes of the classes that are planned and count the bound pods."""
    order: dict[Matcher, int] = {}
    wanted: list[tuple[int, int, int]] = []
    if not snapshot.options.ignore_preferences:
        for c in classes:
            for part in c.members if c.is_planned else ():
                for matcher, weight in host_wishes(part.pod, snapshot):
                    wanted.append((c.index, order.setdefault(matcher, len(order)), weight))
    weights = np.zeros((len(classes), len(order)), dtype=np.int64)
    for index, matcher_number, weight in wanted:
        weights[index, matcher_number] += weight
    selection = ClassSelection(classes)
    adds = [selection.of(matcher) for matcher in order]
    bound = [table.bound.of(matcher) for matcher in order]
    return Company(
        weights,
        np.array(adds, dtype=np.int64).reshape(len(order), len(classes)).T,
        np.array(bound, dtype=np.int64).reshape(len(order), len(table.nodes)),
    )


def shares_of(
    company: Company, members: PodClass, there: IntArray, ranks: IntArray, fits: IntArray, count: int
) -> Iterator[tuple[int, int]]:
    """How `count` pods of a class go onto existing nodes: (row, pods), best places first, as many as fit.

    Lower ranks come first, among equals the nodes whose pods the class likes best, then the order of rows. Pods that
    like each other fill node by node; pods that would rather be apart are dealt out one by one.

    Args:
        there: (M, N) as `Company.bound`, planned pods included; it is kept up to date.
        ranks, fits: (N,).
    """
    wanted, adds = company.weights[members.index], company.adds[members.index]
    if not wanted.any():
        yield from _in_order(np.argsort(ranks, kind="stable"), fits, count, there, adds)
        return
    liking = wanted @ there
    own = int(wanted @ adds)
    if own >= 0:
        yield from _in_order(np.lexsort((-liking, ranks)), fits, count, there, adds)
        return
    for rank in np.unique(ranks[fits > 0]).tolist():
        rows = np.flatnonzero((ranks == rank) & (fits > 0))
        rows = rows[np.argsort(-liking[rows], kind="stable")[:count]]  # no more than one node for each pod
        dealt = _dealt(rows, liking[rows], fits[rows], own, count)
        count -= sum(dealt.values())
        for row, number in sorted(dealt.items()):
            there[:, row] += adds * number
            yield row, number


def _in_order(
    order: IntArray, fits: IntArray, count: int, there: IntArray, adds: IntArray
) -> Iterator[tuple[int, int]]:
    order = order[fits[order] > 0]
    for row, room in zip(order.tolist(), fits[order].tolist(), strict=True):
        if not count:
            return
        number = min(count, room)
        there[:, row] += adds * number
        count -= number
        yield row, number


def _dealt(rows: IntArray, liking: IntArray, fits: IntArray, own: int, count: int) -> dict[int, int]:
    """Each pod to the row that is liked best now, where each pod there makes it less liked by `own`."""
    heap = [(-like, row, room) for row, like, room in zip(rows.tolist(), liking.tolist(), fits.tolist(), strict=True)]
    heapify(heap)
    found: dict[int, int] = {}
    while heap and count:
        dislike, row, room = heap[0]
        found[row] = found.get(row, 0) + 1
        count -= 1
        if room > 1:
            heapreplace(heap, (dislike - own, row, room - 1))
        else:
            heappop(heap)
    return found
