"""Asking the cloud for a fleet, patiently: one throttled call is a slow answer, not the failure of all its claims."""

import asyncio

import structlog

from sawhorse_cloud.cloud import Cloud, LaunchResult
from sawhorse_cloud.errors import ThrottledError
from sawhorse_model.instances import InstanceType
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodeclass import NodeClass
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.launch_rate import LaunchRate
from sawhorse_provisioner.steps import Step
from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.errors import describe
from sawhorse_runtime.failpoints import Steps

log = structlog.get_logger(__name__)

Asked = tuple[tuple[NodeClaim, ...], NodeClass, tuple[InstanceType, ...]]
"""What a fleet asks for: its claims, their NodeClass and its types. A repeat with the same token asks for the same."""

PATIENCE = 30.0
"""Seconds of throttling after which the claims are told; the fleet is tried again after that all the same."""


class FleetCalls:
    """Calls `Cloud.launch` at a bearable rate. One for all fleets of a leader's term."""

    def __init__(self, *, cloud: Cloud, instruments: Instruments, steps: Steps, rate: LaunchRate | None = None) -> None:
        self._cloud = cloud
        self._instruments = instruments
        self._steps = steps
        self._rate = rate if rate is not None else LaunchRate()
        self._backoff = Backoff(1.0, maximum=15.0, jitter=0.3)

    async def ask(self, token: str, asked: Asked) -> LaunchResult:
        """See `Cloud.launch`.

        Raises:
            CloudError: as there; of being throttled only once it has lasted for `PATIENCE`.
        """
        until = asyncio.get_running_loop().time() + PATIENCE
        while True:
            await self._rate.turn()
            try:
                with self._steps.at(Step.FLEET):
                    result = await self._cloud.launch(token, *asked)
            except ThrottledError as error:
                self._rate.throttled()
                delay = self._backoff.next(token)
                if asyncio.get_running_loop().time() + delay > until:
                    self._backoff.reset(token)
                    raise
                self._instruments.cloud_errors.labels("Create", error.reason).inc()
                log.debug("launch throttled", token=token, retry_seconds=round(delay, 3), error=describe(error))
                await asyncio.sleep(delay)
            except BaseException:
                self._backoff.reset(token)
                raise
            else:
                self._rate.answered()
                self._backoff.reset(token)
                return result
