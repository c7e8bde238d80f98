"""What an error code of CreateFleet means for the claims: elsewhere, later, or a person must act. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sawhorse_cloud.errors import CloudError, FailedOffering
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


def failed_offerings(
    errors: Iterable[Mapping[str, Any]], capacity_type: str, asked: Iterable[tuple[str, str]], zones: Mapping[str, str]
) -> tuple[FailedOffering, ...]:
    """The offerings that a fleet's errors say are out, each once.

    Args:
        errors: of the answer to CreateFleet.
        asked: (instance type, zone) of the request: all are out when EC2 may not start spot instances.
        zones: subnet id → zone, for errors that do not name the zone.
    """
    found: dict[FailedOffering, None] = {}
    for error in errors:
        code = str(error.get("ErrorCode", ""))
        if code not in UNFULFILLABLE:
            continue
        if code == SPOT_ROLE_MISSING:
            found.update(dict.fromkeys(FailedOffering(capacity_type, *pair, code) for pair in asked))
            continue
        overrides = error.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        name = str(overrides.get("InstanceType", ""))
        zone = str(overrides.get("AvailabilityZone") or zones.get(overrides.get("SubnetId", ""), ""))
        if name and zone:
            found[FailedOffering(capacity_type, name, zone, code)] = None
    return tuple(found)
