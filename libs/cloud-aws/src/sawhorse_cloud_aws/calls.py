"""SDK clients and calls: bounded, retried by the SDK for transport trouble, errors in our words.

`call` and `pages` are the only ways to call AWS here. They map error codes by the tables below and never let an error
of the SDK out.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.resources import files
from typing import Any

import aioboto3
import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from sawhorse_cloud.errors import (
    CloudError,
    CloudUnavailableError,
    InstanceNotFoundError,
    ThrottledError,
    UnauthorizedError,
)

CALL_TIMEOUT_SECONDS = 60.0  # for a call, and for each page of many
PAGES_TIMEOUT_SECONDS = 300.0
LONGEST_MESSAGE = 300
# EC2's limit of values in one filter.
FILTER_VALUES = 200
# Less than this between our clock and AWS's is ordinary.
_SKEW_SECONDS = 60

THROTTLED = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "EC2ThrottledException",
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
        "BandwidthLimitExceeded",
        "SlowDown",
        "PriorRequestNotComplete",
    },
)
UNAUTHORIZED = frozenset(
    {
        "UnauthorizedOperation",
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "AuthorizationError",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "InvalidSignatureException",
        "IncompleteSignature",
        "MissingAuthenticationToken",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "OptInRequired",
        "UnrecognizedClientException",
    },
)
INSTANCE_NOT_FOUND = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
TEMPLATE_NOT_FOUND = frozenset(
    {
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.NotFoundException",
        "InvalidLaunchTemplateName.NotFound",
    },
)
SERVER_SIDE = frozenset(
    {"InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "InternalServerError"}
)
TOO_LARGE = frozenset({"RequestEntityTooLarge", "RequestTooLarge", "PayloadTooLarge", "RequestEntityTooLargeException"})
_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    ProfileNotFound,
)


def error_code(error: BaseException) -> str:
    """The AWS error code behind one of our errors (or an SDK error); empty when there is none."""
    cause = error if isinstance(error, ClientError) else error.__cause__
    if isinstance(cause, ClientError):
        return str(cause.response.get("Error", {}).get("Code", ""))
    return ""


def is_too_large(error: BaseException) -> bool:
    """Whether AWS refused a request because of its size."""
    cause = error if isinstance(error, ClientError) else error.__cause__
    if not isinstance(cause, ClientError):
        return False
    status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return error_code(cause) in TOO_LARGE or status == 413


def error_for(operation: str, code: str, text: str, *, status: int = 0, hint: str = "") -> CloudError:
    """Our error for an AWS error code.

    Args:
        operation: the API action, e.g. CreateFleet.
        text: AWS's own message.
        status: of HTTP, 0 when the code did not come as an HTTP error.
        hint: a sentence to add.
    """
    message = f"{operation}: {code}: {text.strip()}"[:LONGEST_MESSAGE] + hint
    if code in THROTTLED:
        return ThrottledError(message)
    if code in UNAUTHORIZED:
        action = f"Allow {operation} in the role's policy."
        return UnauthorizedError(message, action="Set the clock right." if hint else action)
    if code in INSTANCE_NOT_FOUND:
        return InstanceNotFoundError(message)
    if code in SERVER_SIDE or status >= 500:
        return CloudUnavailableError(message)
    return CloudError(message, reason=code.replace(".", "") or "CloudError")


def translate(operation: str, error: Exception, *, now: datetime | None = None) -> CloudError:
    """Our error for an SDK error. `now` is this machine's time; None reads the clock."""
    if isinstance(error, ClientError):
        details = error.response.get("Error", {})
        metadata = error.response.get("ResponseMetadata", {})
        code = str(details.get("Code", ""))
        hint = _clock_hint(metadata.get("HTTPHeaders", {}), now) if code in UNAUTHORIZED else ""
        return error_for(
            operation,
            code,
            str(details.get("Message", "")),
            status=int(metadata.get("HTTPStatusCode") or 0),
            hint=hint,
        )
    message = f"{operation}: {error or type(error).__name__}"[:LONGEST_MESSAGE]
    if isinstance(error, ParamValidationError):
        return CloudError(" ".join(message.split()), reason="InvalidParameter", action="Check the NodeClass's fields.")
    if isinstance(error, _CREDENTIALS):
        return UnauthorizedError(message, action="Give the controller an AWS role, or set the SDK's variables.")
    if isinstance(error, NoRegionError):
        return CloudError(message, reason="InvalidParameter", action="Set --aws-region.")
    return CloudUnavailableError(message)


