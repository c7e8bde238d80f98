"""What an error code of CreateFleet means for the claims: elsewhere, later, or a person must act. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sawhorse_catalog.aws.quotas import EVERY_CLASS, quota_class
from sawhorse_cloud.errors import CloudError, FailedOffering
from sawhorse_cloud.scopes import ANY, Scope, ScopeKind
from sawhorse_cloud_aws.calls import LONGEST_MESSAGE, TEMPLATE_NOT_FOUND, error_for

# EC2 may not start spot instances in this account at all: all spot offerings of the request are out at once.
SPOT_ROLE_MISSING = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
SUBNET_FULL = "InsufficientFreeAddressesInSubnet"

# Codes that say "not here, not now". The offering is set aside; anything else among the errors is a fault to report.
UNFULFILLABLE = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        # Not in Karpenter's list, where a stale catalogue therefore loops: the type cannot do what the template asks.
        "UnsupportedOperation",
        SUBNET_FULL,
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
        SPOT_ROLE_MISSING,
    },
)

_INTERNAL = frozenset({"InternalError", "InternalFailure"})
_QUOTA_CODES = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"})

# Code → (word for conditions and metrics, what helps).
_WORDS: Mapping[str, tuple[str, str]] = {
    SPOT_ROLE_MISSING: (
        "SpotSLRCreationFailed",
        "Create the service-linked role of EC2 Spot: aws iam create-service-linked-role --aws-service-name "
        "spot.amazonaws.com.",
    ),
    "InvalidAMIID.NotFound": ("AMINotFound", "Check spec.amiSelectorTerms: the image is gone."),
    "InvalidAMIID.Unavailable": ("AMINotFound", "Check spec.amiSelectorTerms: the image is gone."),
    "InvalidAMIID.Malformed": ("InvalidAMIID", "Check spec.amiSelectorTerms."),
    "InstanceLimitExceeded": ("VCPULimitExceeded", "Ask AWS for a higher quota."),
    "VcpuLimitExceeded": ("VCPULimitExceeded", "Ask AWS for a higher quota."),
    "MaxSpotInstanceCountExceeded": ("SpotQuotaExceeded", "Ask AWS for a higher quota."),
    "MaxFleetCountExceeded": ("FleetQuotaExceeded", "Ask AWS for a higher quota."),
    SUBNET_FULL: (SUBNET_FULL, "Add a subnet, or free addresses."),
    "PendingVerification": ("AccountPendingVerification", "Wait for AWS to verify the account."),
    **{code: ("LaunchTemplateNotFound", "") for code in TEMPLATE_NOT_FOUND},
}

# Parts of messages that tell more than their code does, with the code they come under ("" is any).
_TOLD: Sequence[tuple[str, str, str, str]] = (
    ("", "belong to different networks", "SecurityGroupSubnetVPCMismatch", "Select both in one VPC."),
    (
        "",
        "invalid iam instance profile name",
        "InstanceProfileNameInvalid",
        "The profile may be new; otherwise check spec.role or spec.instanceProfile.",
    ),
    ("", "user data is limited to", "UserDataSizeLimitExceeded", "Shorten spec.userData."),
    ("", "not eligible for free tier", "FreeTierIneligible", "Allow types of the free tier, or upgrade the account."),
    ("AuthFailure", "not authorized for images", "AMIAuthorizationFailure", "Share the image with this account."),
)


def launch_error(code: str, text: str, *, failed: Sequence[FailedOffering] = ()) -> CloudError:
    """Our error for a code among a fleet's errors.

    Args:
        failed: offerings of the same fleet that had no capacity.
    """
    word, action = launch_word(code, text)
    if word:
        message = f"CreateFleet: {code}: {text.strip()}"[:LONGEST_MESSAGE]
        return CloudError(message, reason=word, action=action, failed=failed)
    error = error_for("CreateFleet", code, text)
    if code in _INTERNAL:
        error.reason = "InternalError"
    error.failed = tuple(failed)
    return error


def launch_word(code: str, text: str) -> tuple[str, str]:
    """The stable word for a launch error and what helps; both empty where the code is no special case."""
    lower = text.lower()
    for under, part, word, action in _TOLD:
        if part in lower and under in ("", code):
            return word, action
    return _WORDS.get(code, ("", ""))


def name_cause(error: CloudError, code: str) -> None:
    """Give the error of a whole call the more exact word, where there is one. Its class stays."""
    word, action = launch_word(code, str(error))
    if word and type(error) is CloudError:
        error.reason = word
        error.action = error.action or action


@dataclass(frozen=True, slots=True)
class Limits:
    """What a launch was confined to, so that a lack of capacity says nothing about others.

    `reservations` maps (instance type, zone) to the reservation that was aimed at, `group` is the word of the placement
    group's scope, and `spread` whether the group allows few machines in a zone. `zones` and `subnets` are those of the
    request: subnet id → zone, and zone → the subnet that was chosen there.
    """

    zones: Mapping[str, str] = field(default_factory=dict)
    subnets: Mapping[str, str] = field(default_factory=dict)
    reservations: Mapping[tuple[str, str], str] = field(default_factory=dict)
    group: str = ""
    spread: bool = False


def failed_offerings(
    errors: Iterable[Mapping[str, Any]], capacity_type: str, limits: Limits | None = None
) -> tuple[FailedOffering, ...]:
    """The offerings that a fleet's errors say are out, each once and for those only whom it concerns.

    Args:
        errors: of the answer to CreateFleet.
    """
    known = limits or Limits()
    found = (_failed_offering(error, capacity_type, known) for error in errors)
    return tuple(dict.fromkeys(each for each in found if each is not None))


def _failed_offering(error: Mapping[str, Any], capacity_type: str, limits: Limits) -> FailedOffering | None:
    code = str(error.get("ErrorCode", ""))
    overrides = error.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    name = str(overrides.get("InstanceType", ""))
    zone = str(overrides.get("AvailabilityZone") or limits.zones.get(overrides.get("SubnetId", ""), ""))
    if limits.spread and zone and is_spread_limit(error):
        return FailedOffering(capacity_type, ANY, zone, code, limits.group)
    if code not in UNFULFILLABLE:
        return None
    if code == SPOT_ROLE_MISSING:
        return FailedOffering(capacity_type, ANY, ANY, code, str(Scope(ScopeKind.QUOTA, EVERY_CLASS)))
    if code == SUBNET_FULL:
        # The offering is not out of capacity: NodeClasses with other subnets in the zone may well have it.
        subnet = str(overrides.get("SubnetId") or limits.subnets.get(zone, ""))
        scope = str(Scope(ScopeKind.SUBNET, subnet)) if subnet else ""
        return FailedOffering(capacity_type, ANY, zone, code, scope) if scope and zone else None
    if not (name and zone):
        return None
    if reservation := limits.reservations.get((name, zone)):
        return FailedOffering(capacity_type, name, zone, code, str(Scope(ScopeKind.RESERVATION, reservation)))
    return FailedOffering(capacity_type, name, zone, code, limits.group)


def is_spread_limit(error: Mapping[str, Any]) -> bool:
    """Whether a spread placement group has as many machines in the zone as it takes; it has no code of its own."""
    return "spread" in (text := str(error.get("ErrorMessage", "")).lower()) and "limit" in text


def with_quotas(failed: Iterable[FailedOffering], vcpus: Mapping[str, int]) -> tuple[FailedOffering, ...]:
    """The same after a launch without a machine: what a quota stops, it stops for all types that share it.

    Otherwise each plan would try the next types under the same quota. Types with fewer vCPUs than the smallest that
    failed may still fit, and stay.

    Args:
        vcpus: of the types that were asked for.
    """
    found: dict[FailedOffering, None] = {}
    least: dict[tuple[str, str, str], int] = {}
    for each in failed:
        if each.code in _QUOTA_CODES and not each.scope and vcpus.get(each.instance_type, 0) > 0:
            key = (each.capacity_type, quota_class(each.instance_type), each.code)
            least[key] = min(vcpus[each.instance_type], least.get(key, 2**31))
        else:
            found[each] = None
    for (capacity_type, shared, code), number in least.items():
        scope = str(Scope(ScopeKind.QUOTA, shared, number))
        found[FailedOffering(capacity_type, ANY, ANY, code, scope)] = None
    return tuple(found)
