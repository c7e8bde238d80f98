"""Advice about objects that an API server takes: a module per lint, all listed in `LINTS`.

A lint is a function from one object and the rest of what is known to findings, all of them warnings.
"""

from collections.abc import Callable, Iterator

from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.budget_gaps import budget_gaps
from sawhorse_console.validate.lint.budget_schedules import budget_schedules
from sawhorse_console.validate.lint.budgets_that_block import budgets_that_block
from sawhorse_console.validate.lint.contradictions import contradictions
from sawhorse_console.validate.lint.fits_nothing import fits_nothing
from sawhorse_console.validate.lint.image_pins import image_pins
from sawhorse_console.validate.lint.kubelet_values import kubelet_values
from sawhorse_console.validate.lint.overlapping_pools import overlapping_pools
from sawhorse_console.validate.lint.selector_terms import selector_terms
from sawhorse_console.validate.lint.subject import Subject, Surroundings
from sawhorse_console.validate.lint.unknown_labels import unknown_labels
from sawhorse_console.validate.lint.unknown_values import unknown_values
from sawhorse_console.validate.lint.unusable import unusable

Lint = Callable[[Subject, Surroundings], Iterator[Finding]]

LINTS: tuple[Lint, ...] = (
    unusable,
    unknown_labels,
    unknown_values,
    contradictions,
    fits_nothing,
    overlapping_pools,
    budget_schedules,
    budgets_that_block,
    budget_gaps,
    image_pins,
    selector_terms,
    kubelet_values,
)


def lint(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """Everything that the lints have to say about an object."""
    for check in LINTS:
        yield from check(subject, surroundings)


__all__ = ["LINTS", "Lint", "Subject", "Surroundings", "lint"]
