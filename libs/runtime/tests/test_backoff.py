"""Back-off grows per key and is deterministic given a generator."""

from __future__ import annotations

import random

import pytest

from sawhorse_runtime.backoff import Backoff


def test_delays_grow_per_key_up_to_the_maximum_and_start_again_after_reset() -> None:
    backoff = Backoff(1.0, factor=2, maximum=5.0, jitter=0.0)

    delays = [backoff.next("a") for _ in range(4)]
    other = backoff.next("b")
    backoff.reset("a")

    assert delays == [1.0, 2.0, 4.0, 5.0]
    assert other == 1.0
    assert backoff.next("a") == 1.0


def test_equal_generators_give_equal_delays_that_differ_by_the_jitter() -> None:
    one, two = (Backoff(10.0, maximum=1000.0, jitter=0.1, rng=random.Random(7)) for _ in range(2))

    delays = [one.next(key) for key in range(50)]

    assert delays == [two.next(key) for key in range(50)]
    assert len(set(delays)) == 50
    assert all(9.0 <= delay <= 11.0 for delay in delays)


def test_a_key_that_fails_for_ever_does_not_overflow() -> None:
    backoff = Backoff(1.0, maximum=300.0)

    delays = [backoff.next("a") for _ in range(5000)]

    assert max(delays) <= 300.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial": 0.0},
        {"initial": 9.0, "maximum": 1.0},
        {"initial": 1.0, "factor": 0.5},
        {"initial": 1.0, "jitter": 1.0},
    ],
)
def test_figures_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="need"):
        Backoff(**wrong)
