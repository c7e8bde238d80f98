"""The watch protocol: chunks of bytes into events. Pure, save for the log line about an unreadable object."""

from collections.abc import Iterator
from typing import Any

import msgspec
import structlog

from sawhorse_kube.api import WatchEvent, WatchType, read_identity
from sawhorse_kube.errors import KubeUnavailableError, error_from
from sawhorse_kube.kinds import Kind
from sawhorse_model.manifests import ManifestError, Raw

log = structlog.get_logger(__name__)

_LONGEST_LINE = 8 * 2**20


class LineSplitter:
    """Cuts a stream of chunks into lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that `chunk` completes; empty ones are dropped.

        Raises:
            KubeUnavailableError: a line is longer than any object can be.
        """
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole = b"".join((*self._parts, line))
            self._parts.clear()
            self._held = 0
            if whole.strip():
                yield whole
        if rest:
            # Kept in parts: joining at each chunk would cost the square of a large object's size.
            self._parts.append(rest)
            self._held += len(rest)
            if self._held > _LONGEST_LINE:
                raise KubeUnavailableError("watch: a line is longer than any object can be")


def read_event(kind: Kind, line: bytes) -> WatchEvent:
    """One line as an event.

    Raises:
        KubeError: the server reports an error; GoneError when we fell behind.
        KubeUnavailableError: the line is not an event.
    """
    try:
        message: dict[str, Any] = msgspec.json.decode(line, type=dict)
        word, content = message["type"], message["object"]
        if word == "ERROR":
            raise error_from(int(content.get("code") or 500), content, f"watch {kind.name}")
        metadata = content["metadata"]
        version = str(metadata["resourceVersion"])
        type_ = WatchType(word)
    except (msgspec.DecodeError, KeyError, ValueError, AttributeError, TypeError) as err:
        raise KubeUnavailableError(f"watch {kind.name}: not an event: {line[:100]!r}") from err
    if type_ is WatchType.BOOKMARK:
        return WatchEvent(type_, None, content, version)
    raw = read_identity(kind, content)
    return WatchEvent(type_, parse_or_none(kind, raw), raw, version)


def parse_or_none(kind: Kind, raw: Raw) -> Any | None:
    """The object as `kind.parse` reads it, or None and a log line when it cannot be read."""
    try:
        return kind.parse(raw)
    except (ManifestError, ValueError, TypeError, AttributeError, KeyError, IndexError) as err:
        # The readers promise ManifestError; the others guard the stream, which one odd object must not end.
        metadata = raw.get("metadata") or {}
        where = "/".join(str(p) for p in (metadata.get("namespace"), metadata.get("name")) if p)
        log.warning("object cannot be read and is left out", kind=kind.name, object=where, error=str(err))
        return None
