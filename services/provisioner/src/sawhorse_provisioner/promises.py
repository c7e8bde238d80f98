"""What planned nodes were to cost, and what was launched for them: how far a plan's prices can be trusted."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sawhorse_model.instances import CapacityType
from sawhorse_model.labels import CAPACITY_TYPE
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_provisioner.snapshots import price_of
from sawhorse_scheduling.plan import PlannedNode

_MOST = 20_000  # claims without a machine yet; beyond, the oldest are forgotten


@dataclass(frozen=True, slots=True)
class Kept:
    """One claim's prices per hour: the best that was planned, the expected one, and what was launched."""

    best: float
    expected: float
    launched: float


class Promises:
    """Remembers the prices of planned nodes until their claims have machines. Losing it only loses figures."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[float, float]] = {}

    def note(self, claim: str, node: PlannedNode) -> None:
        """A claim was made for a planned node."""
        self._open[claim] = (node.price_per_hour, node.expected_price_per_hour)
        if len(self._open) > _MOST:
            self._open.pop(next(iter(self._open)))

    @property
    def is_waiting(self) -> bool:
        """Whether there is anything to settle."""
        return bool(self._open)

    def settle(self, claims: Iterable[NodeClaim], prices: Mapping[tuple[str, str, str], float]) -> Iterator[Kept]:
        """Those whose machine is there now, once each; claims that are gone are forgotten.

        Args:
            prices: per hour by instance type, zone and capacity type; what it does not know is passed over.
        """
        there = {claim.meta.name: claim for claim in claims if claim.meta.name in self._open}
        for name in [name for name in self._open if name not in there]:
            del self._open[name]
        for name, claim in there.items():
            if not claim.provider_id or not claim.meta.labels.get(CAPACITY_TYPE):
                continue
            best, expected = self._open.pop(name)
            reserved = claim.meta.labels[CAPACITY_TYPE] == CapacityType.RESERVED
            launched = 0.0 if reserved else price_of(claim.meta.labels, prices)
            if launched or reserved:
                yield Kept(best, expected, launched)
