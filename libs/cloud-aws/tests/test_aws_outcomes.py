"""What the errors of a fleet mean."""

from typing import Any

import pytest

from sawhorse_cloud.errors import CloudError, CloudUnavailableError, FailedOffering, ThrottledError, UnauthorizedError
from sawhorse_cloud_aws.outcomes import (
    SPOT_ROLE_MISSING,
    UNFULFILLABLE,
    failed_offerings,
    launch_error,
    name_cause,
)

PROFILE = "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"


def an_error(code: str, instance_type: str = "m5.large", zone: str = "us-west-2a", **overrides: str) -> dict[str, Any]:
    chosen = {"InstanceType": instance_type, "AvailabilityZone": zone, **overrides}
    return {"ErrorCode": code, "LaunchTemplateAndOverrides": {"Overrides": chosen}}


@pytest.mark.parametrize(
    "code",
    [
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        "UnsupportedOperation",
        "InsufficientFreeAddressesInSubnet",
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
    ],
)
def test_a_code_of_capacity_sets_its_offering_aside(code: str) -> None:
    assert failed_offerings([an_error(code)], "spot", [], {}) == (
        FailedOffering("spot", "m5.large", "us-west-2a", code),
    )


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "UnauthorizedOperation", "InvalidAMIID.NotFound", ""])
def test_any_other_code_marks_nothing(code: str) -> None:
    assert code not in UNFULFILLABLE
    assert failed_offerings([an_error(code)], "spot", [("m5.large", "us-west-2a")], {}) == ()


def test_an_offering_is_told_once() -> None:
    errors = [an_error("Unsupported"), an_error("Unsupported")]

    assert len(failed_offerings(errors, "spot", [], {})) == 1


def test_a_zone_that_is_not_told_is_that_of_the_subnet() -> None:
    error = an_error("Unsupported", zone="", SubnetId="subnet-1")

    assert failed_offerings([error], "spot", [], {"subnet-1": "us-west-2b"})[0].zone == "us-west-2b"


def test_an_error_about_no_offering_in_particular_marks_none() -> None:
    assert failed_offerings([{"ErrorCode": "MaxFleetCountExceeded"}], "spot", [], {}) == ()


def test_without_the_spot_role_every_spot_offering_is_out() -> None:
    asked = [("m5.large", "us-west-2a"), ("c5.large", "us-west-2b")]

    failed = failed_offerings([an_error(SPOT_ROLE_MISSING)], "spot", asked, {})

    assert [(f.instance_type, f.zone) for f in failed] == asked


@pytest.mark.parametrize(
    ("code", "text", "kind", "reason"),
    [
        ("RequestLimitExceeded", "slow down", ThrottledError, "RequestLimitExceeded"),
        ("UnauthorizedOperation", "no", UnauthorizedError, "Unauthorized"),
        ("InternalError", "oops", CloudUnavailableError, "CloudUnavailable"),
        ("InvalidAMIID.NotFound", "The image id 'ami-1' does not exist", CloudError, "AMINotFound"),
        ("InvalidAMIID.Malformed", "bad", CloudError, "InvalidAMIID"),
        ("AuthFailure", "Not authorized for images: [ami-1]", CloudError, "AMIAuthorizationFailure"),
        ("InvalidParameterValue", PROFILE, CloudError, "InstanceProfileNameInvalid"),
        (
            "InvalidParameter",
            "Security group sg-1 and subnet subnet-1 belong to different networks.",
            CloudError,
            "SecurityGroupSubnetVPCMismatch",
        ),
        ("InvalidParameterValue", "User data is limited to 16384 bytes", CloudError, "UserDataSizeLimitExceeded"),
        ("InvalidLaunchTemplateName.NotFoundException", "gone", CloudError, "LaunchTemplateNotFound"),
        ("PendingVerification", "wait", CloudError, "AccountPendingVerification"),
        ("InvalidGroup.NotFound", "sg-1", CloudError, "InvalidGroupNotFound"),
    ],
)
def test_a_fault_among_a_fleets_errors_has_a_class_and_a_word(
    code: str, text: str, kind: type[CloudError], reason: str
) -> None:
    error = launch_error(code, text)

    assert type(error) is kind
    assert error.reason == reason
    assert code in str(error)


def test_offerings_that_were_out_of_capacity_are_kept_beside_the_fault() -> None:
    out = FailedOffering("spot", "m5.large", "us-west-2a", "Unsupported")

    assert launch_error("RequestLimitExceeded", "x", failed=[out]).failed == (out,)
    assert launch_error("InvalidAMIID.NotFound", "x", failed=[out]).failed == (out,)


def test_the_error_of_a_whole_call_gets_the_exact_word_and_what_helps() -> None:
    error = CloudError("CreateFleet: MaxFleetCountExceeded: too many", reason="MaxFleetCountExceeded")

    name_cause(error, "MaxFleetCountExceeded")

    assert (error.reason, error.action) == ("FleetQuotaExceeded", "Ask AWS for a higher quota.")


def test_a_throttled_call_keeps_its_class() -> None:
    error = ThrottledError("CreateFleet: RequestLimitExceeded: x")

    name_cause(error, "VcpuLimitExceeded")

    assert error.reason == "RequestLimitExceeded"
