"""Which API call a request is, and how its service spells an error: EC2's XML, the query services' XML, or JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

THROTTLED = {"ec2": ("RequestLimitExceeded", 503), "sqs": ("RequestThrottled", 403)}
_QUERY_SERVICES = ("iam", "sts")


@dataclass(frozen=True, slots=True)
class Call:
    """An AWS API call, as far as it must be known before it is served."""

    service: str  # as in the signature: ec2, iam, sqs, pricing, …
    region: str
    action: str  # e.g. CreateFleet; "METHOD /path" for services without action names
    json: bool  # whether the service speaks JSON


def call_of(environ: Mapping[str, Any], body: bytes) -> Call:
    """Read service, region and action from a request's signature, headers and form."""
    service, region = _scope(environ.get("HTTP_AUTHORIZATION", ""))
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        return Call(service, region, target.rpartition(".")[2], json=True)
    form = {}
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        form = parse_qs(body.decode(errors="replace"))
    action = (form.get("Action") or parse_qs(environ.get("QUERY_STRING", "")).get("Action") or [""])[0]
    if action:
        return Call(service, region, action, json=False)
    return Call(service, region, f"{environ['REQUEST_METHOD']} {environ.get('PATH_INFO', '/')}", json=True)


def throttling(call: Call) -> tuple[str, int]:
    """Return the code and HTTP status with which the service says that it was asked too often."""
    return THROTTLED.get(
        call.service, ("Throttling" if call.service in _QUERY_SERVICES else "ThrottlingException", 400)
    )


def error_body(call: Call, code: str, message: str) -> tuple[str, str]:
    """Return the body of an error and its content type."""
    if call.json:
        return json.dumps({"__type": code, "message": message}), "application/x-amz-json-1.1"
    inner = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
    if call.service in _QUERY_SERVICES:
        return f"<ErrorResponse>{inner}<RequestId>sandbox</RequestId></ErrorResponse>", "text/xml"
    return f"<Response><Errors>{inner}</Errors><RequestID>sandbox</RequestID></Response>", "text/xml"


def _scope(authorization: str) -> tuple[str, str]:
    # AWS4-HMAC-SHA256 Credential=KEY/20260101/us-east-1/ec2/aws4_request, SignedHeaders=…
    _, _, rest = authorization.partition("Credential=")
    parts = rest.partition(",")[0].split("/")
    return (parts[3], parts[2]) if len(parts) >= 5 else ("", "")
