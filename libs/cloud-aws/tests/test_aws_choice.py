"""Which types and offerings a launch asks for."""

from typing import Any

import pytest

from sawhorse_catalog.account import Reservation
from sawhorse_cloud.errors import CloudError, InsufficientCapacityError
from sawhorse_cloud_aws.choice import MOST_OVERRIDES, MOST_TYPES, Choice, choose
from sawhorse_model.aws import SIZE, TENANCY, ZONE_ID, Ami
from sawhorse_model.instances import CapacityType, InstanceType, Offering
from sawhorse_model.labels import ARCH, INSTANCE_TYPE, MIN_VALUES_RELAXED, ZONE
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.requirements import Operator, RequirementSpec
from sawhorse_testing.catalog import ZONES, an_instance_type, an_offering
from sawhorse_testing.cloud_worlds import a_claim

ANY_AMI = Ami("ami-1")


def asked(claim: NodeClaim, *types: InstanceType, zones: Any = tuple(ZONES), amis: Any = (ANY_AMI,)) -> Choice:
    return choose(claim, types, zones, amis)


def names(choice: Choice) -> list[str]:
    return [c.type.name for c in choice.candidates]


def one_of(key: str, *values: str, minimum: int | None = None) -> RequirementSpec:
    return RequirementSpec(key, Operator.IN, values, minimum)


def test_types_come_cheapest_first_and_equal_ones_by_name() -> None:
    choice = asked(
        a_claim(capacity_types=["on-demand"]),
        an_instance_type("m5.xlarge", price=0.2),
        an_instance_type("c5.large", price=0.1),
        an_instance_type("m5.large", price=0.1),
    )

    assert names(choice) == ["c5.large", "m5.large", "m5.xlarge"]


def test_spot_is_asked_for_where_the_claim_allows_it_and_it_is_offered() -> None:
    choice = asked(a_claim(), an_instance_type("m5.large", price=0.1, spot_price=0.04), an_instance_type("c5.large"))

    assert choice.capacity_type is CapacityType.SPOT
    assert names(choice) == ["m5.large"]
    assert {o.capacity_type for c in choice.candidates for o in c.offerings} == {CapacityType.SPOT}


def test_on_demand_is_asked_for_where_the_claim_forbids_spot() -> None:
    choice = asked(a_claim(capacity_types=["on-demand"]), an_instance_type(price=0.1, spot_price=0.01))

    assert choice.capacity_type is CapacityType.ON_DEMAND


def test_on_demand_is_asked_for_where_no_spot_offering_is_left() -> None:
    gone = an_offering(capacity_type="spot", price=0.01, available=False)
    there = an_offering(capacity_type="on-demand", price=0.1)

    choice = asked(a_claim(), an_instance_type(offerings=[gone, there]))

    assert choice.capacity_type is CapacityType.ON_DEMAND


def test_spot_dearer_than_the_cheapest_on_demand_is_dropped() -> None:
    dear = an_instance_type("m5.large", price=0.10, spot_price=0.09)
    cheap = an_instance_type("c5.large", price=0.08, spot_price=0.05)

    choice = asked(a_claim(), dear, cheap)

    assert names(choice) == ["c5.large"]


def test_when_all_spot_is_dearer_on_demand_is_taken() -> None:
    choice = asked(a_claim(), an_instance_type(price=0.05, spot_price=0.06))

    assert choice.capacity_type is CapacityType.ON_DEMAND


def test_min_values_keep_dear_spot_and_exotic_types() -> None:
    types = [
        an_instance_type("m5.large", price=0.05, spot_price=0.06),
        an_instance_type("m5.metal", price=5.0, spot_price=2.0, labels={SIZE: "metal"}),
    ]

    choice = asked(a_claim(requirements=[RequirementSpec(INSTANCE_TYPE, Operator.EXISTS, (), 2)]), *types)

    assert choice.capacity_type is CapacityType.SPOT
    assert names(choice) == ["m5.large", "m5.metal"]


def test_metal_and_accelerators_are_left_out_while_others_remain() -> None:
    plain = an_instance_type("m5.large", price=0.5)
    metal = an_instance_type("m5.metal", price=0.1)
    gpu = an_instance_type("g5.xlarge", price=0.1, extra={"nvidia.com/gpu": "1"})

    assert names(asked(a_claim(), plain, metal, gpu)) == ["m5.large"]
    assert names(asked(a_claim(), metal, gpu)) == ["g5.xlarge", "m5.metal"]


def test_no_more_than_sixty_types_are_asked_for_and_they_are_the_cheapest() -> None:
    types = [an_instance_type(f"m{n}.large", price=0.1 + n / 1000) for n in range(70, 0, -1)]

    choice = asked(a_claim(capacity_types=["on-demand"]), *types)

    assert len(choice.candidates) == MOST_TYPES
    assert names(choice)[:2] == ["m1.large", "m2.large"]


