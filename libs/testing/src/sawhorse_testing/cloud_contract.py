"""What every Cloud promises, as checks that run against any world: the fake's and the real adapter's.

Each check is an async function of one world; its name is the promise. Runners parametrise over `CONTRACT`.
"""

from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise

import pytest

from sawhorse_cloud.cloud import Instance, InstanceState, Launched
from sawhorse_cloud.errors import (
    CloudError,
    InstanceNotFoundError,
    InsufficientCapacityError,
    NodeClassNotReadyError,
)
from sawhorse_model.instances import CapacityType, InstanceType
from sawhorse_model.labels import CAPACITY_TYPE, INSTANCE_TYPE, LAUNCH_TOKEN, NODEPOOL, ZONE
from sawhorse_model.requirements import Operator, RequirementSpec
from sawhorse_testing.cloud_worlds import FAULTS, CloudWorld, a_claim, a_token

Check = Callable[[CloudWorld], Awaitable[None]]
NOBODY = "i-0123456789abcdef0"


def _type(world: CloudWorld, name: str) -> InstanceType:
    return next(t for t in world.instance_types if t.name == name)


def _cheapest(world: CloudWorld, capacity_type: CapacityType) -> tuple[str, str]:
    """Type and zone of the cheapest offering."""
    offerings = [
        (o.price, t.name, o.zone)
        for t in world.instance_types
        for o in t.offerings
        if o.capacity_type is capacity_type and o.available
    ]
    _, name, zone = min(offerings)
    return name, zone


async def _launch_one(world: CloudWorld, **claim: object) -> Launched:
    wanted = a_claim(node_class=world.node_class, **claim)  # type: ignore[arg-type]  # passed through as typed there
    result = await world.cloud.launch(a_token(), [wanted], world.node_class, world.instance_types)
    return result.launched[wanted.meta.name]


async def a_launch_gives_every_claim_a_machine_of_its_own(world: CloudWorld) -> None:
    """Three claims, three machines."""
    claims = [a_claim(f"c-{n}", node_class=world.node_class) for n in (2, 1, 3)]

    result = await world.cloud.launch(a_token(), claims, world.node_class, world.instance_types)

    assert sorted(result.launched) == ["c-1", "c-2", "c-3"]
    assert len({launched.instance.id for launched in result.launched.values()}) == 3
    assert result.surplus == ()


async def claims_and_machines_are_paired_in_sorted_order(world: CloudWorld) -> None:
    """So that adoption after a crash makes the same pairs."""
    claims = [a_claim(f"c-{n}", node_class=world.node_class) for n in (3, 1, 2)]

    result = await world.cloud.launch(a_token(), claims, world.node_class, world.instance_types)

    ids = [result.launched[name].instance.id for name in sorted(result.launched)]
    assert all(a < b for a, b in pairwise(ids))


async def a_repeat_with_the_same_token_gives_the_same_machines(world: CloudWorld) -> None:
    """And launches nothing more."""
    token, claims = a_token(), [a_claim("c-1"), a_claim("c-2")]
    first = await world.cloud.launch(token, claims, world.node_class, world.instance_types)

    second = await world.cloud.launch(token, claims, world.node_class, world.instance_types)

    assert {n: x.instance.id for n, x in second.launched.items()} == {
        n: x.instance.id for n, x in first.launched.items()
    }
    assert len(await world.cloud.find_by_token(token)) == 2


async def a_machine_is_what_the_claim_asked_for(world: CloudWorld) -> None:
    """Its labels say type, zone, capacity type and pool; capacity and allocatable are those of its type."""
    name, _ = _cheapest(world, CapacityType.ON_DEMAND)
    launched = await _launch_one(
        world, capacity_types=["on-demand"], requirements=[RequirementSpec(INSTANCE_TYPE, Operator.IN, (name,))]
    )

    instance, kind = launched.instance, _type(world, name)
    assert launched.labels[INSTANCE_TYPE] == instance.instance_type == name
    assert launched.labels[ZONE] == instance.zone
    assert launched.labels[CAPACITY_TYPE] == instance.capacity_type == "on-demand"
    assert launched.labels[NODEPOOL] == "default"
    assert instance.provider_id.endswith(f"/{instance.zone}/{instance.id}")
    assert launched.capacity["cpu"] == kind.capacity["cpu"]
    assert launched.allocatable["memory"] == kind.allocatable["memory"]


async def spot_is_taken_where_the_claim_allows_both(world: CloudWorld) -> None:
    """Spot is preferred while it is offered."""
    launched = await _launch_one(world, capacity_types=["on-demand", "spot"])

    assert launched.instance.capacity_type == "spot"


