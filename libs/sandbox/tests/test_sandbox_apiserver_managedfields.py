"""Managed fields: who owns what after updates, and what server-side apply merges, refuses and removes."""

import copy
from typing import Any

import pytest

from sawhorse_sandbox.apiserver.errors import ApiError
from sawhorse_sandbox.apiserver.managedfields import Manager, apply, record
from sawhorse_sandbox.apiserver.shapes import BuiltinShape

TIME = "2026-01-01T00:00:00Z"


def an_object(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "t", "uid": "u"}, **fields}


def updated(old: dict[str, Any] | None, new: dict[str, Any], manager: str, subresource: str = "") -> dict[str, Any]:
    new = copy.deepcopy(new)
    record(old, new, Manager(manager, "Update", "v1", subresource), BuiltinShape(), TIME)
    return new


def applied(
    current: dict[str, Any] | None, config: dict[str, Any], manager: str, force: bool = False
) -> dict[str, Any]:
    return apply(current, config, Manager(manager, "Apply", "v1"), BuiltinShape(), TIME, force=force)


def owned(obj: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"]["managedFields"]}


def test_the_creator_owns_all_it_set_but_not_what_the_server_sets() -> None:
    made = updated(None, an_object(spec={"a": 1, "list": [1, 2]}), "creator")

    assert owned(made) == {"creator": {"f:spec": {"f:a": {}, "f:list": {}}}}


def test_an_update_takes_over_what_it_changes_and_nothing_else() -> None:
    made = updated(None, an_object(spec={"a": 1, "b": 1}), "creator")

    changed = updated(made, an_object(spec={"a": 1, "b": 2, "c": 3}), "updater")

    assert owned(changed) == {"creator": {"f:spec": {"f:a": {}}}, "updater": {"f:spec": {"f:b": {}, "f:c": {}}}}


def test_a_removed_field_has_no_owner_any_more() -> None:
    made = updated(None, an_object(spec={"a": 1, "b": 1}), "creator")

    changed = updated(made, an_object(spec={"a": 1}), "updater")

    assert owned(changed) == {"creator": {"f:spec": {"f:a": {}}}}


def test_items_of_keyed_lists_have_owners_of_their_own() -> None:
    ready, other = {"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}
    made = updated(None, an_object(status={"conditions": [ready]}), "kubelet", "status")

    changed = updated(made, an_object(status={"conditions": [ready, other]}), "other", "status")

    assert owned(changed)["other"] == {
        "f:status": {"f:conditions": {'k:{"type":"Other"}': {".": {}, "f:type": {}, "f:status": {}}}}
    }
    assert 'k:{"type":"Ready"}' in owned(changed)["kubelet"]["f:status"]["f:conditions"]


def test_a_write_through_a_subresource_is_an_entry_of_its_own() -> None:
    made = updated(None, an_object(spec={"a": 1}), "one")

    changed = updated(made, an_object(spec={"a": 1}, status={"b": 1}), "one", "status")

    entries = [(e["manager"], e.get("subresource")) for e in changed["metadata"]["managedFields"]]
    assert entries == [("one", None), ("one", "status")]


def test_apply_merges_keyed_lists_and_leaves_the_items_of_others() -> None:
    current = updated(None, an_object(spec={"containers": [{"name": "a", "image": "1"}]}), "other")

    result = applied(current, an_object(spec={"containers": [{"name": "b", "image": "2"}]}), "applier")

    assert result["spec"]["containers"] == [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]


def test_apply_of_equal_values_shares_them_without_a_conflict() -> None:
    current = applied(None, an_object(spec={"a": 1}), "one")

    both = applied(current, an_object(spec={"a": 1}), "two")

    assert owned(both) == {"one": {"f:spec": {"f:a": {}}}, "two": {"f:spec": {"f:a": {}}}}


def test_apply_refuses_to_change_what_another_manager_owns_unless_forced() -> None:
    current = applied(None, an_object(spec={"a": 1, "b": 1}), "one")

    with pytest.raises(ApiError) as refused:
        applied(current, an_object(spec={"a": 2}), "two")
    forced = applied(current, an_object(spec={"a": 2}), "two", force=True)

    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert refused.value.message == 'Apply failed with 1 conflict: .spec.a: conflict with "one"'
    assert forced["spec"] == {"a": 2, "b": 1}
    assert owned(forced) == {"one": {"f:spec": {"f:b": {}}}, "two": {"f:spec": {"f:a": {}}}}


def test_apply_removes_what_its_manager_left_out_unless_another_owns_it_too() -> None:
    current = applied(None, an_object(spec={"mine": 1, "shared": 1}), "one")
    current = applied(current, an_object(spec={"shared": 1}), "two")

    result = applied(current, an_object(), "one")

    assert result["spec"] == {"shared": 1}


def test_apply_removes_an_item_of_a_keyed_list_that_it_left_out() -> None:
    items = [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]
    current = applied(None, an_object(status={"conditions": items}), "one")

    result = applied(current, an_object(status={"conditions": items[:1]}), "one")

    assert result["status"]["conditions"] == items[:1]


def test_apply_of_the_same_again_changes_nothing() -> None:
    current = applied(None, an_object(spec={"a": {"b": [1, 2]}}), "one")

    again = applied(current, an_object(spec={"a": {"b": [1, 2]}}), "one")

    assert again == current
