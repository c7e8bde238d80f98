"""The failures of the Kubernetes API as exceptions that know their Status body. Test double; knows no HTTP server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why an object is refused: `reason` is the API's word, e.g. FieldValueRequired."""

    reason: str
    message: str
    field: str

    def text(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class ApiError(Exception):
    """An answer that is not a success. `code` is the HTTP status, `reason` the API's stable word."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after = retry_after  # seconds, also sent as the Retry-After header
        if retry_after is not None:
            self.details["retryAfterSeconds"] = retry_after

    def status(self) -> dict[str, Any]:
        """The Status object that is the body of the answer."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            body["details"] = self.details
        return body


def qualified(plural: str, group: str) -> str:
    """`pods`, `deployments.apps`: how messages name a resource."""
    return f"{plural}.{group}" if group else plural


def _details(plural: str, group: str, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name, "kind": plural}
    if group:
        details["group"] = group
    return details


def not_found(plural: str, group: str, name: str) -> ApiError:
    return ApiError(
        404, "NotFound", f'{qualified(plural, group)} "{name}" not found', details=_details(plural, group, name)
    )


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(plural: str, group: str, name: str) -> ApiError:
    return ApiError(
        409,
        "AlreadyExists",
        f'{qualified(plural, group)} "{name}" already exists',
        details=_details(plural, group, name),
    )


def conflict(plural: str, group: str, name: str, why: str) -> ApiError:
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}',
        details=_details(plural, group, name),
    )


def stale(plural: str, group: str, name: str) -> ApiError:
    return conflict(
        plural,
        group,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with every cause listed, as the real server does."""
    texts = [cause.text() for cause in causes]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details: dict[str, Any] = {"name": name, "kind": kind}
    if group:
        details["group"] = group
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return ApiError(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {joined}', details=details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def gone(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def required(field: str, why: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value{': ' + why if why else ''}", field)


def forbidden_field(field: str, why: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def invalid_value(field: str, value: object, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else _show(value)
    return Cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)


def _show(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list)):
        return '"object"' if isinstance(value, dict) else '"array"'
    return str(value)
