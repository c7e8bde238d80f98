"""Packing counted pods onto new nodes at the lowest price: arrays in, arrays out.

It knows no pods, labels or Kubernetes: classes with counts, columns (ways to buy a node) with capacity and price, and
which class may go where. `pack` gives nodes, what found no place, and a proven lower bound.
"""

from sawhorse_scheduling.packing.engine import pack
from sawhorse_scheduling.packing.problem import Effort, NodeGroup, NodeRules, PackedNode, Packing, PackingProblem

__all__ = ["Effort", "NodeGroup", "NodeRules", "PackedNode", "Packing", "PackingProblem", "pack"]
