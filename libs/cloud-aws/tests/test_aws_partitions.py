"""Partitions of a placement group: which one a fleet takes, and which it leaves alone for a while."""

import pytest

from sawhorse_catalog.account import PlacementGroup
from sawhorse_cloud.errors import InsufficientCapacityError
from sawhorse_cloud_aws.partitions import FULL_SECONDS, FullPartitions, partition_for
from sawhorse_model.aws import PLACEMENT_GROUP_PARTITION
from sawhorse_model.requirements import Operator, Requirements, RequirementSpec

GROUP = PlacementGroup(id="pg-1", name="apart", strategy="partition", partitions=12)
LARGE, XLARGE = ("m5.large", "us-west-2a"), ("m5.xlarge", "us-west-2a")


def asking(*partitions: str) -> Requirements:
    specs = [RequirementSpec(PLACEMENT_GROUP_PARTITION, Operator.IN, partitions)] if partitions else []
    return Requirements.from_specs(specs)


def test_fleets_spread_over_all_partitions_and_a_repeat_finds_its_own() -> None:
    chosen = {token: partition_for(asking(), GROUP, token) for token in map(str, range(300))}

    assert set(chosen.values()) == set(range(1, 13))
    assert chosen["7"] == partition_for(asking(), GROUP, "7")


def test_a_claim_gets_a_partition_that_it_allows() -> None:
    assert {partition_for(asking("2", "10"), GROUP, str(n)) for n in range(50)} == {2, 10}
    with pytest.raises(InsufficientCapacityError, match="allows none of the 12 partitions"):
        partition_for(asking("13"), GROUP, "token")


def test_a_full_partition_is_taken_only_where_all_are_full() -> None:
    assert {partition_for(asking("2", "10"), GROUP, str(n), {2}) for n in range(50)} == {10}
    assert {partition_for(asking("2", "10"), GROUP, str(n), {2, 10}) for n in range(50)} == {2, 10}


def test_a_partition_is_full_for_a_fleet_once_it_has_nothing_of_all_that_is_asked_for() -> None:
    full = FullPartitions(monotonic=lambda: 0.0)
    full.mark("pg-1", 3, LARGE)

    assert full.full("pg-1", [LARGE]) == {3}
    assert full.full("pg-1", [LARGE, XLARGE]) == frozenset()
    assert full.full("pg-2", [LARGE]) == frozenset()
    full.mark("pg-1", 3, XLARGE)
    assert full.full("pg-1", [LARGE, XLARGE]) == {3}


def test_a_full_partition_is_tried_again_after_three_minutes() -> None:
    now = [0.0]
    full = FullPartitions(monotonic=lambda: now[0])
    full.mark("pg-1", 3, LARGE)

    now[0] = FULL_SECONDS

    assert full.full("pg-1", [LARGE]) == frozenset()
