"""A label that must exist and may not have some values: neither half may be lost."""

import pytest

from sawhorse_model.requirements import Operator, Requirement, Requirements

EXISTS = Requirement.of("team", "Exists")
NOT_A = Requirement.of("team", "NotIn", ("a",))
NOT_5 = Requirement.of("team", "NotIn", ("5",))
ABOVE_3 = Requirement.of("team", "Gt", ("3",))


@pytest.mark.parametrize("parts", [(EXISTS, NOT_A), (NOT_A, EXISTS), (ABOVE_3, NOT_5), (NOT_5, ABOVE_3)])
def test_a_label_that_must_exist_is_not_served_where_it_is_unknown(parts: tuple[Requirement, Requirement]) -> None:
    wants = Requirements(parts)

    assert wants["team"].operator is Operator.EXISTS
    assert not Requirements().is_compatible(wants)
    assert not Requirements((Requirement.of("team", "DoesNotExist"),)).is_compatible(wants)
    assert Requirements((Requirement.of("team", "In", ("7",)),)).is_compatible(wants)


def test_exclusions_alone_are_still_served_where_the_label_is_unknown() -> None:
    wants = Requirements((NOT_A, NOT_5))

    assert Requirements().is_compatible(wants)


@pytest.mark.parametrize("parts", [(EXISTS, NOT_A), (ABOVE_3, NOT_5), (EXISTS, NOT_A, NOT_5), (EXISTS, ABOVE_3)])
def test_what_is_written_says_the_same_when_it_is_read_again(parts: tuple[Requirement, ...]) -> None:
    wants = Requirements(parts)

    assert Requirements.from_specs(wants.to_specs()) == wants
    assert Requirements(reversed(parts)) == wants
