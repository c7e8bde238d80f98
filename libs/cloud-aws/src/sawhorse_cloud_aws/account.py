"""What the account has beside the public offer: capacity reservations and placement groups, looked up in EC2."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sawhorse_catalog.account import BLOCK, PlacementGroup, Reservation
from sawhorse_catalog.aws.node_class import placement_selector
from sawhorse_cloud.errors import CloudError
from sawhorse_cloud_aws.amis import tag_filters
from sawhorse_cloud_aws.calls import call, chunks, error_code, pages
from sawhorse_model.aws import EC2NodeClass

# EC2 ends the instances of a block half an hour before the block; nothing new is launched shortly before that.
EXPIRING = timedelta(minutes=40)
FRESH_SECONDS = 60.0
KEPT_SECONDS = 24 * 3600.0
_STRATEGIES = ("cluster", "partition", "spread")
_UNKNOWN_GROUP = frozenset({"InvalidPlacementGroup.Unknown", "InvalidPlacementGroupId.NotFound"})
_UNKNOWN_RESERVATION = frozenset({"InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"})
_ACTIVE = {"Name": "state", "Values": ["active"]}


def reservation_from_description(raw: Mapping[str, Any], now: datetime) -> Reservation:
    """One entry of DescribeCapacityReservations.

    Args:
        now: aware; it decides whether a block is about to end.
    """
    end, kind = raw.get("EndDate"), str(raw.get("ReservationType") or "default")
    return Reservation(
        id=raw["CapacityReservationId"],
        instance_type=raw.get("InstanceType", ""),
        zone=raw.get("AvailabilityZone", ""),
        free=int(raw.get("AvailableInstanceCount") or 0),
        kind=kind,
        match=str(raw.get("InstanceMatchCriteria") or "targeted"),
        interruptible=raw.get("Interruptible") is True,
        expiring=kind == BLOCK and end is not None and end - now <= EXPIRING,
        owner=str(raw.get("OwnerId", "")),
        end=end.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if end is not None else "",
    )


async def fetch_reservations(ec2: Any, now: datetime) -> list[Reservation]:
    """All active reservations that the account can use, by id."""
    return await _reservations(ec2, now, [_ACTIVE])


async def find_reservations(ec2: Any, node_class: EC2NodeClass, now: datetime) -> list[Reservation]:
    """Those that `spec.capacityReservationSelectorTerms` match, by id. An id that is not there matches nothing."""
    found: dict[str, Reservation] = {}
    terms = [t for t in node_class.node_class.spec.get("capacityReservationSelectorTerms") or () if t]
    ids = sorted({str(t["id"]) for t in terms if t.get("id")})
    # By filter, not by CapacityReservationIds: an unknown id must not fail the others.
    filters = [[_ACTIVE, {"Name": "capacity-reservation-id", "Values": part}] for part in chunks(ids)]
    for term in terms:
        if term.get("id"):
            continue
        asked = [_ACTIVE, *tag_filters(term.get("tags") or {})]
        for key, name in (("ownerID", "owner-id"), ("instanceMatchCriteria", "instance-match-criteria")):
            if term.get(key):
                asked.append({"Name": name, "Values": [str(term[key])]})
        filters.append(asked)
    for each in filters:
        found |= {r.id: r for r in await _reservations(ec2, now, each)}
    return [found[key] for key in sorted(found)]


async def _reservations(ec2: Any, now: datetime, filters: Sequence[Mapping[str, Any]]) -> list[Reservation]:
    try:
        raws = await pages(
            "DescribeCapacityReservations",
            ec2,
            "describe_capacity_reservations",
            "CapacityReservations",
            Filters=list(filters),
        )
    except CloudError as error:
        if error_code(error) in _UNKNOWN_RESERVATION:
            return []
        raise
    found = [reservation_from_description(raw, now) for raw in raws]
    return sorted((r for r in found if not r.end or r.end > now.strftime("%Y-%m-%dT%H:%M:%SZ")), key=lambda r: r.id)


def reservation_status(reservation: Reservation) -> dict[str, Any]:
    """One entry of `status.capacityReservations`."""
    return {
        "availabilityZone": reservation.zone,
        **({"endTime": reservation.end} if reservation.end else {}),
        "id": reservation.id,
        "instanceMatchCriteria": reservation.match,
        "instanceType": reservation.instance_type,
        "ownerID": reservation.owner,
        "reservationType": reservation.kind,
        **({"interruptible": True} if reservation.interruptible else {}),
        "state": "expiring" if reservation.expiring else "active",
    }


def group_from_description(raw: Mapping[str, Any]) -> PlacementGroup | None:
    """One entry of DescribePlacementGroups; None for one that is not there to be used."""
    strategy = str(raw.get("Strategy", ""))
    if raw.get("State") not in (None, "available") or strategy not in _STRATEGIES:
        return None
    return PlacementGroup(
        id=str(raw.get("GroupId", "")),
        name=str(raw.get("GroupName", "")),
        strategy=strategy,
        partitions=int(raw.get("PartitionCount") or 0) if strategy == "partition" else 0,
    )


async def fetch_groups(ec2: Any) -> list[PlacementGroup]:
    """All placement groups of the region that can be used, by id."""
    answer = await call("DescribePlacementGroups", ec2.describe_placement_groups)
    found = [group_from_description(raw) for raw in answer.get("PlacementGroups") or ()]
    return sorted((g for g in found if g is not None), key=lambda g: g.id)


class PlacementGroups:
    """The placement groups that NodeClasses select, each asked for at most once a minute.

    A group that could be found is kept for a day should EC2 not answer. `monotonic` is a clock in seconds.
    """

    def __init__(self, *, ec2: Any, monotonic: Callable[[], float]) -> None:
        self._ec2 = ec2
        self._monotonic = monotonic
        self._known: dict[tuple[str, str], tuple[float, PlacementGroup | None]] = {}

    async def of(self, node_class: EC2NodeClass) -> PlacementGroup | None:
        """The group that a NodeClass selects; None when it selects none, or one that is not there.

        Raises:
            CloudError: EC2 could not be asked, and there is no answer of the last day.
        """
        selector = placement_selector(node_class)
        if not selector:
            return None
        key, now = (str(selector.get("id", "")), str(selector.get("name", ""))), self._monotonic()
        known = self._known.get(key)
        if known is not None and now - known[0] < FRESH_SECONDS:
            return known[1]
        try:
            found = await self._look_up(*key)
        except CloudError:
            if known is None or known[1] is None or now - known[0] >= KEPT_SECONDS:
                raise
            return known[1]
        self._known[key] = (now, found)
        return found

    async def _look_up(self, group_id: str, name: str) -> PlacementGroup | None:
        asked = {"GroupIds": [group_id]} if group_id else {"GroupNames": [name]}
        try:
            answer = await call("DescribePlacementGroups", self._ec2.describe_placement_groups, **asked)
        except CloudError as error:
            if error_code(error) in _UNKNOWN_GROUP:
                return None
            raise
        groups = [group_from_description(raw) for raw in answer.get("PlacementGroups") or ()]
        return next((g for g in groups if g is not None), None)
