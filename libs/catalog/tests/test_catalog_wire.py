"""Messages of the catalogue service: what goes over the wire comes back equal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawhorse_catalog.builtin import builtin_catalog
from sawhorse_catalog.wire import (
    instance_type_from_message,
    instance_type_to_message,
    requirements_from_messages,
    requirements_to_messages,
)
from sawhorse_model.requirements import NUMERIC, Operator, Requirement, Requirements
from sawhorse_proto.catalog.v1 import catalog_pb2
from sawhorse_testing.catalog import an_instance_type, an_offering


def entries(operator: Operator) -> st.SearchStrategy[Requirement]:
    values = (
        st.integers(-5, 5).map(lambda n: [str(n)])
        if operator in NUMERIC
        else st.lists(st.sampled_from(["a", "b", "1", "2"]), max_size=3)
    )
    return st.builds(Requirement.of, st.sampled_from(["x", "y"]), st.just(operator), values)


def test_every_built_in_type_comes_back_equal() -> None:
    types = builtin_catalog().instance_types[::20]

    back = [
        instance_type_from_message(catalog_pb2.InstanceType.FromString(instance_type_to_message(t).SerializeToString()))
        for t in types
    ]

    assert len(back) > 50
    assert back == list(types)


def test_an_offering_comes_back_with_all_its_fields() -> None:
    reserved = an_offering(capacity_type="reserved", available=False, reservation_id="cr-1", reservation_count=3)
    instance_type = an_instance_type(offerings=[reserved])

    assert instance_type_from_message(instance_type_to_message(instance_type)) == instance_type


@given(st.lists(st.sampled_from(Operator).flatmap(entries), max_size=5))
def test_requirements_come_back_equal_whatever_their_operators(listed: list[Requirement]) -> None:
    requirements = Requirements(listed)

    assert requirements_from_messages(requirements_to_messages(requirements)) == requirements


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (catalog_pb2.Requirement(operator="In"), "has no key"),
        (catalog_pb2.Requirement(key="a", operator="Is"), "a: 'Is' is not an operator"),
        (catalog_pb2.Requirement(key="a", operator="Gt", values=["x"]), "exactly one integer"),
    ],
)
def test_a_requirement_that_makes_no_sense_is_refused_by_its_key(message: catalog_pb2.Requirement, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        requirements_from_messages([message])
