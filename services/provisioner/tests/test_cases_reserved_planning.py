"""Case P10, the planning part: from the account's reservations through plan and claim to what a launch asks for."""

from collections import Counter
from dataclasses import replace
from typing import Any

from sawhorse_catalog.account import Reservation
from sawhorse_catalog.aws import resolve
from sawhorse_catalog.aws.node_class import reservations_of
from sawhorse_cloud_aws.choice import Choice, choose
from sawhorse_cloud_aws.reserved import by_id
from sawhorse_model import aws
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.instances import CapacityType, InstanceType
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_provisioner.claims import claim_from_plan
from sawhorse_provisioner.main import AWS_WORDS, solve_options
from sawhorse_provisioner.settings import Settings
from sawhorse_scheduling.snapshot import Snapshot
from sawhorse_scheduling.solve import solve
from sawhorse_testing.builders import a_group, a_pool
from sawhorse_testing.catalog import REGION, ZONES, an_ec2_node_class, common_facts, common_prices
from sawhorse_testing.checker import check_plan

HELD = ("cr-1", "m6i.xlarge", "us-west-2b")


def a_class(*held: tuple[str, str, str]) -> EC2NodeClass:
    plain = an_ec2_node_class({}, zones=ZONES).node_class
    entries = [{"id": key, "instanceType": kind, "availabilityZone": zone} for key, kind, zone in held]
    return aws.parse_ec2_node_class(replace(plain, status={**plain.status, "capacityReservations": entries}))


def types_of(node_class: EC2NodeClass, **free: int) -> tuple[InstanceType, ...]:
    counts = {key.replace("_", "-"): n for key, n in free.items()}
    found = resolve(common_facts(), node_class, common_prices(), region=REGION, zones=ZONES, free=counts)
    return found.instance_types


def claims_for(types: tuple[InstanceType, ...], pods: int) -> list[NodeClaim]:
    pool = a_pool(types)
    options = solve_options(Settings(cluster_name="t"))
    snapshot = Snapshot(pods=(a_group(cpu="3", memory="10Gi", count=pods),), pools=(pool,), options=options)
    plan = solve(snapshot)
    assert check_plan(snapshot, plan) == []
    return [claim_from_plan(node, pool.nodepool, {}, AWS_WORDS, name=node.name) for node in plan.new_nodes]


def launch(claim: NodeClaim, types: tuple[InstanceType, ...], node_class: EC2NodeClass) -> Choice:
    images: Any = (aws.Ami("ami-1"),)
    return choose(claim, types, tuple(ZONES), images, by_id(reservations_of(node_class)))


def bought_as(choice: Choice) -> tuple[CapacityType, frozenset[str]]:
    return choice.capacity_type, frozenset(o.reservation_id for c in choice.candidates for o in c.offerings)


def test_p10_a_planned_reservation_is_what_the_launch_aims_at_and_nothing_else_is() -> None:
    node_class = a_class(HELD)
    types = types_of(node_class, cr_1=2)

    found = Counter(bought_as(launch(claim, types, node_class)) for claim in claims_for(types, 7))

    assert found[CapacityType.RESERVED, frozenset({"cr-1"})] == 2
    assert {kind for kind, ids in found if ids == {""}} == {CapacityType.SPOT}
    assert all(ids in ({"cr-1"}, {""}) for _, ids in found)


def test_p10_a_claim_for_a_reservation_carries_its_id_and_capacity_type() -> None:
    types = types_of(a_class(HELD), cr_1=1)

    (claim,) = claims_for(types, 1)

    told = {spec.key: spec.values for spec in claim.requirements}
    assert told[aws.RESERVATION_ID] == ("cr-1",)
    assert told["karpenter.sh/capacity-type"] == ("reserved",)
    assert told["node.kubernetes.io/instance-type"] == ("m6i.xlarge",)
    assert told["topology.kubernetes.io/zone"] == ("us-west-2b",)
    assert aws.RESERVATION_ID not in claim.meta.labels


def test_p10_without_reservations_of_the_class_nothing_is_reserved_and_open_ones_are_ec2s_business() -> None:
    node_class = a_class()
    types = types_of(node_class, cr_1=9)

    (claim,) = claims_for(types, 1)

    assert bought_as(launch(claim, types, node_class)) == (CapacityType.SPOT, frozenset({""}))
    assert all(spec.key != aws.RESERVATION_ID for spec in claim.requirements)


def test_p10_a_reservation_that_turns_out_to_be_full_is_planned_around() -> None:
    node_class = a_class(HELD)

    claims = claims_for(types_of(node_class, cr_1=0), 2)

    assert all("reserved" not in spec.values for claim in claims for spec in claim.requirements)


def test_p10_an_expiring_block_is_not_planned_with() -> None:
    block = Reservation(id="cr-1", instance_type="m6i.xlarge", zone="us-west-2b", kind="capacity-block", expiring=True)
    plain = a_class(HELD).node_class
    entry = {"id": block.id, "instanceType": block.instance_type, "availabilityZone": block.zone, "state": "expiring"}
    node_class = aws.parse_ec2_node_class(replace(plain, status={**plain.status, "capacityReservations": [entry]}))

    claims = claims_for(types_of(node_class, cr_1=5), 2)

    assert all("reserved" not in spec.values for claim in claims for spec in claim.requirements)


def test_the_settings_of_planning_reach_the_planner() -> None:
    told = solve_options(Settings(cluster_name="t"))
    other = solve_options(
        Settings(cluster_name="t", minimize="expected", node_slack=0.02, node_fixed_cost=0.5, max_pods_per_node=30)
    )

    assert (told.slack, told.fixed_cost, told.max_pods_per_node, told.minimize_expected) == (0.01, 0.01, None, False)
    assert (other.slack, other.fixed_cost, other.max_pods_per_node, other.minimize_expected) == (0.02, 0.5, 30, True)
    assert told.reservation_labels == aws.RESERVATION_LABELS
