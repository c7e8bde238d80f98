"""Cron lines of disruption budgets: five fields or a macro, in UTC. Pure.

The dialect is the one that budgets are read with: day of week 0-6 from Sunday, names for months and days, `a-b`,
`*/n`, `a/n`, lists. A line that this module refuses allows no disruption at all.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

WEEK = 7 * 24 * 60  # minutes
_DAYS_OF_WEEK = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART = re.compile(r"(?:(?P<all>[*?])|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d+))?", re.ASCII)
# Weekdays and leap days repeat after 28 years (2000 was a leap year, 2100 is beyond this).
_CYCLE_START, _CYCLE_DAYS = date(2001, 1, 1), 28 * 365 + 7


class CronError(ValueError):
    """A line cannot be read. The text says which part and what to write."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    words: Mapping[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, {word: number for number, word in enumerate(_MONTHS, 1)}),
    _Field("day of week", 0, 6, {word: number for number, word in enumerate(_DAYS_OF_WEEK)}),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A line that was read. `any_day` and `any_weekday`: that field is not restricted (a star)."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    @property
    def is_weekly(self) -> bool:
        """Whether all weeks are alike."""
        return self.any_day and len(self.months) == 12

    def on(self, day: date) -> bool:
        """Whether it hits on this day. With both kinds of day restricted, either is enough."""
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_month and by_week) if self.any_day or self.any_weekday else (by_month or by_week)

    def active_minutes(self, duration: timedelta) -> int:
        """The minutes of a week, from Sunday 0:00, in which a window is open, as bits. Only for weekly lines."""
        hits = 0
        for weekday in self.weekdays:
            for hour in self.hours:
                for minute in self.minutes:
                    hits |= 1 << (weekday * 1440 + hour * 60 + minute)
        span, wanted = 1, min(int(duration.total_seconds() // 60), WEEK)
        if wanted == 0:
            return 0
        while span < wanted:  # each round doubles what a hit opens
            step = min(span, wanted - span)
            hits |= _turned(hits, step)
            span += step
        return hits

    def longest_gap(self) -> timedelta | None:
        """The longest time from one hit to the next; None when it never hits."""
        times = sorted(hour * 60 + minute for hour in self.hours for minute in self.minutes)
        inside = max((after - before for before, after in pairwise(times)), default=0)
        days = [n for n in range(_CYCLE_DAYS) if self.on(_CYCLE_START + timedelta(days=n))]
        if not days:
            return None
        apart = [after - before for before, after in pairwise(days)]
        apart.append(days[0] + _CYCLE_DAYS - days[-1])
        return timedelta(minutes=max(inside, max(apart) * 1440 + times[0] - times[-1]))


def _turned(bits: int, by: int) -> int:
    full = (1 << WEEK) - 1
    return ((bits << by) & full) | (bits >> (WEEK - by))


def parse_cron(line: str) -> Cron:
    """Read a line.

    Raises:
        CronError: it cannot be read.
    """
    words = line.split()
    if words and words[0].upper().startswith(("TZ=", "CRON_TZ=")):
        raise CronError(f"{words[0]}: schedules are in UTC; leave the time zone out and shift the hours")
    if len(words) == 1 and words[0].startswith("@"):
        if words[0] not in _MACROS:
            raise CronError(f"{words[0]} is none of {', '.join(_MACROS)}")
        words = _MACROS[words[0]].split()
    if len(words) != len(_FIELDS):
        raise CronError(f"has {len(words)} fields; write minute, hour, day of month, month and day of week")
    minutes, hours, days, months, weekdays = (
        frozenset(_values(field, word)) for field, word in zip(_FIELDS, words, strict=True)
    )
    return Cron(minutes, hours, days, months, weekdays, any_day=_is_any(words[2]), any_weekday=_is_any(words[4]))


def _is_any(word: str) -> bool:
    return any(part in ("*", "?") for part in word.split(","))


def _values(field: _Field, word: str) -> Iterator[int]:
    for part in word.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise CronError(f"{field.name} {part!r} cannot be read; write a number, a range such as 1-5, or *")
        step = int(match["step"] or 1)
        if step == 0:
            raise CronError(f"{field.name} {part!r}: a step of 0 goes nowhere; write 1 or more")
        if match["all"]:
            low, high = field.low, field.high
        else:
            low = _number(field, match["low"])
            # `a/n` goes on to the end, `a` alone is one value.
            high = _number(field, match["high"]) if match["high"] else field.high if match["step"] else low
        if low > high:
            raise CronError(f"{field.name} range {part} begins after it ends; write {_unwrapped(field, match)}")
        yield from range(low, high + 1, step)


def _number(field: _Field, word: str) -> int:
    value = field.words.get(word.lower())
    if value is None and word.isdecimal():
        value = int(word)
    if value is None:
        raise CronError(f"{field.name} {word!r} is no number from {field.low} to {field.high}")
    if field.name == "day of week" and value == 7:
        raise CronError("day of week 7 is beyond 6; Sunday is 0")
    if not field.low <= value <= field.high:
        raise CronError(f"{field.name} {word} is not from {field.low} to {field.high}")
    return value


def _unwrapped(field: _Field, match: re.Match[str]) -> str:
    """The two ranges that a range round the end stands for."""
    names = {number: word for word, number in field.words.items()} if match["low"].lower() in field.words else {}
    first, last = names.get(field.low, str(field.low)), names.get(field.high, str(field.high))
    parts = ((match["low"].lower(), last), (first, match["high"].lower()))
    return ",".join(low if low == high else f"{low}-{high}" for low, high in parts)


def spoken_windows(active: int, most: int = 3) -> str:
    """The open windows of a week in words, such as `Mon 01:00 - Mon 05:00 UTC`."""
    starts = active & ~_turned(active, 1)
    found = []
    for minute in range(WEEK):
        if starts >> minute & 1:
            end = minute
            while active >> (end % WEEK) & 1:
                end += 1
            found.append(f"{_moment(minute)} - {_moment(end % WEEK)}")
    shown = ", ".join(found[:most])
    return f"{shown}{f' and {len(found) - most} more' if len(found) > most else ''} UTC"


def _moment(minute: int) -> str:
    return f"{_DAYS_OF_WEEK[minute // 1440].title()} {minute // 60 % 24:02}:{minute % 60:02}"
