"""Structural schemas: what is pruned, what is filled in, what is refused and how that is said."""

from typing import Any

import pytest

from sawhorse_sandbox.apiserver.schema import apply_defaults, prune, validate

ROOT = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"known": {"type": "string"}}}}}


def messages(value: Any, schema: dict[str, Any]) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in validate(value, schema, "spec")]


def test_unknown_fields_go_and_the_envelope_stays() -> None:
    obj = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "spec": {"known": "x", "odd": 1}, "extra": 1}

    dropped = prune(obj, ROOT, root=True)

    assert obj == {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "spec": {"known": "x"}}
    assert dropped == ["spec.odd", "extra"]


def test_unknown_fields_stay_where_they_are_preserved_but_known_ones_below_are_still_pruned() -> None:
    schema = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"inner": {"type": "object", "properties": {}}},
    }
    value = {"free": {"a": 1}, "inner": {"odd": 1}}

    prune(value, schema)

    assert value == {"free": {"a": 1}, "inner": {}}


def test_pruning_reaches_list_items_and_map_values() -> None:
    item = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": item},
            "map": {"type": "object", "additionalProperties": item},
        },
    }
    value = {"list": [{"a": "1", "b": "2"}], "map": {"k": {"a": "1", "b": "2"}}}

    dropped = prune(value, schema)

    assert value == {"list": [{"a": "1"}], "map": {"k": {"a": "1"}}}
    assert dropped == ["list[0].b", "map.k.b"]


def test_defaults_fill_in_what_is_absent_and_null_but_not_what_is_set() -> None:
    schema = {
        "type": "object",
        "properties": {
            "absent": {"type": "string", "default": "a"},
            "null": {"type": "string", "default": "b"},
            "nullable": {"type": "string", "default": "c", "nullable": True},
            "set": {"type": "integer", "default": 4},
            "bare": {"type": "string"},
        },
    }
    value: dict[str, Any] = {"null": None, "nullable": None, "set": 0, "bare": None}

    apply_defaults(value, schema)

    assert value == {"absent": "a", "null": "b", "nullable": None, "set": 0}


def test_defaults_go_into_maps_and_items_that_exist_and_are_not_shared() -> None:
    inner = {"type": "object", "properties": {"tags": {"type": "array", "default": ["x"], "items": {"type": "string"}}}}
    schema = {
        "type": "object",
        "properties": {
            "one": inner,
            "items": {"type": "array", "items": inner},
            "whole": {**inner, "default": {}},
        },
    }
    value: dict[str, Any] = {"items": [{}, {}]}

    apply_defaults(value, schema)
    value["items"][0]["tags"].append("y")

    assert value == {"items": [{"tags": ["x", "y"]}, {"tags": ["x"]}], "whole": {"tags": ["x"]}}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, "a", 1),
        ({"type": "integer"}, 1, 1.5),
        ({"type": "integer"}, 2.0, True),
        ({"type": "number"}, 1.5, "1.5"),
        ({"type": "boolean"}, False, 0),
        ({"type": "array"}, [], {}),
        ({"type": "object"}, {}, []),
        ({"type": "string", "nullable": True}, None, 1),
        ({"type": "string"}, "", None),
        ({"x-kubernetes-int-or-string": True}, "10%", 1.5),
        ({"x-kubernetes-int-or-string": True}, 10, True),
        ({"type": "string", "enum": ["a", "b"]}, "b", "c"),
        ({"type": "string", "pattern": "b+"}, "abbc", "ac"),
        ({"type": "string", "pattern": "^b+$"}, "bb", "abb"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "abc", "a"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "ab", "abcd"),
        ({"type": "string", "format": "date-time"}, "2026-01-02T03:04:05Z", "yesterday"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, 5, 6),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ({"type": "integer", "maximum": 5, "exclusiveMaximum": True}, 4, 5),
        ({"type": "integer", "multipleOf": 5}, 10, 11),
        ({"type": "integer", "format": "int32"}, 2**31 - 1, 2**31),
        ({"type": "array", "minItems": 1, "maxItems": 2}, [1], []),
        ({"type": "array", "minItems": 1, "maxItems": 2}, [1, 2], [1, 2, 3]),
        ({"type": "array", "x-kubernetes-list-type": "set"}, [1, 2], [1, 1]),
        ({"type": "array", "uniqueItems": True}, ["a"], ["a", "a"]),
        ({"type": "array", "items": {"type": "string"}}, ["a"], [1]),
        ({"type": "object", "required": ["a"]}, {"a": 1}, {}),
        ({"type": "object", "minProperties": 1, "maxProperties": 1}, {"a": 1}, {}),
        ({"type": "object", "minProperties": 1, "maxProperties": 1}, {"a": 1}, {"a": 1, "b": 2}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": "b"}, {"a": 1}),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 2, 3),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}, {"c": 1}),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}, {"a": 1, "b": 1}),
        ({"not": {"required": ["a"]}}, {"b": 1}, {"a": 1}),
    ],
)
def test_every_rule_accepts_what_it_allows_and_refuses_what_it_does_not(
    schema: dict[str, Any], good: Any, bad: Any
) -> None:
    assert validate(good, schema) == []
    assert len(validate(bad, schema)) == 1


def test_items_of_a_keyed_list_differ_in_their_keys() -> None:
    schema = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key", "effect"]}

    assert messages([{"key": "a", "effect": "x"}, {"key": "a", "effect": "y"}], schema) == []
    assert messages([{"key": "a", "effect": "x"}, {"key": "a", "effect": "x", "v": 1}], schema) == [
        "spec[1]: Duplicate value: ['a', 'x']"
    ]


def test_messages_read_as_the_real_servers_do_and_all_are_given() -> None:
    schema = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "color": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "integer"},
            "code": {"type": "string", "pattern": "^[a-z]+$"},
            "deep": {"type": "array", "items": {"type": "object", "properties": {"n": {"maximum": 3}}}},
        },
    }

    found = messages({"color": "green", "size": "big", "code": "A", "deep": [{"n": 1}, {"n": 4}]}, schema)

    assert found == [
        "spec.name: Required value",
        'spec.color: Unsupported value: "green": supported values: "red", "blue"',
        'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"',
        "spec.code: Invalid value: \"A\": spec.code in body should match '^[a-z]+$'",
        "spec.deep[1].n: Invalid value: 4: spec.deep[1].n in body should be less than or equal to 3",
    ]
