"""Every kind of the table goes to JSON and back unchanged."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sawhorse_model.manifests import PARSERS
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.nodeclass import NodeClass
from sawhorse_state.codec import TYPES, decode, encode
from sawhorse_state.errors import StateFormatError

TEXT = st.text(max_size=8)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001  hypothesis adds the zone
    max_value=datetime(9000, 1, 1),  # noqa: DTZ001  hypothesis adds the zone
    timezones=st.just(UTC),
)
LENGTHS = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36500))
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=5,
)
SIMPLE: Mapping[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: INTEGERS,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    datetime: TIMES,
    timedelta: LENGTHS,
    type(None): st.none(),
    Any: JSON,
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type as the model declares it."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in SIMPLE:
        return SIMPLE[hint]
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(values_of, args))
    if origin is tuple:
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    if origin is frozenset:
        return st.frozensets(values_of(args[0]), max_size=2)
    if origin is Mapping:
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=2)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    assert dataclasses.is_dataclass(hint), f"no strategy for {hint}"
    hints = get_type_hints(hint)
    return st.builds(hint, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(hint)})


@pytest.mark.parametrize("kind", sorted(TYPES))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_object_of_a_kind_comes_back_equal(kind: str, data: st.DataObject) -> None:
    obj = data.draw(values_of(TYPES[kind]))

    assert decode(kind, encode(obj)) == obj


def test_every_kind_that_can_be_read_from_the_api_has_a_type() -> None:
    assert sorted(TYPES) == sorted(PARSERS)


def test_a_kind_that_is_not_named_is_a_node_class_of_another_cloud() -> None:
    made = NodeClass(ObjectMeta("default"), "karpenter.k8s.gcp", "GCENodeClass", spec={"a": [1, {"b": None}]})

    assert decode("GCENodeClass", encode(made)) == made


def test_what_another_version_wrote_is_named_as_unreadable() -> None:
    with pytest.raises(StateFormatError, match="a Pod in the mirror cannot be read"):
        decode("Pod", b'{"meta": 1}')
