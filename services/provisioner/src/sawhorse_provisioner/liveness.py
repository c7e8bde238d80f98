"""Claims that take too long: to get a machine, to get a node, or to offer what they were made for; each is given up.

Each limit is the service's, unless an annotation of the pool says otherwise. A claim is deleted with the reason in an
Event, as well as it can be told.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from sawhorse_cloud.cloud import Cloud
from sawhorse_kube.kinds import NODECLAIM, NODEPOOL
from sawhorse_model.manifests import ManifestError, parse_duration
from sawhorse_model.meta import find_condition
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import INITIALIZED, LAUNCHED, REGISTERED, NodeClaim
from sawhorse_provisioner.announcer import Announcer
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.joining import why_not_joined
from sawhorse_provisioner.pods import is_evictable
from sawhorse_provisioner.pool_health import PoolHealth
from sawhorse_provisioner.registration import MULTIPLE_NODES, RESOURCE_NOT_REGISTERED, missing_resources
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_provisioner.writes import Writer
from sawhorse_runtime.clock import Clock

log = structlog.get_logger(__name__)

LAUNCH_TIMEOUT = "sawhorse.dev/launch-timeout"
REGISTRATION_TIMEOUT = "sawhorse.dev/registration-timeout"
INITIALIZATION_TIMEOUT = "sawhorse.dev/initialization-timeout"
"""Annotations of a NodePool: its own limits, as Go durations; the last may be `Never`."""

RESOURCE_PATIENCE = timedelta(minutes=10)
"""How long a device plugin may take before a person is told."""

_NEVER = "Never"
_TELL_AGAIN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a claim may take, unless its pool says otherwise. `initialization` is from its registration."""

    launch: timedelta
    registration: timedelta
    initialization: timedelta


