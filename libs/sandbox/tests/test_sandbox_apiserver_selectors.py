"""Label and field selectors of the embedded API server select what the API's documentation says."""

from typing import Any

import pytest

from sawhorse_sandbox.apiserver.errors import ApiError
from sawhorse_sandbox.apiserver.selectors import label_selector, parse_field_selector, parse_label_selector, selection

LABELS = {"app": "web", "tier": "front", "example.com/zone": "a"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("app=web", True),
        ("app==web", True),
        ("app=db", False),
        ("app!=db", True),
        ("missing!=db", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("app notin (db)", True),
        ("missing notin (db)", True),
        ("tier", True),
        ("missing", False),
        ("!missing", True),
        ("!tier", False),
        ("app=web,tier in (front,back),!missing", True),
        ("app=web,tier=back", False),
        ("example.com/zone=a", True),
        ("empty=", False),
        ("", True),
    ],
)
def test_a_label_selector_text_selects_by_all_of_its_parts(text: str, selected: bool) -> None:
    assert parse_label_selector(text).matches(LABELS) is selected


@pytest.mark.parametrize("text", ["app in web", "app=(web)", "=web", "app in (web"])
def test_a_text_that_is_no_label_selector_is_a_bad_request(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_label_selector(text)

    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_a_selector_object_selects_alike(selector: dict[str, Any], selected: bool) -> None:
    found = label_selector(selector)

    assert found is not None
    assert found.matches(LABELS) is selected


def test_no_selector_object_selects_nothing_at_all() -> None:
    assert label_selector(None) is None


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("metadata.name=pod-a", True),
        ("spec.nodeName=", True),
        ("spec.nodeName!=", False),
        ("status.phase!=Running", True),
        ("spec.unschedulable=true", True),
        ("metadata.name=pod-a,status.phase=Running", False),
        ("status.phase.deeper=x", False),
    ],
)
def test_a_field_selector_reads_any_dotted_path_and_absence_as_empty(text: str, selected: bool) -> None:
    obj = {"metadata": {"name": "pod-a"}, "spec": {"unschedulable": True}, "status": {"phase": "Pending"}}

    assert all(requirement.matches(obj) for requirement in parse_field_selector(text)) is selected


def test_a_field_selector_without_an_operator_is_a_bad_request() -> None:
    with pytest.raises(ApiError) as refused:
        parse_field_selector("metadata.name")

    assert refused.value.code == 400


def test_a_selection_asks_for_labels_and_fields_together() -> None:
    obj = {"metadata": {"name": "a", "labels": {"app": "web"}}}

    assert selection("app=web", "metadata.name=a").matches(obj)
    assert not selection("app=web", "metadata.name=b").matches(obj)
    assert not selection("app=db", "metadata.name=a").matches(obj)
