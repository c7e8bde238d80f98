"""A pool's disruption budgets, read for the lints: when each is active, and for which reasons."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sawhorse_console.validate.cron import WEEK, CronError, parse_cron
from sawhorse_console.validate.lint.subject import POOL, Subject
from sawhorse_model.manifests.fields import parse_duration

REASONS = ("Underutilized", "Empty", "Drifted")
ALWAYS = (1 << WEEK) - 1
PATH = "spec.disruption.budgets"


@dataclass(frozen=True, slots=True)
class ReadBudget:
    """One budget. `active`: the minutes of a week in which it counts, as bits (see `Cron.active_minutes`).

    A schedule with days of the month or months has no week: it counts as never active unless its windows leave no gap.
    `problem` says why a schedule cannot be used; such a budget allows nothing, ever.
    """

    index: int
    raw: Mapping[str, Any]
    active: int
    problem: str = ""

    def covers(self, reason: str) -> bool:
        """Whether it is about a reason."""
        reasons = self.raw.get("reasons")
        return reasons is None or reason in reasons

    @property
    def allows_none(self) -> bool:
        """Whether it lets no node go while it is active."""
        return int(self.raw["nodes"].removesuffix("%")) == 0


def read_budgets(subject: Subject) -> Sequence[ReadBudget]:
    """The budgets of a pool; none for other kinds."""
    if subject.kind != POOL or not subject.is_ours:
        return ()
    budgets = subject.spec["disruption"].get("budgets") or ()
    return [_read(index, raw) for index, raw in enumerate(budgets)]


def _read(index: int, raw: Mapping[str, Any]) -> ReadBudget:
    if "schedule" not in raw:
        return ReadBudget(index, raw, ALWAYS)
    try:
        cron = parse_cron(raw["schedule"])
    except CronError as error:
        return ReadBudget(index, raw, ALWAYS, str(error))
    duration = parse_duration(raw["duration"], "duration")
    if cron.is_weekly:
        return ReadBudget(index, raw, cron.active_minutes(duration))
    gap = cron.longest_gap()
    return ReadBudget(index, raw, ALWAYS if gap is not None and gap <= duration else 0)


def by_outcome(outcomes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Reasons with the same outcome together: (`Empty, Drifted`, outcome), empty outcomes left out."""
    groups: dict[str, list[str]] = {}
    for reason, outcome in outcomes.items():
        if outcome:
            groups.setdefault(outcome, []).append(reason)
    for outcome, reasons in groups.items():
        yield ", ".join(reasons), outcome