async def on_demand_is_taken_where_no_spot_offering_is_available(world: CloudWorld) -> None:
    """The claim allows spot, the catalogue has none left."""
    types = [
        InstanceType(
            t.name,
            t.requirements,
            tuple(o for o in t.offerings if o.capacity_type is CapacityType.ON_DEMAND),
            t.capacity,
            t.allocatable,
        )
        for t in world.instance_types
    ]

    claim = a_claim(node_class=world.node_class)
    result = await world.cloud.launch(a_token(), [claim], world.node_class, types)

    assert result.launched[claim.meta.name].instance.capacity_type == "on-demand"


async def a_zone_that_the_claim_asks_for_is_the_zone_of_its_machine(world: CloudWorld) -> None:
    """Not merely a zone that the type is offered in."""
    zones = sorted({o.zone for t in world.instance_types for o in t.offerings if o.available})

    launched = await _launch_one(world, requirements=[RequirementSpec(ZONE, Operator.IN, (zones[-1],))])

    assert launched.instance.zone == zones[-1]


async def the_first_tags_carry_token_and_pool(world: CloudWorld) -> None:
    """A crash right after the launch must not lose the machine."""
    token, claim = a_token(), a_claim(nodepool="workers")
    result = await world.cloud.launch(token, [claim], world.node_class, world.instance_types)

    instance_id = result.launched[claim.meta.name].instance.id
    found = (await world.cloud.describe([instance_id]))[instance_id]

    assert found.token == token
    assert (found.tags[LAUNCH_TOKEN], found.tags[NODEPOOL]) == (token, "workers")


async def offerings_without_capacity_are_told_and_the_launch_succeeds_elsewhere(world: CloudWorld) -> None:
    """The cheapest offering is out."""
    name, zone = _cheapest(world, CapacityType.SPOT)
    await world.sell_out(capacity_type="spot", instance_type=name, zone=zone)

    claim = a_claim(node_class=world.node_class)
    result = await world.cloud.launch(a_token(), [claim], world.node_class, world.instance_types)

    instance = result.launched[claim.meta.name].instance
    assert (instance.instance_type, instance.zone) != (name, zone)
    assert ("spot", name, zone) in {(f.capacity_type, f.instance_type, f.zone) for f in result.failed}


async def no_capacity_at_all_is_an_error_that_lists_what_was_tried(world: CloudWorld) -> None:
    """Every offering of the one capacity type that was asked for."""
    await world.sell_out()

    with pytest.raises(InsufficientCapacityError) as caught:
        await _launch_one(world, capacity_types=["on-demand"])

    tried = {(f.instance_type, f.zone) for f in caught.value.failed}
    assert _cheapest(world, CapacityType.ON_DEMAND) in tried
    assert {f.capacity_type for f in caught.value.failed} == {"on-demand"}


async def a_launch_that_found_no_capacity_can_be_tried_again_with_its_token(world: CloudWorld) -> None:
    """No machine came of it, so there is none to be the same one."""
    token, claim = a_token(), a_claim()
    await world.sell_out()
    with pytest.raises(InsufficientCapacityError):
        await world.cloud.launch(token, [claim], world.node_class, world.instance_types)
    await world.restock()

    result = await world.cloud.launch(token, [claim], world.node_class, world.instance_types)

    found = [i.id for i in await world.cloud.find_by_token(token)]
    assert found == [result.launched[claim.meta.name].instance.id]


async def a_claim_that_no_type_serves_is_insufficient_capacity(world: CloudWorld) -> None:
    """Nothing is asked from the cloud, so nothing failed."""
    with pytest.raises(InsufficientCapacityError) as caught:
        await _launch_one(world, requests={"cpu": "100000"})

    assert caught.value.failed == ()


async def a_node_class_that_is_not_ready_launches_nothing(world: CloudWorld) -> None:
    """Its claims are not launched from an old status either."""
    token = a_token()
    with pytest.raises(NodeClassNotReadyError):
        await world.cloud.launch(token, [a_claim()], world.hopeless, world.instance_types)

    assert list(await world.cloud.find_by_token(token)) == []


async def a_refused_launch_marks_nothing_and_its_token_can_be_used_again(world: CloudWorld) -> None:
    """Throttling says nothing about capacity."""
    token, claim = a_token(), a_claim()
    await world.break_next("launch", "throttled")

    with pytest.raises(FAULTS["throttled"]) as caught:
        await world.cloud.launch(token, [claim], world.node_class, world.instance_types)
    result = await world.cloud.launch(token, [claim], world.node_class, world.instance_types)

    assert caught.value.failed == ()
    assert sorted(result.launched) == [claim.meta.name]


