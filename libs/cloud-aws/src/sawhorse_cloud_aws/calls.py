"""SDK clients and calls: bounded, retried by the SDK for transport trouble, errors in our words.

`call` is the one way to call AWS here. It maps error codes by the table below and never lets an SDK error out.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aioboto3
from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError, ClientError

from sawhorse_cloud.errors import (
    CloudError,
    CloudUnavailableError,
    InstanceNotFoundError,
    ThrottledError,
    UnauthorizedError,
)

CALL_TIMEOUT_SECONDS = 60.0

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
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
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
        "InvalidLaunchTemplateName.NotFound",
    },
)
SERVER_SIDE = frozenset(
    {"InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "InternalServerError"}
)


def error_code(error: BaseException) -> str:
    """The AWS error code behind one of our errors (or an SDK error); empty when there is none."""
    cause = error if isinstance(error, ClientError) else error.__cause__
    if isinstance(cause, ClientError):
        return str(cause.response.get("Error", {}).get("Code", ""))
    return ""


def translate(operation: str, error: Exception) -> CloudError:
    """Our error for an SDK error."""
    if isinstance(error, ClientError):
        details = error.response.get("Error", {})
        code, text = str(details.get("Code", "")), str(details.get("Message", "")).strip()
        message = f"{operation}: {code}: {text}"[:300]
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in THROTTLED:
            return ThrottledError(message)
        if code in UNAUTHORIZED:
            date = str(error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", ""))
            hint = f" AWS's clock says {date}." if code in ("RequestExpired", "SignatureDoesNotMatch") and date else ""
            return UnauthorizedError(
                message + hint, action=f"Allow {operation} in the role's policy, or fix the clock."
            )
        if code in INSTANCE_NOT_FOUND:
            return InstanceNotFoundError(message)
        if code in SERVER_SIDE or status >= 500:
            return CloudUnavailableError(message)
        return CloudError(message, reason=code.replace(".", "") or "CloudError")
    return CloudUnavailableError(f"{operation}: {error}"[:300])


async def call(operation: str, method: Callable[..., Awaitable[Any]], /, **arguments: Any) -> Any:
    """Call one SDK method within a bound.

    Raises:
        CloudError: of the class that fits.
    """
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            return await method(**arguments)
    except (ClientError, BotoCoreError) as error:
        raise translate(operation, error) from error
    except TimeoutError as error:
        raise CloudUnavailableError(f"{operation}: no answer within {CALL_TIMEOUT_SECONDS:.0f} s") from error


async def pages(operation: str, client: Any, method: str, key: str, /, **arguments: Any) -> list[Any]:
    """All items of a paginated call, or an error: never a part.

    Raises:
        CloudError: any page failed.
    """

    async def collect() -> list[Any]:
        found: list[Any] = []
        async for page in client.get_paginator(method).paginate(**arguments):
            found.extend(page.get(key) or ())
        return found

    result: list[Any] = await call(operation, collect)
    return result


def session() -> aioboto3.Session:
    """A session with the SDK's own search for credentials."""
    return aioboto3.Session()


@asynccontextmanager
async def client(service: str, *, region: str, endpoint_url: str = "", attempts: int = 3) -> AsyncIterator[Any]:
    """An SDK client. `endpoint_url` empty: AWS's own."""
    config = AioConfig(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=5,
        read_timeout=40,
        max_pool_connections=64,
    )
    async with session().client(
        service, region_name=region, endpoint_url=endpoint_url or None, config=config
    ) as connected:
        yield connected


def tag_map(tags: list[Mapping[str, str]] | None) -> dict[str, str]:
    """EC2's list of tags as a map."""
    return {t["Key"]: t.get("Value", "") for t in tags or ()}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """A map of tags as EC2's list, sorted."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
