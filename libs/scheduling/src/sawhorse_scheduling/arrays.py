"""Array types and the resource axis: which column of a matrix is which resource."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]

# "No bound" in counts of pods: larger than any count, small enough that sums of some stay in int64.
UNBOUNDED = 2**40

ATTACHABLE = "attachable-volumes/"  # prefix of the planner's own resources: attachments per CSI driver


@dataclass(frozen=True, slots=True)
class Axis:
    """The resources that somebody asks for, in sorted order. Others cannot decide anything."""

    names: tuple[str, ...]

    @classmethod
    def over(cls, requests: Iterable[Mapping[str, int]]) -> "Axis":
        """The axis of all resources with a positive request."""
        return cls(tuple(sorted({name for asked in requests for name, value in asked.items() if value > 0})))

    def vector(self, resources: Mapping[str, int]) -> IntArray:
        """(R,) amounts; a missing entry is zero."""
        return np.array([resources.get(name, 0) for name in self.names], dtype=np.int64)

    def matrix(self, rows: Iterable[Mapping[str, int]]) -> IntArray:
        """(len(rows), R) amounts."""
        data = [[row.get(name, 0) for name in self.names] for row in rows]
        return np.array(data, dtype=np.int64).reshape(len(data), len(self.names))

    def mapping(self, vector: IntArray) -> dict[str, int]:
        """A vector as a resource map, zeros and the planner's own resources left out."""
        return {
            name: int(value)
            for name, value in zip(self.names, vector, strict=True)
            if value and not name.startswith(ATTACHABLE)
        }


def times(available: IntArray, requests: IntArray) -> IntArray:
    """How often each request fits: floor(available / request), the least over the resources asked for.

    Args:
        available: (..., R); a negative amount of anything asked for gives zero.
        requests: (..., R), broadcast against `available`.
    Returns:
        (...,) counts, UNBOUNDED where nothing is asked for.
    """
    asked = requests > 0
    counts = np.where(asked, np.maximum(available, 0) // np.where(asked, requests, 1), UNBOUNDED)
    least: IntArray = counts.min(axis=-1, initial=UNBOUNDED)
    return least


def share(requests: IntArray, available: IntArray) -> FloatArray:
    """The largest fraction of any resource that each request takes (inf where a resource is not there)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        fractions = np.where(requests > 0, requests / np.maximum(available, 0), 0.0)
    largest: FloatArray = fractions.max(axis=-1, initial=0.0)
    return largest


def any_along(mask: BoolArray, axis: int) -> BoolArray:
    """Whether any entry along an axis is true."""
    found: BoolArray = np.logical_or.reduce(mask, axis=axis)
    return found


def all_along(mask: BoolArray, axis: int) -> BoolArray:
    """Whether all entries along an axis are true."""
    found: BoolArray = np.logical_and.reduce(mask, axis=axis)
    return found
