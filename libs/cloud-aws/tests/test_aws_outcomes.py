"""What the errors of a fleet mean."""

from typing import Any

import pytest

from sawhorse_cloud.errors import CloudError, CloudUnavailableError, FailedOffering, ThrottledError, UnauthorizedError
from sawhorse_cloud_aws.calls import SERVER_SIDE, THROTTLED, UNAUTHORIZED
from sawhorse_cloud_aws.outcomes import (
    SPOT_ROLE_MISSING,
    SUBNET_FULL,
    UNFULFILLABLE,
    Limits,
    failed_offerings,
    launch_error,
    name_cause,
    with_quotas,
)

PROFILE = "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"


def an_error(code: str, instance_type: str = "m5.large", zone: str = "us-west-2a", **overrides: str) -> dict[str, Any]:
    chosen = {"InstanceType": instance_type, "AvailabilityZone": zone, **overrides}
    return {"ErrorCode": code, "LaunchTemplateAndOverrides": {"Overrides": chosen}}


def failed(*errors: dict[str, Any], capacity_type: str = "spot", **limits: Any) -> list[tuple[str, ...]]:
    return [
        (f.capacity_type, f.instance_type, f.zone, f.scope)
        for f in failed_offerings(errors, capacity_type, Limits(**limits))
    ]


@pytest.mark.parametrize("code", sorted(UNFULFILLABLE - {SPOT_ROLE_MISSING, SUBNET_FULL}))
def test_a_code_of_capacity_sets_its_offering_aside(code: str) -> None:
    assert failed_offerings([an_error(code)], "spot") == (FailedOffering("spot", "m5.large", "us-west-2a", code),)


@pytest.mark.parametrize(
    "code",
    [*sorted(THROTTLED), *sorted(UNAUTHORIZED), *sorted(SERVER_SIDE), "InvalidAMIID.NotFound", "FutureCode", ""],
)
def test_any_other_code_marks_nothing_throttling_above_all(code: str) -> None:
    assert code not in UNFULFILLABLE
    assert failed_offerings([an_error(code)], "spot") == ()


def test_the_codes_of_launch_md_are_all_here() -> None:
    told = {
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        "InsufficientFreeAddressesInSubnet",
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
    }

    assert told <= UNFULFILLABLE


def test_an_offering_is_told_once() -> None:
    assert len(failed(an_error("Unsupported"), an_error("Unsupported"))) == 1


def test_a_zone_that_is_not_told_is_that_of_the_subnet() -> None:
    error = an_error("Unsupported", zone="", SubnetId="subnet-1")

    assert failed(error, zones={"subnet-1": "us-west-2b"})[0][2] == "us-west-2b"


def test_an_error_about_no_offering_in_particular_marks_none() -> None:
    assert failed_offerings([{"ErrorCode": "MaxFleetCountExceeded"}], "spot") == ()


def test_without_the_spot_role_all_spot_is_out() -> None:
    assert failed(an_error(SPOT_ROLE_MISSING)) == [("spot", "*", "*", "quota/all")]


def test_a_full_subnet_is_out_and_its_zones_offerings_are_not() -> None:
    told = an_error(SUBNET_FULL, SubnetId="subnet-9")
    untold = an_error(SUBNET_FULL)

    assert failed(told) == [("spot", "*", "us-west-2a", "subnet/subnet-9")]
    assert failed(untold, subnets={"us-west-2a": "subnet-1"}) == [("spot", "*", "us-west-2a", "subnet/subnet-1")]
    assert failed(untold) == []


def test_a_lack_in_a_reservation_is_that_reservations_alone() -> None:
    aimed = {("m5.large", "us-west-2a"): "cr-1"}

    found = failed(an_error("ReservationCapacityExceeded"), capacity_type="reserved", reservations=aimed)

    assert found == [("reserved", "m5.large", "us-west-2a", "reservation/cr-1")]


def test_a_lack_in_a_placement_group_is_that_groups_or_partitions_alone() -> None:
    assert failed(an_error("InsufficientInstanceCapacity"), group="group/pg-1/3") == [
        ("spot", "m5.large", "us-west-2a", "group/pg-1/3")
    ]


def test_a_spread_group_with_its_number_of_machines_has_no_type_left_in_that_zone() -> None:
    error = an_error("FutureCode") | {"ErrorMessage": "You have reached the limit of instances in this spread group."}

    assert failed(error, group="group/pg-1", spread=True) == [("spot", "*", "us-west-2a", "group/pg-1")]
    assert failed(error, group="group/pg-1", spread=False) == []


def test_a_quota_stops_all_types_that_share_it_from_the_smallest_that_failed_on() -> None:
    errors = [
        an_error("VcpuLimitExceeded", "m5.4xlarge"),
        an_error("VcpuLimitExceeded", "c5.2xlarge"),
        an_error("VcpuLimitExceeded", "g5.xlarge"),
        an_error("InsufficientInstanceCapacity", "p4d.24xlarge"),
    ]
    vcpus = {"m5.4xlarge": 16, "c5.2xlarge": 8, "g5.xlarge": 4, "p4d.24xlarge": 96}

    found = with_quotas(failed_offerings(errors, "on-demand"), vcpus)

    assert sorted((f.instance_type, f.zone, f.code, f.scope) for f in found) == [
        ("*", "*", "VcpuLimitExceeded", "quota/g/4"),
        ("*", "*", "VcpuLimitExceeded", "quota/standard/8"),
        ("p4d.24xlarge", "us-west-2a", "InsufficientInstanceCapacity", ""),
    ]


@pytest.mark.parametrize(
    ("code", "text", "kind", "reason"),
    [
        ("RequestLimitExceeded", "slow down", ThrottledError, "RequestLimitExceeded"),
        ("UnauthorizedOperation", "no", UnauthorizedError, "Unauthorized"),
        ("InternalError", "oops", CloudUnavailableError, "InternalError"),
        ("ServiceUnavailable", "oops", CloudUnavailableError, "CloudUnavailable"),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "no", CloudError, "SpotSLRCreationFailed"),
        ("InstanceLimitExceeded", "too many", CloudError, "VCPULimitExceeded"),
        ("VcpuLimitExceeded", "too many", CloudError, "VCPULimitExceeded"),
        ("MaxSpotInstanceCountExceeded", "too many", CloudError, "SpotQuotaExceeded"),
        ("MaxFleetCountExceeded", "too many", CloudError, "FleetQuotaExceeded"),
        ("InsufficientFreeAddressesInSubnet", "full", CloudError, "InsufficientFreeAddressesInSubnet"),
        ("InvalidParameterCombination", "is not eligible for Free Tier", CloudError, "FreeTierIneligible"),
        (
            "UnauthorizedOperation",
            "with an explicit deny in a service control policy",
            UnauthorizedError,
            "Unauthorized",
        ),
        ("UnauthorizedOperation", "no permissions boundary allows it", UnauthorizedError, "Unauthorized"),
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
