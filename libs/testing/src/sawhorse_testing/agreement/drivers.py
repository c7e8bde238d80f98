"""Parts of a node that the sandbox's kubelets lack: an agent that lifts a startup taint, and a volume driver.

The driver makes a volume where kube-scheduler has chosen a node for a claim, and says how many a node takes.
"""

import asyncio
from typing import NoReturn

from sawhorse_kube.api import Kube
from sawhorse_kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from sawhorse_kube.kinds import CSINODE, NODE, PV, PVC
from sawhorse_model.labels import UNREGISTERED_TAINT, ZONE
from sawhorse_model.manifests import Raw
from sawhorse_testing.agreement.surroundings import volume
from sawhorse_testing.agreement.workload import AGENT_TAINT, DRIVER

SELECTED_NODE = "volume.kubernetes.io/selected-node"
ATTACHMENTS = 24  # volumes that a node takes
STARTS = 10.0  # seconds that an agent takes from a node that is ready and open to the moment at which it is at work
_LOOK = 0.2  # seconds between looks; a claim holds its pod's binding up


async def play_drivers(kube: Kube) -> NoReturn:
    """Work until cancelled."""
    seen: set[str] = set()
    begun: dict[str, float] = {}  # by node
    while True:
        for raw in (await kube.list_raw(NODE)).objects:
            await _lift(kube, raw, begun)
            await _announce(kube, raw, seen)
        for raw in (await kube.list_raw(PVC)).objects:
            await _provide(kube, raw)
        await asyncio.sleep(_LOOK)


async def _lift(kube: Kube, node: Raw, begun: dict[str, float]) -> None:
    """The agent takes its taint away once it is at work."""
    name, now = node["metadata"]["name"], asyncio.get_running_loop().time()
    taints = list((node.get("spec") or {}).get("taints") or ())
    kept = [t for t in taints if t["key"] != AGENT_TAINT]
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or ())
    is_open = all(t["key"] != UNREGISTERED_TAINT for t in taints)
    if kept == taints or not (ready and is_open) or now - begun.setdefault(name, now) < STARTS:
        return
    lock = {"resourceVersion": node["metadata"]["resourceVersion"]}
    try:
        await kube.patch(NODE, name, {"metadata": lock, "spec": {"taints": kept}})
    except (ConflictError, NotFoundError):
        return  # looked at again at once


async def _announce(kube: Kube, node: Raw, seen: set[str]) -> None:
    name = node["metadata"]["name"]
    if name in seen:
        return
    seen.add(name)
    driver = {"name": DRIVER, "nodeID": name, "topologyKeys": [ZONE], "allocatable": {"count": ATTACHMENTS}}
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    try:
        await kube.create(
            CSINODE, {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"drivers": [driver]}}
        )
    except AlreadyExistsError:
        return


async def _provide(kube: Kube, claim: Raw) -> None:
    meta, spec = claim["metadata"], claim["spec"]
    node_name = (meta.get("annotations") or {}).get(SELECTED_NODE, "")
    if not node_name or spec.get("volumeName"):
        return
    try:
        node = await kube.get_raw(NODE, node_name)
    except NotFoundError:
        return
    made = volume(f"pvc-{meta['uid']}", node["metadata"]["labels"][ZONE], spec["storageClassName"])
    made["spec"]["claimRef"] = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
    try:
        await kube.create(PV, made)
    except AlreadyExistsError:
        return  # the binder is at it
