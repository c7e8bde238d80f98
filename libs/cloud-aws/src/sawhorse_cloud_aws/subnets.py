"""Which subnet of a zone a launch uses: the one with most free addresses, by the last look-up and what is in flight."""

from collections.abc import Callable, Iterable, Mapping

from sawhorse_model.aws import Subnet

FULL_SECONDS = 180.0
LONGEST_FULL_SECONDS = 1800.0


class SubnetPicker:
    """Chooses subnets. `monotonic` is a clock in seconds.

    EC2 tells the number of free addresses only at a look-up. In between, launches are charged here, so that a burst
    does not pile into one subnet; the next look-up clears the estimate.
    """

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._free: dict[str, int] = {}
        self._charged: dict[str, int] = {}
        self._full: dict[str, tuple[float, float]] = {}  # subnet id → when to try it again, how long it was set aside

    def observe(self, free: Mapping[str, int]) -> None:
        """Take the counts of a look-up."""
        for subnet_id, count in free.items():
            self._free[subnet_id] = count
            self._charged.pop(subnet_id, None)

    def choose(self, subnets: Iterable[Subnet]) -> dict[str, str]:
        """Zone → subnet id. Of several in a zone the one with most free addresses, equal ones in their order.

        A subnet that EC2 called full comes last: a zone whose subnets are all full is still tried, and EC2's answer
        says so.
        """
        best: dict[str, tuple[tuple[bool, int], str]] = {}
        for subnet in subnets:
            rank = (not self.is_full(subnet.id), self._left(subnet.id))
            if subnet.zone not in best or rank > best[subnet.zone][0]:
                best[subnet.zone] = (rank, subnet.id)
        return {zone: subnet_id for zone, (_, subnet_id) in best.items()}

    def charge(self, subnet_id: str, addresses: int) -> None:
        """Count addresses that a launch may take (or, negative, gives back)."""
        if subnet_id in self._free:
            self._charged[subnet_id] = max(0, self._charged.get(subnet_id, 0) + addresses)

    def mark_full(self, subnet_id: str) -> None:
        """EC2 said that the subnet has no free address. Soon after the last time it is set aside for twice as long."""
        now = self._monotonic()
        until, length = self._full.get(subnet_id, (0.0, 0.0))
        if until <= now:
            again = length and now - until < LONGEST_FULL_SECONDS
            length = min(length * 2, LONGEST_FULL_SECONDS) if again else FULL_SECONDS
        self._full[subnet_id] = (now + length, length)
        if subnet_id in self._free:
            self._free[subnet_id] = 0

    def is_full(self, subnet_id: str) -> bool:
        """Whether EC2 said so lately."""
        until, _ = self._full.get(subnet_id, (0.0, 0.0))
        return until > self._monotonic()

    def _left(self, subnet_id: str) -> int:
        return self._free.get(subnet_id, 0) - self._charged.get(subnet_id, 0)
