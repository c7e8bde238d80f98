"""Launch templates: one per content, named by the hash of the content, collected when idle."""

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.calls import TEMPLATE_NOT_FOUND, call, error_code, pages, tag_list
from sawhorse_cloud_aws.tags import CLUSTER_TAG
from sawhorse_model.aws import GROUP, NODECLASS_LABEL, EC2NodeClass

_EXISTS = frozenset({"InvalidLaunchTemplateName.AlreadyExistsException"})


def template_name(cluster: str, node_class: str, data: Mapping[str, Any]) -> str:
    """The name for a content: equal content, equal name."""
    text = json.dumps([cluster, node_class, data], sort_keys=True, separators=(",", ":"))
    return f"{GROUP}/{int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], 'big')}"


class LaunchTemplates:
    """Ensures and collects launch templates. `ec2` is an SDK client, `monotonic` a clock in seconds."""

    def __init__(self, *, ec2: Any, cluster: str, monotonic: Callable[[], float], idle_seconds: float = 600.0) -> None:
        self._ec2 = ec2
        self._cluster = cluster
        self._monotonic = monotonic
        self._idle_seconds = idle_seconds
        self._known: set[str] = set()
        self._used: dict[str, float] = {}
        # One lock per name: launches of other contents must not wait for this one's calls.
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ensure(self, node_class: EC2NodeClass, data: Mapping[str, Any], tags: Mapping[str, str]) -> str:
        """Name of the template with this content; made if it is not there. May be repeated."""
        name = template_name(self._cluster, node_class.name, data)
        async with self._locks[name]:
            self._used[name] = self._monotonic()
            if name in self._known:
                return name
            try:
                await call(
                    "CreateLaunchTemplate",
                    self._ec2.create_launch_template,
                    LaunchTemplateName=name,
                    LaunchTemplateData=dict(data),
                    TagSpecifications=[{"ResourceType": "launch-template", "Tags": tag_list(tags)}],
                )
            except CloudError as error:
                if error_code(error) not in _EXISTS:
                    raise
            self._known.add(name)
        return name

    def forget(self, names: Iterable[str]) -> None:
        """Somebody deleted them: make them again at the next use."""
        self._known.difference_update(names)

    async def collect(self) -> int:
        """Delete this cluster's templates that nobody used for a while; returns how many went.

        A template first seen here counts as just used: another replica may have made it for a launch under way.
        One that cannot be deleted does not keep the others.

        Raises:
            CloudError: of the first that could not be deleted, after the others.
        """
        names = await self._names({f"tag:{CLUSTER_TAG}": self._cluster})
        now = self._monotonic()
        for name in names:
            self._used.setdefault(name, now)
        for name in self._used.keys() - set(names):
            if self._is_idle(name):
                self._drop(name)
        return await self._delete_all([n for n in names if self._is_idle(n)], only_idle=True)

    async def delete_of(self, node_class: EC2NodeClass) -> None:
        """Delete all templates of a NodeClass."""
        mine = {f"tag:{CLUSTER_TAG}": self._cluster, f"tag:{NODECLASS_LABEL}": node_class.name}
        await self._delete_all(await self._names(mine), only_idle=False)

    def _is_idle(self, name: str) -> bool:
        return self._monotonic() - self._used.get(name, 0.0) >= self._idle_seconds

    def _drop(self, name: str) -> None:
        self._known.discard(name)
        self._used.pop(name, None)
        lock = self._locks.get(name)
        if lock is not None and not lock.locked():
            del self._locks[name]

    async def _names(self, filters: Mapping[str, str]) -> list[str]:
        found = await pages(
            "DescribeLaunchTemplates",
            self._ec2,
            "describe_launch_templates",
            "LaunchTemplates",
            Filters=[{"Name": key, "Values": [value]} for key, value in filters.items()],
        )
        return sorted(t["LaunchTemplateName"] for t in found if t["LaunchTemplateName"].startswith(f"{GROUP}/"))

    async def _delete_all(self, names: Iterable[str], *, only_idle: bool) -> int:
        gone, problem = 0, None
        for name in names:
            try:
                gone += await self._delete(name, only_idle=only_idle)
            except CloudError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return gone

    async def _delete(self, name: str, *, only_idle: bool) -> bool:
        async with self._locks[name]:
            # Looked at again under the lock: a launch may have taken it up while others were deleted.
            if only_idle and not self._is_idle(name):
                return False
            self._known.discard(name)
            try:
                await call("DeleteLaunchTemplate", self._ec2.delete_launch_template, LaunchTemplateName=name)
            except CloudError as error:
                if error_code(error) not in TEMPLATE_NOT_FOUND:
                    raise
        self._drop(name)
        return True
