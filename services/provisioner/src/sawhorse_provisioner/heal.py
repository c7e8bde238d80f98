"""At the start of a term: take back taints that no command, deletion or interruption explains any more."""

import structlog

from sawhorse_kube.api import Kube
from sawhorse_kube.errors import KubeError
from sawhorse_kube.kinds import NODE
from sawhorse_model.labels import DISRUPTED_TAINT, EXCLUDE_BALANCERS, INTERRUPTED_AT
from sawhorse_model.node import Node
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)


def is_unexplained(node: Node, state: ClusterState) -> bool:
    """Whether a node of ours carries the disruption taint for no reason that still holds."""
    if node.meta.is_deleting or all(t.key != DISRUPTED_TAINT for t in node.taints):
        return False
    claim = state.claim_of(node)
    return claim is not None and not claim.meta.is_deleting and INTERRUPTED_AT not in claim.meta.annotations


async def heal_taints(kube: Kube, state: ClusterState) -> int:
    """Untaint such nodes; returns how many. One that cannot be healed does not stop the rest."""
    healed = 0
    for node in state.nodes():
        if not is_unexplained(node, state):
            continue
        try:
            raw = await kube.get_raw(NODE, node.meta.name)
            if not is_unexplained(NODE.parse(raw), state):
                continue
            body = {
                "metadata": {
                    "resourceVersion": raw["metadata"]["resourceVersion"],
                    "labels": {EXCLUDE_BALANCERS: None},
                },
                "spec": {"taints": [t for t in raw["spec"].get("taints") or () if t.get("key") != DISRUPTED_TAINT]},
            }
            state.note(NODE, await kube.patch(NODE, node.meta.name, body))
        except KubeError as error:
            log.warning("node not healed", node=node.meta.name, error=describe(error))
            continue
        log.info("disruption taint removed, as nothing explains it", node=node.meta.name)
        healed += 1
    return healed
