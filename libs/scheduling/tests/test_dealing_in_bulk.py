"""Dealing many pods of a class to domains at once: the same as one by one, in far fewer steps."""

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from sawhorse_model.labels import WELL_KNOWN, ZONE
from sawhorse_scheduling.problem import build_problem
from sawhorse_scheduling.snapshot import Snapshot, SolveOptions
from sawhorse_scheduling.topology import Combo, Tally, deal
from sawhorse_testing.builders import ZONES, a_group, a_pool, a_spread, a_type

POOL = a_pool([a_type("m6i.large", "2", "8Gi", price=0.096)])


@given(
    count=st.integers(1, 120),
    rooms=st.tuples(*[st.integers(0, 40)] * len(ZONES)),
    bound_before=st.tuples(*[st.integers(0, 6)] * len(ZONES)),
    costs=st.permutations([1.0, 2.0, 3.0]),
    closed=st.integers(0, len(ZONES)),
    max_skew=st.integers(1, 3),
    evenly=st.booleans(),
)
def test_pods_dealt_in_bulk_go_where_they_would_one_by_one(
    count: int,
    rooms: tuple[int, ...],
    bound_before: tuple[int, ...],
    costs: list[float],
    closed: int,
    max_skew: int,
    evenly: bool,
) -> None:
    group = a_group(count=count, spread=(a_spread(max_skew=max_skew),))
    options = SolveOptions(well_known=WELL_KNOWN)
    problem = build_problem(Snapshot(pods=(group,), pools=(POOL,), options=options))
    (members,) = problem.classes
    topology = problem.topology
    at_once = [
        Combo({ZONE: zone}, room, new=number != closed, cost=cost)
        for number, (zone, room, cost) in enumerate(zip(ZONES, rooms, costs, strict=True))
    ]
    singly, tally = deepcopy(at_once), Tally([dict(zip(ZONES, bound_before, strict=True))])
    other = deepcopy(tally)

    left = deal(topology, tally, members, count, at_once, evenly=evenly)
    not_placed = sum(deal(topology, other, members, 1, singly, evenly=evenly) for _ in range(count))

    assert left == not_placed
    assert [combo.dealt for combo in at_once] == [combo.dealt for combo in singly]
    assert tally.counts == other.counts
