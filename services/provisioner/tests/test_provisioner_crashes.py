"""The leader dies before and after every named step, another takes over, and all is as if nothing had happened.

In virtual time over the fakes; what must be so at the end is in `sawhorse_testing.invariants` and `Town.survives`.
"""

from typing import Any

import pytest

from sawhorse_provisioner.launching import Launcher
from sawhorse_provisioner.steps import Step
from sawhorse_testing.crashes import Crash, When
from sawhorse_testing.town import PODS, Town, a_town

# Much for a gate that runs all the time, so it runs with the integration tests.
pytestmark = [pytest.mark.looptime, pytest.mark.integration]

GROWTH = [
    Step.START,
    Step.BATCH,
    Step.SNAPSHOT,
    Step.PLAN,
    Step.COMMIT,
    Step.CLAIMS_CREATED,
    Step.PLACEMENT,
    Step.TOKEN,
    Step.TEMPLATE,
    Step.FLEET,
    Step.LAUNCHED,
    Step.NODE_SEEN,
    Step.HINTED,
    Step.REGISTERED,
    Step.INITIALIZED,
    Step.TAGGED,
]
END = [Step.TAINTED, Step.DRAINING, Step.DRAINED, Step.VOLUMES, Step.INSTANCE, Step.RELEASED, Step.TERMINATED]
INTERRUPTION = [Step.REPLANNED, *GROWTH[1:], Step.READY, *END]
SIDES: list[When] = ["before", "after"]


@pytest.fixture
def town(world: Any) -> Town:
    """See `sawhorse_testing.town`."""
    return a_town(world)


@pytest.mark.parametrize("when", SIDES)
@pytest.mark.parametrize("step", GROWTH)
async def test_pods_get_their_nodes_whenever_the_leader_dies(town: Town, looptime: Any, step: Step, when: When) -> None:
    await town.survives(Crash(step, when), town.grows)


@pytest.mark.parametrize("when", SIDES)
@pytest.mark.parametrize("step", [Step.NODE_SEEN, Step.REGISTERED, Step.INITIALIZED, Step.TAGGED])
async def test_a_leader_that_dies_between_two_nodes_leaves_neither_behind(
    town: Town, looptime: Any, step: Step, when: When
) -> None:
    await town.survives(Crash(step, when, nth=2), town.grows)


@pytest.mark.parametrize("when", SIDES)
async def test_a_leader_that_dies_while_it_hands_over_loses_nothing(town: Town, looptime: Any, when: When) -> None:
    await town.survives(Crash(Step.HAND_OVER, when), town.stops)


@pytest.mark.parametrize("when", SIDES)
@pytest.mark.parametrize("step", INTERRUPTION)
async def test_an_interrupted_node_is_replaced_exactly_once_whenever_the_leader_dies(
    town: Town, looptime: Any, step: Step, when: When
) -> None:
    crash = Crash(step, when)

    await town.survives(crash, town.loses_a_node(crash, town.interrupted), claims=PODS + 1)


@pytest.mark.parametrize("when", SIDES)
@pytest.mark.parametrize("step", END)
async def test_a_deleted_node_ends_with_its_machine_whenever_the_leader_dies(
    town: Town, looptime: Any, step: Step, when: When
) -> None:
    crash = Crash(step, when)

    await town.survives(crash, town.loses_a_node(crash, town.node_deleted), claims=PODS + 1)


@pytest.mark.parametrize("when", SIDES)
@pytest.mark.parametrize("step", END)
async def test_a_deleted_claim_ends_with_its_node_whenever_the_leader_dies(
    town: Town, looptime: Any, step: Step, when: When
) -> None:
    crash = Crash(step, when)

    await town.survives(crash, town.loses_a_node(crash, town.claim_deleted), claims=PODS + 1)


@pytest.mark.parametrize("number", range(1, 120, 14))
@pytest.mark.parametrize("when", SIDES)
async def test_no_call_is_the_wrong_one_to_die_at(town: Town, looptime: Any, number: int, when: When) -> None:
    """Steps are where we think that it matters; here the leader dies at calls that nobody chose."""
    await town.survives(Crash(when=when, at_call=number), town.grows)


@pytest.mark.parametrize("number", range(1, 100, 14))
@pytest.mark.parametrize("when", SIDES)
async def test_no_call_of_an_interruption_is_the_wrong_one_to_die_at(
    town: Town, looptime: Any, number: int, when: When
) -> None:
    crash = Crash(when=when, at_call=number)

    await town.survives(crash, town.loses_a_node(crash, town.interrupted), claims=PODS + 1)


# Tests of the tests: bugs that the matrix must see


async def test_a_launch_before_its_annotation_is_caught(
    town: Town, looptime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_token, write = Launcher._put_token, Launcher._write_answers

    async def no_token(self: Any, fleet: Any, claims: Any) -> Any:
        return claims

    async def token_then_answers(self: Any, fleet: Any) -> None:
        await put_token(self, fleet, self._members(fleet))
        await write(self, fleet)

    monkeypatch.setattr(Launcher, "_put_token", no_token)
    monkeypatch.setattr(Launcher, "_write_answers", token_then_answers)

    with pytest.raises(AssertionError, match=r"\(3, 6\)"):
        await town.survives(Crash(Step.FLEET, "after"), town.grows)
