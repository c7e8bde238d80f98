"""Logging: structlog as JSON lines on stdout, and everything that libraries log through the standard library too.

A line has `timestamp`, `level`, `event`, `logger`, `service`, what was bound by contextvars, and the call's own keys.
An exception becomes two fields, `error` (one line) and `traceback`: a person reads lines, never a dump.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from types import TracebackType
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from sawhorse_runtime.errors import describe

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FIRST = ("timestamp", "level", "service", "event", "logger")


def setup_logging(level: str, service: str, stream: TextIO | None = None) -> None:
    """Send all logging of the process to `stream` (stdout unless given) as JSON lines.

    Args:
        level: "debug", "info", "warning" or "error": our own lines below it are dropped. Lines of libraries are
            dropped below warning whatever the level: theirs are not written for our users.
        service: the `service` field of every line.

    It may be called again, e.g. with another stream; the last call wins. Uncaught exceptions of the main thread and
    of others become one line.
    """
    least = LEVELS[level]
    out = stream if stream is not None else sys.stdout

    def add_service(_: Any, __: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_service,
        _fold_exception,
    ]
    structlog.configure(
        processors=[*shared, _add_logger_name, _render],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=_LineLoggers(out),
        cache_logger_on_first_use=False,  # module-level loggers must follow a later call
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _render],
            keep_exc_info=False,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(least, logging.WARNING))
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


class _LineLogger:
    """The end of the chain: writes a finished line."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self.name = name

    def msg(self, line: str) -> None:
        # One write per line, or lines of two threads would mix.
        self._stream.write(line + "\n")
        self._stream.flush()

    debug = info = warning = warn = error = critical = exception = fatal = log = msg


class _LineLoggers:
    """Makes them; `structlog.get_logger(__name__)` hands its name over."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, *args: Any) -> _LineLogger:
        return _LineLogger(self._stream, str(args[0]) if args else "")


def _add_logger_name(logger: Any, _: str, event: EventDict) -> EventDict:
    name = getattr(logger, "name", "")
    if name:
        event.setdefault("logger", name)
    return event


def _fold_exception(_: Any, __: str, event: EventDict) -> EventDict:
    exc = event.pop("exc_info", None)
    if exc is True:
        exc = sys.exc_info()
    if isinstance(exc, tuple):
        exc = exc[1]
    if isinstance(exc, BaseException):
        event.setdefault("error", describe(exc))
        event["traceback"] = "".join(traceback.format_exception(exc)).rstrip()
    return event


def _render(_: Any, __: str, event: EventDict) -> str:
    # These first, in this order: a person reads along the left edge.
    ordered = {key: event.pop(key) for key in _FIRST if key in event}
    return json.dumps({**ordered, **event}, default=str, ensure_ascii=False)


def _log_uncaught(kind: type[BaseException], exc: BaseException, where: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, exc, where)
        return
    structlog.get_logger(__name__).error("uncaught exception", exc_info=exc)


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        thread = args.thread.name if args.thread else ""
        structlog.get_logger(__name__).error("uncaught exception", exc_info=args.exc_value, thread=thread)
