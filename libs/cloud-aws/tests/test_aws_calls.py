"""AWS's errors in our words, and calls that always end."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
)
from botocore.parsers import ResponseParserError

from sawhorse_cloud.errors import (
    CloudError,
    CloudUnavailableError,
    InstanceNotFoundError,
    Retry,
    ThrottledError,
    UnauthorizedError,
)
from sawhorse_cloud_aws import calls
from sawhorse_cloud_aws.calls import call, chunks, error_code, is_too_large, pages, translate

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def an_error(code: str, message: str = "why", *, status: int = 400, date: str = "") -> ClientError:
    response: dict[str, Any] = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {"date": date} if date else {}},
    }
    return ClientError(response, "Anything")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        ("RequestLimitExceeded", ThrottledError, "RequestLimitExceeded"),
        ("ThrottlingException", ThrottledError, "RequestLimitExceeded"),
        ("Throttling", ThrottledError, "RequestLimitExceeded"),
        ("RequestThrottled", ThrottledError, "RequestLimitExceeded"),
        ("TooManyRequestsException", ThrottledError, "RequestLimitExceeded"),
        ("UnauthorizedOperation", UnauthorizedError, "Unauthorized"),
        ("AccessDenied", UnauthorizedError, "Unauthorized"),
        ("AccessDeniedException", UnauthorizedError, "Unauthorized"),
        ("ExpiredToken", UnauthorizedError, "Unauthorized"),
        ("InvalidInstanceID.NotFound", InstanceNotFoundError, "InstanceNotFound"),
        ("InvalidInstanceID.Malformed", InstanceNotFoundError, "InstanceNotFound"),
        ("InternalError", CloudUnavailableError, "CloudUnavailable"),
        ("ServiceUnavailable", CloudUnavailableError, "CloudUnavailable"),
        ("InvalidGroup.NotFound", CloudError, "InvalidGroupNotFound"),
        ("IdempotentParameterMismatch", CloudError, "IdempotentParameterMismatch"),
        ("", CloudError, "CloudError"),
    ],
)
def test_a_code_becomes_an_error_of_its_class(code: str, kind: type[CloudError], reason: str) -> None:
    error = translate("DescribeInstances", an_error(code))

    assert type(error) is kind
    assert error.reason == reason
    assert str(error).startswith("DescribeInstances: ")


def test_an_unknown_code_with_a_server_status_is_the_servers_trouble() -> None:
    assert type(translate("X", an_error("Strange", status=503))) is CloudUnavailableError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EndpointConnectionError(endpoint_url="http://x"), CloudUnavailableError),
        (ConnectTimeoutError(endpoint_url="http://x"), CloudUnavailableError),
        (NoCredentialsError(), UnauthorizedError),
        (ParamValidationError(report="bad\n  value"), CloudError),
        (ResponseParserError("not XML"), CloudUnavailableError),
        (aiohttp.ClientPayloadError("cut off"), CloudUnavailableError),
        (ConnectionResetError("reset"), CloudUnavailableError),
    ],
)
async def test_no_error_of_the_sdk_or_its_transport_gets_out(error: Exception, kind: type[CloudError]) -> None:
    async def fails() -> None:
        raise error

    with pytest.raises(CloudError) as caught:
        await call("Anything", fails)

    assert type(caught.value) is kind
    assert caught.value.__cause__ is error
    assert "\n" not in str(caught.value)


def test_a_refusal_says_which_permission_is_missing() -> None:
    error = translate("CreateFleet", an_error("UnauthorizedOperation"))

    assert error.action == "Allow CreateFleet in the role's policy."


def test_a_wrong_clock_is_told_from_missing_permission() -> None:
    error = translate("X", an_error("RequestExpired", date="Sun, 01 Mar 2026 12:20:00 GMT"), now=NOW)

    assert "this machine's clock differs from AWS's by 20 min" in str(error)
    assert error.action == "Set the clock right."


@pytest.mark.parametrize("date", ["Sun, 01 Mar 2026 12:00:30 GMT", "", "not a date"])
def test_a_right_or_unknown_clock_is_not_blamed(date: str) -> None:
    error = translate("X", an_error("AuthFailure", date=date), now=NOW)

    assert "clock" not in str(error)


def test_a_long_message_is_cut() -> None:
    assert len(str(translate("X", an_error("Y", "z" * 5000)))) == 300


def test_the_code_behind_one_of_our_errors_can_be_asked_for() -> None:
    cause = an_error("InvalidAMIID.NotFound")
    ours = translate("X", cause)
    ours.__cause__ = cause

    assert error_code(ours) == "InvalidAMIID.NotFound"
    assert error_code(ValueError("x")) == ""


@pytest.mark.parametrize(
    ("error", "large"),
    [(an_error("RequestEntityTooLarge"), True), (an_error("X", status=413), True), (an_error("X"), False)],
)
def test_a_request_that_is_too_large_is_known_by_code_or_status(error: ClientError, large: bool) -> None:
    assert is_too_large(error) is large


async def test_a_call_without_an_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CALL_TIMEOUT_SECONDS", 0.01)

    with pytest.raises(CloudUnavailableError, match="no answer within"):
        await call("DescribeInstances", asyncio.Event().wait)


async def test_a_cancelled_call_stays_cancelled() -> None:
    waiting = asyncio.get_running_loop().create_task(call("X", asyncio.Event().wait))
    await asyncio.sleep(0)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


class Paged:
    """An SDK client whose pages are given."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.answers = answers

    def get_paginator(self, method: str) -> "Paged":
        assert method == "describe_things"
        return self

    async def paginate(self, **arguments: Any) -> AsyncIterator[dict[str, Any]]:
        for answer in self.answers:
            if isinstance(answer, Exception):
                raise answer
            yield answer


async def test_all_pages_are_read() -> None:
    client = Paged({"Things": [1, 2]}, {}, {"Things": [3]})

    assert await pages("DescribeThings", client, "describe_things", "Things") == [1, 2, 3]


async def test_a_page_that_fails_fails_the_whole() -> None:
    client = Paged({"Things": [1]}, an_error("RequestLimitExceeded"))

    with pytest.raises(ThrottledError):
        await pages("DescribeThings", client, "describe_things", "Things")


def test_values_are_cut_into_lists_that_a_filter_takes() -> None:
    assert [len(part) for part in chunks([str(n) for n in range(450)])] == [200, 200, 50]
    assert chunks([]) == []


def test_only_what_another_pool_may_have_is_retried_elsewhere() -> None:
    assert (ThrottledError.retry, UnauthorizedError.retry) == (Retry.BACKOFF, Retry.BACKOFF)
    assert InstanceNotFoundError.retry is Retry.NEVER
