"""The requirement algebra against brute force: a requirement is the set of label values (or none) it admits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawhorse_model.requirements import (
    LARGEST_INTEGER,
    Operator,
    Requirement,
    Requirements,
    RequirementSpec,
)

KEY = "example.test/k"
# Every listed value, integers around every bound, and values that no requirement lists.
LISTED = ("a", "b", "1", "2", "3")
UNIVERSE = (*LISTED, "z", "-1", "0", "4", "5", "6", "999")
FORGIVING = (Operator.NOT_IN, Operator.DOES_NOT_EXIST)


def admitted(requirement: Requirement) -> set[str]:
    return {value for value in UNIVERSE if requirement.has(value)}


def specs(key: str = KEY) -> st.SearchStrategy[RequirementSpec]:
    minimum = st.none() | st.integers(1, 3)
    lists = st.lists(st.sampled_from(LISTED), min_size=1, max_size=3, unique=True).map(tuple)
    numbers = st.integers(0, 4).map(lambda n: (str(n),))
    return st.one_of(
        st.builds(RequirementSpec, st.just(key), st.sampled_from((Operator.IN, Operator.NOT_IN)), lists, minimum),
        st.builds(
            RequirementSpec, st.just(key), st.sampled_from((Operator.EXISTS, Operator.DOES_NOT_EXIST)), st.just(()),
            minimum,
        ),
        st.builds(
            RequirementSpec,
            st.just(key),
            st.sampled_from((Operator.GT, Operator.LT, Operator.GTE, Operator.LTE)),
            numbers,
            minimum,
        ),
    )  # fmt: skip


def requirements(key: str = KEY) -> st.SearchStrategy[Requirement]:
    return st.lists(specs(key), min_size=1, max_size=3).map(lambda entries: Requirements.from_specs(entries)[key])


def by_operator(spec: RequirementSpec, value: str) -> bool:
    """What a label value means to one operator, spelled out."""
    match spec.operator:
        case Operator.IN:
            return value in spec.values
        case Operator.NOT_IN:
            return value not in spec.values
        case Operator.EXISTS:
            return True
        case Operator.DOES_NOT_EXIST:
            return False
    if not value.lstrip("-").isdigit():
        return False
    number, bound = int(value), int(spec.values[0])
    match spec.operator:
        case Operator.GT:
            return number > bound
        case Operator.LT:
            return number < bound
        case Operator.GTE:
            return number >= bound
    return number <= bound


@given(specs())
def test_each_operator_admits_what_it_says(spec: RequirementSpec) -> None:
    requirement = Requirement.from_spec(spec)

    assert admitted(requirement) == {v for v in UNIVERSE if by_operator(spec, v)}


@given(requirements(), requirements())
def test_an_intersection_admits_exactly_what_both_admit(left: Requirement, right: Requirement) -> None:
    both = left.intersection(right)

    assert admitted(both) == admitted(left) & admitted(right)


@given(requirements(), requirements())
def test_intersection_is_commutative(left: Requirement, right: Requirement) -> None:
    assert left.intersection(right) == right.intersection(left)


@given(requirements(), requirements(), requirements())
def test_intersection_is_associative_in_what_it_admits(a: Requirement, b: Requirement, c: Requirement) -> None:
    first, last = a.intersection(b).intersection(c), a.intersection(b.intersection(c))

    assert admitted(first) == admitted(last)
    assert (first.values, first.complement, first.min_values) == (last.values, last.complement, last.min_values)


@given(requirements())
def test_intersection_with_itself_changes_nothing(requirement: Requirement) -> None:
    assert requirement.intersection(requirement) == requirement


@given(requirements(), requirements())
def test_the_larger_min_values_wins(left: Requirement, right: Requirement) -> None:
    wanted = [m for m in (left.min_values, right.min_values) if m is not None]

    assert left.intersection(right).min_values == max(wanted, default=None)


@given(requirements(), requirements())
def test_intersects_is_true_exactly_where_some_value_serves_both(left: Requirement, right: Requirement) -> None:
    both_open = left.complement and right.complement
    lows = [r.low for r in (left, right) if r.low is not None]
    highs = [r.high for r in (left, right) if r.high is not None]
    crossed = bool(lows and highs and max(lows) > min(highs))

    expected = not crossed if both_open else bool(admitted(left) & admitted(right))

    assert left.intersects(right) == expected


@given(requirements())
def test_entries_written_and_read_again_mean_the_same(requirement: Requirement) -> None:
    again = Requirements.from_specs(requirement.to_specs())[KEY]

    assert admitted(again) == admitted(requirement)
    assert again.min_values == requirement.min_values


def test_a_bounded_exclusion_keeps_its_values_when_written() -> None:
    bounded = Requirement.of(KEY, "Gt", ("0",)).intersection(Requirement.of(KEY, "NotIn", ("2",)))

    operators = [entry.operator for entry in bounded.to_specs()]

    assert operators == [Operator.GTE, Operator.NOT_IN]


def test_numbers_are_compared_as_numbers() -> None:
    more_than_nine = Requirement.of(KEY, "Gt", ("9",))

    assert more_than_nine.has("10")
    assert not more_than_nine.has("9")
    assert not more_than_nine.has("ten")


def test_more_than_the_largest_integer_admits_nothing() -> None:
    assert Requirement.of(KEY, "Gt", (str(LARGEST_INTEGER),)).operator is Operator.DOES_NOT_EXIST


@pytest.mark.parametrize("values", [(), ("1", "2"), ("x",), ("1.5",)])
def test_a_numeric_operator_wants_exactly_one_integer(values: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="exactly one integer"):
        Requirement.of(KEY, Operator.GTE, values)


@given(st.lists(specs("a") | specs("b"), max_size=5), st.lists(specs("a") | specs("b"), max_size=5))
def test_two_sets_meet_unless_a_shared_key_has_no_common_value(
    left: list[RequirementSpec], right: list[RequirementSpec]
) -> None:
    one, other = Requirements.from_specs(left), Requirements.from_specs(right)

    clashes = {
        key
        for key in one.keys() & other.keys()
        if not (one[key].operator in FORGIVING and other[key].operator in FORGIVING)
        and not one[key].intersects(other[key])
    }

    assert one.intersects(other) == (not clashes)
    assert other.intersects(one) == (not clashes)
    conflict = one.conflict(other)
    assert (conflict.key if conflict else None) == min(clashes, default=None)


@given(
    st.lists(specs("a") | specs("b"), max_size=4),
    st.lists(specs("a") | specs("b") | specs("c"), max_size=4),
    st.sets(st.sampled_from(("a", "b", "c"))),
)
def test_an_undefined_key_serves_only_exclusions_unless_it_is_allowed(
    have: list[RequirementSpec], want: list[RequirementSpec], allowed: set[str]
) -> None:
    node, wishes = Requirements.from_specs(have), Requirements.from_specs(want)
    unknown = [k for k, r in wishes.items() if k not in node and k not in allowed and r.operator not in FORGIVING]

    compatible = node.is_compatible(wishes, frozenset(allowed))

    assert compatible == (not unknown and node.intersects(wishes))
    assert (node.incompatibility(wishes, frozenset(allowed)) is None) == compatible


@given(st.lists(specs("a") | specs("b"), max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_entries_does_not_matter(entries: list[RequirementSpec], random: object) -> None:
    shuffled = list(entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert set(Requirements.from_specs(shuffled)) == set(Requirements.from_specs(entries))
    for key in ("a", "b"):
        assert admitted(Requirements.from_specs(shuffled).get_or_any(key)) == admitted(
            Requirements.from_specs(entries).get_or_any(key)
        )


def test_old_label_names_mean_todays() -> None:
    old = Requirement.of("failure-domain.beta.kubernetes.io/zone", "In", ("z1",))

    assert old.key == "topology.kubernetes.io/zone"


def test_labels_are_the_keys_with_one_value() -> None:
    wishes = Requirements([Requirement.of("a", "In", ("1",)), Requirement.of("b", "In", ("1", "2"))])

    assert wishes.labels() == {"a": "1"}


def test_exclusions_of_a_label_meet_even_when_they_exclude_each_other() -> None:
    gone = Requirements([Requirement.of("a", "DoesNotExist")])
    excluded = Requirements([Requirement.of("a", "NotIn", ("1",))])

    assert gone.intersects(excluded)
    assert Requirements().is_compatible(gone)