def test_no_more_offerings_are_asked_for_than_one_request_takes() -> None:
    zones = [f"us-east-1{letter}" for letter in "abcdef"]
    types = [an_instance_type(f"m{n}.large", price=0.1 + n / 1000, zones=zones) for n in range(60)]

    choice = asked(a_claim(capacity_types=["on-demand"]), *types, zones=zones)

    assert len(choice.pairs) == MOST_OVERRIDES
    assert names(choice) == [f"m{n}.large" for n in range(50)]


def test_a_choice_cut_to_the_cheapest_keeps_their_order() -> None:
    choice = asked(
        a_claim(capacity_types=["on-demand"]),
        an_instance_type("c5.large", offerings=[an_offering("us-west-2a", "on-demand", 0.1)]),
        an_instance_type("m5.large", offerings=[an_offering("us-west-2b", "on-demand", 0.2)]),
    )

    assert choice.cheapest(1).pairs == (("c5.large", "us-west-2a"),)
    assert choice.cheapest(5) is choice


def test_zones_without_a_subnet_are_not_asked_for() -> None:
    choice = asked(a_claim(), an_instance_type(), zones=["us-west-2b"])

    assert {zone for _, zone in choice.pairs} == {"us-west-2b"}


def test_a_zone_without_a_subnet_does_not_make_spot_look_dear() -> None:
    elsewhere = an_instance_type("c5.large", offerings=[an_offering("us-west-2c", "on-demand", 0.01)])
    here = an_instance_type("m5.large", price=0.1, spot_price=0.04, zones=["us-west-2a"])

    choice = asked(a_claim(), here, elsewhere, zones=["us-west-2a"])

    assert (choice.capacity_type, names(choice)) == (CapacityType.SPOT, ["m5.large"])


def test_a_zone_that_the_claim_names_is_the_only_one_asked_for() -> None:
    choice = asked(a_claim(requirements=[one_of(ZONE, "us-west-2b")]), an_instance_type())

    assert {zone for _, zone in choice.pairs} == {"us-west-2b"}


def test_a_zone_id_that_the_claim_names_is_the_only_one_asked_for() -> None:
    choice = asked(a_claim(requirements=[one_of(ZONE_ID, "usw2-az3")]), an_instance_type())

    assert {zone for _, zone in choice.pairs} == {"us-west-2c"}


def test_an_offering_of_unknown_zone_id_does_not_serve_a_claim_that_names_one() -> None:
    unknown = an_instance_type(offerings=[an_offering(zone_id="")])

    with pytest.raises(InsufficientCapacityError):
        asked(a_claim(requirements=[one_of(ZONE_ID, "usw2-az3")]), unknown)


def test_a_claims_labels_bind_as_its_requirements_do() -> None:
    types = [an_instance_type("m5.large"), an_instance_type("m6g.large", architecture="arm64")]

    choice = asked(a_claim(labels={ARCH: "arm64", "team": "a"}), *types)

    assert names(choice) == ["m6g.large"]


def test_types_too_small_for_the_requests_are_not_asked_for() -> None:
    types = [an_instance_type("m5.large", cpu="2"), an_instance_type("m5.2xlarge", cpu="8")]

    assert names(asked(a_claim(requests={"cpu": "4"}), *types)) == ["m5.2xlarge"]


def test_types_that_no_image_boots_do_not_take_the_place_of_those_that_boot() -> None:
    arm_only = Ami("ami-arm", requirements=(one_of(ARCH, "arm64"),))
    cheap = [an_instance_type(f"m{n}.large", price=0.01) for n in range(60)]
    arm = an_instance_type("m6g.large", architecture="arm64", price=0.5)

    choice = asked(a_claim(capacity_types=["on-demand"]), *cheap, arm, amis=[arm_only])

    assert names(choice) == ["m6g.large"]
    assert choice.candidates[0].ami is arm_only


def test_types_without_any_image_are_a_fault_of_the_node_class_not_of_capacity() -> None:
    arm_only = Ami("ami-arm", requirements=(one_of(ARCH, "arm64"),))

    with pytest.raises(CloudError) as caught:
        asked(a_claim(), an_instance_type(), amis=[arm_only])

    assert not isinstance(caught.value, InsufficientCapacityError)
    assert caught.value.reason == "AMINotFound"


def test_min_values_that_the_kept_types_do_not_reach_is_insufficient_capacity() -> None:
    claim = a_claim(requirements=[RequirementSpec(INSTANCE_TYPE, Operator.EXISTS, (), 3)])

    with pytest.raises(InsufficientCapacityError, match="minValues asks for 3"):
        asked(claim, an_instance_type("m5.large"), an_instance_type("c5.large"))


def test_min_values_count_only_values_that_the_claim_allows() -> None:
    claim = a_claim(requirements=[one_of(ZONE, "us-west-2a", "us-west-2b", minimum=3)])

    with pytest.raises(InsufficientCapacityError, match="2 are available"):
        asked(claim, an_instance_type())


