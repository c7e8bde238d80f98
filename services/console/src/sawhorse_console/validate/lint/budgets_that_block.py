"""Budgets that never let a node go."""

from collections.abc import Iterator

from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.budgets import ALWAYS, PATH, REASONS, by_outcome, read_budgets
from sawhorse_console.validate.lint.subject import Subject, Surroundings


def budgets_that_block(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Reasons for which the budgets that allow no node are active all the time, alone or one after another."""
    budgets = [b for b in read_budgets(subject) if b.allows_none and not b.problem]
    outcomes: dict[str, str] = {}
    for reason in REASONS:
        about = [b for b in budgets if b.covers(reason)]
        closed = 0
        for budget in about:
            closed |= budget.active
        outcomes[reason] = ", ".join(f"{PATH}[{b.index}]" for b in about) if closed == ALWAYS else ""
    for reasons, places in by_outcome(outcomes):
        text = f"never lets a node go for {reasons}: such nodes are never replaced; allow some, or add a schedule"
        yield Finding("BudgetBlocks", places, text)