async def machines_are_found_by_their_token_in_order_of_id(world: CloudWorld) -> None:
    """And only those of the token."""
    token = a_token()
    claims = [a_claim(f"c-{n}") for n in range(3)]
    result = await world.cloud.launch(token, claims, world.node_class, world.instance_types)
    await _launch_one(world)

    found = [i.id for i in await world.cloud.find_by_token(token)]

    assert found == sorted(x.instance.id for x in result.launched.values())
    assert list(await world.cloud.find_by_token("no-such-token")) == []


async def an_ended_machine_is_not_found_by_its_token(world: CloudWorld) -> None:
    """Adoption must not take a corpse."""
    token, claim = a_token(), a_claim()
    result = await world.cloud.launch(token, [claim], world.node_class, world.instance_types)

    await world.cloud.terminate([result.launched[claim.meta.name].instance.id])

    assert list(await world.cloud.find_by_token(token)) == []


async def describe_knows_living_machines_and_leaves_unknown_ids_out(world: CloudWorld) -> None:
    """One unknown id does not fail the others."""
    launched = await _launch_one(world)

    found = await world.cloud.describe([launched.instance.id, NOBODY])

    assert sorted(found) == [launched.instance.id]
    assert found[launched.instance.id].state in (InstanceState.PENDING, InstanceState.RUNNING)
    assert found[launched.instance.id].provider_id == launched.instance.provider_id


async def describe_of_nothing_is_nothing(world: CloudWorld) -> None:
    """An empty list must never mean all."""
    await _launch_one(world)

    assert dict(await world.cloud.describe([])) == {}


async def a_list_holds_our_living_machines(world: CloudWorld) -> None:
    """And none that has ended."""
    kept, gone = await _launch_one(world), await _launch_one(world)
    await world.cloud.terminate([gone.instance.id])
    assert await world.ended(gone.instance.id)

    found = {i.id: i for i in await world.cloud.list_instances()}

    assert kept.instance.id in found
    assert gone.instance.id not in found or found[gone.instance.id].state.is_gone
    assert found[kept.instance.id].tags[NODEPOOL] == "default"


async def ending_a_machine_may_be_repeated(world: CloudWorld) -> None:
    """The second call is a no-op."""
    launched = await _launch_one(world)

    await world.cloud.terminate([launched.instance.id])
    await world.cloud.terminate([launched.instance.id])

    assert await world.ended(launched.instance.id)


async def an_unknown_machine_does_not_keep_others_alive(world: CloudWorld) -> None:
    """Neither among others nor alone is it an error."""
    launched = await _launch_one(world)

    await world.cloud.terminate([NOBODY, launched.instance.id])
    await world.cloud.terminate([NOBODY])
    await world.cloud.terminate([])

    assert await world.ended(launched.instance.id)


async def tags_are_added_to_those_that_are_there(world: CloudWorld) -> None:
    """May be repeated; the first tags stay."""
    launched = await _launch_one(world)
    instance_id = launched.instance.id

    await world.cloud.tag(instance_id, {"Name": "node-1"})
    await world.cloud.tag(instance_id, {"Name": "node-1", "team": "a"})

    tags: Mapping[str, str] = (await world.cloud.describe([instance_id]))[instance_id].tags
    assert (tags["Name"], tags["team"], tags[NODEPOOL]) == ("node-1", "a", "default")


async def tagging_an_unknown_machine_says_that_it_is_unknown(world: CloudWorld) -> None:
    """Not merely that something failed."""
    with pytest.raises(InstanceNotFoundError):
        await world.cloud.tag(await world.stranger(), {"Name": "node-1"})


async def adoption_tells_what_the_launch_would_have_told(world: CloudWorld) -> None:
    """From what the cloud describes, after everything else is lost."""
    token, claim = a_token(), a_claim()
    result = await world.cloud.launch(token, [claim], world.node_class, world.instance_types)

    found = list(await world.cloud.find_by_token(token))
    adopted = await world.cloud.adopt([claim], found, world.node_class, world.instance_types)

    told, again = result.launched[claim.meta.name], adopted[claim.meta.name]
    assert (again.labels, again.capacity, again.allocatable) == (told.labels, told.capacity, told.allocatable)
    assert again.annotations == told.annotations
    assert _identity(again.instance) == _identity(told.instance)


async def adoption_works_without_node_class_and_type(world: CloudWorld) -> None:
    """Both may be gone: the machine is still the claim's."""
    token, claim = a_token(), a_claim()
    await world.cloud.launch(token, [claim], world.node_class, world.instance_types)
    found = list(await world.cloud.find_by_token(token))

    adopted = await world.cloud.adopt([claim], found, None, [])

    assert adopted[claim.meta.name].instance.id == found[0].id
    assert adopted[claim.meta.name].labels[ZONE] == found[0].zone
    assert dict(adopted[claim.meta.name].capacity) == {}