class Liveness:
    """Judges the claims of a leader's term."""

    def __init__(
        self,
        *,
        writer: Writer,
        state: ClusterState,
        cloud: Cloud,
        announcer: Announcer,
        health: PoolHealth,
        words: NodeClassWords,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._writer = writer
        self._state = state
        self._cloud = cloud
        self._announcer = announcer
        self._health = health
        self._words = words
        self._clock = clock
        self._limits = limits
        self._watched: dict[str, tuple[str, str, float]] = {}  # claim → uid, what it waits for, monotonic time

    def forget(self, name: str) -> None:
        """A claim that waits for nothing any more."""
        self._watched.pop(name, None)

    def time_left(self, claim: NodeClaim) -> float | None:
        """Seconds until the claim has taken too long for what it waits for; None when nothing ends it."""
        for kind in (LAUNCHED, REGISTERED):
            condition = find_condition(claim.conditions, kind)
            if condition is not None and condition.status == "True":
                continue
            if condition is not None and condition.reason == MULTIPLE_NODES:
                return None  # which of the nodes is the machine is a person's to say: nothing is ended blindly
            since = condition.last_transition if condition is not None else None
            return self._left(claim, kind, since, self._limit(claim, kind)).total_seconds()
        initialized = find_condition(claim.conditions, INITIALIZED)
        limit = self._limit(claim, INITIALIZED)
        if initialized is None or initialized.reason != RESOURCE_NOT_REGISTERED or limit is None:
            return None
        left = self._left(claim, INITIALIZED, self._registered_at(claim), limit).total_seconds()
        # A node without its device may have found other work: then it is of use, and stays.
        return left if left > 0 or not self._has_work(claim) else None

    def _left(self, claim: NodeClaim, kind: str, since: datetime | None, limit: timedelta | None) -> timedelta:
        assert limit is not None
        now = self._clock.now()
        left = limit - (now - (since or claim.meta.created or now))
        # Those times are of other clocks. One that is minutes off must not end what has only just begun.
        return max(left, limit / 2 - self._watched_for(claim, kind))

    def _watched_for(self, claim: NodeClaim, kind: str) -> timedelta:
        """How long this term has seen the claim wait for it."""
        now = self._clock.monotonic()
        uid, waited, since = self._watched.get(claim.meta.name, ("", "", now))
        if (uid, waited) != (claim.meta.uid, kind):
            self._watched[claim.meta.name], since = (claim.meta.uid, kind, now), now
        return timedelta(seconds=now - since)

    def _limit(self, claim: NodeClaim, kind: str) -> timedelta | None:
        """How long the claim may take: what its pool says, or the service's own. None: for ever."""
        default, annotation = {
            LAUNCHED: (self._limits.launch, LAUNCH_TIMEOUT),
            REGISTERED: (self._limits.registration, REGISTRATION_TIMEOUT),
            INITIALIZED: (self._limits.initialization, INITIALIZATION_TIMEOUT),
        }[kind]
        pool = self._state.pool(claim.nodepool)
        own = pool.meta.annotations.get(annotation, "") if pool is not None else ""
        if own == _NEVER and kind == INITIALIZED:
            return None
        if not own:
            return default
        try:
            return parse_duration(own, annotation)
        except ManifestError:
            return default

    @staticmethod
    def _registered_at(claim: NodeClaim) -> datetime | None:
        registered = find_condition(claim.conditions, REGISTERED)
        return registered.last_transition if registered is not None else None

    def _has_work(self, claim: NodeClaim) -> bool:
        nodes = self._state.nodes_of(claim.provider_id)
        return any(is_evictable(pod) for node in nodes for pod in self._state.pods_on(node.meta.name))

    async def tell_missing_resources(self, claim: NodeClaim, node: Node) -> None:
        """An extended resource that does not come is told on claim and pool, with what would bring it."""
        since = self._registered_at(claim)
        if since is None or self._left(claim, INITIALIZED, since, RESOURCE_PATIENCE) > timedelta(0):
            return
        missing = missing_resources(node, claim)
        plugins = sorted({self._words.plugins.get(name, "its device plugin") for name in missing})
        minutes = int(RESOURCE_PATIENCE.total_seconds() // 60)
        message = (
            f"Extended resource {', '.join(missing)} is not registered {minutes} min after node {node.meta.name} "
            f"joined: is {' and '.join(plugins)} running on it?"
        )
        self._announcer.warn(NODECLAIM, claim.meta, RESOURCE_NOT_REGISTERED, message, _TELL_AGAIN)
        pool = self._state.pool(claim.nodepool)
        if pool is not None:
            self._announcer.warn(NODEPOOL, pool.meta, RESOURCE_NOT_REGISTERED, message, _TELL_AGAIN)

    async def give_up(self, claim: NodeClaim) -> None:
        """Delete a claim that has taken too long, and say why."""
        if not claim.is_launched:
            kind, event, reason, what = LAUNCHED, "LaunchTimeout", "launch_timeout", "launched"
        elif not claim.is_registered:
            kind, event, reason, what = REGISTERED, "RegistrationTimeout", "registration_timeout", "registered"
        else:
            kind, event, reason, what = INITIALIZED, "InitializationTimeout", "initialization_timeout", "complete"
        limit = self._limit(claim, kind) or timedelta(0)
        condition = find_condition(claim.conditions, kind)
        why = condition.message if condition is not None else ""
        if kind == REGISTERED:
            why = await why_not_joined(claim, self._cloud, self._state)
        message = f"Deleted, as it was not {what} within {int(limit.total_seconds())} s{f': {why}' if why else ''}"
        self._announcer.warn(NODECLAIM, claim.meta, event, message)
        log.warning("nodeclaim given up", nodeclaim=claim.meta.name, nodepool=claim.nodepool, why=message)
        if kind == INITIALIZED:
            # Its pods will ask for another such node, which will fare no better at once.
            self._state.pace.hold(claim.nodepool)
        else:
            self._health.record(claim, failure=(_failure(claim), why))
        await self._writer.delete_claim(claim, reason)


def _failure(claim: NodeClaim) -> str:
    """The stable word for the pool's condition: why it was not launched, or that it has not joined."""
    launched = find_condition(claim.conditions, LAUNCHED)
    return (launched.reason if launched is not None and not claim.is_launched else "") or "RegistrationFailed"
