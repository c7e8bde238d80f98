"""The one account and region that the sandbox's AWS is, and the lives of its instances: pending to terminated."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instances import Instance, InstanceState, StateReason

from sawhorse_sandbox.aws.messages import Courier, interruption, unlock_long_polls
from sawhorse_sandbox.aws.prices import PriceTable, read_price_table
from sawhorse_sandbox.aws.state import StateStore
from sawhorse_sandbox.aws.timers import Timers

PENDING, RUNNING, SHUTTING_DOWN, TERMINATED = (0, "pending"), (16, "running"), (32, "shutting-down"), (48, "terminated")
GONE = (SHUTTING_DOWN[1], TERMINATED[1])


@dataclass(slots=True)
class World:
    """What the parts of the server share. `lock` guards moto's models, which are not thread-safe."""

    region: str
    account: str = DEFAULT_ACCOUNT_ID
    lock: threading.RLock = field(default_factory=threading.RLock)
    state: StateStore = field(default_factory=StateStore)
    prices: PriceTable = field(default_factory=read_price_table)
    stopping: threading.Event = field(default_factory=threading.Event)
    timers: Timers = field(init=False)
    courier: Courier = field(init=False)
    _calls: Counter[str] = field(default_factory=Counter)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.timers = Timers(self.lock)
        self.courier = Courier(self.account, self.region)

    @property
    def ec2(self) -> EC2Backend:
        """Return moto's EC2 of the sandbox's region."""
        return ec2_backends[self.account][self.region]

    def count(self, action: str) -> None:
        """Count a call of an API action."""
        with self._counting:
            self._calls[action] += 1

    def counted(self) -> dict[str, int]:
        """Return how often each API action was called."""
        with self._counting:
            return dict(self._calls)


class Lifecycle:
    """Gives instances time: pending before running, shutting-down before terminated, and the messages about it."""

    def __init__(self, world: World, terminate_now: Callable[[Instance], InstanceState]) -> None:
        self._world = world
        self._terminate_now = terminate_now
        self._instances: dict[str, Instance] = {}

    def all(self) -> list[Instance]:
        """Return every instance that was launched; needs no lock. One that is still being made is not among them."""
        return list(self._instances.values())

    def launched(self, instance: Instance) -> None:
        """Begin the life of a new instance."""
        self._enter(instance, PENDING)
        self._instances[instance.id] = instance
        doomed = self._world.state.take_death()
        self._world.timers.after(self._world.state.current().pending_delay, lambda: self._run(instance, doomed=doomed))

    def terminate(self, instance: Instance) -> InstanceState:
        """Begin to end an instance; return the state it had. Repeating it changes nothing."""
        previous = InstanceState(instance.state, instance.state_code)
        if instance.state not in GONE:
            self._enter(instance, SHUTTING_DOWN)
            self._world.timers.after(self._world.state.current().terminate_delay, lambda: self._end(instance))
        return previous

    def reclaim(self, instance: Instance) -> None:
        """Take a spot instance back, as EC2 does two minutes after its warning; nothing if it is gone already."""
        if instance.state in GONE:
            return
        self.terminate(instance)
        code = "Server.SpotInstanceTermination"
        instance.state_reason = StateReason(f"{code}: Spot instance termination", code)

    def announce(self, instance: Instance, state: str) -> list[str]:
        """Send the state-change message; return the queues it went to."""
        message = interruption(
            "state-change",
            instance.id,
            account=self._world.account,
            region=self._world.region,
            zone=instance.availability_zone or "",
            state=state,
            now=datetime.now(UTC),
        )
        return self._world.courier.deliver(message)

    def _run(self, instance: Instance, *, doomed: bool) -> None:
        if instance.state != PENDING[1]:
            return
        self._enter(instance, RUNNING)
        if doomed:
            self._fail(instance)

    def _fail(self, instance: Instance) -> None:
        """As EC2 does with a machine whose host breaks while it boots."""
        self.terminate(instance)
        code = "Server.InternalError"
        instance.state_reason = StateReason(f"{code}: Internal error on launch", code)

    def _end(self, instance: Instance) -> None:
        reason = instance.state_reason
        self._terminate_now(instance)
        if reason.code:
            instance.state_reason = reason
        _retire_addresses(instance)
        self.announce(instance, TERMINATED[1])

    def _enter(self, instance: Instance, state: tuple[int, str]) -> None:
        instance._state = InstanceState(state[1], state[0])
        self.announce(instance, state[1])


def install(world: World) -> Lifecycle:
    """Put the sandbox's behaviour into moto's classes; once per process, before the first request."""
    lifecycle = Lifecycle(world, Instance.terminate)
    Instance.terminate = lambda self: lifecycle.terminate(self)  # type: ignore[method-assign]
    TaggedEC2Resource.get_tags = _tags  # type: ignore[method-assign]
    unlock_long_polls(world.lock, time.monotonic)
    return lifecycle


def _tags(self: Any) -> list[dict[str, str]]:
    # moto compiles a pattern and tries it on every tag of the account, for every resource it describes.
    return [
        {"resource_id": self.id, "key": key, "value": value}
        for key, value in self.ec2_backend.tags.get(self.id, {}).items()
    ]


def _retire_addresses(instance: Instance) -> None:
    # moto would hand the address to the next instance, and with it the name: two Nodes of one name.
    for nic in instance.nics.values():
        for address in nic.private_ip_addresses:
            nic.subnet._unused_ips.discard(address["PrivateIpAddress"])
