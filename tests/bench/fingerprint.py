"""`python tests/bench/fingerprint.py WORKLOAD`: a word that is equal where plans are equal, pod by pod.

For comparing runs: other processes, other machines, busy ones.
"""

import hashlib
import sys

from workloads import workload

from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.solve import solve


def fingerprint(plan: Plan) -> str:
    """A hash of everything that a plan decides."""
    decided = (
        [(n.nodepool, n.instance_types, n.zone, n.capacity_type, n.price_per_hour, n.pods) for n in plan.new_nodes],
        [(n.name, n.pods) for n in plan.existing_nodes],
        [(u.pods, u.message) for u in plan.unschedulable],
        plan.lower_bound_per_hour,
    )
    return hashlib.sha256(repr(decided).encode()).hexdigest()


if __name__ == "__main__":
    print(fingerprint(solve(workload(sys.argv[1]))))
