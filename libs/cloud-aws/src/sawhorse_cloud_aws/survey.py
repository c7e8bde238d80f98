"""Which instance types a NodeClass's own fields rule out, counted and explained in a condition of its status.

A field such as `spec.cpuOptions.coreCount` may leave few types of many. Pools would then shrink without a word; the
condition says how many are left, what took the others, and names some of each.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from sawhorse_catalog.aws.compatibility import incompatibility
from sawhorse_catalog.aws.node_class import ClassView, class_view
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_cloud.errors import CloudError
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.meta import Condition

COMPATIBLE = "InstanceTypesCompatible"
NONE_LEFT = "NoCompatibleInstanceTypes"
FRESH_SECONDS = 12 * 3600.0
_EXAMPLES = 3
_REASONS = 8

FetchFacts = Callable[[], Awaitable[Sequence[InstanceFacts]]]


@dataclass(frozen=True, slots=True)
class Survey:
    """Types in the region, and why some of them are ruled out: reason → names, sorted."""

    total: int
    excluded: Mapping[str, tuple[str, ...]]

    @property
    def left(self) -> int:
        """Types that the NodeClass can use."""
        return self.total - sum(len(names) for names in self.excluded.values())

    def condition(self) -> Condition:
        """The condition, without time and generation."""
        if not self.excluded:
            return Condition(COMPATIBLE, "True", "AllCompatible")
        ranked = sorted(self.excluded.items(), key=lambda entry: (-len(entry[1]), entry[0]))
        parts = [f"{len(names)}: {reason} ({_some(names)})" for reason, names in ranked[:_REASONS]]
        if rest := ranked[_REASONS:]:
            parts.append(f"{sum(len(names) for _, names in rest)} for {len(rest)} other reasons")
        text = f"{self.left} of {self.total} instance types can be used; ruled out are {'; '.join(parts)}"
        if self.left:
            return Condition(COMPATIBLE, "True", "SomeExcluded", text)
        return Condition(COMPATIBLE, "False", NONE_LEFT, text)


def survey(facts: Sequence[InstanceFacts], view: ClassView) -> Survey:
    """What the fields of a NodeClass rule out. Types that no NodeClass could use are not counted at all. Pure."""
    plain = ClassView(family=view.family)
    usable = [fact for fact in facts if fact.zones and not incompatibility(fact, plain)]
    excluded: dict[str, list[str]] = {}
    for fact in usable:
        if reason := incompatibility(fact, view):
            excluded.setdefault(reason, []).append(fact.name)
    return Survey(len(usable), {reason: tuple(sorted(names)) for reason, names in excluded.items()})


def asks_for_more(view: ClassView) -> bool:
    """Whether the NodeClass has a field that may rule types out; without one nothing need be looked up."""
    return bool(
        view.interfaces
        or view.nested_virtualization
        or view.core_count is not None
        or view.threads_per_core is not None
        or view.connection_tracking
        or view.placement_strategy
    )


class InstanceTypeSurveyor:
    """Surveys NodeClasses over EC2's own list, asked for at most twice a day and only if a NodeClass needs it."""

    def __init__(self, *, fetch: FetchFacts, monotonic: Callable[[], float]) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._facts: Sequence[InstanceFacts] = ()
        self._fetched = 0.0
        self._lock = asyncio.Lock()

    async def condition(self, node_class: EC2NodeClass, *, placement_strategy: str = "") -> Condition:
        """The condition of a NodeClass. It stays True when EC2's list cannot be had: not to know is no fault of it."""
        view = class_view(node_class, placement_strategy=placement_strategy)
        if not asks_for_more(view):
            return Condition(COMPATIBLE, "True", "AllCompatible")
        try:
            facts = await self._known()
        except CloudError as error:
            text = f"not looked at which instance types can be used: {error} {error.action}".strip()
            return Condition(COMPATIBLE, "True", "NotLookedAt", text)
        return survey(facts, view).condition()

    async def _known(self) -> Sequence[InstanceFacts]:
        async with self._lock:
            if not self._facts or self._monotonic() - self._fetched >= FRESH_SECONDS:
                try:
                    self._facts = tuple(await self._fetch())
                except CloudError:
                    if not self._facts:
                        raise
                # After a failure too: an old list is better than a call at every look.
                self._fetched = self._monotonic()
            return self._facts


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_EXAMPLES])
    return shown if len(names) <= _EXAMPLES else f"{shown}, …"
