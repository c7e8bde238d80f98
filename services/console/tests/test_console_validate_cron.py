"""Cron lines of budgets: what is read, what is refused and why, when windows are open."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawhorse_console.validate.cron import WEEK, CronError, parse_cron, spoken_windows

HOURS = timedelta(hours=1)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("0 0 * * sat-sun", "day of week range sat-sun begins after it ends; write sat,sun"),
        ("0 0 * * FRI-mon", "write fri-sat,sun-mon"),
        ("0 0 * * 5-1", "write 5-6,0-1"),
        ("0 22-6 * * *", "hour range 22-6 begins after it ends; write 22-23,0-6"),
        ("0 0 1 oct-feb *", "month range oct-feb begins after it ends; write oct-dec,jan-feb"),
        ("0 0 * * 7", "day of week 7 is beyond 6; Sunday is 0"),
        ("0 0 * * 1-7", "day of week 7 is beyond 6; Sunday is 0"),
        ("60 0 * * *", "minute 60 is not from 0 to 59"),
        ("0 24 * * *", "hour 24"),
        ("0 0 0 * *", "day of month 0 is not from 1 to 31"),
        ("0 0 1 13 *", "month 13"),
        ("x 0 * * *", "minute 'x' is no number"),
        ("1--2 0 * * *", "cannot be read"),
        ("*/0 0 * * *", "a step of 0 goes nowhere"),
        ("0 0 * *", "has 4 fields"),
        ("TZ=UTC 0 1 * * *", "schedules are in UTC"),
        ("@dailyjunk", "is none of @yearly"),
        ("@every 1h", "has 2 fields"),
        ("", "has 0 fields"),
    ],
)
def test_a_line_that_cannot_be_read_says_which_part_and_what_to_write(line: str, part: str) -> None:
    with pytest.raises(CronError) as caught:
        parse_cron(line)

    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("line", "gap"),
    [
        ("* * * * *", timedelta(minutes=1)),
        ("*/15 * * * *", timedelta(minutes=15)),
        ("1/20 * * * *", timedelta(minutes=20)),
        ("@hourly", HOURS),
        ("@daily", 24 * HOURS),
        ("@midnight", 24 * HOURS),
        ("0 9-17 * * *", 16 * HOURS),
        ("0 9 * * mon-fri", 72 * HOURS),
        ("@weekly", 168 * HOURS),
        ("0 0 15 * 1", 168 * HOURS),  # either kind of day is enough
        ("@monthly", timedelta(days=31)),
        ("@yearly", timedelta(days=366)),
        ("@annually", timedelta(days=366)),
        ("0 0 29 2 *", timedelta(days=1461)),
        ("0 0 30 2 *", None),
    ],
)
def test_the_longest_gap_is_known_over_all_calendars(line: str, gap: timedelta | None) -> None:
    assert parse_cron(line).longest_gap() == gap


def test_names_lists_and_question_marks_are_read() -> None:
    cron = parse_cron("0,30 8-10/2 ? JAN,jul Mon-wed")

    assert (cron.minutes, cron.hours, cron.months) == ({0, 30}, {8, 10}, {1, 7})
    assert cron.on(date(2026, 7, 6))  # a Monday
    assert not cron.on(date(2026, 7, 9))
    assert not cron.on(date(2026, 8, 3))


@pytest.mark.parametrize(
    ("line", "duration", "spoken"),
    [
        ("0 1 * * mon", 4 * HOURS, "Mon 01:00 - Mon 05:00 UTC"),
        ("0 22 * * sat", 4 * HOURS, "Sat 22:00 - Sun 02:00 UTC"),
        ("0 8 * * 1-3", 26 * HOURS, "Mon 08:00 - Thu 10:00 UTC"),
        ("0 8 * * *", HOURS, "Sun 08:00 - Sun 09:00, Mon 08:00 - Mon 09:00, Tue 08:00 - Tue 09:00 and 4 more UTC"),
    ],
)
def test_windows_of_a_week_are_said_in_words(line: str, duration: timedelta, spoken: str) -> None:
    assert spoken_windows(parse_cron(line).active_minutes(duration)) == spoken


@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    weekday=st.integers(0, 6),
    length=st.integers(1, 2 * WEEK),
)
def test_a_window_is_open_for_as_long_as_it_lasts_and_a_week_at_most(
    minute: int, hour: int, weekday: int, length: int
) -> None:
    active = parse_cron(f"{minute} {hour} * * {weekday}").active_minutes(timedelta(minutes=length))

    assert active.bit_count() == min(length, WEEK)
    assert active >> (weekday * 1440 + hour * 60 + minute) & 1
