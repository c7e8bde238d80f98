"""User data in several parts, as cloud-init and nodeadm read it: MIME multipart, line ends as Unix has them. Pure."""

import base64
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message

import yaml

BOUNDARY = "//"
NODE_CONFIG = "application/node.eks.aws"
SHELL = 'text/x-shellscript; charset="us-ascii"'

# Headers that belong to the whole, or that no longer fit once a part is written anew.
_DROPPED = frozenset({"mime-version", "content-transfer-encoding", "content-length"})


@dataclass(frozen=True, slots=True)
class Part:
    """One part: its headers, Content-Type first, and its text."""

    headers: tuple[tuple[str, str], ...]
    body: str


def part(kind: str, body: str) -> Part:
    """A part of a content type."""
    return Part((("Content-Type", kind),), body)


def is_mime(text: str) -> bool:
    """Whether a text is meant as a MIME document."""
    return text.lstrip().startswith(("MIME-Version:", "Content-Type:"))


def mime_problem(text: str) -> str:
    """What is wrong with a MIME document, with the line; empty when it can be split, or is no such document."""
    lines = text.strip().splitlines()
    if not lines:
        return ""
    if not is_mime(text):
        # A boundary without the header that declares it: the shell would run the headers of the parts.
        if lines[0].startswith("--") and any(line.lower().startswith("content-type:") for line in lines[1:3]):
            return (
                f"line 1: {lines[0][:60]!r} is a boundary, but no MIME-Version or Content-Type header comes before it"
            )
        return ""
    message = _parsed(text)
    if message.get_content_maintype() == "multipart":
        boundary = message.get_boundary()
        if not boundary:
            return f"line {_line_of(lines, 'content-type:')}: the multipart Content-Type names no boundary"
        if not message.is_multipart():
            return (
                f"line {_line_of(lines, 'content-type:')}: no line --{boundary} follows, which its boundary announces"
            )
    return ""


def split(text: str, *, plain: str = SHELL) -> list[Part]:
    """The parts of user data: those of a MIME document, or the whole text as one of type `plain`. Empty: none."""
    stripped = text.strip()
    if not stripped:
        return []
    if not is_mime(stripped):
        return [part(plain, stripped)]
    return [_as_part(found, plain) for found in _parsed(stripped).walk() if not found.is_multipart()]


def join(parts: list[Part]) -> str:
    """A MIME document of these parts, in order."""
    boundary = BOUNDARY
    lines_of_all = {line.rstrip() for p in parts for line in p.body.splitlines()}
    while {f"--{boundary}", f"--{boundary}--"} & lines_of_all:
        boundary += "/"
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{boundary}"', ""]
    for each in parts:
        lines += [f"--{boundary}", *(f"{name}: {value}" for name, value in each.headers), ""]
        lines += [_unix(each.body).rstrip("\n"), ""]
    return "\n".join((*lines, f"--{boundary}--", ""))


def is_yaml_map(text: str) -> bool:
    """Whether a text is a YAML map; a script never is one by its first line."""
    if text.lstrip().startswith("#!"):
        return False
    try:
        return isinstance(yaml.safe_load(text), dict)
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: looks like a date and is none
        return False


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _parsed(text: str) -> Message:
    # Bytes, not text: the parser mangles what is not ASCII in a text.
    return message_from_bytes(_unix(text.strip()).encode())


def _as_part(found: Message, plain: str) -> Part:
    headers = [(name, _unix(str(value))) for name, value in found.items() if name.lower() not in _DROPPED]
    kind = next((value for name, value in headers if name.lower() == "content-type"), plain)
    rest = [(name, value) for name, value in headers if name.lower() != "content-type"]
    payload = found.get_payload(decode=True)
    content = payload if isinstance(payload, bytes) else b""
    try:
        return Part((("Content-Type", kind), *rest), content.decode())
    except UnicodeDecodeError:  # a compressed part: stays encoded
        encoded = base64.encodebytes(content).decode()
        return Part((("Content-Type", kind), *rest, ("Content-Transfer-Encoding", "base64")), encoded)


def _line_of(lines: list[str], start: str) -> int:
    return next((n for n, line in enumerate(lines, 1) if line.lower().startswith(start)), 1)
