"""Instance profiles: the user's own, or one that is made for the role of a NodeClass."""

import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.calls import call, error_code, pages, tag_list
from sawhorse_cloud_aws.tags import CLUSTER_TAG
from sawhorse_model.aws import NODECLASS_LABEL, EC2NodeClass
from sawhorse_model.labels import REGION

LookUp = Callable[[], Awaitable[Collection[str]]]

_MISSING = frozenset({"NoSuchEntity", "NoSuchEntityException"})
_EXISTS = frozenset({"EntityAlreadyExists", "EntityAlreadyExistsException"})


ROLE_NOT_FOUND = "RoleNotFound"
IDLE_SECONDS = 3600.0
COLLECT_SECONDS = 1800.0


class InstanceProfiles:
    """Makes and removes profiles. `iam` is an SDK client, `monotonic` a clock in seconds."""

    def __init__(self, *, iam: Any, cluster: str, region: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._iam = iam
        self._cluster = cluster
        self._region = region
        self._monotonic = monotonic
        self._used: dict[str, float] = {}  # name → when a NodeClass last wanted it, or we first saw it
        self._collected = -math.inf

    async def ensure(self, node_class: EC2NodeClass) -> str:
        """The profile's name; one for a role is made and given that role. May be repeated.

        Raises:
            CloudError: no such role, or IAM refuses.
        """
        if node_class.instance_profile:
            return node_class.instance_profile
        role = node_class.role.rsplit("/", 1)[-1]
        if not role:
            raise CloudError(
                "spec sets neither role nor instanceProfile", reason="RoleMissing", action="Set one of them."
            )
        name = self.name(node_class, role)
        self._used[name] = self._monotonic()
        attached = await self._attached(name)
        if attached is None:
            await self._create(name, node_class)
            attached = []
        # A profile holds one role, and this one's name says which: another was put there by hand.
        for other in attached:
            if other != role:
                await self._detach(name, other)
        if role not in attached:
            await self._attach(name, role)
        return name

    def name(self, node_class: EC2NodeClass, role: str) -> str:
        """One profile per role and class: a changed role is a new profile, an unchanged one is found again."""
        seed = f"{self._region}/{node_class.name}/{node_class.node_class.meta.uid}/{role}"
        digest = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
        return f"{self._cluster}_{digest}"[:128]

    def path(self, node_class: EC2NodeClass) -> str:
        """The IAM path of all profiles that are made for a NodeClass."""
        return f"{self._root}{node_class.node_class.meta.uid or node_class.name}/"

    @property
    def _root(self) -> str:
        return f"/karpenter/{self._region}/{self._cluster}/"

    async def collect(self, node_classes: Iterable[EC2NodeClass], attached: LookUp) -> int:
        """Delete what changed roles and lost NodeClasses have left behind; returns how many profiles went.

        A profile goes once no NodeClass has it in its status, no living machine runs with it, and nobody has wanted it
        for an hour: a launch under way may name it. Looked at each half hour, however often this is called. One that
        cannot be deleted does not keep the others.

        Args:
            attached: asks for the names of the profiles that living machines have.
        Raises:
            CloudError: of the first that could not be deleted, after the others.
        """
        now = self._monotonic()
        if now - self._collected < COLLECT_SECONDS:
            return 0
        made = await self._made(self._root)
        self._collected = now
        by_name = {p["InstanceProfileName"]: p for p in made}
        self._used = {name: self._used.get(name, now) for name in by_name}
        wanted = {node_class.resolved_profile for node_class in node_classes}
        idle = [name for name in by_name if name not in wanted and self._is_idle(name)]
        if idle:
            in_use = await attached()
            idle = [name for name in idle if name not in in_use]
        gone, problem = 0, None
        for name in idle:
            if not self._is_idle(name):
                continue  # a NodeClass has gone back to its role meanwhile
            try:
                await self._remove(by_name[name])
                gone += 1
            except CloudError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return gone

    async def release(self, node_class: EC2NodeClass) -> None:
        """Delete all profiles made for a NodeClass; ones that are gone already are fine."""
        for profile in await self._made(self.path(node_class)):
            await self._remove(profile)

    def _is_idle(self, name: str) -> bool:
        return self._monotonic() - self._used.get(name, 0.0) >= IDLE_SECONDS

    async def _made(self, path: str) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = await pages(
            "ListInstanceProfiles", self._iam, "list_instance_profiles", "InstanceProfiles", PathPrefix=path
        )
        # Looked at here too: what others made must not hang on one parameter, which doubles of IAM may not know.
        return [profile for profile in found if str(profile.get("Path", "")).startswith(path)]

    async def _remove(self, profile: Mapping[str, Any]) -> None:
        name = profile["InstanceProfileName"]
        for role in profile.get("Roles", ()):
            await self._detach(name, role["RoleName"])
        try:
            await call("DeleteInstanceProfile", self._iam.delete_instance_profile, InstanceProfileName=name)
        except CloudError as error:
            if error_code(error) not in _MISSING:
                raise
        self._used.pop(name, None)

    async def _attached(self, name: str) -> list[str] | None:
        """Roles of a profile; None when there is no such profile."""
        try:
            answer = await call("GetInstanceProfile", self._iam.get_instance_profile, InstanceProfileName=name)
        except CloudError as error:
            if error_code(error) not in _MISSING:
                raise
            return None
        return [r["RoleName"] for r in answer["InstanceProfile"].get("Roles", ())]

    async def _create(self, name: str, node_class: EC2NodeClass) -> None:
        try:
            await call(
                "CreateInstanceProfile",
                self._iam.create_instance_profile,
                InstanceProfileName=name,
                Path=self.path(node_class),
                Tags=tag_list(self._tags(node_class)),
            )
        except CloudError as error:
            if error_code(error) not in _EXISTS:
                raise

    def _tags(self, node_class: EC2NodeClass) -> Mapping[str, str]:
        return {
            **node_class.tags,
            f"kubernetes.io/cluster/{self._cluster}": "owned",
            CLUSTER_TAG: self._cluster,
            NODECLASS_LABEL: node_class.name,
            REGION: self._region,
        }

    async def _attach(self, name: str, role: str) -> None:
        try:
            await call(
                "AddRoleToInstanceProfile",
                self._iam.add_role_to_instance_profile,
                InstanceProfileName=name,
                RoleName=role,
            )
        except CloudError as error:
            if error_code(error) in _MISSING:
                raise CloudError(
                    f"spec.role: there is no role {role}",
                    reason=ROLE_NOT_FOUND,
                    action="Create the role, or name another.",
                ) from error
            raise

    async def _detach(self, name: str, role: str) -> None:
        try:
            await call(
                "RemoveRoleFromInstanceProfile",
                self._iam.remove_role_from_instance_profile,
                InstanceProfileName=name,
                RoleName=role,
            )
        except CloudError as error:
            if error_code(error) not in _MISSING:
                raise
