"""At the start of a term: the claims as Kubernetes has them now, laid over the mirror.

The leader before us may have made claims that no watcher has told of yet. Planned without them, their pods would get
a second node each.
"""

import asyncio

import structlog

from sawhorse_kube.api import Kube
from sawhorse_kube.errors import KubeError
from sawhorse_kube.kinds import NODECLAIM
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_runtime.backoff import Backoff
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

_LONGEST = 10.0  # seconds for one list


async def catch_up(kube: Kube, state: ClusterState, clock: Clock, stop: asyncio.Event) -> bool:
    """List the claims until it works; whether it did before `stop`."""
    backoff = Backoff(0.5, maximum=5.0)
    while not stop.is_set():
        try:
            async with asyncio.timeout(_LONGEST):
                listing = await kube.list(NODECLAIM)
        except (KubeError, TimeoutError) as error:
            log.warning("claims not listed, nothing is decided yet", error=describe(error))
            await clock.sleep(backoff.next("list"))
            continue
        there = {claim.meta.uid for claim in listing.objects}
        ahead = [c for c in listing.objects if (known := state.claim(c.meta.name)) is None or known.meta != c.meta]
        gone = [claim for claim in state.claims() if claim.meta.uid not in there]
        for claim in ahead:
            state.note(NODECLAIM, claim)
        for claim in gone:
            state.note_deleted(claim.meta.uid)
        if ahead or gone:
            log.info("claims that the mirror lags behind with", ahead=len(ahead), gone=len(gone))
        return True
    return False