def _clock_hint(headers: Mapping[str, str], now: datetime | None) -> str:
    """A refused signature is often a wrong clock: say so, by the time in AWS's answer."""
    try:
        theirs = parsedate_to_datetime(headers.get("date") or headers.get("Date") or "")
    except (TypeError, ValueError):
        return ""
    if theirs.tzinfo is None:
        theirs = theirs.replace(tzinfo=UTC)
    # An error text: no decision hangs on this reading of the clock.
    ours = now or datetime.now(UTC)  # noqa: TID251
    skew = abs((theirs - ours).total_seconds())
    if skew < _SKEW_SECONDS:
        return ""
    return f" (this machine's clock differs from AWS's by {round(skew / 60)} min)"


async def call(operation: str, method: Callable[..., Awaitable[Any]], /, **arguments: Any) -> Any:
    """Call one SDK method within a bound.

    Raises:
        CloudError: of the class that fits.
    """
    return await _bounded(operation, lambda: method(**arguments), CALL_TIMEOUT_SECONDS)


async def _bounded(operation: str, make: Callable[[], Awaitable[Any]], seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await make()
    except TimeoutError as error:
        raise CloudUnavailableError(f"{operation}: no answer within {seconds:.0f} s") from error
    # Beside its own errors the SDK lets those of its transport and of its parsers through.
    except (ClientError, BotoCoreError, ResponseParserError, aiohttp.ClientError, OSError) as error:
        raise translate(operation, error) from error


async def pages(operation: str, client: Any, method: str, key: str, /, **arguments: Any) -> list[Any]:
    """All items of a paginated call, or an error: never a part.

    Raises:
        CloudError: any page failed.
    """

    async def collect() -> list[Any]:
        found: list[Any] = []
        iterator = aiter(client.get_paginator(method).paginate(**arguments))
        while True:
            page = await _bounded(operation, lambda: anext(iterator, None), CALL_TIMEOUT_SECONDS)
            if page is None:
                return found
            found.extend(page.get(key) or ())

    result: list[Any] = await _bounded(operation, collect, PAGES_TIMEOUT_SECONDS)
    return result


def chunks(values: Sequence[str], size: int = FILTER_VALUES) -> list[list[str]]:
    """Values in lists of at most `size`, in order: one filter of EC2 takes no more."""
    return [list(values[start : start + size]) for start in range(0, len(values), size)]


def session() -> aioboto3.Session:
    """A session with the SDK's own search for credentials, and fields of EC2 that the pinned SDK does not know yet."""
    core = AioSession()
    # aioboto3's pin of botocore predates CpuOptions.NestedVirtualization, and would refuse to send it. botocore merges
    # files named *.sdk-extras.json into its models. Drop the folder once the pin has the field: a test says when.
    core.get_component("data_loader").search_paths.append(str(files("sawhorse_cloud_aws") / "botocore_data"))
    return aioboto3.Session(botocore_session=core)


@asynccontextmanager
async def client(service: str, *, region: str, endpoint_url: str = "", attempts: int = 3) -> AsyncIterator[Any]:
    """An SDK client. `endpoint_url` empty: AWS's own.

    Raises:
        CloudError: the client cannot be made (no region, no such profile).
    """
    config = AioConfig(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=5,
        read_timeout=40,
        max_pool_connections=64,
    )
    async with AsyncExitStack() as stack:
        try:
            made = session().client(service, region_name=region, endpoint_url=endpoint_url or None, config=config)
            connected = await stack.enter_async_context(made)
        except (BotoCoreError, ValueError) as error:
            raise translate(f"connect to {service}", error) from error
        yield connected


def tag_map(tags: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    """EC2's list of tags as a map."""
    return {t["Key"]: t.get("Value", "") for t in tags or ()}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """A map of tags as EC2's list, sorted."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
