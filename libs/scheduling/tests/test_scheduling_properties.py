"""Any small cluster: the plan passes the independent checker, and the order of the input changes nothing."""

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sawhorse_model.cluster import Namespace, Service
from sawhorse_model.labels import ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, WELL_KNOWN, ZONE
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import HostPort, PodAffinityTerm, TopologySpread
from sawhorse_model.requirements import Requirement, Requirements
from sawhorse_model.selectors import LabelSelector
from sawhorse_model.taints import Taint, Toleration
from sawhorse_scheduling import opener
from sawhorse_scheduling.opening import Packer
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import ExistingNode, PodGroup, Pool, Snapshot, SolveOptions
from sawhorse_scheduling.solve import solve
from sawhorse_testing.builders import (
    RESERVATION_ID,
    RESERVATION_KIND,
    ZONES,
    a_claim,
    a_daemonset,
    a_group,
    a_node,
    a_pod,
    a_pool,
    a_spread,
    a_storage_class,
    a_term,
    a_type,
    a_volume,
    a_wish,
    an_expression,
    bound,
    keep_apart,
    keep_near,
    resources,
    volumes_of,
    with_reservations,
)
from sawhorse_testing.checker import check_plan

GPU = "nvidia.com/gpu"
APPS = ("web", "db", "job")
TAINT = Taint("team", "NoSchedule", "ml")
SOFT = Taint("slow", "PreferNoSchedule")
OPTIONS = SolveOptions(
    well_known=WELL_KNOWN | {RESERVATION_ID, RESERVATION_KIND},
    exotic=frozenset({GPU}),
    reservation_labels=(RESERVATION_ID, RESERVATION_KIND),
)
CI = bool(os.environ.get("CI"))
FUZZ = int(os.environ.get("SAWHORSE_FUZZ", "0"))  # clusters to try, other ones in each run; see `make fuzz`

TYPES = (
    a_type("small", "2", "4Gi", price=0.10, spot=0.04),
    with_reservations(
        a_type("large", "8", "16Gi", price=0.38, spot=0.17, unavailable=[(ZONES[0], "spot")]),
        {"cr-1": 1, "cr-2": 3},
        zone=ZONES[1],
    ),
    a_type("fat", "4", "32Gi", price=0.30, zones=ZONES[:2]),
    a_type("arm", "4", "8Gi", price=0.15, spot=0.06, arch="arm64"),
    a_type("gpu", "8", "32Gi", price=0.05, zones=ZONES[:1], gpu=1),
)

CLAIMS = ("here", "there", "open", "shared", "lost")
VOLUMES = volumes_of(
    a_claim("here", volume="v1"),
    a_volume("v1", zone=ZONES[0]),
    a_claim("there", volume="v2"),
    a_volume("v2", terms=(a_term(an_expression(ZONE, "In", ZONES[1])), a_term(an_expression(ZONE, "In", ZONES[2])))),
    a_claim("open"),
    a_storage_class(zones=ZONES[:2]),
    a_claim("shared", storage_class="efs"),
    a_storage_class("efs", provisioner="efs.csi.aws.com"),
    a_claim("lost", volume="gone"),
    limits={"n0": {"ebs.csi.aws.com": 1}, "n1": {"ebs.csi.aws.com": 2}},
)

SERVICE = Service(ObjectMeta("web"), {"app": "web"})
DEFAULT_SPREAD = (TopologySpread(2, ZONE),)

