"""Times and reasons without a budget. Budgets only restrict: where none is active there is no limit."""

from collections.abc import Iterator

from sawhorse_console.validate.cron import spoken_windows
from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.budgets import ALWAYS, PATH, REASONS, ReadBudget, by_outcome, read_budgets
from sawhorse_console.validate.lint.subject import POOL, Subject, Surroundings


def budget_gaps(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Reasons that have no limit at some time, with the times that do have one."""
    if subject.kind != POOL or not subject.is_ours:
        return
    budgets = read_budgets(subject)
    if not budgets:
        text = "an empty list means no limit: all nodes may be disrupted at once; leave it out to mean 10%"
        yield Finding("BudgetGap", PATH, text)
    # One that cannot be read closes the pool: the lint of schedules says so.
    if not budgets or any(b.problem for b in budgets):
        return
    outcomes = {reason: _outcome([b for b in budgets if b.covers(reason)]) for reason in REASONS}
    for reasons, outcome in by_outcome(outcomes):
        text = f"{reasons}: no budget {outcome}there is no limit then; add a budget without a schedule"
        yield Finding("BudgetGap", PATH, " ".join(text.split()))


def _outcome(budgets: list[ReadBudget]) -> str:
    """When there is none, as the middle of a sentence; empty when there always is one."""
    active = 0
    for budget in budgets:
        active |= budget.active
    if active == ALWAYS:
        return ""
    odd = [f"'{b.raw['schedule']}' for {b.raw['duration']}" for b in budgets if not b.active]
    windows = ([spoken_windows(active)] if active else []) + odd
    return f"outside {', '.join(windows)}; " if windows else "at any time; "
