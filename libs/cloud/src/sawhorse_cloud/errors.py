"""What can go wrong with a cloud, in our words. Adapters turn SDK errors into these; loops obey `retry`.

CloudError
├── InsufficientCapacityError   no offering could be filled: try others
├── NodeClassNotReadyError      subnets, images or profile not resolved yet
├── InstanceNotFoundError       the cloud does not know the instance
├── ThrottledError              asked too often: same call again, later
├── UnauthorizedError           the cloud refuses: a person must act
└── CloudUnavailableError       no answer, or an answer that says nothing
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Retry(StrEnum):
    """What a loop does next. Same words as sawhorse_runtime.errors.Retry."""

    NEVER = "never"
    BACKOFF = "backoff"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class FailedOffering:
    """An offering that the cloud could not fill, and its error code.

    `scope` is the word of what the lack is limited to (see `scopes`), empty for everybody; with one, instance type and
    zone may be `*`.
    """

    capacity_type: str
    instance_type: str
    zone: str
    code: str
    scope: str = ""


class CloudError(Exception):
    """Base of all.

    `action` tells a person what helps; empty when waiting does. `failed` are offerings that were found to have no
    capacity on the way to this error, whatever the error itself is about: mark them all the same.
    """

    reason = "CloudError"
    retry = Retry.BACKOFF

    def __init__(
        self, message: str, *, action: str = "", reason: str = "", failed: Sequence[FailedOffering] = ()
    ) -> None:
        super().__init__(message)
        self.action = action
        self.failed = tuple(failed)
        if reason:
            self.reason = reason  # a more exact word for the same class of outcome


class InsufficientCapacityError(CloudError):
    """The cloud has no capacity left for any requested offering. `failed` may be empty when nothing was asked."""

    reason = "InsufficientCapacity"
    retry = Retry.ELSEWHERE


class NodeClassNotReadyError(CloudError):
    """The NodeClass cannot be launched from yet."""

    reason = "NodeClassNotReady"
    retry = Retry.ELSEWHERE


class InstanceNotFoundError(CloudError):
    """The cloud does not know the instance."""

    reason = "InstanceNotFound"
    retry = Retry.NEVER


class ThrottledError(CloudError):
    """Asked too often."""

    reason = "RequestLimitExceeded"


class UnauthorizedError(CloudError):
    """The cloud refuses the call."""

    reason = "Unauthorized"


class CloudUnavailableError(CloudError):
    """The cloud could not be reached or answered with an inner error."""

    reason = "CloudUnavailable"