expressions = st.sampled_from(
    (
        an_expression(ARCH, "In", "amd64"),
        an_expression(ARCH, "In", "arm64"),
        an_expression(ARCH, "NotIn", "arm64"),
        an_expression(ZONE, "In", ZONES[0], ZONES[1]),
        an_expression(ZONE, "NotIn", ZONES[1]),
        an_expression(CAPACITY_TYPE, "In", "spot"),
        an_expression(INSTANCE_TYPE, "NotIn", "small"),
        an_expression("team", "In", "a"),
        an_expression("team", "In", "b"),
        an_expression("team", "NotIn", "a"),
        an_expression("team", "Exists"),
        an_expression("tier", "DoesNotExist"),
        an_expression("unknown", "Exists"),
    )
)
terms = st.lists(expressions, min_size=1, max_size=2).map(lambda found: a_term(*found))
spreads = st.builds(
    a_spread,
    st.sampled_from((ZONE, ZONE, HOSTNAME, CAPACITY_TYPE)),
    app=st.sampled_from(APPS),
    max_skew=st.integers(1, 2),
    when_unsatisfiable=st.sampled_from(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
    node_affinity_policy=st.sampled_from(("Honor", "Ignore")),
    node_taints_policy=st.sampled_from(("Honor", "Ignore")),
    min_domains=st.sampled_from((None, 2, 3)),
    match_label_keys=st.sampled_from(((), (), ("rev",))),
)
term_weights = st.sampled_from((0, 0, 10))
sometimes = st.integers(0, 3).map(lambda n: n == 0)
seldom = st.integers(0, 9).map(lambda n: n == 0)
options = st.builds(
    replace,
    st.just(OPTIONS),
    min_values_strict=st.sampled_from((True, True, False)),
    ignore_preferences=seldom,
    slack=st.sampled_from((0.0, 0.0, 0.1)),
    max_pods_per_node=st.sampled_from((None, None, None, 2)),
    default_spread=seldom.map(lambda there: DEFAULT_SPREAD if there else ()),
)


@st.composite
def pod_terms(draw: st.DrawFn, keys: tuple[str, ...]) -> PodAffinityTerm:
    term = keep_near(draw(st.sampled_from(keys)), app=draw(st.sampled_from(APPS)), weight=draw(term_weights))
    if draw(seldom):
        return replace(term, namespace_selector=LabelSelector(()))
    return replace(term, namespaces=("default", "other")) if draw(seldom) else term


@st.composite
def spec_fields(draw: st.DrawFn) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "cpu": draw(st.sampled_from(("100m", "700m", "1500m", "3"))),
        "memory": draw(st.sampled_from(("128Mi", "2Gi", "12Gi"))),
    }
    if draw(sometimes):
        fields["required_terms"] = tuple(draw(st.lists(terms, min_size=1, max_size=2)))
    if draw(sometimes):
        wishes = draw(st.lists(expressions, min_size=1, max_size=2))
        fields["preferred_terms"] = tuple(a_wish(10 * n, wish) for n, wish in enumerate(wishes, start=1))
    if draw(sometimes):
        fields["tolerations"] = (Toleration(draw(st.sampled_from(("team", "team", "slow"))), "Exists"),)
    if draw(sometimes):
        fields["spread"] = tuple(draw(st.lists(spreads, min_size=1, max_size=2)))
    if draw(sometimes):
        fields["anti_affinity"] = (draw(pod_terms((HOSTNAME, ZONE))),)
    if draw(sometimes):
        several = st.lists(pod_terms((ZONE, HOSTNAME, CAPACITY_TYPE)), min_size=1, max_size=2)
        fields["affinity"] = tuple(draw(several))
    if draw(sometimes):
        fields["host_ports"] = (HostPort(8080),)
    if draw(sometimes):
        fields["claims"] = tuple(draw(st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=2, unique=True)))
    if draw(sometimes):
        fields["more"] = {GPU: 1}
    return fields


@st.composite
def groups(draw: st.DrawFn, name: str) -> PodGroup:
    labels = {"app": draw(st.sampled_from(APPS)), "rev": draw(st.sampled_from(("1", "2")))}
    namespace = "other" if draw(seldom) else "default"
    return a_group(name, draw(st.integers(1, 9)), labels=labels, namespace=namespace, **draw(spec_fields()))


@st.composite
def pools(draw: st.DrawFn, name: str) -> Pool:
    kinds = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=5, unique_by=lambda t: t.name))
    limits = draw(
        st.sampled_from(({}, {}, resources(cpu="8"), {"nodes": 2}, resources(cpu="20", memory="40Gi"))),
    )
    requirements = [an_expression("team", "In", "a", "b")] if draw(sometimes) else []
    if draw(sometimes):
        key = draw(st.sampled_from((INSTANCE_TYPE, INSTANCE_TYPE, ARCH, ZONE, CAPACITY_TYPE)))
        requirements.append(replace(an_expression(key, "Exists"), min_values=2))
    return a_pool(
        kinds,
        name,
        usage=resources(cpu="4") | {"nodes": 1} if limits and draw(sometimes) else {},
        limits=limits,
        weight=draw(st.sampled_from((0, 0, 10))),
        taints=draw(st.sampled_from(((), (), (TAINT,), (SOFT,)))),
        requirements=requirements,
    )


