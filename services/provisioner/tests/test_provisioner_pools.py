"""NodePools and NodeClasses: what is wrong with one is said on it, and the others go on."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sawhorse_cloud.errors import CloudUnavailableError
from sawhorse_kube.kinds import NODECLAIM, NODEPOOL, POD, nodeclass_kind
from sawhorse_model.meta import find_condition
from sawhorse_model.nodepool import NodePool
from sawhorse_model.requirements import Operator, RequirementSpec
from sawhorse_model.taints import Taint
from sawhorse_provisioner.claims import pool_hash
from sawhorse_provisioner.nodepools import validate_pool
from sawhorse_provisioner.words import NodeClassWords

CLASS = nodeclass_kind("fake.example", "v1", "FakeNodeClass", "fakenodeclasses")


def words() -> NodeClassWords:
    """The words of a cloud that defines one label."""
    return NodeClassWords(CLASS, "f", "fake.example/nodeclass", "h", "v", "t", frozenset({"fake.example/cpu"}))


def a_pool(world: Any, **changes: Any) -> NodePool:
    """A NodePool with another template."""
    pool: NodePool = world.pool()
    return replace(pool, template=replace(pool.template, **changes))


@pytest.mark.looptime
async def test_a_class_whose_subnets_match_nothing_says_so_and_other_pools_go_on(world: Any, looptime: Any) -> None:
    world.node_class("lost")
    world.node_class("good")
    world.cloud.unresolved["lost"] = ("SubnetsReady", "SubnetsNotFound", "no subnet matches: check tags")
    world.pool("broken", node_class="lost")
    world.pool("works", node_class="good")
    world.pod("needs-broken", selector={"karpenter.sh/nodepool": "broken"})
    world.pod("needs-any")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        await world.until(lambda: bool(world.events("FailedScheduling")))

    lost = CLASS.parse(world.kube.raw(CLASS, "lost"))
    subnets = find_condition(lost.conditions, "SubnetsReady")
    broken = NODEPOOL.parse(world.kube.raw(NODEPOOL, "broken"))
    ready = find_condition(broken.conditions, "NodeClassReady")
    assert subnets is not None
    assert (subnets.status, subnets.reason) == ("False", "SubnetsNotFound")
    assert "check tags" in subnets.message
    assert (broken.is_ready, ready.status if ready else "") == (False, "False")
    assert [c.nodepool for c in world.claims()] == ["works"]
    assert [e.meta.name for e in world.kube.events if e.reason == "FailedScheduling"] == ["needs-broken"]


@pytest.mark.looptime
async def test_a_pod_that_fits_no_type_is_told_why_and_nothing_is_made(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("giant", cpu="500")

    async with world.leading() as replica:
        await world.until(lambda: bool(world.events("FailedScheduling")))

        unschedulable = replica.count("karpenter_scheduler_unschedulable_pods_count", controller="provisioner")
    (message,) = world.events("FailedScheduling")
    assert "default" in message
    assert unschedulable == 1
    assert world.claims() == []
    assert world.cloud.launches() == []
    assert world.store.journal[0]["unschedulable"][0]["reasons"] != []


@pytest.mark.looptime
async def test_failed_scheduling_is_told_once_in_five_minutes(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    world.pod("giant", cpu="500")

    async with world.leading():
        await world.until(lambda: world.clock.monotonic() > 290, seconds=400)
        before = len(world.events("FailedScheduling"))
        await world.until(lambda: world.clock.monotonic() > 330, seconds=400)

    assert (before, len(world.events("FailedScheduling"))) == (1, 2)


@pytest.mark.looptime
async def test_limits_count_claims_in_flight(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool(limits={"cpu": "10"})
    world.catalog.types = world.catalog.types[1:]  # 8 cpu a node
    world.cloud.launch_latency = 30.0

    async with world.leading():
        world.pod("web-1", cpu="5")
        await world.until(lambda: len(world.claims()) == 1)
        world.pod("web-2", cpu="5")
        await world.until(lambda: bool(world.events("FailedScheduling")))
        in_flight = [c.is_launched for c in world.claims()]

    assert in_flight == [False]
    assert "limit" in world.events("FailedScheduling")[0]


@pytest.mark.looptime
async def test_a_pool_that_makes_no_sense_is_not_used_and_says_where(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool("odd", requirements=[{"key": "karpenter.sh/secret", "operator": "Exists"}])
    world.pool("fine")
    world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))

    odd = NODEPOOL.parse(world.kube.raw(NODEPOOL, "odd"))
    validation = find_condition(odd.conditions, "ValidationSucceeded")
    assert validation is not None
    assert (validation.status, validation.reason) == ("False", "NodePoolValidationFailed")
    assert "spec.template.spec.requirements[0]" in validation.message
    assert [c.nodepool for c in world.claims()] == ["fine"]


@pytest.mark.looptime
async def test_one_class_that_cannot_be_looked_up_holds_up_no_other(world: Any, looptime: Any) -> None:
    world.node_class("a-first")
    world.node_class("b-second")
    world.pool("second", node_class="b-second")
    world.pod("web-1")
    world.cloud.errors["resolve_node_class"] = [CloudUnavailableError("no answer")]

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()), seconds=5)
        await world.until(lambda: CLASS.parse(world.kube.raw(CLASS, "a-first")).is_ready, seconds=10)

    assert len(world.claims()) == 1


@pytest.mark.looptime
async def test_a_class_is_looked_up_each_minute_and_what_changed_is_written(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()

    async with world.leading():
        await world.until(lambda: CLASS.parse(world.kube.raw(CLASS, "default")).is_ready)
        world.cloud.unresolved["default"] = ("ImagesReady", "ImageNotFound", "no image")
        await world.until(lambda: not CLASS.parse(world.kube.raw(CLASS, "default")).is_ready, seconds=90)
        await world.until(lambda: not NODEPOOL.parse(world.kube.raw(NODEPOOL, "default")).is_ready, seconds=5)

    assert len([m for m, _ in world.cloud.calls if m == "resolve_node_class"]) == 2
    assert "fake.example/termination" in CLASS.parse(world.kube.raw(CLASS, "default")).meta.finalizers
    annotations = CLASS.parse(world.kube.raw(CLASS, "default")).meta.annotations
    assert annotations["fake.example/nodeclass-hash"] == "hash-of-default"


@pytest.mark.looptime
async def test_a_deleted_class_waits_for_its_claims_and_is_then_released(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool()
    pod = world.pod("web-1")

    async with world.leading():
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        await world.kube.delete(CLASS, "default")
        await world.until(lambda: bool(world.events("WaitingOnNodeClaimTermination")))
        released_early = list(world.cloud.released)
        world.kube.remove(POD, pod.meta.name, "default")
        await world.kube.delete(NODECLAIM, world.claim().meta.name)
        await world.until(lambda: world.kube.names(CLASS) == [])

    assert released_early == []
    assert world.cloud.released == ["default"]


@pytest.mark.looptime
async def test_claims_of_another_hash_version_are_stamped_anew_and_not_taken_for_drifted(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    pool = world.pool()
    stamps = {"karpenter.sh/nodepool-hash": "1", "karpenter.sh/nodepool-hash-version": "v3"}
    raw = {
        "metadata": {"name": "old", "labels": {"karpenter.sh/nodepool": "default"}, "annotations": stamps},
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "fake.example", "kind": "FakeNodeClass", "name": "default"},
        },
    }
    await world.kube.create(NODECLAIM, raw)

    async with world.leading():
        await world.until(lambda: world.claim().meta.annotations["karpenter.sh/nodepool-hash-version"] == "sawhorse-v1")

    assert world.claim().meta.annotations["karpenter.sh/nodepool-hash"] == pool_hash(pool)


def test_the_hash_is_of_the_template_without_its_requirements_in_any_order(world: Any) -> None:
    taints = (Taint("a", "NoSchedule"), Taint("b", "NoExecute", "x"))
    one = a_pool(world, taints=taints, labels={"x": "1", "y": "2"})
    reordered = a_pool(world, taints=taints[::-1], labels={"y": "2", "x": "1"})
    required = a_pool(
        world, taints=taints, labels={"x": "1", "y": "2"}, requirements=(RequirementSpec("k", Operator.EXISTS),)
    )
    other = a_pool(world, taints=taints, labels={"x": "1", "y": "2"}, expire_after=timedelta(hours=1))

    assert pool_hash(one) == pool_hash(reordered) == pool_hash(required)
    assert pool_hash(one) != pool_hash(other)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"labels": {"kubernetes.io/hostname": "a"}}, "each node's own"),
        ({"labels": {"karpenter.sh/nodepool": "a"}}, "set by the autoscaler"),
        ({"labels": {"sub.karpenter.sh/x": "a"}}, "reserved domain"),
        ({"labels": {"fake.example/nodeclass": "a"}}, "reserved domain"),
        ({"labels": {"team": "not a value!"}}, "not a label value"),
        ({"requirements": (RequirementSpec("team", Operator.IN),)}, "at least one value"),
        ({"requirements": (RequirementSpec("team", Operator.GT, ("x",)),)}, "exactly one integer"),
        ({"requirements": (RequirementSpec("team", Operator.IN, ("a b",)),)}, "not a label value"),
    ],
)
def test_what_the_schema_lets_through_is_named_with_its_field(world: Any, changes: dict[str, Any], says: str) -> None:
    problems = validate_pool(a_pool(world, **changes), words())

    assert len(problems) == 1
    assert problems[0].startswith("spec.template.")
    assert says in problems[0]


@pytest.mark.parametrize("key", ["fake.example/cpu", "karpenter.sh/capacity-type", "example.com/team", "team"])
def test_labels_that_are_known_or_the_users_own_are_fine(world: Any, key: str) -> None:
    pool = a_pool(world, requirements=(RequirementSpec(key, Operator.IN, ("a",)),))

    assert validate_pool(pool, words()) == []
