"""The sandbox's own paths, `/sandbox/…`: state, interruptions, counters and a cheap list of the instances."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from moto.ec2.models.instances import Instance

from sawhorse_sandbox.aws.messages import KINDS, interruption
from sawhorse_sandbox.aws.state import StateError
from sawhorse_sandbox.aws.world import Lifecycle, World

WARNING_SECONDS = 120.0  # what EC2 leaves between a spot warning and the end


class Interrupt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The body of `POST /sandbox/interrupt`."""

    instance_id: str
    kind: str = "spot"
    reclaim_after_seconds: float = WARNING_SECONDS  # spot only
    state: str = "stopping"  # state-change only


class Control:
    """Answers the paths under `/sandbox`."""

    def __init__(self, world: World, lifecycle: Lifecycle) -> None:
        self._world = world
        self._lifecycle = lifecycle

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the HTTP status and the JSON body for a request."""
        try:
            match method, path:
                case "GET", "/sandbox/state":
                    result: Any = self._world.state.current()
                case "POST", "/sandbox/state":
                    result = self._world.state.update(body)
                case "POST", "/sandbox/interrupt":
                    result = self._interrupt(body)
                case "GET", "/sandbox/calls":
                    result = self._world.counted()
                case "GET", "/sandbox/instances":
                    result = self.instances()
                case "GET", "/sandbox/ready":
                    result = {"ready": True}
                case _:
                    return 404, msgspec.json.encode({"error": f"there is no {method} {path}"})
        except StateError as err:
            return 400, msgspec.json.encode({"error": str(err)})
        return 200, msgspec.json.encode(result)

    def instances(self) -> list[dict[str, Any]]:
        """List all instances, the terminated too, without moto's lock: whoever polls must not stop the others."""
        tags = self._world.ec2.tags
        return [
            {
                "instanceId": instance.id,
                "state": instance.state,
                "type": instance.instance_type,
                "zone": instance.availability_zone,
                "lifecycle": "spot" if instance.lifecycle == "spot" else "on-demand",
                "tags": dict(tags.get(instance.id, {})),
                "privateDnsName": instance.private_dns_name,
                "privateIp": instance.private_ip,
                "launchTime": instance.launch_time.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "userData": str(instance.user_data or ""),
            }
            for instance in self._lifecycle.all()
        ]

    def _interrupt(self, body: bytes) -> dict[str, Any]:
        try:
            asked = msgspec.json.decode(body, type=Interrupt)
        except msgspec.DecodeError as err:
            raise StateError(str(err)) from err
        if asked.kind not in KINDS:
            raise StateError(f"kind: {asked.kind!r} is none of {', '.join(KINDS)}")
        if asked.reclaim_after_seconds < 0:
            raise StateError("reclaimAfterSeconds: must not be negative")
        with self._world.lock:
            # Of an unknown instance the message is sent all the same: queues do carry those of others.
            instance: Instance | None = self._world.ec2.get_instance_by_id(asked.instance_id)
            message = interruption(
                asked.kind,
                asked.instance_id,
                account=self._world.account,
                region=self._world.region,
                zone=(instance.availability_zone if instance else None) or f"{self._world.region}a",
                state=asked.state,
                now=datetime.now(UTC),
            )
            queues = self._world.courier.deliver(message, straight=True)
            if instance is not None and asked.kind == "spot":
                # Bound now: mypy and the later call must see the instance, not a name that may change.
                doomed = instance
                self._world.timers.after(asked.reclaim_after_seconds, lambda: self._lifecycle.reclaim(doomed))
        return {"message": message, "queues": queues, "known": instance is not None}
