"""A plan for this moment: resolved types, snapshot, solve. Any replica can; nothing is changed by it."""

from collections.abc import Mapping

import structlog

from sawhorse_model.nodeclass import NodeClass
from sawhorse_provisioner.alike import Alike
from sawhorse_provisioner.catalog_client import Catalog, ResolvedTypes
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.snapshots import Frozen, freeze
from sawhorse_provisioner.solver import Solver
from sawhorse_provisioner.together import each
from sawhorse_runtime.clock import Clock
from sawhorse_runtime.errors import describe
from sawhorse_scheduling.plan import Plan
from sawhorse_scheduling.snapshot import SolveOptions

log = structlog.get_logger(__name__)


class Planner:
    """Freezes and solves."""

    def __init__(
        self, *, state: ClusterState, catalog: Catalog, solver: Solver, options: SolveOptions, clock: Clock
    ) -> None:
        self._state = state
        self._catalog = catalog
        self._solver = solver
        self._options = options
        self._clock = clock
        self._alike = Alike()

    async def resolve(self) -> Mapping[str, ResolvedTypes]:
        """What each NodeClass makes of the catalogue, by name. One that cannot be resolved is left out, not the rest.

        Raises:
            Exception: none could be resolved, though there are some.
        """
        classes = sorted(self._state.node_classes(), key=lambda c: c.meta.name)
        found: dict[str, ResolvedTypes] = {}
        failures: list[Exception] = []

        async def one(node_class: NodeClass) -> None:
            try:
                found[node_class.meta.name] = await self._catalog.resolve(node_class)
            except Exception as error:
                failures.append(error)
                log.warning("instance types not resolved", nodeclass=node_class.meta.name, error=describe(error))

        await each(classes, one)
        if failures and not found:
            raise failures[0]
        return found

    async def freeze(self) -> tuple[Frozen, Mapping[str, ResolvedTypes]]:
        """Step `snapshot`: the state now. The types are fetched first, so that the state is the newest part."""
        resolved = await self.resolve()
        return freeze(self._state, resolved, self._options, self._clock.now(), self._alike), resolved

    async def solve(self, frozen: Frozen) -> Plan:
        """Step `plan`."""
        return await self._solver.solve(frozen.snapshot)