async def a_resolved_node_class_has_every_condition_true(world: CloudWorld) -> None:
    """Status, hash and its version come with them."""
    resolved = await world.cloud.resolve_node_class(world.node_class)

    assert {c.type for c in resolved.conditions} == set(resolved.dependents)
    assert {c.status for c in resolved.conditions} == {"True"}
    assert resolved.hash
    assert resolved.hash_version
    assert resolved.status


async def a_node_class_that_selects_nothing_is_a_false_condition_with_reason_and_message(world: CloudWorld) -> None:
    """Not an error: others are resolved on."""
    resolved = await world.cloud.resolve_node_class(world.hopeless)

    false = [c for c in resolved.conditions if c.status == "False"]
    assert false
    assert all(c.reason and c.message for c in false)
    assert {c.type for c in resolved.conditions} == set(resolved.dependents)


async def a_hash_does_not_change_by_itself(world: CloudWorld) -> None:
    """Else every look would drift every node."""
    first = await world.cloud.resolve_node_class(world.node_class)
    second = await world.cloud.resolve_node_class(world.node_class)

    assert (first.hash, first.hash_version) == (second.hash, second.hash_version)


async def what_was_made_for_a_node_class_is_released_and_may_be_released_again(world: CloudWorld) -> None:
    """Before its finalizer goes."""
    await _launch_one(world)

    await world.cloud.release_node_class(world.node_class)
    await world.cloud.release_node_class(world.node_class)

    assert await world.cloud.collect_templates([]) == 0


async def every_refusal_is_an_error_of_ours(world: CloudWorld) -> None:
    """Whatever the method and whatever the fault."""
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "launch": lambda: world.cloud.launch(a_token(), [a_claim()], world.node_class, world.instance_types),
        "find_by_token": lambda: world.cloud.find_by_token("t"),
        "describe": lambda: world.cloud.describe([NOBODY]),
        "list_instances": lambda: world.cloud.list_instances(),
        "terminate": lambda: world.cloud.terminate([NOBODY]),
        "tag": lambda: world.cloud.tag(NOBODY, {"a": "b"}),
    }
    for method, call in calls.items():
        for fault, kind in FAULTS.items():
            await world.break_next(method, fault)
            with pytest.raises(CloudError) as caught:
                await call()
            assert type(caught.value) is kind, (method, fault)
            assert str(caught.value)


def _identity(instance: Instance) -> tuple[str, ...]:
    return (
        instance.id,
        instance.provider_id,
        instance.instance_type,
        instance.zone,
        instance.capacity_type,
        instance.image_id,
        instance.token,
    )


CONTRACT: tuple[Check, ...] = (
    a_launch_gives_every_claim_a_machine_of_its_own,
    claims_and_machines_are_paired_in_sorted_order,
    a_repeat_with_the_same_token_gives_the_same_machines,
    a_machine_is_what_the_claim_asked_for,
    spot_is_taken_where_the_claim_allows_both,
    on_demand_is_taken_where_no_spot_offering_is_available,
    a_zone_that_the_claim_asks_for_is_the_zone_of_its_machine,
    the_first_tags_carry_token_and_pool,
    offerings_without_capacity_are_told_and_the_launch_succeeds_elsewhere,
    no_capacity_at_all_is_an_error_that_lists_what_was_tried,
    a_launch_that_found_no_capacity_can_be_tried_again_with_its_token,
    a_claim_that_no_type_serves_is_insufficient_capacity,
    a_node_class_that_is_not_ready_launches_nothing,
    a_refused_launch_marks_nothing_and_its_token_can_be_used_again,
    machines_are_found_by_their_token_in_order_of_id,
    an_ended_machine_is_not_found_by_its_token,
    describe_knows_living_machines_and_leaves_unknown_ids_out,
    describe_of_nothing_is_nothing,
    a_list_holds_our_living_machines,
    ending_a_machine_may_be_repeated,
    an_unknown_machine_does_not_keep_others_alive,
    tags_are_added_to_those_that_are_there,
    tagging_an_unknown_machine_says_that_it_is_unknown,
    adoption_tells_what_the_launch_would_have_told,
    adoption_works_without_node_class_and_type,
    a_resolved_node_class_has_every_condition_true,
    a_node_class_that_selects_nothing_is_a_false_condition_with_reason_and_message,
    a_hash_does_not_change_by_itself,
    what_was_made_for_a_node_class_is_released_and_may_be_released_again,
    every_refusal_is_an_error_of_ours,
)
