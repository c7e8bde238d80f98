"""What a planned node says that it costs; part of the plan checker."""

from collections.abc import Iterator, Mapping

from sawhorse_model.instances import InstanceType, Offering
from sawhorse_scheduling.plan import PlannedNode


def check_prices(node: PlannedNode, listed: list[InstanceType], offers: Mapping[str, list[Offering]]) -> Iterator[str]:
    """Types are listed cheapest first, and the node's prices are those of its offerings."""
    least = [min(o.price for o in offers[t.name]) for t in listed]
    if least != sorted(least):
        yield f"{node.name}: types are not listed cheapest first"
    here = [o for o in offers[listed[0].name] if o.zone == node.zone and o.capacity_type == node.capacity_type]
    if not here or min(o.price for o in here) != node.price_per_hour or node.price_per_hour != min(least):
        yield f"{node.name}: its price is not that of its cheapest offering"
    every = [o for found in offers.values() for o in found]
    spot = [o.price for o in every if o.capacity_type == "spot"]
    prices = spot or [o.price for o in every]
    expected = sum(prices) / len(prices) if spot else min(prices)
    if abs(expected - node.expected_price_per_hour) > 1e-9 or abs(max(prices) - node.worst_price_per_hour) > 1e-9:
        yield f"{node.name}: expected or worst price is wrong"
