"""What a message leads to, as plain functions."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawhorse_interruption.messages import Kind, Notice
from sawhorse_interruption.policy import (
    NOTICE_PERIOD,
    TABLE,
    annotations_to_set,
    deadline_for,
    happened_at,
    is_late,
    respond,
)

T = datetime(2026, 11, 29, 10, 15, 30, tzinfo=UTC)
MARGIN = timedelta(seconds=10)
SPOT = TABLE[Kind.SPOT_INTERRUPTED]


def after(seconds: float) -> datetime:
    return T + timedelta(seconds=seconds)


def test_every_kind_has_a_row() -> None:
    assert set(TABLE) == set(Kind)


@pytest.mark.parametrize("kind", list(Kind))
def test_only_a_spot_warning_is_acted_upon(kind: Kind) -> None:
    assert respond(Notice(kind, ("i-1",))).acts == (kind is Kind.SPOT_INTERRUPTED)


def test_a_notice_without_an_instance_leads_to_nothing() -> None:
    assert not respond(Notice(Kind.SPOT_INTERRUPTED)).acts


def test_the_deadline_of_a_spot_warning_is_110_seconds_after_its_time() -> None:
    assert deadline_for(SPOT, T, after(3), margin=MARGIN, alive=True) == after(110)


def test_an_instance_that_outlived_its_notice_leaves_its_pods_a_short_grace() -> None:
    assert deadline_for(SPOT, T, after(300), margin=MARGIN, alive=True) == after(320)


def test_a_late_warning_of_a_dead_instance_has_a_deadline_in_the_past() -> None:
    assert deadline_for(SPOT, T, after(300), margin=MARGIN, alive=False) == after(110)


def test_a_kind_without_notice_sets_no_deadline() -> None:
    assert deadline_for(TABLE[Kind.REBALANCE_RECOMMENDATION], T, T, margin=MARGIN, alive=True) is None


def test_a_message_is_late_only_after_the_notice_period() -> None:
    assert not is_late(SPOT, T, T + NOTICE_PERIOD)
    assert is_late(SPOT, T, T + NOTICE_PERIOD + timedelta(seconds=1))


def test_a_message_from_the_future_happened_when_it_was_received() -> None:
    notice = Notice(Kind.SPOT_INTERRUPTED, ("i-1",), time=datetime.max.replace(tzinfo=UTC))

    assert happened_at(notice, T) == T


def test_annotations_of_an_untouched_claim_are_all_set() -> None:
    assert annotations_to_set({}, happened=T, deadline=after(110)) == {
        "sawhorse.dev/drain-owner": "interruption",
        "sawhorse.dev/interrupted-at": "2026-11-29T10:15:30Z",
        "karpenter.sh/nodeclaim-termination-timestamp": "2026-11-29T10:17:20Z",
    }


@pytest.mark.parametrize(("existing", "is_set"), [(100, False), (110, False), (3600, True)])
def test_an_existing_deadline_is_only_ever_made_earlier(existing: int, is_set: bool) -> None:
    name = "karpenter.sh/nodeclaim-termination-timestamp"
    known = {name: after(existing).strftime("%Y-%m-%dT%H:%M:%SZ")}

    assert (name in annotations_to_set(known, happened=T, deadline=after(110))) == is_set


def test_an_unreadable_deadline_is_replaced() -> None:
    name = "karpenter.sh/nodeclaim-termination-timestamp"

    assert annotations_to_set({name: "soon"}, happened=T, deadline=after(110))[name] == "2026-11-29T10:17:20Z"


@given(st.lists(st.integers(min_value=-3600, max_value=3600), min_size=1, max_size=6))
def test_any_order_of_warnings_ends_at_the_earliest_deadline(seconds: list[int]) -> None:
    annotations: dict[str, str] = {}

    for each in seconds:
        annotations |= annotations_to_set(annotations, happened=after(each), deadline=after(each + 110))

    earliest = annotations_to_set({}, happened=after(min(seconds)), deadline=after(min(seconds) + 110))
    assert annotations == earliest


def test_setting_what_is_set_changes_nothing() -> None:
    annotations = annotations_to_set({}, happened=T, deadline=after(110.7))

    assert annotations_to_set(annotations, happened=T, deadline=after(110.7)) == {}
