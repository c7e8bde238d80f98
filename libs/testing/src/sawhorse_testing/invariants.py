"""What must be so once a cluster has come to rest, whatever happened before. Over raw objects, so that the same rules
judge the fakes and a real API server.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sawhorse_model.labels import DISRUPTED_TAINT, UNREGISTERED_TAINT

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance that costs money."""

    id: str
    token: str


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster at one moment.

    Args:
        pods: those that workloads want, and no others: no daemons, no static pods.
        explained: keys of pods that may wait, as somebody was told why.
    """

    pods: Sequence[Raw]
    nodes: Sequence[Raw]
    claims: Sequence[Raw]
    machines: Sequence[Machine]
    explained: frozenset[str] = frozenset()


def problems(scene: Scene, *, pods: int) -> list[str]:
    """One line for each thing that is wrong; empty when all is as it must be.

    Args:
        pods: how many the workloads want.
    """
    return [
        *_pods(scene, pods),
        *_nodes(scene),
        *_claims(scene),
        *_machines(scene),
    ]


def _pods(scene: Scene, wanted: int) -> Iterable[str]:
    nodes = {_name(n): n for n in scene.nodes}
    if len(scene.pods) != wanted:
        yield f"{len(scene.pods)} pods are there, {wanted} are wanted"
    for pod in scene.pods:
        key = f"{pod['metadata'].get('namespace', '')}/{_name(pod)}"
        node = (pod.get("spec") or {}).get("nodeName", "")
        if pod["metadata"].get("deletionTimestamp"):
            yield f"pod {key} is still ending"
        elif not node and key not in scene.explained:
            yield f"pod {key} has neither a node nor a reason"
        elif node and node not in nodes:
            yield f"pod {key} is on node {node}, which is not there"


def _nodes(scene: Scene) -> Iterable[str]:
    provided = {_provider_id(c, "status") for c in scene.claims}
    used = {(p.get("spec") or {}).get("nodeName", "") for p in scene.pods}
    for node in scene.nodes:
        spec = node.get("spec") or {}
        taints = {t.get("key") for t in spec.get("taints") or ()}
        if node["metadata"].get("deletionTimestamp"):
            yield f"node {_name(node)} is still being deleted, with {node['metadata'].get('finalizers')}"
        if stuck := taints & {UNREGISTERED_TAINT, DISRUPTED_TAINT}:
            yield f"node {_name(node)} keeps {', '.join(sorted(stuck))}"
        if spec.get("unschedulable"):
            yield f"node {_name(node)} is still cordoned"
        if spec.get("providerID") not in provided:
            yield f"node {_name(node)} has no claim"
        elif _name(node) not in used:
            yield f"node {_name(node)} holds no pod"


def _claims(scene: Scene) -> Iterable[str]:
    nodes = {(n.get("spec") or {}).get("providerID", "") for n in scene.nodes}
    alive = {m.id for m in scene.machines}
    owners: dict[str, list[str]] = {}
    for claim in scene.claims:
        name, provider_id = _name(claim), _provider_id(claim, "status")
        if claim["metadata"].get("deletionTimestamp"):
            yield f"claim {name} is still being deleted, with {claim['metadata'].get('finalizers')}"
        if not provider_id:
            yield f"claim {name} has no machine"
            continue
        owners.setdefault(provider_id, []).append(name)
        if provider_id.rsplit("/", 1)[-1] not in alive:
            yield f"claim {name} has a machine that is not alive: {provider_id}"
        elif provider_id not in nodes:
            yield f"claim {name} has no node"
    for provider_id, names in owners.items():
        if len(names) > 1:
            yield f"claims {', '.join(sorted(names))} have the same machine: {provider_id}"


def _machines(scene: Scene) -> Iterable[str]:
    held = {_provider_id(c, "status").rsplit("/", 1)[-1] for c in scene.claims}
    for machine in scene.machines:
        if machine.id not in held:
            yield f"instance {machine.id} of token {machine.token} belongs to no claim"


def _name(raw: Raw) -> str:
    return str(raw["metadata"]["name"])


def _provider_id(raw: Raw, part: str) -> str:
    return str((raw.get(part) or {}).get("providerID") or "")
