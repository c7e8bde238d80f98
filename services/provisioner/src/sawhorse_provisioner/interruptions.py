"""Steps `replanned` and `ready` of an interruption: who takes the pods of a doomed node, and whether they can come.

The planning itself is the ordinary round: it sees the pods of interrupted nodes as pods that want a place. Here it is
remembered where they go, and the doomed claim is told once all of that is ready. A new leader learns it by planning.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from sawhorse_kube.errors import KubeError, NotFoundError
from sawhorse_kube.kinds import NODECLAIM
from sawhorse_model.labels import REPLACEMENT_READY
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.provisioning import Outcome
from sawhorse_provisioner.snapshots import Frozen
from sawhorse_provisioner.steps import Step
from sawhorse_provisioner.writes import Writer
from sawhorse_runtime.errors import describe
from sawhorse_runtime.failpoints import Steps

log = structlog.get_logger(__name__)

_LOOK_EVERY = 1.0  # seconds; changes are told, this is the net


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the pods of a doomed node go."""

    targets: frozenset[str]
    complete: bool  # every pod has one


class Replacements:
    """Knows for each interrupted claim what replaces it. One per leader's term."""

    def __init__(self, *, writer: Writer, state: ClusterState, steps: Steps) -> None:
        self._steps = steps
        self._writer = writer
        self._state = state
        self._places: dict[str, _Places] = {}  # by uid of the doomed claim
        self._wake = asyncio.Event()

    def planned(self, frozen: Frozen, outcome: Outcome) -> None:
        """A round is over: note where the doomed pods go."""
        by_name: dict[str, set[str]] = {name: set() for name in frozen.dying}
        for key, name in frozen.doomed.items():
            if name in by_name:
                by_name[name].add(key)
        if by_name:
            with self._steps.at(Step.REPLANNED):
                self._note_places(by_name, outcome)
        self.poke()

    def _note_places(self, by_name: Mapping[str, set[str]], outcome: Outcome) -> None:
        for name, pods in by_name.items():
            claim = self._state.claim(name)
            if claim is not None:
                found = [outcome.targets[key] for key in pods if key in outcome.targets]
                self._places[claim.meta.uid] = _Places(frozenset(found), complete=len(found) == len(pods))

    def poke(self) -> None:
        """Something changed that may make a replacement ready."""
        self._wake.set()

    def forget(self, claim: NodeClaim) -> None:
        """The doomed claim has gone."""
        self._places.pop(claim.meta.uid, None)

    def replacements_of(self, claim: NodeClaim) -> frozenset[str]:
        """Nodes and claims that take the pods of a doomed claim, as far as known."""
        places = self._places.get(claim.meta.uid)
        return places.targets if places is not None else frozenset()

    async def run(self, stop: asyncio.Event) -> None:
        """Tell doomed claims that their pods may come, until `stop`."""
        while not stop.is_set():
            try:
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            for claim in self._state.interrupted():
                try:
                    async with asyncio.timeout(20):
                        await self._look(claim)
                except (KubeError, TimeoutError) as error:
                    log.warning("replacement not told", nodeclaim=claim.meta.name, error=describe(error))

    async def _look(self, claim: NodeClaim) -> None:
        if claim.meta.annotations.get(REPLACEMENT_READY) == "true":
            return
        places = self._places.get(claim.meta.uid)
        if places is None or not places.complete or not all(self._is_ready(t) for t in places.targets):
            return
        try:
            with self._steps.at(Step.READY):
                await self._writer.annotate(NODECLAIM, claim, {REPLACEMENT_READY: "true"})
        except NotFoundError:
            return
        log.info("replacement ready", nodeclaim=claim.meta.name, replacements=sorted(places.targets))

    def _is_ready(self, target: str) -> bool:
        claim = self._state.claim(target)
        if claim is not None:
            return claim.is_initialized and not self._state.is_going(claim)
        node = self._state.node(target)
        if node is None or self._state.is_node_going(node):
            return False
        owner = self._state.claim_of(node)
        return owner.is_initialized if owner is not None else node.is_ready
