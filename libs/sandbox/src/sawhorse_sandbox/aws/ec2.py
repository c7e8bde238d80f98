"""EC2's answers that moto lacks or gives wrongly, as a subclass of moto's response class."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, ClassVar, TypeVar, cast

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.responses import EC2Response

from sawhorse_sandbox.aws.fleet import FleetLauncher, available
from sawhorse_sandbox.aws.state import Reservation
from sawhorse_sandbox.aws.world import Lifecycle, World

T = TypeVar("T")
TYPES_PAGE = 100
TEMPLATES_PAGE = 200
SPOT_PRICES_PAGE = 1000
OTHERS_PAGE = 1000
SPOT_PRODUCT = "Linux/UNIX"


class SandboxEc2(EC2Response):
    """Serves the EC2 API. `world`, `lifecycle` and `fleets` are set once, before the first request."""

    __module__ = "moto.ec2.responses"  # moto derives the service from it
    world: ClassVar[World]
    lifecycle: ClassVar[Lifecycle]
    fleets: ClassVar[FleetLauncher]

    def create_fleet(self) -> ActionResult:
        """CreateFleet with capacity, allocation strategies, client tokens and whole templates."""
        self.error_on_dryrun()
        return ActionResult(self.fleets.create(self.ec2_backend, dict(self.params)))

    def run_instances(self) -> ActionResult:
        """RunInstances; the instances are pending for a while."""
        answer = super().run_instances()
        for instance in cast(Any, answer.result).instances:
            self.lifecycle.launched(instance)
        return answer

    def terminate_instances(self) -> ActionResult:
        """TerminateInstances; the instances are shutting down for a while."""
        ids = self._get_param("InstanceIds", [])
        self.error_on_dryrun()
        ended = self.ec2_backend.terminate_instances(ids)
        changes = [
            {
                "InstanceId": instance.id,
                "CurrentState": {"Code": instance.state_code, "Name": instance.state},
                "PreviousState": previous,
            }
            for instance, previous in ended
        ]
        return ActionResult({"TerminatingInstances": changes})

    def describe_instance_types(self) -> ActionResult:
        """DescribeInstanceTypes in pages, as EC2 gives them; moto gives all 1,400 at once."""
        names = self._get_param("InstanceTypes", [])
        types = self.ec2_backend.describe_instance_types(names, self._filters_from_querystring())
        return self._page("InstanceTypes", types, TYPES_PAGE)

    def describe_subnets(self) -> ActionResult:
        """DescribeSubnets; those that the state calls full have no free address."""
        subnets = cast(Any, super().describe_subnets().result)["Subnets"]
        full = self.world.state.current().full_subnets
        return ActionResult({"Subnets": [_Full(each) if each.id in full else each for each in subnets]})

    def describe_launch_templates(self) -> ActionResult:
        """DescribeLaunchTemplates in pages; moto gives the first 15 and does not say that there are more."""
        asked = self.params
        self.params = {**asked, "MaxResults": sys.maxsize}
        try:
            templates = cast(Any, super().describe_launch_templates().result)["LaunchTemplates"]
        finally:
            self.params = asked
        return self._page("LaunchTemplates", templates, TEMPLATES_PAGE)

    def describe_spot_price_history(self) -> ActionResult:
        """DescribeSpotPriceHistory: the present price of every type in every zone that offers it."""
        names = frozenset(self._get_param("InstanceTypes", []))
        filters: dict[str, Any] = dict(self._filters_from_querystring())
        if zone := self._get_param("AvailabilityZone"):
            filters["availability-zone"] = [zone]
        products = self._get_param("ProductDescriptions", []) or [SPOT_PRODUCT]
        if not any(fnmatchcase(SPOT_PRODUCT, product) for product in products):
            return ActionResult({"SpotPriceHistory": []})
        now, state = datetime.now(UTC).replace(microsecond=0), self.world.state.current()
        history = []
        for offering in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(self.region, ()):
            name, zone = offering["InstanceType"], offering["Location"]
            facts = {"instance-type": name, "availability-zone": zone, "product-description": SPOT_PRODUCT}
            if (names and name not in names) or not _passes(facts, filters):
                continue
            price = self.world.prices.spot(name, zone, self.region, state)
            if price is not None:
                history.append(
                    {
                        "AvailabilityZone": zone,
                        "InstanceType": name,
                        "ProductDescription": SPOT_PRODUCT,
                        "SpotPrice": f"{price:.6f}",
                        "Timestamp": now,
                    }
                )
        return self._page("SpotPriceHistory", history, SPOT_PRICES_PAGE)

    def describe_capacity_reservations(self) -> ActionResult:
        """DescribeCapacityReservations from the sandbox's state, with what is free counted from the instances."""
        wanted = self._get_param("CapacityReservationIds", [])
        filters = self._filters_from_querystring()
        known = [self._reservation(each) for each in self.world.state.current().reservations]
        if missing := set(wanted) - {each["CapacityReservationId"] for each in known}:
            text = f"The capacity reservations {', '.join(sorted(missing))} do not exist"
            raise EC2ClientError("InvalidCapacityReservationId.NotFound", text)
        found = [
            each
            for each in known
            if (not wanted or each["CapacityReservationId"] in wanted) and _passes(_facts(each), filters)
        ]
        return self._page("CapacityReservations", found, OTHERS_PAGE)

    def describe_placement_groups(self) -> ActionResult:
        """DescribePlacementGroups from the sandbox's state."""
        names, ids = self._get_param("GroupNames", []), self._get_param("GroupIds", [])
        filters = self._filters_from_querystring()
        groups = [
            group
            for group in self.world.state.current().placement_groups
            if (not names or group.get("GroupName") in names)
            and (not ids or group.get("GroupId") in ids)
            and _passes(_facts(group), filters)
        ]
        if missing := set(names) - {group.get("GroupName") for group in groups}:
            text = f"The placement group {', '.join(sorted(missing))} is unknown"
            raise EC2ClientError("InvalidPlacementGroup.Unknown", text)
        return ActionResult({"PlacementGroups": groups})

    def _reservation(self, reservation: Reservation) -> dict[str, Any]:
        account = self.world.account
        zone_ids = {zone.name: zone.zone_id for zone in self.ec2_backend.describe_availability_zones()}
        end = (
            {"EndDateType": "limited", "EndDate": reservation.end} if reservation.end else {"EndDateType": "unlimited"}
        )
        return {
            "CapacityReservationId": reservation.id,
            "CapacityReservationArn": f"arn:aws:ec2:{self.region}:{account}:capacity-reservation/{reservation.id}",
            "OwnerId": account,
            "InstanceType": reservation.type,
            "InstancePlatform": SPOT_PRODUCT,
            "AvailabilityZone": reservation.zone,
            "AvailabilityZoneId": zone_ids.get(reservation.zone, ""),
            "Tenancy": "default",
            "TotalInstanceCount": reservation.count,
            "AvailableInstanceCount": available(self.ec2_backend, reservation.id, reservation.count),
            "State": reservation.state,
            "InstanceMatchCriteria": reservation.match,
            "ReservationType": reservation.kind,
            "Interruptible": reservation.interruptible,
            "Tags": [{"Key": key, "Value": value} for key, value in reservation.tags.items()],
            **end,
        }

    def _page(self, field: str, items: Sequence[T], most: int) -> ActionResult:
        start = int(self._get_param("NextToken") or 0)
        end = start + min(int(self._get_param("MaxResults") or most), most)
        more = {"NextToken": str(end)} if end < len(items) else {}
        return ActionResult({field: items[start:end], **more})


def _facts(item: Mapping[str, Any]) -> dict[str, str]:
    """Turn the fields of a described thing into the names that EC2's filters use."""
    facts = {_dashed(key): str(value) for key, value in item.items() if isinstance(value, str | int)}
    facts |= {"availability-zone": item.get("AvailabilityZone", ""), "placement-group-arn": item.get("GroupArn", "")}
    return facts | {f"tag:{tag['Key']}": tag["Value"] for tag in item.get("Tags") or ()}


def _dashed(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")


def _passes(facts: Mapping[str, str], filters: Mapping[str, Iterable[str]]) -> bool:
    for name, values in filters.items():
        if name == "tag-key":
            tags = [fact.removeprefix("tag:") for fact in facts if fact.startswith("tag:")]
            if not any(fnmatchcase(tag, value) for tag in tags for value in values):
                return False
        elif name not in facts or not any(fnmatchcase(facts[name], value) for value in values):
            return False
    return True


class _Full:
    """A subnet of moto's that has no free address."""

    available_ip_address_count = 0

    def __init__(self, subnet: Any) -> None:
        self._subnet = subnet

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subnet, name)
