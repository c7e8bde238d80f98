"""Stands in for the cloud controller's node lifecycle: deletes Nodes whose instance does not exist any more."""

import asyncio
from collections.abc import Mapping
from typing import NoReturn

import structlog

from sawhorse_sandbox.kubelet.api import ApiError, KubeApi
from sawhorse_sandbox.kubelet.machines import Node
from sawhorse_sandbox.kubelet.node import Instance

log = structlog.get_logger(__name__)

_PERIOD = 1.0  # seconds between looks
_PREFIX = "aws:///"


class CloudNodes:
    """Issues one delete per Node; finalizers on it are for others to lift."""

    def __init__(self, api: KubeApi, nodes: Mapping[str, Node], delay: float) -> None:
        self._api = api
        self._nodes = nodes
        self._delay = delay
        self._instances: Mapping[str, Instance] = {}
        self._gone_since: dict[str, float] = {}  # Node uid to when its instance was first missed
        self._deleted: set[str] = set()
        self.listed = asyncio.Event()

    def apply(self, instances: Mapping[str, Instance]) -> None:
        """Take a new list of instances."""
        self._instances = instances
        self.listed.set()

    async def run(self) -> NoReturn:
        """Look once a second until cancelled."""
        await self.listed.wait()
        while True:
            now = asyncio.get_running_loop().time()
            orphans = {node.metadata.uid: node for node in self._nodes.values() if self._is_orphan(node)}
            self._gone_since = {uid: self._gone_since.get(uid, now) for uid in orphans}
            self._deleted &= orphans.keys()
            for uid, node in orphans.items():
                overdue = now - self._gone_since[uid] >= self._delay
                if overdue and uid not in self._deleted and node.metadata.deletion_timestamp is None:
                    await self._delete(node)
            await asyncio.sleep(_PERIOD)

    def _is_orphan(self, node: Node) -> bool:
        if not node.spec.provider_id.startswith(_PREFIX):
            return False
        instance = self._instances.get(node.spec.provider_id.rpartition("/")[2])
        return instance is None or instance.state == "terminated"

    async def _delete(self, node: Node) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": node.metadata.uid}}
        try:
            await self._api.request("DELETE", f"/api/v1/nodes/{node.metadata.name}", body)
        except ApiError as err:
            if err.status not in (404, 409):
                log.warning("node cannot be deleted", node=node.metadata.name, error=str(err))
                return
        self._deleted.add(node.metadata.uid)
        log.info("deleted the node of a terminated instance", node=node.metadata.name)
