"""What a message says: golden texts for each kind, and what cannot be read."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawhorse_interruption.messages import Kind, Malformed, Notice, Why, parse

ONE, TWO, THREE = "i-0aa11bb22cc33dd44", "i-0ee55ff66aa77bb88", "i-0ff99ee88dd77cc66"


def an_event(**overrides: Any) -> str:
    """A spot warning as EC2 sent it; None removes a field."""
    event = {
        "version": "0",
        "id": "0b1f7c52-1111-4e0c-9a55-3c5d0e6f7a01",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": "111122223333",
        "time": "2026-11-29T10:15:30Z",
        "region": "eu-west-1",
        "resources": [f"arn:aws:ec2:eu-west-1b:instance/{ONE}"],
        "detail": {"instance-id": ONE, "instance-action": "terminate"},
    } | {name.replace("_", "-"): value for name, value in overrides.items()}
    return json.dumps({name: value for name, value in event.items() if value is not None})


def a_health_event(**overrides: Any) -> str:
    detail = {
        "eventArn": "arn:aws:health:eu-west-1::event/EC2/X/1",
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "startTime": "Fri, 11 Dec 2026 07:00:00 GMT",
        "eventDescription": [{"language": "en_US", "latestDescription": "host retirement"}],
        "affectedEntities": [{"entityValue": each} for each in (ONE, TWO, THREE, ONE)],
    } | overrides
    return an_event(source="aws.health", detail_type="AWS Health Event", detail=detail)


def state(word: str) -> str:
    return an_event(detail_type="EC2 Instance State-change Notification", detail={"instance-id": ONE, "state": word})


def test_a_spot_warning_says_instance_action_time_and_id() -> None:
    said = parse(an_event())

    assert said == Notice(
        Kind.SPOT_INTERRUPTED,
        (ONE,),
        datetime(2026, 11, 29, 10, 15, 30, tzinfo=UTC),
        "0b1f7c52-1111-4e0c-9a55-3c5d0e6f7a01",
        "terminate",
    )


@pytest.mark.parametrize(
    ("body", "kind", "ids"),
    [
        (
            an_event(detail_type="EC2 Instance Rebalance Recommendation", detail={"instance-id": ONE}),
            Kind.REBALANCE_RECOMMENDATION,
            (ONE,),
        ),
        (state("stopping"), Kind.INSTANCE_STOPPED, (ONE,)),
        (state("stopped"), Kind.INSTANCE_STOPPED, (ONE,)),
        (state("STOPPED"), Kind.INSTANCE_STOPPED, (ONE,)),
        (state("shutting-down"), Kind.INSTANCE_TERMINATED, (ONE,)),
        (state("terminated"), Kind.INSTANCE_TERMINATED, (ONE,)),
        (state("pending"), Kind.NO_OP, ()),
        (state("running"), Kind.NO_OP, ()),
        (a_health_event(), Kind.SCHEDULED_CHANGE, (ONE, TWO, THREE)),
        (a_health_event(service="RDS"), Kind.NO_OP, ()),
        (a_health_event(eventTypeCategory="issue"), Kind.NO_OP, ()),
        (a_health_event(affectedEntities=[]), Kind.SCHEDULED_CHANGE, ()),
        (
            an_event(
                detail_type="EC2 Capacity Reservation Instance Interruption Warning",
                detail={"instance-id": ONE, "instance-action": "terminate"},
            ),
            Kind.CAPACITY_RESERVATION_INTERRUPTED,
            (ONE,),
        ),
        (an_event(detail_type="EC2 Something New", detail={"a": 1}), Kind.NO_OP, ()),
        (an_event(source="aws.autoscaling"), Kind.NO_OP, ()),
    ],
)
def test_each_kind_is_read_by_its_own_rule(body: str, kind: Kind, ids: tuple[str, ...]) -> None:
    said = parse(body)

    assert isinstance(said, Notice)
    assert (said.kind, said.instance_ids) == (kind, ids)


def test_another_version_of_the_envelope_is_a_no_op() -> None:
    said = parse(an_event(version="1"))

    assert isinstance(said, Notice)
    assert said.kind is Kind.NO_OP


def test_an_envelope_without_version_id_and_time_still_warns() -> None:
    said = parse(an_event(version=None, id=None, time=None))

    assert said == Notice(Kind.SPOT_INTERRUPTED, (ONE,), None, "", "terminate")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", Why.EMPTY),
        ("  \n", Why.EMPTY),
        ("abcd", Why.NOT_JSON),
        pytest.param("x" * 200 * 1024, Why.NOT_JSON, id="200 KiB of text"),
        pytest.param("[" * 100_000, Why.BAD_ENVELOPE, id="deep list"),
        pytest.param('{"a":' * 100_000, Why.NOT_JSON, id="deep object"),
        (an_event()[:-1], Why.NOT_JSON),
        ("{}", Why.NO_ENVELOPE),
        ("[]", Why.BAD_ENVELOPE),
        ('"text"', Why.BAD_ENVELOPE),
        ("null", Why.BAD_ENVELOPE),
        (an_event(time="yesterday"), Why.BAD_ENVELOPE),
        (an_event(time="2026-11-29T10:15:30"), Why.BAD_ENVELOPE),
        (an_event(source=7), Why.BAD_ENVELOPE),
        (an_event(detail=None), Why.BAD_DETAIL),
        (an_event(detail="text"), Why.BAD_DETAIL),
        (an_event(detail={}), Why.BAD_DETAIL),
        (an_event(detail={"instance-id": ""}), Why.BAD_DETAIL),
        (an_event(detail={"instance-id": 7}), Why.BAD_DETAIL),
        (a_health_event(affectedEntities=[{}]), Why.BAD_DETAIL),
    ],
)
def test_what_cannot_be_read_is_malformed_with_a_word_for_why(body: str, why: Why) -> None:
    said = parse(body)

    assert isinstance(said, Malformed)
    assert said.why is why
    assert said.detail


@given(st.text() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_text_makes_the_reader_fail(body: str) -> None:
    assert isinstance(parse(body), Notice | Malformed)


json_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(field=st.sampled_from(["version", "id", "source", "detail-type", "time", "detail"]), value=json_values)
def test_no_field_of_a_wrong_type_makes_the_reader_fail(field: str, value: Any) -> None:
    event = json.loads(an_event())
    event[field] = value

    assert isinstance(parse(json.dumps(event)), Notice | Malformed)
