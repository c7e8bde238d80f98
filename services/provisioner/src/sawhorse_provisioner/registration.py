"""What a Node must carry to be one of ours, and when it is complete. Pure: Node JSON and claim in, patch out."""

from collections.abc import Mapping
from typing import Any

from sawhorse_kube.kinds import NODECLAIM
from sawhorse_model.labels import (
    DO_NOT_SYNC_TAINTS,
    INITIALIZED,
    REGISTERED,
    TERMINATION_FINALIZER,
    UNREGISTERED_TAINT,
)
from sawhorse_model.manifests.fields import taint_to_raw
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.taints import NO_EXECUTE, NO_SCHEDULE, is_ephemeral

Raw = Mapping[str, Any]

RESOURCE_NOT_REGISTERED = "ResourceNotRegistered"
MULTIPLE_NODES = "MultipleNodesFound"


def registration_patch(node: Raw, claim: NodeClaim, *, lift: bool) -> dict[str, Any]:
    """The merge patch that registers a Node, locked to the version read; empty when nothing is missing.

    Finalizer, owner, labels, annotations and taints of the claim go onto the Node; the claim wins. With `lift` the
    taint that has kept pods off is removed and the Node is labelled as registered.

    Args:
        node: the Node as the API gives it: lists are replaced whole, so nothing in them may be lost.
    """
    meta: Raw = node.get("metadata") or {}
    labels: Raw = meta.get("labels") or {}
    changes: dict[str, Any] = {}
    finalizers = list(meta.get("finalizers") or ())
    if TERMINATION_FINALIZER not in finalizers:
        changes["finalizers"] = [*finalizers, TERMINATION_FINALIZER]
    owners = list(meta.get("ownerReferences") or ())
    if not any(o.get("uid") == claim.meta.uid for o in owners):
        changes["ownerReferences"] = [*owners, _owner(claim)]
    wanted = {**claim.meta.labels, **({REGISTERED: "true"} if lift else {})}
    if missing := {k: v for k, v in wanted.items() if labels.get(k) != v}:
        changes["labels"] = missing
    annotations: Raw = meta.get("annotations") or {}
    if missing := {k: v for k, v in claim.meta.annotations.items() if annotations.get(k) != v}:
        changes["annotations"] = missing
    patch: dict[str, Any] = {"metadata": changes} if changes else {}
    before = list((node.get("spec") or {}).get("taints") or ())
    taints = _taints(before, claim, labels, lift=lift)
    if taints != before:
        patch["spec"] = {"taints": taints}
    if patch:
        patch.setdefault("metadata", {})["resourceVersion"] = meta.get("resourceVersion", "")
    return patch


def _owner(claim: NodeClaim) -> dict[str, Any]:
    return {
        "apiVersion": NODECLAIM.api_version,
        "kind": NODECLAIM.name,
        "name": claim.meta.name,
        "uid": claim.meta.uid,
        "blockOwnerDeletion": True,
    }


def _taints(before: list[dict[str, Any]], claim: NodeClaim, labels: Raw, *, lift: bool) -> list[dict[str, Any]]:
    taints = list(before)
    # Once registered the startup taints are somebody's to remove: they must not come back.
    if labels.get(DO_NOT_SYNC_TAINTS) != "true" and labels.get(REGISTERED) != "true":
        present = {(t.get("key"), t.get("effect")) for t in taints}
        taints += [taint_to_raw(t) for t in (*claim.taints, *claim.startup_taints) if (t.key, t.effect) not in present]
    return [t for t in taints if t.get("key") != UNREGISTERED_TAINT] if lift else taints


def softening_patch(node: Raw) -> dict[str, Any]:
    """The patch that makes the taint which keeps pods off one that evicts none; empty when it is so already.

    The controller that evicts hears of pods and of nodes on two streams. It would end a pod that was bound the moment
    the taint was lifted, if it read of the pod first.
    """
    before = list((node.get("spec") or {}).get("taints") or ())
    taints = [{**t, "effect": NO_SCHEDULE} if t.get("key") == UNREGISTERED_TAINT else t for t in before]
    if taints == before:
        return {}
    version = (node.get("metadata") or {}).get("resourceVersion", "")
    return {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}


def evicts_as_unregistered(node: Node) -> bool:
    """Whether the taint is there as kubelet registers with it."""
    return any(t.key == UNREGISTERED_TAINT and t.effect == NO_EXECUTE for t in node.taints)


def lacks_unregistered_taint(node: Node) -> bool:
    """Whether the node came up open to pods before we had seen it: its user data does not do its part."""
    return not node.is_registered and all(t.key != UNREGISTERED_TAINT for t in node.taints)


def initialization_patch(node: Node) -> dict[str, Any]:
    """The label that says the node is complete; empty when it is there."""
    return {} if node.is_initialized else {"metadata": {"labels": {INITIALIZED: "true"}}}


def missing_for_initialization(
    node: Node, claim: NodeClaim, plugins: Mapping[str, str] | None = None
) -> tuple[str, str] | None:
    """Reason and message of what a registered node still lacks; None when it is complete.

    Args:
        plugins: resource → what brings it to a node, for the message.
    """
    if not node.is_ready:
        return "NodeNotReady", f"Node {node.meta.name} is not Ready"
    startup = {(t.key, t.effect) for t in claim.startup_taints}
    if left := [str(t) for t in node.taints if (t.key, t.effect) in startup]:
        return "StartupTaintsExist", f"Waiting for startup taints to be removed: {', '.join(left)}"
    if left := [str(t) for t in node.taints if is_ephemeral(t)]:
        return "KnownEphemeralTaintsExist", f"Waiting for taints of a starting node to go: {', '.join(left)}"
    if missing := missing_resources(node, claim):
        named = (f"{name} (needs {plugin})" if (plugin := (plugins or {}).get(name)) else name for name in missing)
        return RESOURCE_NOT_REGISTERED, f"Node {node.meta.name} does not offer yet: {', '.join(named)}"
    return None


def missing_resources(node: Node, claim: NodeClaim) -> list[str]:
    """Resources that the claim asks for and the node does not offer, by name."""
    return sorted(k for k, v in claim.requests.items() if v > 0 and not node.allocatable.get(k))
