"""Schedules of budgets that cannot be read, or whose time never comes."""

from collections.abc import Iterator

from sawhorse_console.validate.cron import parse_cron
from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.budgets import PATH, read_budgets
from sawhorse_console.validate.lint.subject import Subject, Surroundings


def budget_schedules(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Schedules that an API server takes and no cron reader does, lists of reasons that hold none."""
    for budget in read_budgets(subject):
        where = f"{PATH}[{budget.index}]"
        schedule = budget.raw.get("schedule")
        if budget.problem:
            text = f"{schedule!r}: {budget.problem}. As it is, no node of the pool may be disrupted at any time"
            yield Finding("BudgetSchedule", f"{where}.schedule", text)
        elif schedule is not None and not budget.active and parse_cron(schedule).longest_gap() is None:
            text = f"{schedule!r} never comes; the budget has no effect, write days that exist"
            yield Finding("BudgetSchedule", f"{where}.schedule", text)
        if budget.raw.get("reasons") == []:
            text = "an empty list is about no reason, so the budget has no effect; leave it out to mean all"
            yield Finding("BudgetReasons", f"{where}.reasons", text)
