"""Errors: one shape for every package's tree, one line for a person."""

from __future__ import annotations

from enum import StrEnum

import pytest

from sawhorse_runtime.errors import (
    Retry,
    SettingsError,
    UnavailableError,
    as_failure,
    describe,
    reason_of,
    retry_of,
)


class OtherRetry(StrEnum):
    """As another package has it, which does not import ours."""

    NEVER = "never"


class ForeignError(Exception):
    reason = "InsufficientCapacity"
    retry = OtherRetry.NEVER
    action = "Allow more types."


class LookalikeError(Exception):
    reason = "timeout"
    retry = 3
    action = ""


def test_an_error_of_another_tree_with_the_same_shape_is_a_failure() -> None:
    error = ForeignError("no capacity")

    assert as_failure(error) is error
    assert retry_of(error) is Retry.NEVER
    assert reason_of(error) == "InsufficientCapacity"


def test_an_error_that_only_has_the_attribute_names_is_none() -> None:
    assert as_failure(LookalikeError("x")) is None
    assert reason_of(LookalikeError("x")) == "InternalError"


def test_an_error_that_says_nothing_is_worth_another_try() -> None:
    assert retry_of(KeyError("x")) is Retry.BACKOFF


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UnavailableError("redis is away", action="Start it."), "redis is away. Start it."),
        (ForeignError("no capacity."), "no capacity. Allow more types."),
        (KeyError("zone"), "KeyError: 'zone'"),
        (ValueError(), "ValueError"),
        (RuntimeError("two\n  lines"), "RuntimeError: two lines"),
        (SettingsError(["a: b", "c: d"]), "a: b; c: d"),
        (
            ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [ValueError("a"), UnavailableError("b")])]),
            "ValueError: a, and b",
        ),
    ],
)
def test_describe_gives_one_readable_line(error: BaseException, line: str) -> None:
    assert describe(error) == line


def test_describe_is_bounded() -> None:
    assert len(describe(ValueError("x" * 100_000))) == 600
