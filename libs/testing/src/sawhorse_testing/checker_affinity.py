"""Required affinity and anti-affinity of a plan, pod by pod; part of the plan checker."""

from collections.abc import Iterator, Sequence

from sawhorse_model.labels import HOSTNAME, normalize
from sawhorse_model.pod import Pod, PodAffinityTerm
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_testing.checker_labels import Host, selects


def check_apart(snapshot: Snapshot, hosts: Sequence[Host]) -> Iterator[str]:
    """Required anti-affinity, in both directions, at any topology key."""
    for owner_host in hosts:
        owners = [(p, True) for p in {id(p): p for p in owner_host.placed}.values()]
        owners += [(p, False) for p in owner_host.bound]
        for owner, is_new in owners:
            for term in owner.spec.anti_affinity:
                if not term.weight:
                    yield from _apart_from(snapshot, hosts, owner_host, owner, is_new, term)


def _apart_from(
    snapshot: Snapshot, hosts: Sequence[Host], owner_host: Host, owner: Pod, is_new: bool, term: PodAffinityTerm
) -> Iterator[str]:
    key = normalize(term.topology_key)
    spaces = namespaces(snapshot, term, owner)
    mine = {owner_host.name} if key == HOSTNAME else {labels.get(key) for labels in owner_host.outcomes}
    for host in [owner_host] if key == HOSTNAME else hosts:
        possible = {host.name} if key == HOSTNAME else {labels.get(key) for labels in host.outcomes}
        if not (mine & possible) - {None} or not (is_new or host.placed):
            continue
        near = [p for p in host.placed if selects(term.selector, spaces, p)]
        if is_new:
            near += [p for p in host.bound if selects(term.selector, spaces, p)]
        # Equal pods are one object: the owner itself is one of those found on its own host.
        own = int(is_new and host is owner_host and selects(term.selector, spaces, owner))
        if len(near) > own:
            yield f"{owner.meta.key} on {owner_host.name}: {near[0].meta.key} is within its {key}"


def namespaces(snapshot: Snapshot, term: PodAffinityTerm, owner: Pod) -> tuple[str, ...] | None:
    """The namespaces that a term is about; None: all."""
    chosen = term.namespace_selector
    if chosen is None:
        return term.namespaces or (owner.meta.namespace,)
    if not chosen.expressions:
        return None
    found = [
        n.meta.name
        for n in snapshot.namespaces
        if chosen.matches({"kubernetes.io/metadata.name": n.meta.name, **n.meta.labels})
    ]
    return (*found, *term.namespaces)


def check_near(snapshot: Snapshot, hosts: Sequence[Host]) -> Iterator[str]:
    """Required affinity: the pods are bound one after the other as kube-scheduler may, until none can be.

    A pod may go where, for each of its terms, the domain has a pod that matches all of its terms, or, when there is no
    such pod in the whole cluster and it matches them itself, anywhere with the labels.
    """
    company = _Company(snapshot)
    waiting: dict[tuple[int, int], tuple[Host, Pod]] = {}
    for host in hosts:
        for pod in {id(p): p for p in host.placed}.values():
            if any(not t.weight for t in pod.spec.affinity):
                waiting[id(host), id(pod)] = (host, pod)
                company.expect(pod)
    if not waiting:
        return
    for host in hosts:
        everyone = [p for p in host.bound if p.is_active] + [p for p in host.placed if (id(host), id(p)) not in waiting]
        for pod in {id(p): p for p in everyone}.values():
            company.add(host, pod)
    while waiting:
        bound = [key for key, (host, pod) in waiting.items() if company.is_with(host, pod)]
        if not bound:
            bound = [key for key, (host, pod) in waiting.items() if company.may_start(host, pod)][:1]
        if not bound:
            break
        for key in bound:
            company.add(*waiting.pop(key))
    for host, pod in waiting.values():
        yield f"{pod.meta.key} on {host.name}: nothing that it must be near is there"


class _Company:
    """Where, for each pod with affinity, pods are that match all of its terms."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.owners: dict[int, Pod] = {}
        self.places: dict[int, set[tuple[str, str | None]]] = {}
        self.matches: dict[tuple[int, int], bool] = {}

    def expect(self, owner: Pod) -> None:
        """Keep track for this pod."""
        self.owners[id(owner)] = owner
        self.places.setdefault(id(owner), set())

    def add(self, host: Host, pod: Pod) -> None:
        """A pod is bound to a node."""
        for identity, owner in self.owners.items():
            if self._match(owner, pod):
                self.places[identity] |= {(key, host.value(key)) for key in self._keys(owner)}

    def is_with(self, host: Host, owner: Pod) -> bool:
        """Whether each domain of the node has what the pod must be near."""
        there = self.places[id(owner)]
        return all(value is not None and (key, value) in there for key, value in self._domains(host, owner))

    def may_start(self, host: Host, owner: Pod) -> bool:
        """Whether the pod may be the first: it matches itself, and nobody else does anywhere."""
        known = all(value is not None for _, value in self._domains(host, owner))
        return known and not self.places[id(owner)] and self._match(owner, owner)

    def _match(self, owner: Pod, other: Pod) -> bool:
        pair = (id(owner), id(other))
        if pair not in self.matches:
            terms = [t for t in owner.spec.affinity if not t.weight]
            self.matches[pair] = all(selects(t.selector, namespaces(self.snapshot, t, owner), other) for t in terms)
        return self.matches[pair]

    def _domains(self, host: Host, owner: Pod) -> list[tuple[str, str | None]]:
        return [(key, host.value(key)) for key in self._keys(owner)]

    def _keys(self, owner: Pod) -> set[str]:
        return {normalize(t.topology_key) for t in owner.spec.affinity if not t.weight}
