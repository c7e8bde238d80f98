"""What can go wrong with Kubernetes, in our words. The client turns answers into these; loops obey `retry`.

KubeError
├── NotFoundError         the object (or its kind) does not exist
├── AlreadyExistsError    an object of this name exists
├── ConflictError         the object changed since it was read, or is another one: read again
├── GoneError             a watch or page fell behind: list again
├── EvictionBlockedError  a PodDisruptionBudget says no, for now
├── InvalidError          the request makes no sense to the API server
├── ForbiddenError        the API server refuses us: a person must act
├── ThrottledError        asked too often
├── KubeConfigError       we do not know how to reach the API server
└── KubeUnavailableError  no answer, or an inner error
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Retry(StrEnum):
    """What a loop does next. Same words as sawhorse_runtime.errors.Retry."""

    NEVER = "never"
    BACKOFF = "backoff"
    ELSEWHERE = "elsewhere"


class KubeError(Exception):
    """Base of all. `status` is the HTTP status, 0 without an answer; `action` tells a person what helps."""

    reason = "KubeError"
    retry = Retry.BACKOFF

    def __init__(self, message: str, *, action: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.action = action
        self.status = status


class NotFoundError(KubeError):
    """The object does not exist, or its kind does not: a CRD is missing."""

    reason = "NotFound"
    retry = Retry.NEVER


class AlreadyExistsError(KubeError):
    """An object of this name exists."""

    reason = "AlreadyExists"
    retry = Retry.NEVER


class ConflictError(KubeError):
    """The object changed since it was read, or a precondition (uid) names another one."""

    reason = "Conflict"


class GoneError(KubeError):
    """The resourceVersion is too old: list again and compare."""

    reason = "Gone"


class EvictionBlockedError(KubeError):
    """A PodDisruptionBudget does not allow the eviction now."""

    reason = "EvictionBlocked"


class InvalidError(KubeError):
    """The API server cannot accept the request as it is."""

    reason = "Invalid"
    retry = Retry.NEVER


class ForbiddenError(KubeError):
    """Our identity is not known or may not do this."""

    reason = "Forbidden"


class ThrottledError(KubeError):
    """The API server asks for fewer requests."""

    reason = "Throttled"


class KubeConfigError(KubeError):
    """The kubeconfig or the pod's service account cannot be used."""

    reason = "InvalidKubeConfig"
    retry = Retry.NEVER


class KubeUnavailableError(KubeError):
    """The API server could not be reached or answered with an inner error."""

    reason = "KubeUnavailable"


_CHECK_SERVER = "Check that the API server runs and that its address is right."
_CHECK_RBAC = "Check the ClusterRole and binding of this service."
_CHECK_TOKEN = "Check the token or certificate in the kubeconfig or service account."
_CHECK_CRD = "If the kind is a custom resource, install its CRD."
_TWO_PDBS = "more than one PodDisruptionBudget"


def error_from(status: int, body: Mapping[str, Any], what: str, *, eviction: bool = False) -> KubeError:
    """The error for an HTTP answer of 400 and above.

    Args:
        body: the decoded `Status` object; empty when the answer was not one.
        what: verb, kind and object, e.g. `patch Node "a"`.
        eviction: the request was an eviction: 429, and the 500 for two budgets on one pod, mean "blocked".
    """
    word = str(body.get("reason") or "")
    message = f"{what}: {body.get('message') or f'the API server answered {status}'}"
    match status:
        case 404:
            return NotFoundError(
                message, status=status, action="" if body.get("details", {}).get("name") else _CHECK_CRD
            )
        case 409 if word == "AlreadyExists":
            return AlreadyExistsError(message, status=status)
        case 409:
            return ConflictError(message, status=status)
        case 410:
            return GoneError(message, status=status)
        case 401:
            return ForbiddenError(message, status=status, action=_CHECK_TOKEN)
        case 403:
            return ForbiddenError(message, status=status, action=_CHECK_RBAC)
        case 429 if eviction and _is_budget(body):
            return EvictionBlockedError(message, status=status, action="Check the PodDisruptionBudget of the pod.")
        case 500 if eviction and _TWO_PDBS in message:
            return EvictionBlockedError(
                message, status=status, action="Let only one PodDisruptionBudget select the pod."
            )
        case 429:
            return ThrottledError(message, status=status)
        case _ if status < 500:
            return InvalidError(message, status=status)
        case _:
            return KubeUnavailableError(message, status=status, action=_CHECK_SERVER)


def _is_budget(body: Mapping[str, Any]) -> bool:
    # Priority and fairness answers 429 too; only a budget gives this cause.
    causes = (body.get("details") or {}).get("causes") or ()
    return any(c.get("reason") == "DisruptionBudget" for c in causes) or "disruption budget" in str(body.get("message"))
