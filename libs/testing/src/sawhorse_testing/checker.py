"""A slow, plain re-check of a plan, pod by pod. It shares the model's types with the planner, and no code.

`check_plan` returns one line per broken rule; an empty list means that the plan can be carried out: every pod is
placed once or reported once, and wherever a node may be launched (any of its types, in any zone that it allows), its
pods may run there together. Spread is judged on the final state.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from sawhorse_model.cluster import DaemonSet
from sawhorse_model.instances import InstanceType, Offering
from sawhorse_model.labels import CAPACITY_TYPE, HOSTNAME, INITIALIZED, REGISTERED, ZONE, normalize
from sawhorse_model.pod import Pod, PodSpec, TopologySpread
from sawhorse_model.requirements import RequirementSpec
from sawhorse_scheduling.plan import Plan, PlannedNode
from sawhorse_scheduling.snapshot import Pool, Snapshot
from sawhorse_testing.checker_affinity import check_apart, check_near
from sawhorse_testing.checker_labels import (
    Host,
    Labels,
    Ways,
    as_scheduled,
    bought_as,
    choices,
    daemon_tolerations,
    enough_values,
    existing_outcomes,
    holds,
    is_one,
    kept_off,
    keys_read,
    offered,
    open_labels,
    own_selector,
    pool_labels,
    ports_clash,
    selects,
    serves,
    single_valued_keys,
    total_requests,
    type_labels,
    wants_several,
    within_limits,
)
from sawhorse_testing.checker_min_values import check_min_values
from sawhorse_testing.checker_prices import check_prices
from sawhorse_testing.checker_reservations import check_reservations, free_in
from sawhorse_testing.checker_volumes import check_volumes


def check_plan(snapshot: Snapshot, plan: Plan, *, types_per_node: int = 1000) -> list[str]:
    """Check a plan against its snapshot; `types_per_node` bounds how many listed types are looked at, ends first."""
    return list(_Check(snapshot, plan, types_per_node).run())


class _Check:
    def __init__(self, snapshot: Snapshot, plan: Plan, types_per_node: int) -> None:
        self.snapshot = snapshot
        self.plan = plan
        self.most = types_per_node
        self.pools = {pool.nodepool.meta.name: pool for pool in snapshot.pools}
        self.pods = {
            name: pod for group in snapshot.pods for pod in (as_scheduled(group.pod, snapshot),) for name in group.names
        }
        self.keys = keys_read(snapshot)
        self.outcome_cache: dict[object, tuple[Labels, ...]] = {}
        self.sale_cache: dict[str, list[tuple[InstanceType, list[PodSpec], list[Labels]]]] = {}
        self.count_cache: dict[object, tuple[Counter[str], Counter[str]]] = {}
        self.hosts: list[Host] = []

    def run(self) -> Iterator[str]:
        yield from self.each_pod_once()
        yield from self.existing_nodes()
        for node in self.plan.new_nodes:
            yield from self.new_node(node)
        yield from self.limits()
        yield from check_reservations(self.snapshot, self.plan)
        for host in self.hosts:
            yield from self.host(host)
        yield from self.spreads()
        yield from check_apart(self.snapshot, self.hosts)
        yield from check_near(self.snapshot, self.hosts)
        yield from check_volumes(self.snapshot, self.plan, self.hosts)
        yield from self.left_over()

    def each_pod_once(self) -> Iterator[str]:
        seen: Counter[str] = Counter()
        for node in self.plan.new_nodes:
            seen.update(node.pods)
        for filled in self.plan.existing_nodes:
            seen.update(filled.pods)
        for entry in self.plan.unschedulable:
            seen.update(entry.pods)
            if not entry.reasons or not all(r.code and r.message for r in entry.reasons):
                yield f"{entry.pods[0]}: reported without a reason"
        yield from (f"{name}: placed or reported {count} times" for name, count in seen.items() if count > 1)
        yield from (f"{name}: not in the snapshot" for name in seen if name not in self.pods)
        yield from (f"{name}: neither placed nor reported" for name in self.pods if name not in seen)

    def existing_nodes(self) -> Iterator[str]:
        filled = {f.name: f for f in self.plan.existing_nodes}
        for node in self.snapshot.nodes:
            host = Host(node.name, existing_outcomes(node), node.taints, node.pods)
            self.hosts.append(host)
            entry = filled.pop(node.name, None)
            if entry is None:
                continue
            host.placed = [self.pods[name] for name in entry.pods if name in self.pods]
            taken = total_requests([*(p.spec for p in node.pods), *(p.spec for p in host.placed)])
            coming = self.coming(host)
            there = total_requests([p.spec for p in node.pods if p.is_daemon])
            for name in {*taken, *coming, *node.reserved}:
                more = max(0, coming.get(name, 0) - there.get(name, 0)) + node.reserved.get(name, 0)
                if taken.get(name, 0) + more > node.allocatable.get(name, 0):
                    yield f"{node.name}: {name} is over-committed"
            ports = [p for d in self.snapshot.daemons if _may_run_on(d, host) for p in d.template.spec.host_ports]
            if any(ports_clash(pod.spec.host_ports, ports) for pod in host.placed):
                yield f"{node.name}: a daemon of it holds a host port of its pods"
        yield from (f"{name}: no such node in the snapshot" for name in filled)

    def coming(self, host: Host) -> dict[str, int]:
        """The most that daemons take of a node, whatever it turns out to be."""
        most: dict[str, int] = {}
        for labels in host.outcomes:
            one = Host(host.name, (labels,), host.taints)
            for name, amount in total_requests(
                [d.template.spec for d in self.snapshot.daemons if _may_run_on(d, one)]
            ).items():
                most[name] = max(most.get(name, 0), amount)
        return most

    def new_node(self, node: PlannedNode) -> Iterator[str]:
        pool = self.pools.get(node.nodepool)
        if pool is None:
            yield f"{node.name}: no pool {node.nodepool}"
            return
        placed = [self.pods[name] for name in node.pods if name in self.pods]
        types = {t.name: t for t in pool.instance_types}
        listed = [types[name] for name in node.instance_types if name in types]
        if len(listed) != len(node.instance_types) or not listed:
            yield f"{node.name}: lists types that the pool does not have"
            return
        offers = {t.name: [o for o in t.offerings if offered(o, node)] for t in listed}
        yield from (
            f"{node.name}: {name} has no offering that it allows" for name, found in offers.items() if not found
        )
        if not all(offers.values()):
            return
        yield from check_prices(node, listed, offers)
        self.hosts.append(
            Host(node.name, self.outcomes(node, pool, listed, offers), pool.nodepool.template.taints, (), placed),
        )
        asked = total_requests([pod.spec for pod in placed])
        if dict(node.requests) != {k: v for k, v in asked.items() if v}:
            yield f"{node.name}: requests are not the sum of its pods'"
        for kind in self.some(listed):
            yield from self.type_holds(node, pool, kind, asked, placed)
        yield from self.accelerators(node, pool, listed, placed)
        yield from check_min_values(self.snapshot, node, pool, listed, offers, placed, self.serving)

    def some(self, types: list[InstanceType]) -> list[InstanceType]:
        return types if len(types) <= self.most else [*types[: self.most - 1], types[-1]]

    def type_holds(
        self, node: PlannedNode, pool: Pool, kind: InstanceType, asked: Mapping[str, int], placed: list[Pod]
    ) -> Iterator[str]:
        daemons = [d for d in self.snapshot.daemons if self.runs_on_type(d, pool, kind)]
        own = total_requests([d.template.spec for d in daemons])
        for name in {*asked, *own}:
            if asked.get(name, 0) + own.get(name, 0) > kind.allocatable.get(name, 0):
                yield f"{node.name}: {kind.name} has too little {name}"
        ports = [port for d in daemons for port in d.template.spec.host_ports]
        if any(ports_clash(pod.spec.host_ports, ports) for pod in placed):
            yield f"{node.name}: a daemon on {kind.name} holds a host port of its pods"
        for spec in pool.nodepool.template.requirements:
            own_values = kind.requirements.get(normalize(spec.key))
            if normalize(spec.key) in (ZONE, CAPACITY_TYPE, *self.snapshot.options.reservation_labels):
                continue
            if own_values is None:
                continue
            values: list[str | None] = [*own_values.values] or [None]
            if not any(holds(spec, value) for value in values):
                yield f"{node.name}: {kind.name} breaks the pool's requirement on {spec.key}"

    def accelerators(
        self, node: PlannedNode, pool: Pool, listed: list[InstanceType], placed: list[Pod]
    ) -> Iterator[str]:
        if any(pod.spec.requests.get(name, 0) for pod in placed for name in self.snapshot.options.exotic):
            return
        special = [t for t in listed if self.is_exotic(t)]
        if special and any(
            not self.is_exotic(kind)
            and kind.requirements.intersects(node.requirements)
            and any(offered(o, node) for o in kind.offerings)
            for kind in pool.instance_types
        ):
            yield f"{node.name}: {special[0].name} has an accelerator that none of its pods asks for"

    def is_exotic(self, kind: InstanceType) -> bool:
        """Whether a type is only for pods that ask for its accelerator, or that name it."""
        options = self.snapshot.options
        if any(kind.allocatable.get(name, 0) for name in options.exotic):
            return True
        labels = {key: r.values for key, r in kind.requirements.items()}
        return any(word in value for key, word in options.exotic_labels for value in labels.get(key, ()))

    def limits(self) -> Iterator[str]:
        for name, pool in self.pools.items():
            nodes = [n for n in self.plan.new_nodes if n.nodepool == name]
            types = {t.name: t for t in pool.instance_types}
            for resource, limit in pool.nodepool.limits.items():
                total = pool.usage.get(resource, 0)
                for node in nodes:
                    capacities = [types[t].capacity.get(resource, 0) for t in node.instance_types if t in types]
                    total += 1 if resource == "nodes" else max(capacities, default=0)
                if nodes and total > limit:
                    yield f"pool {name}: {resource} may reach {total}, the limit is {limit}"

    def host(self, host: Host) -> Iterator[str]:
        """Rules of one node: labels, taints, ports, spread and anti-affinity by hostname."""
        for pod in {id(p): p for p in host.placed}.values():
            taint = kept_off(host.taints, pod.spec.tolerations)
            if taint is not None:
                yield f"{pod.meta.key} on {host.name}: taint {taint} is not tolerated"
            if not all(serves(pod.spec, labels) for labels in host.outcomes):
                yield f"{pod.meta.key} on {host.name}: its node requirements do not hold everywhere it may be"
            for rule in pod.spec.spread:
                if normalize(rule.topology_key) == HOSTNAME and rule.when_unsatisfiable == "DoNotSchedule":
                    selector = own_selector(rule.selector, rule.match_label_keys, pod)
                    count = sum(selects(selector, (pod.meta.namespace,), p) for p in (*host.bound, *host.placed))
                    if count > rule.max_skew:
                        yield f"{pod.meta.key} on {host.name}: {count} matching pods, maxSkew {rule.max_skew}"
        everyone = [*host.bound, *host.placed]
        for index, pod in enumerate(host.placed, start=len(host.bound)):
            if pod.spec.host_ports:
                others = [p for i, p in enumerate(everyone) if i != index]
                if any(ports_clash(pod.spec.host_ports, other.spec.host_ports) for other in others):
                    yield f"{pod.meta.key} on {host.name}: host port taken"

    def spreads(self) -> Iterator[str]:
        where: dict[int, list[Host]] = {}
        pods: dict[int, Pod] = {}
        for host in self.hosts:
            for pod in {id(p): p for p in host.placed}.values():
                where.setdefault(id(pod), []).append(host)
                pods[id(pod)] = pod
        for identity, pod in pods.items():
            wide = [
                r
                for r in pod.spec.spread
                if r.when_unsatisfiable == "DoNotSchedule" and normalize(r.topology_key) != HOSTNAME
            ]
            for rule in wide:
                yield from self.spread(pod, where[identity], rule, wide)

    def spread(
        self, pod: Pod, homes: Sequence[Host], rule: TopologySpread, wide: Sequence[TopologySpread]
    ) -> Iterator[str]:
        key = normalize(rule.topology_key)
        sure, most = self.counts(pod, rule, wide)
        least = 0 if len(sure) < (rule.min_domains or 1) else min(sure.values(), default=0)
        mine = {host.value(key) for host in homes}
        if None in mine:
            yield f"{pod.meta.key}: the {key} of a node it is on is not certain"
        for value in sorted(v for v in mine if v is not None):
            if most[value] - least > rule.max_skew:
                yield f"{pod.meta.key}: {dict(most)} over {key}, least {least}, maxSkew {rule.max_skew}"

    def counts(
        self, pod: Pod, rule: TopologySpread, wide: Sequence[TopologySpread]
    ) -> tuple[Counter[str], Counter[str]]:
        """Matching pods per domain in the end: on nodes that take part for sure, and on those that may."""
        spec, key = pod.spec, normalize(rule.topology_key)
        selector = own_selector(rule.selector, rule.match_label_keys, pod)
        policies = (rule.node_affinity_policy, rule.node_taints_policy)
        asked = (repr(spec.node_selector), spec.required_terms, spec.tolerations, spec.host_ports, repr(spec.requests))
        rules = (tuple(r.topology_key for r in wide), single_valued_keys(spec))
        cache = (key, selector, pod.meta.namespace, policies, asked, rules)
        if cache not in self.count_cache:
            sure: Counter[str] = Counter()
            most: Counter[str] = Counter()
            for host in self.hosts:
                value = host.value(key)
                part = self.takes_part(host, pod, *policies, wide) if value is not None else "no"
                if value is not None and part != "no":
                    members = [p for p in host.bound if p.is_active] + host.placed
                    number = sum(selects(selector, (pod.meta.namespace,), p) for p in members)
                    most[value] += number
                    sure[value] += number if part == "yes" else 0
            for value in self.possible_values(pod, key):
                sure[value] += 0
            self.count_cache[cache] = (sure, most)
        return self.count_cache[cache]

    def takes_part(self, host: Host, pod: Pod, affinity: str, taints: str, wide: Sequence[TopologySpread]) -> str:
        """Whether a node counts for a spread constraint: yes, no, or maybe (it may still get other labels)."""
        if any(host.value(normalize(r.topology_key)) is None for r in wide):
            return "no"
        if taints == "Honor" and kept_off(host.taints, pod.spec.tolerations) is not None:
            return "no"
        served = [serves(pod.spec, labels) for labels in host.outcomes]
        if affinity == "Honor" and not all(served):
            return "maybe" if any(served) else "no"
        return "yes"

    def possible_values(self, pod: Pod, key: str) -> set[str]:
        """Domains in which a node for the pod could be made. One node serves one of the pod's OR-ed terms."""
        found: set[str] = set()
        pins = single_valued_keys(pod.spec)
        for pool in self.snapshot.pools:
            if self.snapshot.options.min_values_strict and wants_several(pool, pins):
                continue
            for term in choices(pod.spec):
                by_value: dict[str, Ways] = {}
                for kind, labels in self.serving(pod, pool, term):
                    if key in labels:
                        by_value.setdefault(labels[key], []).append((kind, labels))
                for value, ways in by_value.items():
                    if enough_values(self.snapshot, pool, ways) and any(within_limits(pool, kind) for kind, _ in ways):
                        found.add(value)
        return found

    def could_open(self, pod: Pod, pool: Pool) -> bool:
        """Whether a pool could make a node for this pod alone, limits aside. Reservations may be used up."""
        ways = (
            [(kind, labels) for kind, labels in self.serving(pod, pool, term) if labels[CAPACITY_TYPE] != "reserved"]
            for term in choices(pod.spec)
        )
        return any(found and enough_values(self.snapshot, pool, found) for found in ways)

    def serving(self, pod: Pod, pool: Pool, term: Sequence[RequirementSpec]) -> Iterator[tuple[InstanceType, Labels]]:
        """Types, with the labels that a node of them may get, on which this pod could run alone by one of its terms."""
        if kept_off(pool.nodepool.template.taints, pod.spec.tolerations) is not None:
            return
        exotic = self.snapshot.options.exotic
        asks = any(pod.spec.requests.get(name, 0) for name in exotic)
        for kind, daemons, sold in self.on_sale(pool):
            if not asks and self.is_exotic(kind):
                continue
            total = total_requests([pod.spec, *daemons])
            if any(amount > kind.allocatable.get(name, 0) for name, amount in total.items()):
                continue
            if any(ports_clash(pod.spec.host_ports, daemon.host_ports) for daemon in daemons):
                continue
            for labels in sold:
                if all(holds(e, labels.get(normalize(e.key))) for e in term):
                    yield kind, labels

    def free(self, offer: Offering) -> bool:
        return bool(self.snapshot.options.reservation_labels) and free_in(self.snapshot, offer.reservation_id) > 0

    def on_sale(self, pool: Pool) -> list[tuple[InstanceType, list[PodSpec], list[Labels]]]:
        """What a pool may make whoever asks: types, their daemons, and the labels of each way to buy them.

        A label for which the pool allows several values is listed with each.
        """
        name = pool.nodepool.meta.name
        if name in self.sale_cache:
            return self.sale_cache[name]
        found: list[tuple[InstanceType, list[PodSpec], list[Labels]]] = []
        wants = pool.nodepool.template.requirements
        read = self.keys | {normalize(r.key) for r in wants}
        for kind in pool.instance_types if pool.nodepool.replicas is None else ():
            daemons = [d.template.spec for d in self.snapshot.daemons if self.runs_on_type(d, pool, kind)]
            own = {k: v for k, v in {**pool_labels(pool), **type_labels(kind)}.items() if k in read}
            ways: list[Labels] = []
            for offer in kind.offerings:
                if not offer.available or (offer.capacity_type == "reserved" and not self.free(offer)):
                    continue
                sold = bought_as(offer, own, self.snapshot)
                wide = {
                    normalize(r.key): r.values
                    for r in wants
                    if r.operator == "In" and normalize(r.key) not in (*sold, *self.snapshot.options.reservation_labels)
                }
                for chosen in product(*wide.values()):
                    labels = {**sold, **dict(zip(wide, chosen, strict=True))}
                    if labels not in ways and all(holds(r, labels.get(normalize(r.key))) for r in wants):
                        ways.append(labels)
            found.append((kind, daemons, ways))
        self.sale_cache[name] = found
        return found

    def left_over(self) -> Iterator[str]:
        """A pod without rules about other pods is not left over while a pool without limits could serve it."""
        for entry in self.plan.unschedulable:
            pod = self.pods.get(entry.pods[0])
            if pod is None:
                continue
            spec = pod.spec
            if spec.spread or spec.affinity or spec.anti_affinity or spec.claims or spec.ephemeral_claims:
                continue
            if spec.resource_claims or any(t.match_fields for t in spec.required_terms):
                continue
            if any(p.spec.anti_affinity for n in self.snapshot.nodes for p in n.pods):
                continue
            for pool in self.snapshot.pools:
                strict = any(r.min_values for r in pool.nodepool.template.requirements)
                if not pool.nodepool.limits and not strict and self.could_open(pod, pool):
                    yield f"{pod.meta.key}: reported, though pool {pool.nodepool.meta.name} could serve it"

    def runs_on_type(self, daemon: DaemonSet, pool: Pool, kind: InstanceType) -> bool:
        template = pool.nodepool.template
        tolerations = (*daemon.template.spec.tolerations, *daemon_tolerations())
        if daemon.template.spec.resource_claims or kept_off(template.taints, tolerations) is not None:
            return False
        own = {**pool_labels(pool), REGISTERED: "true", INITIALIZED: "true"}
        for expressions in choices(daemon.template.spec):
            if all(self.may_hold(e, own, pool, kind) for e in expressions):
                return True
        return False

    def may_hold(self, want: RequirementSpec, own: Labels, pool: Pool, kind: InstanceType) -> bool:
        key = normalize(want.key)
        if key in own:
            return holds(want, own[key])
        asked = [r for r in pool.nodepool.template.requirements if normalize(r.key) == key]
        values: set[str] = {v for r in asked if r.operator == "In" for v in r.values}
        there = kind.requirements.get(key)
        if there is not None and not there.complement:
            values = set(there.values) if not values else values & set(there.values)
            possible: list[str | None] = [*values] or [None]
            return any(holds(want, v) for v in possible)
        if values:
            return any(holds(want, v) for v in values)
        known = bool(asked) or key in self.snapshot.options.well_known
        return known or want.operator in ("NotIn", "DoesNotExist")

    def outcomes(
        self, node: PlannedNode, pool: Pool, listed: list[InstanceType], offers: Mapping[str, list[Offering]]
    ) -> tuple[Labels, ...]:
        key = (node.nodepool, node.instance_types, node.requirements)
        if key not in self.outcome_cache:
            asked = {k: next(iter(r.values)) for k, r in node.requirements.items() if is_one(r)}
            own = self.keys - self.snapshot.options.well_known - asked.keys() - pool_labels(pool).keys()
            found: dict[frozenset[tuple[str, str]], Labels] = {}
            for kind in listed:
                chosen = open_labels(node.requirements, own - {ZONE, CAPACITY_TYPE} - kind.requirements.keys())
                for offer, more in product(offers[kind.name], chosen):
                    labels = {**type_labels(kind), **pool_labels(pool), **asked, **more}
                    labels = bought_as(offer, labels, self.snapshot)
                    read = {k: v for k, v in labels.items() if k in self.keys}
                    found.setdefault(frozenset(read.items()), read)
            self.outcome_cache[key] = tuple(found.values())
        return self.outcome_cache[key]


def _may_run_on(daemon: DaemonSet, host: Host) -> bool:
    tolerations = (*daemon.template.spec.tolerations, *daemon_tolerations())
    if daemon.template.spec.resource_claims or kept_off(host.taints, tolerations) is not None:
        return False
    return any(serves(daemon.template.spec, labels) for labels in host.outcomes)