def test_min_values_that_the_scheduler_relaxed_do_not_stop_a_launch() -> None:
    claim = a_claim(
        requirements=[RequirementSpec(INSTANCE_TYPE, Operator.EXISTS, (), 3)], annotations={MIN_VALUES_RELAXED: "true"}
    )

    assert names(asked(claim, an_instance_type("m5.large"))) == ["m5.large"]


@pytest.mark.parametrize(
    ("requirements", "tenancy"),
    [
        ([], "default"),
        ([one_of(TENANCY, "dedicated", "default")], "default"),
        ([one_of(TENANCY, "dedicated")], "dedicated"),
    ],
)
def test_machines_are_shared_unless_the_claim_allows_dedicated_ones_only(requirements: Any, tenancy: str) -> None:
    assert asked(a_claim(requirements=requirements), an_instance_type()).tenancy == tenancy


def a_reserved(reservation_id: str, count: int = 1, zone: str = "us-west-2a", price: float = 1e-8) -> Offering:
    return an_offering(
        zone, capacity_type="reserved", price=price, reservation_id=reservation_id, reservation_count=count
    )


def of_kinds(**kinds: str) -> dict[str, Reservation]:
    """Reservations by id; `_` in a name stands for `-`."""
    ids = {name.replace("_", "-"): kind for name, kind in kinds.items()}
    return {r: Reservation(id=r, instance_type="m5.large", zone="us-west-2a", kind=k) for r, k in ids.items()}


RESERVED_TOO = a_claim(capacity_types=["reserved", "on-demand", "spot"])


def reserved_choice(*types: InstanceType, reservations: dict[str, Reservation]) -> list[tuple[str, str]]:
    """(type, reservation) of all that is asked for."""
    choice = choose(RESERVED_TOO, types, tuple(ZONES), (ANY_AMI,), reservations)
    return [(c.type.name, o.reservation_id) for c in choice.candidates for o in c.offerings]


def test_reserved_offerings_go_before_all_others() -> None:
    both = an_instance_type(offerings=[an_offering(price=0.01), a_reserved("cr-1")])
    other = an_instance_type("c5.large", price=0.001)

    assert reserved_choice(both, other, reservations=of_kinds(cr_1="default")) == [("m5.large", "cr-1")]


def test_a_reservation_that_the_node_class_does_not_list_is_never_aimed_at() -> None:
    reserved = an_instance_type(offerings=[a_reserved("cr-9")])

    with pytest.raises(InsufficientCapacityError):
        reserved_choice(reserved, reservations=of_kinds(cr_1="default"))


def test_of_several_reservations_in_a_zone_the_one_with_most_free_instances_is_used() -> None:
    kind = an_instance_type(
        offerings=[a_reserved("cr-1", 2), a_reserved("cr-2", 5), a_reserved("cr-3", 1, "us-west-2b")]
    )

    found = reserved_choice(kind, reservations=of_kinds(cr_1="default", cr_2="default", cr_3="default"))

    assert sorted(found) == [("m5.large", "cr-2"), ("m5.large", "cr-3")]


def test_of_capacity_blocks_only_the_cheapest_is_asked_for() -> None:
    dear = an_instance_type("p5.48xlarge", offerings=[a_reserved("cr-1", price=5e-6)])
    cheap = an_instance_type("p4d.24xlarge", offerings=[a_reserved("cr-2", price=2e-6), a_reserved("cr-3", price=3e-6)])
    blocks = of_kinds(cr_1="capacity-block", cr_2="capacity-block", cr_3="capacity-block")

    assert reserved_choice(dear, cheap, reservations=blocks) == [("p4d.24xlarge", "cr-2")]


def test_ordinary_reservations_and_blocks_are_not_mixed_and_equal_ones_prefer_the_ordinary() -> None:
    kind = an_instance_type(offerings=[a_reserved("cr-1"), a_reserved("cr-2", zone="us-west-2b")])

    found = reserved_choice(kind, reservations=of_kinds(cr_1="capacity-block", cr_2="default"))

    assert found == [("m5.large", "cr-2")]


def test_an_interruptible_reservation_is_left_alone() -> None:
    kind = an_instance_type(offerings=[an_offering(), a_reserved("cr-1")])
    lent = {"cr-1": Reservation(id="cr-1", instance_type="m5.large", zone="us-west-2a", interruptible=True)}

    assert reserved_choice(kind, reservations=lent) == [("m5.large", "")]


def test_order_of_the_catalogue_changes_nothing() -> None:
    types = [an_instance_type(f"m{n}.large", price=0.1 + (n % 3) / 10, spot_price=0.05) for n in range(9)]

    assert asked(a_claim(), *types) == asked(a_claim(), *reversed(types))
