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
    there: list[tuple[Host, Pod]] = [(h, p) for h in hosts for p in h.bound if p.is_active]
    waiting: list[tuple[Host, Pod]] = []
    for host in hosts:
        for pod in host.placed:
            terms = [t for t in pod.spec.affinity if not t.weight]
            (waiting if terms else there).append((host, pod))
    while waiting:
        known: dict[tuple[int, int], bool] = {}
        bound: list[tuple[Host, Pod]] = []
        rest: list[tuple[Host, Pod]] = []
        for host, pod in waiting:
            key = (id(host), id(pod))
            if key not in known:
                known[key] = _has_company(snapshot, host, pod, there)
            (bound if known[key] else rest).append((host, pod))
        if not bound:
            first = next(((h, p) for h, p in rest if _may_be_first(snapshot, h, p, there)), None)
            if first is None:
                break
            rest.remove(first)
            bound = [first]
        there += bound
        waiting = rest
    yield from (f"{pod.meta.key} on {host.name}: nothing that it must be near is there" for host, pod in waiting)


def _matches_all(snapshot: Snapshot, owner: Pod, other: Pod) -> bool:
    terms = [t for t in owner.spec.affinity if not t.weight]
    return all(selects(t.selector, namespaces(snapshot, t, owner), other) for t in terms)


def _has_company(snapshot: Snapshot, host: Host, pod: Pod, there: Sequence[tuple[Host, Pod]]) -> bool:
    matching: dict[int, Host] = {}
    judged: dict[int, bool] = {}
    for h, p in there:
        if id(p) not in judged:
            judged[id(p)] = _matches_all(snapshot, pod, p)
        if judged[id(p)]:
            matching[id(h)] = h
    for term in pod.spec.affinity:
        key = normalize(term.topology_key)
        value = host.value(key)
        if not term.weight and (value is None or not any(h.value(key) == value for h in matching.values())):
            return False
    return True


def _may_be_first(snapshot: Snapshot, host: Host, pod: Pod, there: Sequence[tuple[Host, Pod]]) -> bool:
    if not _matches_all(snapshot, pod, pod) or any(_matches_all(snapshot, pod, p) for _, p in there):
        return False
    keys = [normalize(t.topology_key) for t in pod.spec.affinity if not t.weight]
    return all(host.value(key) is not None for key in keys)
