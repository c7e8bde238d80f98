"""minValues for the packing engine: every way to buy a node stands for enough instance types at once.

A node must keep so many different types (or families, zones, …) open that all hold what is on it. So a way to buy one
is given the room that its own type and the most similar others have in common, the most of any of them of what limits
count, and the price of the cheapest. Whatever the engine puts there then keeps minValues. That a smaller room might do
with other companions is lost; types that many others dominate lose nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawhorse_model.labels import CAPACITY_TYPE, ZONE
from sawhorse_scheduling.arrays import BoolArray, FloatArray, IntArray, any_along
from sawhorse_scheduling.pools import PoolTable

Marks = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Spots:
    """Offerings of one pool that are not reserved, P of them, and which items each serves as bits of `marks`."""

    type_of: IntArray  # (P,)
    column_of: IntArray  # (P,)
    price: FloatArray  # (P,) best
    search: FloatArray  # (P,) what is minimised
    marks: Marks  # (P, bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What K ways to buy a node stand for; those that are not `possible` have too few companions."""

    possible: BoolArray  # (K,)
    room: IntArray  # (K, R)
    taken: IntArray  # (K, L)
    price: FloatArray  # (K,)
    search: FloatArray  # (K,)


def with_choice(
    pool: PoolTable, room: IntArray, spots: Spots, chosen: IntArray, wanted: Mapping[bytes, Mapping[str, int]]
) -> Choice:
    """Give each of some spots its companions.

    Args:
        room: (T, R) what pods may use of each type.
        chosen: (K,) positions in `spots`.
        wanted: per row of marks, how many values of each label there must be.
    """
    types = spots.type_of[chosen]
    result = Choice(
        np.ones(len(chosen), dtype=np.bool_),
        room[types],
        pool.capacity[types],
        spots.price[chosen],
        spots.search[chosen],
    )
    marks = [row.tobytes() for row in spots.marks[chosen]]
    for mark in sorted(set(marks)):
        mine = np.array([m == mark for m in marks], dtype=np.bool_)
        bits = np.frombuffer(mark, dtype=np.uint8)
        # Companions serve every item that the spot serves, whichever of those come to be on the node.
        serving = np.flatnonzero(np.logical_and.reduce((spots.marks & bits) == bits, axis=1))
        _of_mark(pool, room, spots, serving, types[mine], np.flatnonzero(mine), wanted[mark], result)
    return result


def _of_mark(
    pool: PoolTable,
    room: IntArray,
    spots: Spots,
    serving: IntArray,
    types: IntArray,
    rows: IntArray,
    wanted: Mapping[str, int],
    result: Choice,
) -> None:
    """Fill in the rows of spots that serve the same items."""
    others = np.unique(spots.type_of[serving])
    size = (pool.capacity[others] / np.maximum(pool.capacity.max(axis=0, initial=1), 1)).sum(axis=1)
    others = others[np.lexsort((others, size))]  # the smallest first: limits count the largest of a node's types
    likeness = _likeness(room[types], room[others])
    likeness[pool.exotic[others][None, :] & ~pool.exotic[types][:, None]] = -1.0
    cheapest = []
    for amount in (spots.price, spots.search):
        least = np.full(len(room), np.inf)
        np.minimum.at(least, spots.type_of[serving], amount[serving])
        cheapest.append(least)
    for key, number in wanted.items():
        found, enough = _most_alike(likeness, _members(pool, key, spots, serving, others), number)
        result.possible[rows] &= enough
        for nth in range(found.shape[1]):
            company = others[found[:, nth]]
            result.room[rows] = np.minimum(result.room[rows], room[company])
            result.taken[rows] = np.maximum(result.taken[rows], pool.capacity[company])
            result.price[rows] = np.minimum(result.price[rows], cheapest[0][company])
            result.search[rows] = np.minimum(result.search[rows], cheapest[1][company])


def _likeness(mine: IntArray, theirs: IntArray) -> FloatArray:
    """(K, O) which part of its room a type keeps beside another; 1 where the other has as much of everything."""
    kept = np.ones((len(mine), len(theirs)))
    for resource in range(mine.shape[1]):
        own = np.maximum(mine[:, resource], 1)[:, None]
        kept = np.minimum(kept, np.where(mine[:, resource][:, None] > 0, theirs[:, resource][None, :] / own, 1.0))
    return kept


def _members(pool: PoolTable, key: str, spots: Spots, serving: IntArray, others: IntArray) -> BoolArray:
    """(O, V) which types have which value of a label."""
    if key not in (ZONE, CAPACITY_TYPE):
        return pool.members[key][others]
    side = 0 if key == ZONE else 1
    values = sorted({column[side] for column in pool.columns})
    number = np.array([values.index(column[side]) for column in pool.columns], dtype=np.int64)
    there = np.zeros((len(pool.types), len(values)), dtype=np.bool_)
    there[spots.type_of[serving], number[spots.column_of[serving]]] = True
    return there[others]


def _most_alike(likeness: FloatArray, members: BoolArray, number: int) -> tuple[IntArray, BoolArray]:
    """For each row, the types that bring `number` different values at the least loss, and whether there are so many."""
    there = np.flatnonzero(any_along(members, 0))
    if len(there) < number:
        return np.zeros((len(likeness), 0), dtype=np.int64), np.zeros(len(likeness), dtype=np.bool_)
    # The first type of each value; where several bring one, as for all labels but the type's name, the most alike.
    which = np.broadcast_to(members[:, there].argmax(axis=0), (len(likeness), len(there))).copy()
    for at in np.flatnonzero(members[:, there].sum(axis=0) > 1).tolist():
        having = np.flatnonzero(members[:, there[at]])
        which[:, at] = having[likeness[:, having].argmax(axis=1)]
    best = np.take_along_axis(likeness, which, axis=1)
    order = np.lexsort((which, -best))[:, :number]
    enough: BoolArray = np.take_along_axis(best, order, axis=1).min(axis=1, initial=1.0) > 0
    return np.take_along_axis(which, order, axis=1), enough
