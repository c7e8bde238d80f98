"""NodeRegistrationHealthy: whether the last nodes of a pool came to be. For people and dashboards; it blocks nothing.

The last four outcomes count; two failures among them make it False. A change of the pool or of its NodeClass starts
anew. A claim that is deleted for lack of capacity is no outcome.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sawhorse_model.meta import Condition, find_condition
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.nodepool import NodePool
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.writes import Judgement

NODE_REGISTRATION_HEALTHY = "NodeRegistrationHealthy"

REMEMBERED = 4
TOO_MANY = 2


@dataclass(slots=True)
class _Record:
    uid: str
    outcomes: deque[bool] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    reason: str = ""  # of the last failure
    message: str = ""

    def adopt(self, known: Condition | None) -> None:
        """Take over what the pool's condition says."""
        if known is not None and known.status == "True":
            self.outcomes.append(True)
        elif known is not None and known.status == "False":
            self.outcomes.extend([False] * TOO_MANY)
            self.reason, self.message = known.reason, known.message


class PoolHealth:
    """Outcomes by pool, of a leader's term; at its start as the pool's condition says.

    Args:
        changed: told the name of a pool that has a new outcome.
    """

    def __init__(self, *, state: ClusterState, changed: Callable[[str], None]) -> None:
        self._state = state
        self._changed = changed
        self._records: dict[str, _Record] = {}  # by name of the pool

    def record(self, claim: NodeClaim, failure: tuple[str, str] | None = None) -> None:
        """A claim's node has registered, or the claim is given up: then reason and message."""
        pool = self._state.pool(claim.nodepool)
        if pool is None or all(owner.uid != pool.meta.uid for owner in claim.meta.owners):
            return
        record = self._of(pool)
        record.outcomes.append(failure is None)
        if failure is not None:
            record.reason, record.message = failure
        self._changed(pool.meta.name)

    def judgement(self, pool: NodePool, node_class: NodeClass | None) -> Judgement:
        """The condition as it is to be now."""
        known = find_condition(pool.conditions, NODE_REGISTRATION_HEALTHY)
        record = self._of(pool)
        changed = known is not None and known.observed_generation != pool.meta.generation
        if node_class is not None and pool.node_class_observed_generation:
            changed = changed or node_class.meta.generation != pool.node_class_observed_generation
        if changed:
            record.outcomes.clear()
        elif not record.outcomes:
            record.adopt(known)  # what another leader saw, who may still be at work, is not contradicted
        if not record.outcomes:
            message = "No node has registered or failed to since the pool or its NodeClass changed"
            return Judgement(NODE_REGISTRATION_HEALTHY, "Unknown", "AwaitingReconciliation", message)
        if record.outcomes.count(False) >= TOO_MANY:
            return Judgement(NODE_REGISTRATION_HEALTHY, "False", record.reason, record.message)
        return Judgement(NODE_REGISTRATION_HEALTHY, "True")

    def forget(self, pool: str) -> None:
        """A pool that is gone."""
        self._records.pop(pool, None)

    def _of(self, pool: NodePool) -> _Record:
        record = self._records.get(pool.meta.name)
        if record is None or record.uid != pool.meta.uid:
            record = self._records[pool.meta.name] = _Record(pool.meta.uid)
            record.adopt(find_condition(pool.conditions, NODE_REGISTRATION_HEALTHY))
        return record
