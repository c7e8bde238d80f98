"""NodeRegistrationHealthy in the hands of two leaders."""

from dataclasses import replace
from typing import Any

from sawhorse_model.meta import Condition
from sawhorse_provisioner.pool_health import NODE_REGISTRATION_HEALTHY, PoolHealth
from sawhorse_testing.builders import a_nodepool

NO_STATE: Any = None  # nothing is read of it


def told(status: str, generation: int = 0) -> Any:
    """A pool whose condition another leader wrote."""
    condition = Condition(NODE_REGISTRATION_HEALTHY, status, "Told", "by another", observed_generation=generation)
    return replace(a_nodepool(), conditions=(condition,))


def test_what_another_leader_saw_is_not_contradicted_by_one_that_saw_nothing() -> None:
    """They would write over each other for as long as both are at work."""
    health = PoolHealth(state=NO_STATE, changed=lambda _: None)
    first = health.judgement(a_nodepool(), None)

    later = [health.judgement(told("True"), None).status, health.judgement(told("True"), None).status]

    assert first.status == "Unknown"
    assert later == ["True", "True"]


def test_what_was_seen_before_the_pool_changed_counts_no_more() -> None:
    health = PoolHealth(state=NO_STATE, changed=lambda _: None)

    assert health.judgement(told("False", generation=7), None).status == "Unknown"
