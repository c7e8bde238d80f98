"""Instance profiles that nobody has any more are collected, and no other."""

from typing import Any

import pytest

from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.calls import client
from sawhorse_cloud_aws.profiles import COLLECT_SECONDS, IDLE_SECONDS, InstanceProfiles
from sawhorse_model.aws import EC2NodeClass, parse_ec2_node_class
from sawhorse_testing.cloud_worlds import a_claim, a_token, an_ec2_node_class

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

CLUSTER = "profiles"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def a_class(world: Any, name: str, profile: str = "") -> EC2NodeClass:
    spec, status = {"role": world.seeded.role_name}, {"instanceProfile": profile} if profile else {}
    return parse_ec2_node_class(an_ec2_node_class(name, spec=spec, status=status, uid=f"uid-{name}"))


def iam_of(world: Any) -> Any:
    return client("iam", region="us-east-1", endpoint_url=world.aws.endpoint_url)


async def there(iam: Any) -> set[str]:
    listed = (await iam.list_instance_profiles())["InstanceProfiles"]
    return {p["InstanceProfileName"] for p in listed if p["Path"].startswith(f"/karpenter/us-east-1/{CLUSTER}/")}


async def test_a_profile_goes_an_hour_after_its_class_and_its_last_machine_and_others_stay(world: Any) -> None:
    clock = Clock()
    running: set[str] = set()

    async def attached() -> set[str]:
        return running

    async with iam_of(world) as iam:
        profiles = InstanceProfiles(iam=iam, cluster=CLUSTER, region="us-east-1", monotonic=clock)
        kept, running_still, _ = [await profiles.ensure(a_class(world, n)) for n in ("kept", "running", "lost")]
        running.add(running_still)
        in_use = [a_class(world, "kept", kept)]

        at_once = await profiles.collect(in_use, attached)
        clock.now += IDLE_SECONDS
        later = await profiles.collect(in_use, attached)
        left = await there(iam)
        running.clear()
        too_soon = await profiles.collect(in_use, attached)
        clock.now += COLLECT_SECONDS
        after_the_machine = await profiles.collect(in_use, attached)

        assert (at_once, later, too_soon, after_the_machine) == (0, 1, 0, 1)
        assert left == {kept, running_still}
        assert await there(iam) == {kept}
        await profiles.release(a_class(world, "kept"))


async def test_a_profile_that_another_replica_made_counts_as_just_used(world: Any) -> None:
    clock = Clock()

    async def attached() -> set[str]:
        return set()

    async with iam_of(world) as iam:
        await InstanceProfiles(iam=iam, cluster=CLUSTER, region="us-east-1").ensure(a_class(world, "theirs"))
        profiles = InstanceProfiles(iam=iam, cluster=CLUSTER, region="us-east-1", monotonic=clock)
        clock.now = 10 * IDLE_SECONDS

        first = await profiles.collect([], attached)
        clock.now += IDLE_SECONDS
        second = await profiles.collect([], attached)

        assert (first, second) == (0, 1)
        assert await there(iam) == set()


async def test_one_profile_that_cannot_be_deleted_does_not_keep_the_others(world: Any) -> None:
    clock = Clock()

    async def attached() -> set[str]:
        return set()

    async with iam_of(world) as iam:
        profiles = InstanceProfiles(iam=iam, cluster=CLUSTER, region="us-east-1", monotonic=clock)
        for name in ("one", "two"):
            await profiles.ensure(a_class(world, name))
        await profiles.collect([], attached)
        clock.now += IDLE_SECONDS
        await world.fail("DeleteInstanceProfile", "DeleteConflict")

        with pytest.raises(CloudError, match="DeleteConflict"):
            await profiles.collect([], attached)

        assert len(await there(iam)) == 1
        clock.now += COLLECT_SECONDS
        assert await profiles.collect([], attached) == 1


async def test_the_profiles_of_living_machines_are_known_by_name(world: Any) -> None:
    await world.cloud.launch(a_token(), [a_claim()], world.node_class, world.instance_types)

    assert await world.cloud._instances.profiles() == {world.node_class.status["instanceProfile"]}
    assert await world.cloud.collect_templates([world.node_class]) == 0


async def test_the_profiles_of_other_clusters_and_of_people_are_never_touched(world: Any) -> None:
    clock = Clock()

    async def attached() -> set[str]:
        return set()

    async with iam_of(world) as iam:
        before = {p["InstanceProfileName"] for p in (await iam.list_instance_profiles())["InstanceProfiles"]}
        profiles = InstanceProfiles(iam=iam, cluster="another", region="us-east-1", monotonic=clock)
        await profiles.collect([], attached)
        clock.now += IDLE_SECONDS

        gone = await profiles.collect([], attached)
        await profiles.release(a_class(world, "nobodys"))

        assert gone == 0
        assert {p["InstanceProfileName"] for p in (await iam.list_instance_profiles())["InstanceProfiles"]} == before
        assert world.seeded.role_name in before
