"""Which pools a fleet takes: the order of allocation strategies and pools that are out of capacity."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sawhorse_sandbox.aws.pools import Pool, allot, by_strategy
from sawhorse_sandbox.aws.state import OutOfCapacity


def a_pool(position: int = 0, **overrides: Any) -> Pool:
    pool = Pool(position=position, instance_type="m5.large", zone="us-east-1a", capacity_type="spot")
    return replace(pool, **overrides)


def test_a_lowest_price_fleet_takes_the_cheapest_pool_first() -> None:
    pools = [a_pool(0, instance_type="dear"), a_pool(1, instance_type="cheap")]

    ordered = by_strategy(pools, "lowest-price", lambda pool: {"dear": 2.0, "cheap": 1.0}[pool.instance_type])

    assert [pool.instance_type for pool in ordered] == ["cheap", "dear"]


def test_a_prioritized_fleet_ignores_prices() -> None:
    pools = [a_pool(0, priority=5.0), a_pool(1, priority=1.0), a_pool(2)]

    ordered = by_strategy(pools, "capacity-optimized-prioritized", lambda pool: -float(pool.position))

    assert [pool.position for pool in ordered] == [1, 0, 2]


def test_a_pool_without_a_price_comes_last_and_equal_pools_keep_their_order() -> None:
    pools = [a_pool(0, zone="unknown"), a_pool(1), a_pool(2)]

    ordered = by_strategy(pools, "price-capacity-optimized", lambda pool: None if pool.zone == "unknown" else 1.0)

    assert [pool.position for pool in ordered] == [1, 2, 0]


def test_a_pool_that_is_out_of_capacity_is_passed_over_and_reported() -> None:
    pools = [a_pool(0), a_pool(1, zone="us-east-1b")]

    allotment = allot(pools, 2, [OutOfCapacity(zone="us-east-1a")])

    assert allotment.taken == ((pools[1], 2),)
    assert [refusal.pool for refusal in allotment.refused] == [pools[0]]
    assert allotment.refused[0].code == "InsufficientInstanceCapacity"
    assert "m5.large" in allotment.refused[0].message


def test_pools_out_of_capacity_are_reported_even_when_a_better_one_gave_everything() -> None:
    pools = [a_pool(0), a_pool(1, zone="us-east-1b")]

    allotment = allot(pools, 1, [OutOfCapacity(zone="us-east-1b")])

    assert allotment.taken == ((pools[0], 1),)
    assert [refusal.pool for refusal in allotment.refused] == [pools[1]]


def test_a_pool_with_two_left_gives_two_and_the_next_gives_the_rest() -> None:
    pools = [a_pool(0), a_pool(1, zone="us-east-1b")]
    rule = OutOfCapacity(zone="us-east-1a", remaining=2)

    allotment = allot(pools, 5, [rule])

    assert allotment.taken == ((pools[0], 2), (pools[1], 3))
    assert allotment.drawn == ((rule, 2),)


def test_pools_of_one_rule_share_what_it_has_left() -> None:
    pools = [a_pool(0), a_pool(1, zone="us-east-1b")]

    allotment = allot(pools, 5, [OutOfCapacity(remaining=3)])

    assert sum(count for _, count in allotment.taken) == 3


@given(
    wanted=st.integers(1, 20),
    left=st.lists(st.none() | st.integers(0, 8), min_size=1, max_size=6),
)
def test_a_fleet_never_takes_more_than_wanted_nor_more_than_a_pool_has(wanted: int, left: list[int | None]) -> None:
    pools = [a_pool(position, zone=f"z{position}") for position in range(len(left))]
    rules = [OutOfCapacity(zone=f"z{at}", remaining=room) for at, room in enumerate(left) if room is not None]

    taken = allot(pools, wanted, rules).taken

    room_in_all = sum(wanted if room is None else room for room in left)
    assert sum(count for _, count in taken) == min(wanted, room_in_all)
    assert all(left[pool.position] is None or count <= (left[pool.position] or 0) for pool, count in taken)
