"""What claims have taken of reservations since the catalogue last counted: planning takes it off."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sawhorse_model import aws
from sawhorse_model.meta import Condition, ObjectMeta
from sawhorse_model.nodeclaim import LAUNCHED, NodeClaim
from sawhorse_model.nodepool import NodeClassRef
from sawhorse_model.requirements import Operator, RequirementSpec
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.main import AWS_WORDS
from sawhorse_provisioner.snapshots import reservations_taken
from sawhorse_runtime.clock import SystemClock
from sawhorse_scheduling.snapshot import SolveOptions

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
OPTIONS = SolveOptions(reservation_labels=AWS_WORDS.reservation_labels)
CR_1 = RequirementSpec(aws.RESERVATION_ID, Operator.IN, ("cr-1",))


class Claims:
    """A mirror of nothing but claims."""

    synced = True
    version = 1

    def __init__(self, *claims: NodeClaim) -> None:
        self.claims = {claim.meta.name: claim for claim in claims}

    def all(self, kind: str) -> dict[str, Any]:
        return dict(self.claims) if kind == "NodeClaim" else {}

    def get(self, kind: str, key: str) -> Any:
        return self.all(kind).get(key)

    def pods_on(self, node_name: str) -> tuple[Any, ...]:
        return ()

    def subscribe(self, callback: Any) -> None:
        self.callback = callback

    def note_own(self, kind: str, obj: Any) -> None:
        self.claims[obj.meta.name] = obj


def taken(*claims: NodeClaim, options: SolveOptions = OPTIONS) -> dict[str, int]:
    state = ClusterState(Claims(*claims), words=AWS_WORDS, clock=SystemClock(), nomination=timedelta(seconds=20))
    return reservations_taken(state, options, NOW)


def a_waiting_claim(name: str = "a") -> NodeClaim:
    ref = NodeClassRef("karpenter.k8s.aws", "EC2NodeClass", "default")
    return NodeClaim(meta=ObjectMeta(name, uid=name), node_class_ref=ref, requirements=(CR_1,))


def a_launched_claim(ago: timedelta, name: str = "b") -> NodeClaim:
    claim = a_waiting_claim(name)
    return replace(
        claim,
        meta=replace(claim.meta, labels={aws.RESERVATION_ID: "cr-1"}),
        provider_id=f"aws:///us-west-2a/i-{name}",
        conditions=(Condition(LAUNCHED, "True", LAUNCHED, "", NOW - ago),),
    )


def test_claims_that_wait_for_their_instance_have_taken_it() -> None:
    assert taken(a_waiting_claim("a"), a_waiting_claim("b")) == {"cr-1": 2}


@pytest.mark.parametrize(("seconds", "expected"), [(0, {"cr-1": 1}), (59, {"cr-1": 1}), (61, {})])
def test_a_launched_claim_counts_until_the_catalogue_has_counted_again(seconds: int, expected: dict[str, int]) -> None:
    assert taken(a_launched_claim(timedelta(seconds=seconds))) == expected


def test_claims_without_a_reservation_and_clouds_without_any_take_nothing() -> None:
    bought = replace(a_waiting_claim(), requirements=())

    assert taken(bought) == {}
    assert taken(a_waiting_claim(), options=SolveOptions()) == {}


def test_a_claim_that_is_being_deleted_gives_its_instance_back() -> None:
    claim = a_waiting_claim()

    assert taken(replace(claim, meta=replace(claim.meta, deletion_timestamp=NOW))) == {}
