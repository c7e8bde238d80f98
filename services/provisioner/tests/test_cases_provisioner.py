"""Cases that a plan alone does not settle: what becomes of claims, events and counts while time passes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sawhorse_catalog.aws import resolve
from sawhorse_catalog.prices import PriceBook
from sawhorse_kube.kinds import NODECLAIM, NODEPOOL, POD, nodeclass_kind
from sawhorse_model import aws
from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import CAPACITY_TYPE, INSTANCE_TYPE, MIN_VALUES_RELAXED, WELL_KNOWN
from sawhorse_model.meta import Condition, find_condition
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.requirements import Operator, RequirementSpec
from sawhorse_model.resources import CPU
from sawhorse_model.taints import Taint
from sawhorse_provisioner.claims import claim_from_plan
from sawhorse_provisioner.nodepools import validate_pool
from sawhorse_provisioner.pool_types import nothing_to_launch
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_scheduling.snapshot import Snapshot, SolveOptions
from sawhorse_scheduling.solve import solve
from sawhorse_testing.builders import a_daemonset, a_group, a_pool, a_term, a_type, a_wish, an_expression
from sawhorse_testing.catalog import an_ec2_type, an_instance_type, common_fixture
from sawhorse_testing.checker import check_plan

CLASS = nodeclass_kind("fake.example", "v1", "FakeNodeClass", "fakenodeclasses")
WORDS = NodeClassWords(CLASS, "f", "fake.example/nodeclass", "h", "v", "t", aws.WELL_KNOWN)
EIGHT = an_instance_type("m5.2xlarge", cpu="8", memory="32Gi", price=0.40, spot_price=0.16)
FOUR = an_instance_type("m5.xlarge", cpu="4", memory="16Gi", price=0.20)


def only_left(name: str) -> list[InstanceType]:
    """The common fixture with every other amd64 type out of capacity."""
    return [
        kind
        if kind.name in (name, "m7g.large")
        else replace(kind, offerings=tuple(replace(o, available=False) for o in kind.offerings))
        for kind in common_fixture()
    ]


@pytest.mark.parametrize(("strict", "minimum"), [(False, 5), (False, 1), (True, 1)])
def test_n08_a_claim_says_whether_min_values_were_relaxed_and_to_what(strict: bool, minimum: int) -> None:
    wanted = replace(an_expression(INSTANCE_TYPE, "Exists"), min_values=minimum)
    pool = a_pool(only_left("m6i.xlarge"), requirements=[wanted])
    pods = a_group(cpu="1", node_selector={"kubernetes.io/arch": "amd64"})
    options = SolveOptions(well_known=WELL_KNOWN | aws.WELL_KNOWN, min_values_strict=strict)
    (node,) = solve(Snapshot(pods=(pods,), pools=(pool,), options=options)).new_nodes

    claim = claim_from_plan(node, pool.nodepool, {}, WORDS, name="default-x")

    assert claim.meta.annotations[MIN_VALUES_RELAXED] == ("true" if minimum > 1 else "false")
    assert [(r.values, r.min_values) for r in claim.requirements if r.key == INSTANCE_TYPE] == [(("m6i.xlarge",), 1)]


def cpus(world: Any, types: Sequence[InstanceType]) -> int:
    """Millicores of all claims, each at the largest type that it may become."""
    sizes = {t.name: t.capacity[CPU] for t in types}
    return sum(
        max(sizes[v] for r in claim.requirements if r.key == INSTANCE_TYPE for v in r.values)
        for claim in world.claims()
    )


@pytest.mark.looptime
async def test_n10_pods_that_come_back_wait_for_the_claim_that_never_registers(world: Any, looptime: Any) -> None:
    world.node_class()
    world.pool(limits={"cpu": "8"})
    world.catalog.types = (EIGHT,)
    world.join_after = None
    most = 0

    async with world.leading():
        for number in range(6):
            world.pod(f"job-{number}", cpu="7")
            await world.until(lambda n=number: len(world.events("Nominated")) > n)
            await world.until(lambda: any(c.is_launched for c in world.claims()))
            most = max(most, cpus(world, (EIGHT,)))
            world.kube.remove(POD, f"job-{number}", "default")

    assert most == 8000
    assert len(world.claims()) == len(world.cloud.alive()) == 1
    assert set(world.events("Nominated")) == {f"Pod should land on nodeclaim/{world.claim().meta.name}"}


@pytest.mark.looptime
@pytest.mark.parametrize("launch_latency", [0.0, 30.0])
async def test_t05_two_bursts_make_no_more_claims_than_one_pass_over_both(
    world: Any, looptime: Any, launch_latency: float
) -> None:
    world.node_class()
    world.pool()
    world.catalog.types = (FOUR,)
    world.join_after = None
    world.cloud.launch_latency = launch_latency
    options = SolveOptions(well_known=WELL_KNOWN)
    at_once = solve(
        Snapshot(pods=(a_group(count=40, cpu="700m", memory="1Gi"),), pools=(a_pool([FOUR]),), options=options)
    )

    async with world.leading():
        for number in range(20):
            world.pod(f"ci-{number}", cpu="700m")
        await world.until(lambda: world.clock.monotonic() >= 1.2)
        for number in range(20, 40):
            world.pod(f"ci-{number}", cpu="700m")
        await world.until(lambda: world.clock.monotonic() >= 45)

    assert abs(len(world.claims()) - len(at_once.new_nodes)) <= 1
    assert len(world.kube.names(NODECLAIM)) == len(world.claims())


@pytest.mark.looptime
async def test_n05_a_pod_goes_to_room_of_a_light_pool_and_its_event_names_that_node(world: Any, looptime: Any) -> None:
    world.node_class()
    heavy = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]
    light = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
    world.pool("od", weight=10, requirements=light)

    async with world.leading():
        world.pod("first", cpu="1")
        await world.until(lambda: any(c.is_initialized for c in world.claims()))
        world.bind("first", world.node().meta.name)
        world.pool("spot", weight=100, requirements=heavy)
        world.pod("second", cpu="500m")
        await world.until(lambda: len(world.events("Nominated")) == 2)
        await world.until(lambda: world.clock.monotonic() > 40)

    assert [c.nodepool for c in world.claims()] == ["od"]
    assert world.node().meta.name in world.events("Nominated")[-1]


@pytest.mark.looptime
async def test_n05_new_nodes_are_of_the_heaviest_pool_while_it_has_capacity(world: Any, looptime: Any) -> None:
    world.node_class()
    for name, weight, kind in (("spot", 100, "spot"), ("od", 10, "on-demand")):
        wanted = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": [kind]}]
        world.pool(name, weight=weight, requirements=wanted)
    world.pod("first", cpu="500m")

    async with world.leading():
        await world.until(lambda: any(c.is_launched for c in world.claims()))

    assert [c.nodepool for c in world.claims()] == ["spot"]


def pool_condition(world: Any, name: str) -> Condition | None:
    """Whether a pool has types that can be launched, as its status says."""
    return find_condition(NODEPOOL.parse(world.kube.raw(NODEPOOL, name)).conditions, "InstanceTypesAvailable")


@pytest.mark.looptime
async def test_s02_a_pool_with_an_impossible_zone_says_so_on_itself_and_the_others_go_on(
    world: Any, looptime: Any
) -> None:
    world.node_class()
    world.pool("good")
    world.pool(
        "broken", requirements=[{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2f"]}]
    )
    for number in range(3):
        world.pod(f"web-{number}")

    async with world.leading():
        await world.until(lambda: len(world.events("Nominated")) == 3)
        await world.until(lambda: pool_condition(world, "broken") is not None, seconds=120)
        broken, good = pool_condition(world, "broken"), pool_condition(world, "good")

    assert {c.nodepool for c in world.claims()} == {"good"}
    assert broken is not None
    assert good is not None
    assert (broken.status, broken.reason, good.status) == ("False", "NoCompatibleInstanceTypes", "True")
    assert "us-west-2f" in broken.message
    assert {e.meta.name for e in world.kube.events if e.reason == "NoCompatibleInstanceTypes"} == {"broken"}
    assert NODEPOOL.parse(world.kube.raw(NODEPOOL, "broken")).is_ready


def test_s02_why_a_pool_has_nothing_to_launch_names_the_requirement_or_the_offerings() -> None:
    nowhere = an_expression("topology.kubernetes.io/zone", "In", "us-west-2f")
    types = only_left("m6i.xlarge")
    sold_out = an_expression(INSTANCE_TYPE, "In", "m6i.large")

    assert nothing_to_launch(a_pool(types)) == ""
    assert nothing_to_launch(a_pool(types, requirements=[nowhere])) == (
        "spec.template.spec.requirements: none of 8 instance types meets them; topology.kubernetes.io/zone In "
        "[us-west-2f] is asked, the types have us-west-2a, us-west-2b, us-west-2c"
    )
    assert nothing_to_launch(a_pool(types, requirements=[sold_out])).startswith(
        "m6i.large meet the requirements, but have no available offering: sold in us-west-2a, us-west-2b, us-west-2c"
    )
    assert nothing_to_launch(a_pool([])).endswith("; its NodeClass has none")


def test_p11_a_pool_that_names_only_a_type_that_ec2_lists_no_more_says_so() -> None:
    (retired,) = resolve(
        [an_ec2_type("g5.xlarge", retired=True)],
        None,
        PriceBook(on_demand={"g5.xlarge": 1.0}),
        region="us-east-1",
        zones={},
    ).instance_types
    named = an_expression(INSTANCE_TYPE, "In", "g5.xlarge")

    assert nothing_to_launch(a_pool([retired, *common_fixture()[:1]], requirements=[named])).startswith(
        "g5.xlarge meet the requirements, but have no available offering"
    )
    assert nothing_to_launch(a_pool([retired, *common_fixture()[:1]])) == ""


CLOSED = replace(WORDS, well_known=WELL_KNOWN | aws.WELL_KNOWN, closed_values=aws.CLOSED_VALUES)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"requirements": (RequirementSpec(CAPACITY_TYPE, Operator.IN, ("Spot", "cheap")),)},
            "requirements[0]: karpenter.sh/capacity-type has none of the values Spot, cheap; "
            "use on-demand or reserved or spot",
        ),
        (
            {"requirements": (RequirementSpec(CAPACITY_TYPE, Operator.IN, ("spot", "cheap"), 2),)},
            "requirements[0]: minValues is 2, 1 usable values are listed; list more",
        ),
        (
            {"requirements": (RequirementSpec(aws.TENANCY, Operator.IN, ("host",)),)},
            "requirements[0]: karpenter.k8s.aws/instance-tenancy has none of the values host; use dedicated or default",
        ),
        (
            {"requirements": (RequirementSpec("team", Operator.IN, ("a", "a"), 2),)},
            "requirements[0]: minValues is 2, 1 usable values are listed; list more",
        ),
        (
            {"taints": (Taint("a", "NoSchedule"),), "startup_taints": (Taint("a", "NoSchedule", "x"),)},
            "startupTaints[0]: duplicate taint a:NoSchedule, also in spec.template.spec.taints[0]; remove one",
        ),
        (
            {"taints": (Taint("x/" + "a" * 64, "NoSchedule"),)},
            f"taints[0].key: 'x/{'a' * 64}' is not a qualified name; use at most 63 letters",
        ),
        (
            {"startup_taints": (Taint("a", "NoSchedule", "b/"),)},
            "startupTaints[0].value: 'b/' is not a qualified name; use at most 63 letters",
        ),
    ],
)
def test_what_an_api_server_takes_and_no_node_can_have_is_a_condition_of_the_pool(
    world: Any, changes: dict[str, Any], says: str
) -> None:
    pool = world.pool()
    pool = replace(pool, template=replace(pool.template, **changes))

    assert validate_pool(pool, CLOSED) == [f"spec.template.spec.{says}"]


def test_pools_with_some_known_values_and_taints_that_differ_are_fine(world: Any) -> None:
    pool = world.pool()
    template = replace(
        pool.template,
        requirements=(
            RequirementSpec(CAPACITY_TYPE, Operator.IN, ("spot", "cheap")),
            RequirementSpec(CAPACITY_TYPE, Operator.NOT_IN, ("cheap",)),
            RequirementSpec("team", Operator.IN, ("a", "b"), 2),
        ),
        taints=(Taint("a", "NoSchedule"), Taint("a", "NoExecute"), Taint("a.b/c", "NoSchedule", "d/e")),
        startup_taints=(Taint("b", "NoSchedule"),),
    )

    assert validate_pool(replace(pool, template=template), CLOSED) == []


@pytest.mark.parametrize(
    ("operator", "values"), [("DoesNotExist", ()), ("Exists", ()), ("In", ("default",)), ("NotIn", ("default",))]
)
@pytest.mark.parametrize("key", ["karpenter.sh/provisioner-name", "karpenter.k8s.aws/instance-pods"])
def test_n04_a_claim_never_names_a_label_that_the_api_server_would_refuse(
    key: str, operator: str, values: tuple[str, ...]
) -> None:
    wish = a_wish(1, an_expression(key, operator, *values))
    pool = a_pool(common_fixture())
    options = SolveOptions(well_known=WELL_KNOWN | aws.WELL_KNOWN)
    pods = (a_group("wishes", cpu="200m", preferred_terms=(wish,)), a_group("plain", cpu="200m"))

    plan = solve(Snapshot(pods=pods, pools=(pool,), options=options))

    claims = [claim_from_plan(node, pool.nodepool, {}, WORDS, name="default-x") for node in plan.new_nodes]
    assert plan.unschedulable == ()
    assert [r.key for claim in claims for r in claim.requirements if r.key == key] == []
    assert [claim for claim in claims if key in claim.meta.labels] == []


def test_a_claim_asks_for_the_least_that_daemons_take_on_any_of_its_types() -> None:
    small = a_type("small", "4", "16Gi", price=0.2, labels={"size": "s"})
    large = a_type("large", "16", "64Gi", price=0.1, labels={"size": "l"})
    bare = a_type("bare", "4", "16Gi", price=0.3, labels={"size": "b"})
    daemons = (
        a_daemonset("for-small", cpu="200m", required_terms=(a_term(an_expression("size", "In", "s")),)),
        a_daemonset("for-large", cpu="3", required_terms=(a_term(an_expression("size", "In", "l")),)),
    )
    options = SolveOptions(well_known=WELL_KNOWN | {"size"})

    def claim_of(*types: InstanceType) -> NodeClaim:
        pool = a_pool(types)
        snapshot = Snapshot(pods=(a_group(cpu="1500m"),), pools=(pool,), daemons=daemons, options=options)
        (node,) = solve(snapshot).new_nodes
        assert check_plan(snapshot, solve(snapshot)) == []
        assert node.instance_types == tuple(t.name for t in sorted(types, key=lambda t: t.offerings[0].price))
        return claim_from_plan(node, pool.nodepool, {}, WORDS, name="default-x")

    assert claim_of(large).requests["cpu"] == 4500
    assert claim_of(large, small).requests["cpu"] == 1700
    assert claim_of(large, small, bare).requests["cpu"] == 1500


def test_n08_a_pool_whose_min_values_cannot_be_met_says_so_while_they_are_strict() -> None:
    wanted = replace(an_expression(INSTANCE_TYPE, "Exists"), min_values=5)
    zones = replace(an_expression("topology.kubernetes.io/zone", "Exists"), min_values=4)
    left = a_pool(only_left("m6i.xlarge"), requirements=[wanted])

    assert nothing_to_launch(left) == (
        "minValues of node.kubernetes.io/instance-type is 5, 2 are on offer (m6i.xlarge, m7g.large); "
        "lower it, or allow more"
    )
    assert nothing_to_launch(left, strict=False) == ""
    assert nothing_to_launch(a_pool(common_fixture(), requirements=[wanted])) == ""
    assert "minValues of topology.kubernetes.io/zone is 4, 3 are on offer" in nothing_to_launch(
        a_pool(common_fixture(), requirements=[zones])
    )
