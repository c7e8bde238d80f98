"""Which pools have nothing to launch: no instance type of their NodeClass meets them with an available offering.

Known from the last snapshot; looked at again only when pool or types are other ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sawhorse_model.instances import InstanceType
from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_model.requirements import Requirements
from sawhorse_scheduling.pools import pool_template
from sawhorse_scheduling.snapshot import Pool

INSTANCE_TYPES_AVAILABLE = "InstanceTypesAvailable"
NO_COMPATIBLE_INSTANCE_TYPES = "NoCompatibleInstanceTypes"
"""Reason of the condition, and of the Event on the pool."""

_LISTED = 5


@dataclass(frozen=True, slots=True)
class _Looked:
    generation: int
    types: tuple[InstanceType, ...]
    message: str


class PoolTypes:
    """Remembers what was found for each pool."""

    def __init__(self) -> None:
        self._looked: dict[str, _Looked] = {}

    def look(self, pools: Iterable[Pool], *, strict: bool) -> list[tuple[Pool, str]]:
        """The pools that have nothing to launch, each with why. Pools that are not among these are forgotten.

        Args:
            strict: whether a pool whose minValues cannot be met has nothing either.
        """
        looked: dict[str, _Looked] = {}
        empty: list[tuple[Pool, str]] = []
        for pool in pools:
            name, generation = pool.nodepool.meta.name, pool.nodepool.meta.generation
            before = self._looked.get(name)
            if before is None or before.generation != generation or before.types is not pool.instance_types:
                before = _Looked(generation, pool.instance_types, nothing_to_launch(pool, strict=strict))
            looked[name] = before
            if before.message:
                empty.append((pool, before.message))
        self._looked = looked
        return empty

    def why_empty(self, pool: str) -> str | None:
        """Why the pool has nothing to launch; empty: it has; None: not known."""
        found = self._looked.get(pool)
        return found.message if found is not None else None


def nothing_to_launch(pool: Pool, *, strict: bool = True) -> str:
    """Why no type of the pool can be launched: where, what, what to do. Empty when there is one."""
    template = pool_template(pool)
    minima = {key: r.min_values for key, r in sorted(template.items()) if r.min_values} if strict else {}
    meeting: list[InstanceType] = []
    on_offer: list[InstanceType] = []
    for kind in pool.instance_types:
        if template.intersects(kind.requirements):
            if any(o.available and o.allowed_by(template) for o in kind.offerings):
                if not minima:
                    return ""  # as a rule one of the first: the rest need not be looked at
                on_offer.append(kind)
            meeting.append(kind)
    if on_offer:
        return _short_of_values(template, minima, on_offer)
    if meeting:
        sold = sorted({o.zone for kind in meeting for o in kind.offerings})
        return (
            f"{_some([kind.name for kind in meeting])} meet the requirements, but have no available offering: sold in "
            f"{_some(sold) or 'no zone'}, out of capacity or without a subnet there; allow more types or zones"
        )
    return f"spec.template.spec.requirements: none of {len(pool.instance_types)} instance types meets them" + _at_fault(
        template, pool.instance_types
    )


def _short_of_values(template: Requirements, minima: Mapping[str, int], types: Sequence[InstanceType]) -> str:
    """The first key of which fewer values are on offer than minValues asks for."""
    for key, minimum in minima.items():
        if key in (ZONE, CAPACITY_TYPE):
            offers = [o for t in types for o in t.offerings if o.available and o.allowed_by(template)]
            values = {o.zone if key == ZONE else o.capacity_type.value for o in offers}
        else:
            values = {v for t in types if (r := t.requirements.get(key)) is not None for v in r.values}
        values = {v for v in values if template[key].has(v)}
        if len(values) < minimum:
            return (
                f"minValues of {key} is {minimum}, {len(values)} are on offer ({_some(sorted(values))}); "
                "lower it, or allow more"
            )
    return ""


def _at_fault(template: Requirements, types: Sequence[InstanceType]) -> str:
    for key in sorted(template):
        alone = Requirements((template[key],))
        if types and not any(kind.requirements.intersects(alone) for kind in types):
            values = sorted({v for kind in types if (r := kind.requirements.get(key)) is not None for v in r.values})
            return f"; {template[key]} is asked, the types have {_some(values) or 'nothing'}"
    return "" if types else "; its NodeClass has none"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
