"""The switchable state of the sandbox's AWS: partial updates, refusals, and what is used up."""

import json
from typing import Any

import pytest

from sawhorse_sandbox.aws.state import OutOfCapacity, State, StateError, StateStore, by_action, updated


def update(state: State, **fields: Any) -> State:
    return updated(state, json.dumps(fields).encode())


def test_an_update_replaces_the_named_fields_and_keeps_the_others() -> None:
    before = update(State(), latency={"CreateFleet": 0.5}, terminateDelay=3)

    after = update(before, latency={"*": 0.1})

    assert after.latency == {"*": 0.1}
    assert after.terminate_delay == 3


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"latencies": {}}', "unknown field latencies"),
        (b'{"throttle": {"*": 1.5}}', "not a probability"),
        (b'{"latency": {"*": -1}}', "latency.*"),
        (b'{"latency": {"*": "slow"}}', "latency"),
        (b'{"spotPrices": {"m5.large": -0.1}}', "spotPrices.m5.large"),
        (b'{"outOfCapacity": [{"instanceType": "m5.large"}]}', "instanceType"),
        (b'{"outOfCapacity": [{"capacityType": "on_demand"}]}', "capacityType"),
        (b'{"outOfCapacity": [{"remaining": -1}]}', "remaining"),
        (b'{"dying": -1}', "dying"),
        (b'{"errors": [{"action": "CreateFleet", "code": "X", "times": 0}]}', "times"),
        (b'{"errors": [{"action": "CreateFleet", "code": "X", "status": 200}]}', "status"),
        (b'{"reservations": [{"id": "cr-1", "type": "m5.large", "zone": "z", "count": -1}]}', "count"),
    ],
)
def test_an_update_that_makes_no_sense_is_refused_in_one_line_that_names_the_field(body: bytes, told: str) -> None:
    with pytest.raises(StateError) as refused:
        updated(State(), body)

    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_refused_update_changes_nothing() -> None:
    store = StateStore()
    before = store.current()

    with pytest.raises(StateError):
        store.update(b'{"pendingDelay": 9, "latency": {"*": -1}}')

    assert store.current() == before


def test_an_injected_error_is_given_as_often_as_asked_and_to_its_action_only() -> None:
    store = StateStore()
    store.update(b'{"errors": [{"action": "CreateFleet", "code": "InternalError", "times": 2}]}')

    taken = [store.take_error(action) for action in ("RunInstances", "CreateFleet", "CreateFleet", "CreateFleet")]

    assert [error.code if error else None for error in taken] == [None, "InternalError", "InternalError", None]


def test_a_limited_pool_has_less_left_after_a_launch() -> None:
    store = StateStore()
    store.update(b'{"outOfCapacity": [{"type": "m5.*", "remaining": 3}, {"type": "c5.*", "remaining": 3}]}')

    store.take_capacity(store.current().out_of_capacity[0], 2)

    assert [rule.remaining for rule in store.current().out_of_capacity] == [1, 3]


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (OutOfCapacity(), True),
        (OutOfCapacity(type="m5.*", zone="us-east-1?", capacity_type="spot"), True),
        (OutOfCapacity(type="m5"), False),
        (OutOfCapacity(zone="us-east-1b"), False),
        (OutOfCapacity(capacity_type="on-demand"), False),
    ],
)
def test_a_rule_matches_type_and_zone_by_glob_and_the_capacity_type_exactly(rule: OutOfCapacity, matches: bool) -> None:
    assert rule.matches("m5.large", "us-east-1a", "spot") is matches


def test_the_value_of_an_action_goes_before_the_one_for_all() -> None:
    values = {"*": 0.5, "CreateFleet": 0.0}

    assert [by_action(values, action) for action in ("CreateFleet", "RunInstances")] == [0.0, 0.5]
    assert by_action({}, "CreateFleet") == 0.0
