"""Instances that exist: looking them up, tagging and ending them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from sawhorse_cloud.cloud import Instance
from sawhorse_cloud.errors import (
    CloudError,
    CloudUnavailableError,
    InstanceNotFoundError,
    ThrottledError,
)
from sawhorse_cloud_aws.calls import INSTANCE_NOT_FOUND, call, chunks, error_code, pages, tag_list
from sawhorse_cloud_aws.launched import described_instance
from sawhorse_cloud_aws.tags import CLUSTER_TAG, TOKEN_TAG
from sawhorse_model.aws import NODECLASS_LABEL
from sawhorse_model.labels import NODEPOOL

log = structlog.get_logger(__name__)

# Terminated ones stay in EC2's answers for an hour; to us they are gone.
_LIVING = ["pending", "running", "stopping", "stopped", "shutting-down"]
_ALIVE = {"Name": "instance-state-name", "Values": _LIVING}
_TERMINATE_AT_ONCE = 500
_ALONE_AT_ONCE = 10


class Instances:
    """The cluster's instances. `ec2` is an SDK client."""

    def __init__(self, *, ec2: Any, cluster: str) -> None:
        self._ec2 = ec2
        self._cluster = cluster

    async def by_token(self, token: str) -> list[Instance]:
        """Those launched with this token that are not ending, in order of id."""
        if not token:
            return []
        found = await self._describe([{"Name": f"tag:{TOKEN_TAG}", "Values": [token]}])
        return sorted((i for i in found if not i.state.is_gone), key=lambda i: i.id)

    async def by_id(self, instance_ids: Sequence[str]) -> dict[str, Instance]:
        """By id; terminated ones included while EC2 still shows them."""
        result: dict[str, Instance] = {}
        for ids in chunks(sorted({i for i in instance_ids if i})):
            # By filter, not by InstanceIds: an unknown id must not fail the others.
            found = await self._describe([{"Name": "instance-id", "Values": ids}], living=False)
            result |= {i.id: i for i in found}
        return result

    async def ours(self) -> list[Instance]:
        """All living ones of this cluster that we launched."""
        return await self._describe(
            [
                {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]},
                {"Name": "tag-key", "Values": [NODEPOOL]},
                {"Name": "tag-key", "Values": [NODECLASS_LABEL]},
            ],
        )

    async def profiles(self) -> frozenset[str]:
        """Names of the instance profiles that the cluster's living machines have."""
        found = set()
        for raw in await self._raw([{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]}, _ALIVE]):
            arn = str((raw.get("IamInstanceProfile") or {}).get("Arn") or "")
            found.add(arn.rpartition("/")[2])
        return frozenset(found - {""})

    async def terminate(self, instance_ids: Sequence[str]) -> None:
        """End instances; one that EC2 does not know, or will not end, never keeps the others alive.

        Raises:
            CloudError: of the first that could not be ended, after all were tried.
        """
        problem: CloudError | None = None
        for ids in chunks(sorted({i for i in instance_ids if i}), _TERMINATE_AT_ONCE):
            try:
                await self._terminate(ids)
            except CloudError as error:
                problem = problem or error
        if problem is not None:
            raise problem

    async def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Add tags.

        Raises:
            InstanceNotFoundError: no such instance.
        """
        if not instance_id:
            raise InstanceNotFoundError("no instance without an id")
        try:
            await call("CreateTags", self._ec2.create_tags, Resources=[instance_id], Tags=tag_list(tags))
        except CloudError as error:
            if error_code(error) in INSTANCE_NOT_FOUND | {"InvalidID"}:
                raise InstanceNotFoundError(f"no instance {instance_id}") from error
            raise

    async def _terminate(self, ids: Sequence[str]) -> None:
        try:
            await call("TerminateInstances", self._ec2.terminate_instances, InstanceIds=list(ids))
        except (ThrottledError, CloudUnavailableError):
            raise
        except CloudError as error:
            if len(ids) > 1:
                # EC2 refuses all for one: an id that is gone, a protected machine, one whose tags the policy forbids.
                await self._terminate_alone(ids)
            elif error_code(error) not in INSTANCE_NOT_FOUND:
                raise

    async def _terminate_alone(self, ids: Sequence[str]) -> None:
        limit, problems = asyncio.Semaphore(_ALONE_AT_ONCE), list[CloudError]()

        async def one(instance_id: str) -> None:
            async with limit:
                try:
                    await self._terminate([instance_id])
                except CloudError as error:
                    problems.append(error)

        async with asyncio.TaskGroup() as group:
            for instance_id in ids:
                group.create_task(one(instance_id), name=f"terminate {instance_id}")
        if problems:
            raise problems[0]

    async def _describe(self, filters: list[dict[str, Any]], *, living: bool = True) -> list[Instance]:
        found = []
        for raw in await self._raw([*filters, _ALIVE] if living else filters):
            try:
                found.append(described_instance(raw))
            except (KeyError, ValueError) as error:
                # One instance that makes no sense must not stop garbage collection for the rest.
                log.warning("instance not understood", instance_id=raw.get("InstanceId", ""), error=str(error))
        return found

    async def _raw(self, filters: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        reservations = await pages(
            "DescribeInstances",
            self._ec2,
            "describe_instances",
            "Reservations",
            Filters=list(filters),
            PaginationConfig={"PageSize": 1000},
        )
        return [raw for reservation in reservations for raw in reservation.get("Instances", ())]
