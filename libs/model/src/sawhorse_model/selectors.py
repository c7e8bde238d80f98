"""Label selectors: which objects a rule is about. A missing selector selects nothing, an empty one everything."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SelectorExpression:
    """One expression; operators In, NotIn, Exists, DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy the expression. NotIn is true where the label is absent."""
        present = self.key in labels
        match self.operator:
            case "In":
                return present and labels[self.key] in self.values
            case "NotIn":
                return not present or labels[self.key] not in self.values
            case "Exists":
                return present
            case "DoesNotExist":
                return not present
            case _:
                return False


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All expressions must match; `matchLabels` are kept as In with one value."""

    expressions: tuple[SelectorExpression, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether every expression matches."""
        return all(e.matches(labels) for e in self.expressions)

    def with_labels(self, labels: Mapping[str, str]) -> "LabelSelector":
        """A copy that also asks for these labels."""
        more = tuple(SelectorExpression(k, "In", (v,)) for k, v in sorted(labels.items()))
        return LabelSelector((*self.expressions, *more))
