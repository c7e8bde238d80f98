"""What a spot node is likely to cost: EC2 chooses among all that a claim lists, and not simply the cheapest.

It weighs price against how much capacity a pool (type and zone) has. So a list should be long enough that one pool
that runs dry does not stop a launch, and no longer: each dear type on it makes the node dearer on average.
"""

import numpy as np

from sawhorse_scheduling.arrays import BoolArray, FloatArray, IntArray

# A spot node lists types up to NEAR times its best price, and dearer ones while it has fewer than SPOT_POOLS pools.
NEAR = 1.25
SPOT_POOLS = 15
# Where the expected price is minimised it lists no more than those, and none above this many times its best price.
LITTLE = 1.5


def worth_listing(prices: FloatArray, *, lean: bool) -> int:
    """How many types, the cheapest first, a spot node lists.

    Args:
        prices: (N, S) of types, cheapest first, in the spot columns; inf where there is no offering.
        lean: no more than are needed, however near in price they are, and none that costs much more.
    """
    offered = np.isfinite(prices)
    least = prices.min(axis=1, initial=np.inf)
    best = float(least.min(initial=np.inf))
    pools_before = np.cumsum(offered.sum(axis=1)) - offered.sum(axis=1)
    few = pools_before < SPOT_POOLS
    kept = few & (least <= best * LITTLE) if lean else few | (least <= best * NEAR)
    beyond = np.flatnonzero(~kept & np.isfinite(least))
    return int(beyond[0]) if len(beyond) else len(prices)


def expected_prices(price: FloatArray, spot: BoolArray, room: IntArray) -> FloatArray:
    """(T, C) prices with those of spot as EC2's choice would make them for a node that is as large as the type.

    Such a node lists all types that hold at least as much. A zone that is dearer than the type's cheapest stays so by
    the same part.

    Args:
        price: (T, C), inf where there is no offering.
        spot: (C,) which columns are spot.
        room: (T, R) what each type holds.
    """
    found = price.copy()
    offered = np.where(spot[None, :], price, np.inf)
    least = offered.min(axis=1, initial=np.inf)
    order = np.argsort(least, kind="stable")
    order = order[np.isfinite(least[order])]
    for kind in order:
        holds = order[(room[order] >= room[kind][None, :]).all(axis=1)]
        listed = offered[holds[: worth_listing(offered[holds], lean=True)]]
        mean = float(listed[np.isfinite(listed)].mean())
        found[kind, spot] = mean * price[kind, spot] / max(float(least[kind]), np.finfo(float).tiny)
    return found
