"""Ending one machine, whoever ends it: ask, and look again until the cloud says that it is gone."""

import structlog

from sawhorse_cloud.cloud import Cloud, Instance, InstanceState

log = structlog.get_logger(__name__)

LOOK_EVERY = 5.0  # seconds


def is_over(instance: Instance | None) -> bool:
    """Whether the machine has ended: it is not known any more, or terminated."""
    return instance is None or instance.state is InstanceState.TERMINATED


async def is_gone(cloud: Cloud, instance_id: str) -> bool:
    """Whether the cloud says, freshly asked, that the machine does not exist."""
    return is_over((await cloud.describe([instance_id])).get(instance_id))


async def end_machine(cloud: Cloud, instance_id: str) -> bool:
    """Step `instance`: terminate unless it is ending already; whether it is gone. Repeat until it is."""
    instance = (await cloud.describe([instance_id])).get(instance_id)
    if instance is None or is_over(instance):
        return True
    if not instance.state.is_gone:
        await cloud.terminate([instance_id])
        log.info("instance terminated", instance_id=instance_id)
        instance = (await cloud.describe([instance_id])).get(instance_id)
    return is_over(instance)
