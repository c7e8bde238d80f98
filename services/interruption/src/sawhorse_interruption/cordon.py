"""Step `cordoned`: taint, `unschedulable` and the label that takes the node out of load balancers, in one patch."""

from typing import Any

import structlog

from sawhorse_kube.api import Kube
from sawhorse_kube.errors import ConflictError, NotFoundError
from sawhorse_kube.kinds import NODE
from sawhorse_model.labels import DISRUPTED_TAINT, EXCLUDE_BALANCERS
from sawhorse_model.manifests import Raw
from sawhorse_model.node import Node
from sawhorse_model.taints import NO_SCHEDULE

log = structlog.get_logger(__name__)

BALANCER_VALUE = "karpenter"  # Karpenter's; only the key counts
TRIES = 8  # a kubelet writes its node every few seconds, and controllers do when a node gets in trouble


async def cordon(kube: Kube, node_name: str, provider_id: str) -> Node | None:
    """Cordon the node of an instance. May be repeated: a cordoned node is not written.

    Returns:
        The node as it is now; None when there is none of this name and instance.
    Raises:
        ConflictError: others kept changing it.
        KubeError: Kubernetes does not answer.
    """
    for attempt in range(TRIES):
        try:
            raw = await kube.get_raw(NODE, node_name)
            if raw.get("spec", {}).get("providerID") != provider_id:
                return None  # the name was given to another instance
            body = cordon_patch(raw)
            node: Node = NODE.parse(raw) if body is None else await kube.patch(NODE, node_name, body)
        except NotFoundError:
            return None
        except ConflictError:
            if attempt == TRIES - 1:
                raise
            continue
        if body is not None:
            log.info("node cordoned", node=node_name)
        return node
    raise AssertionError("the last attempt returns or raises")


def is_cordoned(node: Node) -> bool:
    """Whether nothing is left to write; by the model, so from the mirror too."""
    return (
        node.unschedulable
        and any(t.key == DISRUPTED_TAINT and t.effect == NO_SCHEDULE for t in node.taints)
        and EXCLUDE_BALANCERS in node.meta.labels
    )


def cordon_patch(raw: Raw) -> dict[str, Any] | None:
    """The merge patch that cordons a node, with its resourceVersion as a lock; None when it is cordoned.

    Works on the API's JSON: a merge patch replaces the whole list of taints, and the model drops some of their fields.
    """
    spec, metadata = raw.get("spec") or {}, raw["metadata"]
    taints = list(spec.get("taints") or ())
    ours = {"key": DISRUPTED_TAINT, "effect": NO_SCHEDULE}
    tainted = [t for t in taints if t.get("key") == DISRUPTED_TAINT]
    is_tainted = len(tainted) == 1 and tainted[0].get("effect") == NO_SCHEDULE
    is_labelled = EXCLUDE_BALANCERS in (metadata.get("labels") or {})
    if is_tainted and is_labelled and spec.get("unschedulable") is True:
        return None
    kept = [t for t in taints if t.get("key") != DISRUPTED_TAINT]
    body: dict[str, Any] = {
        "metadata": {"resourceVersion": metadata["resourceVersion"]},
        "spec": {"unschedulable": True, "taints": taints if is_tainted else [*kept, ours]},
    }
    if not is_labelled:
        body["metadata"]["labels"] = {EXCLUDE_BALANCERS: BALANCER_VALUE}
    return body
