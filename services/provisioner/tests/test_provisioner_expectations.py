"""Pods that a plan gave a place count there and are not planned again, until it has taken too long."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from sawhorse_model.labels import INITIALIZED
from sawhorse_model.meta import Condition, ObjectMeta, OwnerReference
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodepool import NodeClassRef
from sawhorse_model.pod import Pod
from sawhorse_provisioner.expectations import PATIENCE, Expectations
from sawhorse_testing.builders import a_pod

SETTLE = 20.0


@dataclass
class SetClock:
    """A clock that stands where it is put."""

    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 11, 29, tzinfo=UTC)

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class SomeCapacity:
    """Claims and nodes as a test says; provider id of a claim is its name."""

    claims: dict[str, NodeClaim] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    bound: dict[str, list[Pod]] = field(default_factory=dict)
    going: set[str] = field(default_factory=set)

    def claim(self, name: str) -> NodeClaim | None:
        return self.claims.get(name)

    def node(self, name: str) -> Node | None:
        return self.nodes.get(name)

    def nodes_of(self, provider_id: str) -> list[Node]:
        return [n for n in self.nodes.values() if provider_id and n.provider_id == provider_id]

    def pods_on(self, node: str) -> list[Pod]:
        return self.bound.get(node, [])

    def is_going(self, claim: NodeClaim) -> bool:
        return claim.meta.name in self.going

    def is_node_going(self, node: Node) -> bool:
        return node.meta.name in self.going

    def add_claim(self, name: str) -> None:
        self.claims[name] = NodeClaim(ObjectMeta(name), NodeClassRef("g", "K", "default"), provider_id=name)

    def complete(self, claim: str, node: str, cpu: int = 4000) -> None:
        found = self.claims[claim]
        self.claims[claim] = replace(found, conditions=(Condition("Initialized", "True"),))
        labels = {INITIALIZED: "true"}
        room = {"cpu": cpu, "memory": 2**34, "pods": 10}
        self.nodes[node] = Node(ObjectMeta(node, labels=labels), provider_id=claim, allocatable=room)


def replicas(count: int) -> list[Pod]:
    """Equal pods of one controller, one cpu each."""
    owner = OwnerReference("apps/v1", "ReplicaSet", "web", "uid-web", controller=True)
    pods = [a_pod(f"web-{n}", cpu="1") for n in range(count)]
    return [replace(p, meta=replace(p.meta, uid=f"uid-{p.meta.name}", owners=(owner,))) for p in pods]


def test_pods_of_a_plan_are_expected_on_its_claim() -> None:
    state, expected = SomeCapacity(), Expectations(SetClock(), SETTLE)
    state.add_claim("c1")
    pods = replicas(3)

    expected.add(state, "c1", pods[:2])

    assert sorted(expected.assign(state, pods).values()) == ["c1", "c1"]


def test_a_pod_that_comes_back_under_another_name_is_expected_in_its_place() -> None:
    state, expected = SomeCapacity(), Expectations(SetClock(), SETTLE)
    state.add_claim("c1")
    old, new = replicas(2)
    expected.add(state, "c1", [old])

    found = expected.assign(state, [new])

    assert found == {new.meta.key: "c1"}


def test_a_pod_keeps_its_place_whatever_else_comes_and_goes() -> None:
    state, expected = SomeCapacity(), Expectations(SetClock(), SETTLE)
    state.add_claim("c1")
    state.add_claim("c2")
    pods = replicas(4)
    expected.add(state, "c1", pods[:2])
    expected.add(state, "c2", pods[2:])
    first = expected.assign(state, pods)

    later = expected.assign(state, pods[1:])

    assert later == {key: target for key, target in first.items() if key in later}
    assert len(later) == 3


def test_a_place_that_is_taken_by_its_pod_is_settled() -> None:
    state, expected = SomeCapacity(), Expectations(SetClock(), SETTLE)
    state.add_claim("c1")
    pods = replicas(2)
    expected.add(state, "c1", pods[:1])
    state.complete("c1", "n1")
    state.bound["n1"] = [replace(pods[0], node_name="n1")]

    assert expected.assign(state, pods[1:]) == {}


def test_pods_that_were_there_before_the_plan_settle_nothing() -> None:
    state, expected = SomeCapacity(), Expectations(SetClock(), SETTLE)
    state.add_claim("c1")
    state.complete("c1", "n1")
    pods = replicas(2)
    state.bound["n1"] = [replace(pods[0], node_name="n1")]

    expected.add(state, "n1", pods[1:])

    assert expected.assign(state, pods[1:]) == {pods[1].meta.key: "n1"}


def test_a_complete_node_that_others_filled_keeps_no_promise() -> None:
    state, expected = SomeCapacity(), Expectations(SetClock(), SETTLE)
    state.add_claim("c1")
    pods = replicas(3)
    expected.add(state, "c1", pods)
    state.complete("c1", "n1", cpu=2000)
    state.bound["n1"] = [a_pod("other", cpu="1")]

    assert len(expected.assign(state, pods)) == 1


def test_the_scheduler_has_its_time_and_then_the_pods_are_planned_again() -> None:
    clock = SetClock()
    state, expected = SomeCapacity(), Expectations(clock, SETTLE)
    state.add_claim("c1")
    pods = replicas(1)
    expected.add(state, "c1", pods)
    state.complete("c1", "n1")
    assert expected.assign(state, pods)

    clock.seconds = SETTLE + 1

    assert expected.assign(state, pods) == {}
    assert not expected.is_patient(pods[0])


def placed() -> tuple[SetClock, SomeCapacity, Expectations, Pod]:
    """A pod with a place on an open node that has room for it alone."""
    clock = SetClock()
    state, expected = SomeCapacity(), Expectations(clock, SETTLE)
    state.add_claim("c1")
    (pod,) = replicas(1)
    expected.add(state, "c1", [pod])
    state.complete("c1", "n1", cpu=1500)
    assert expected.assign(state, [pod]) == {pod.meta.key: "c1"}
    return clock, state, expected, pod


def test_a_pod_whose_place_another_took_waits_a_moment_as_the_others_place_may_be_left_for_it() -> None:
    clock, state, expected, pod = placed()
    state.bound["n1"] = [a_pod("other", cpu="1")]

    assert expected.assign(state, [pod]) == {}
    assert expected.is_patient(pod)
    clock.seconds = PATIENCE - 1
    assert expected.assign(state, [pod]) == {}
    assert expected.is_patient(pod)
    clock.seconds = PATIENCE + 1
    assert expected.assign(state, [pod]) == {}
    assert not expected.is_patient(pod)


def test_a_pod_that_kube_scheduler_claims_for_a_moment_is_as_patient_as_before() -> None:
    """While kube-scheduler has chosen a node for it, it waits for no other; then it may be given up again."""
    clock, state, expected, pod = placed()
    assert expected.assign(state, []) == {}
    state.bound["n1"] = [a_pod("other", cpu="1")]

    assert expected.assign(state, [pod]) == {}
    assert expected.is_patient(pod)
    clock.seconds = PATIENCE / 2
    assert expected.assign(state, []) == {}
    assert expected.assign(state, [pod]) == {}
    assert expected.is_patient(pod)
    clock.seconds = PATIENCE + 1
    assert not expected.is_patient(pod)


def test_a_pod_on_a_node_that_ends_and_one_whose_claim_goes_are_planned_anew_at_once() -> None:
    state, expected = SomeCapacity(), Expectations(SetClock(), SETTLE)
    state.add_claim("c1")
    state.add_claim("c2")
    one, two = (replace(p, meta=replace(p.meta, uid=n, owners=())) for p, n in zip(replicas(2), "ab", strict=True))
    doomed = replace(one, node_name="n0")
    expected.add(state, "c1", [doomed])
    expected.add(state, "c2", [two])
    state.complete("c1", "n1", cpu=1500)
    assert len(expected.assign(state, [doomed, two])) == 2
    state.bound["n1"] = [a_pod("other", cpu="1")]
    state.going.add("c2")

    assert expected.assign(state, [doomed, two]) == {}
    assert not expected.is_patient(doomed)
    assert not expected.is_patient(two)


def test_a_claim_on_its_way_is_waited_for_however_long_it_takes() -> None:
    clock = SetClock()
    state, expected = SomeCapacity(), Expectations(clock, SETTLE)
    state.add_claim("c1")
    pods = replicas(1)
    expected.add(state, "c1", pods)

    clock.seconds = 500.0

    assert expected.assign(state, pods) == {pods[0].meta.key: "c1"}


def test_nothing_is_expected_on_a_claim_that_goes() -> None:
    state, expected = SomeCapacity(), Expectations(SetClock(), SETTLE)
    state.add_claim("c1")
    pods = replicas(1)
    expected.add(state, "c1", pods)

    state.going.add("c1")

    assert expected.assign(state, pods) == {}
