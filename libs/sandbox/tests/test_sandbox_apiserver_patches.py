"""The patch algorithms of the embedded API server, on plain values."""

import copy
from typing import Any

import pytest

from sawhorse_sandbox.apiserver.errors import ApiError
from sawhorse_sandbox.apiserver.patches import json_patch, merge_patch, strategic_merge
from sawhorse_sandbox.apiserver.shapes import BuiltinShape, SchemaShape


def strategic(target: Any, patch: Any) -> Any:
    return strategic_merge(target, patch, BuiltinShape())


# The examples of RFC 7396, appendix A, that an object can hold.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_follows_its_rfc(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(target)

    assert merge_patch(target, patch) == result
    assert target == before


def test_strategic_merge_joins_containers_by_name_and_keeps_their_order() -> None:
    target = {
        "spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}
    }
    patch = {"spec": {"containers": [{"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]}, {"name": "c"}]}}

    merged = strategic(target, patch)

    containers = merged["spec"]["containers"]
    assert [container["name"] for container in containers] == ["a", "b", "c"]
    assert containers[0]["image"] == "2"
    assert containers[0]["env"] == [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]


def test_strategic_merge_replaces_lists_without_a_key_such_as_taints_and_tolerations() -> None:
    target = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "tolerations": [{"key": "a"}]}}

    merged = strategic(target, {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}], "tolerations": []}})

    assert merged == {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}], "tolerations": []}}


def test_strategic_merge_treats_finalizers_as_a_set_and_owners_by_uid() -> None:
    target = {"metadata": {"finalizers": ["a"], "ownerReferences": [{"uid": "1", "name": "x"}]}}
    patch = {"metadata": {"finalizers": ["a", "b"], "ownerReferences": [{"uid": "1", "controller": True}]}}

    merged = strategic(target, patch)

    assert merged["metadata"]["finalizers"] == ["a", "b"]
    assert merged["metadata"]["ownerReferences"] == [{"uid": "1", "name": "x", "controller": True}]


@pytest.mark.parametrize(
    ("patch", "conditions"),
    [
        ([{"type": "Ready", "$patch": "delete"}], [{"type": "Other"}]),
        ([{"$patch": "replace"}, {"type": "New"}], [{"type": "New"}]),
    ],
)
def test_strategic_merge_obeys_directives_in_keyed_lists(patch: Any, conditions: Any) -> None:
    target = {"status": {"conditions": [{"type": "Ready"}, {"type": "Other"}]}}

    assert strategic(target, {"status": {"conditions": patch}})["status"]["conditions"] == conditions


def test_strategic_merge_obeys_directives_in_maps() -> None:
    target = {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"strategy": {"type": "x", "rollingUpdate": {}}}}

    patch = {"metadata": {"labels": {"$patch": "replace", "c": "3"}}, "spec": {"strategy": {"$patch": "delete"}}}
    merged = strategic(target, patch)

    assert merged == {"metadata": {"labels": {"c": "3"}}, "spec": {}}


def test_strategic_merge_drops_order_directives_and_nulls() -> None:
    patch = {"spec": {"$setElementOrder/containers": [{"name": "a"}], "nodeName": None}}

    assert strategic({"spec": {"nodeName": "n", "x": 1}}, patch) == {"spec": {"x": 1}}


def test_strategic_merge_refuses_an_item_without_its_key() -> None:
    with pytest.raises(ApiError) as refused:
        strategic({"status": {"conditions": []}}, {"status": {"conditions": [{"status": "True"}]}})

    assert refused.value.code == 400
    assert "type" in refused.value.message


def test_a_schema_says_how_the_lists_of_a_custom_resource_merge() -> None:
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"], "items": {}}
    shape = SchemaShape({"properties": {"keyed": keyed, "plain": {"type": "array"}}}, root=True)
    target = {"keyed": [{"id": "1", "a": 1}], "plain": [1]}

    merged = strategic_merge(target, {"keyed": [{"id": "1", "b": 2}], "plain": [2]}, shape)

    assert merged == {"keyed": [{"id": "1", "a": 1, "b": 2}], "plain": [2]}


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        ([{"op": "add", "path": "/list/1", "value": "x"}], {"list": ["a", "x", "b"], "map": {"k/1": "v"}}),
        ([{"op": "add", "path": "/list/-", "value": "x"}], {"list": ["a", "b", "x"], "map": {"k/1": "v"}}),
        ([{"op": "remove", "path": "/list/0"}], {"list": ["b"], "map": {"k/1": "v"}}),
        ([{"op": "replace", "path": "/map/k~11", "value": "w"}], {"list": ["a", "b"], "map": {"k/1": "w"}}),
        ([{"op": "move", "from": "/list/0", "path": "/map/a"}], {"list": ["b"], "map": {"k/1": "v", "a": "a"}}),
        ([{"op": "copy", "from": "/list", "path": "/map"}], {"list": ["a", "b"], "map": ["a", "b"]}),
        ([{"op": "test", "path": "/list/0", "value": "a"}], {"list": ["a", "b"], "map": {"k/1": "v"}}),
        ([{"op": "replace", "path": "/list/0", "value": "z"}], {"list": ["z", "b"], "map": {"k/1": "v"}}),
        ([{"op": "test", "path": "/absent", "value": None}], {"list": ["a", "b"], "map": {"k/1": "v"}}),
    ],
)
def test_a_json_patch_follows_its_rfc(operations: Any, result: Any) -> None:
    target = {"list": ["a", "b"], "map": {"k/1": "v"}}

    assert json_patch(target, operations) == result
    assert target == {"list": ["a", "b"], "map": {"k/1": "v"}}


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ({"op": "add"}, 400),
        ([{"op": "add"}], 400),
        ([{"op": "wipe", "path": "/a"}], 400),
        ([{"op": "add", "path": "a", "value": 1}], 400),
        ([{"op": "remove", "path": "/absent"}], 422),
        ([{"op": "replace", "path": "/list/7", "value": 1}], 422),
        ([{"op": "test", "path": "/list/0", "value": "b"}], 422),
        ([{"op": "add", "path": "/list/0/deep", "value": 1}], 422),
    ],
)
def test_a_json_patch_that_cannot_be_done_is_refused(operations: Any, code: int) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({"list": ["a"]}, operations)

    assert refused.value.code == code
