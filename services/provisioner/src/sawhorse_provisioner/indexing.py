"""The index of instances for queue messages: kept as well as Redis allows, never waited for."""

from typing import Protocol

import structlog

from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)


class Index(Protocol):
    """What is needed of `sawhorse_state.instances.InstanceIndex`."""

    async def put(self, instance_id: str, claim: str) -> None: ...
    async def drop(self, instance_id: str) -> None: ...


async def index_put(index: Index, instance_id: str, claim: str) -> None:
    """Note an instance for queue messages. Losing it costs them a live look-up, nothing more."""
    try:
        await index.put(instance_id, claim)
    except Exception as error:
        log.warning("instance not indexed", instance_id=instance_id, error=describe(error))


async def index_drop(index: Index, instance_id: str) -> None:
    """Forget an instance that is gone."""
    try:
        await index.drop(instance_id)
    except Exception as error:
        log.warning("instance not dropped from the index", instance_id=instance_id, error=describe(error))