@st.composite
def nodes(draw: st.DrawFn, name: str) -> ExistingNode:
    running = []
    for number in range(draw(st.integers(0, 2))):
        fields: dict[str, Any] = {"cpu": "500m"}
        if draw(sometimes):
            key = draw(st.sampled_from((HOSTNAME, ZONE)))
            fields["anti_affinity"] = (keep_apart(key, app=draw(st.sampled_from(APPS))),)
        if draw(sometimes):
            fields["host_ports"] = (HostPort(8080),)
        if draw(sometimes):
            fields["claims"] = (draw(st.sampled_from(("here", "there"))),)
        labels = {"app": draw(st.sampled_from(APPS))}
        running.append(bound(a_pod(f"{name}-{number}", labels=labels, **fields), name))
    return a_node(
        name,
        draw(st.sampled_from(("2", "4"))),
        zone=draw(st.sampled_from(ZONES)),
        pods=running,
        taints=draw(st.sampled_from(((), (), (TAINT,), (SOFT,)))),
        initialized=draw(st.booleans()),
        labels={"team": "a"} if draw(sometimes) else {},
    )


@st.composite
def claims_in_flight(draw: st.DrawFn, name: str) -> ExistingNode:
    """A claim that has no node yet and may still become one of several types, in one of several zones."""
    kinds = draw(st.lists(st.sampled_from(TYPES[:4]), min_size=1, max_size=3, unique_by=lambda t: t.name))
    asked = [Requirement.of(INSTANCE_TYPE, "In", [t.name for t in kinds])]
    if draw(st.booleans()):
        asked.append(Requirement.of(ZONE, "In", draw(st.sampled_from((ZONES[:1], ZONES[:2])))))
    least = {name: min(kind.allocatable[name] for kind in kinds) for name in kinds[0].allocatable}
    return ExistingNode(
        name=name,
        claim=name,
        labels={NODEPOOL: "p0"},
        allocatable=least,
        initialized=False,
        nodepool="p0",
        requirements=Requirements(asked),
        instance_types=tuple(kinds),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    daemons = []
    if draw(sometimes):
        daemons.append(a_daemonset(cpu="300m"))
    if draw(sometimes):
        arm = a_term(an_expression(ARCH, "In", "arm64"))
        daemons.append(a_daemonset("arm-agent", cpu="1", required_terms=(arm,), host_ports=(HostPort(8080),)))
    there = [draw(nodes(f"n{i}")) for i in range(draw(st.integers(0, 3)))]
    if draw(sometimes):
        there.append(draw(claims_in_flight("c0")))
    return Snapshot(
        pods=tuple(draw(groups(f"g{i}")) for i in range(draw(st.integers(1, 5)))),
        nodes=tuple(there),
        pools=tuple(draw(pools(f"p{i}")) for i in range(draw(st.integers(1, 3)))),
        daemons=tuple(daemons),
        options=draw(options),
        volumes=VOLUMES,
        namespaces=(Namespace(ObjectMeta("default")), Namespace(ObjectMeta("other"))),
        services=(SERVICE,),
    )


def summary(plan: Plan) -> tuple[Any, ...]:
    """What must not depend on the order of the input."""
    return (
        round(plan.price_per_hour, 9),
        sorted((n.nodepool, n.instance_types, n.zone, len(n.pods)) for n in plan.new_nodes),
        sorted((n.name, len(n.pods)) for n in plan.existing_nodes),
        sum(len(u.pods) for u in plan.unschedulable),
    )


@pytest.mark.timeout(7200 if FUZZ else 180)
@settings(
    max_examples=FUZZ or (500 if CI else 150),
    deadline=None,
    derandomize=not FUZZ,
    suppress_health_check=list(HealthCheck),
)
@given(snapshots())
def test_a_plan_passes_the_independent_checker(snapshot: Snapshot) -> None:
    plan = solve(snapshot)

    assert check_plan(snapshot, plan) == []


@pytest.mark.parametrize("way", ["engine", "greedy"])
@settings(max_examples=60 if CI else 25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(snapshot=snapshots())
def test_each_way_of_opening_nodes_keeps_every_rule_without_the_other(way: str, snapshot: Snapshot) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if way == "engine":
            patch.setattr(Packer, "pack", lambda packer: [])
        else:
            patch.setattr(opener, "pack_tier", lambda *args, **fields: ([], None))
        plan = solve(snapshot)

    assert check_plan(snapshot, plan) == []


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(snapshot: Snapshot, random: Any) -> None:
    def shuffled(items: tuple[Any, ...]) -> tuple[Any, ...]:
        order = list(items)
        random.shuffle(order)
        return tuple(order)

    other = replace(
        snapshot,
        pods=shuffled(snapshot.pods),
        nodes=shuffled(snapshot.nodes),
        pools=tuple(replace(p, instance_types=shuffled(p.instance_types)) for p in shuffled(snapshot.pools)),
        daemons=shuffled(snapshot.daemons),
    )

    assert summary(solve(other)) == summary(solve(snapshot))


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(snapshots())
def test_equal_input_gives_an_equal_plan(snapshot: Snapshot) -> None:
    assert solve(snapshot) == solve(snapshot)
