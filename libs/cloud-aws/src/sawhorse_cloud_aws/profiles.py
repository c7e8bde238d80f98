"""Instance profiles: the user's own, or one that is made for the role of a NodeClass."""

import hashlib
from collections.abc import Mapping
from typing import Any

from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.calls import call, error_code, pages, tag_list
from sawhorse_cloud_aws.tags import CLUSTER_TAG
from sawhorse_model.aws import NODECLASS_LABEL, EC2NodeClass
from sawhorse_model.labels import REGION

_MISSING = frozenset({"NoSuchEntity", "NoSuchEntityException"})
_EXISTS = frozenset({"EntityAlreadyExists", "EntityAlreadyExistsException"})


class InstanceProfiles:
    """Makes and removes profiles. `iam` is an SDK client."""

    def __init__(self, *, iam: Any, cluster: str, region: str) -> None:
        self._iam = iam
        self._cluster = cluster
        self._region = region

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
        return f"/karpenter/{self._region}/{self._cluster}/{node_class.node_class.meta.uid or node_class.name}/"

    async def release(self, node_class: EC2NodeClass) -> None:
        """Delete all profiles made for a NodeClass; ones that are gone already are fine."""
        made = await pages(
            "ListInstanceProfiles",
            self._iam,
            "list_instance_profiles",
            "InstanceProfiles",
            PathPrefix=self.path(node_class),
        )
        for profile in made:
            name = profile["InstanceProfileName"]
            for role in profile.get("Roles", ()):
                await self._detach(name, role["RoleName"])
            try:
                await call("DeleteInstanceProfile", self._iam.delete_instance_profile, InstanceProfileName=name)
            except CloudError as error:
                if error_code(error) not in _MISSING:
                    raise

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
                    reason="RoleNotFound",
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
