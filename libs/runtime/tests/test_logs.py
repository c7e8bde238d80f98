"""Logs: one JSON object per line, whoever logs."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from sawhorse_runtime.errors import UnavailableError
from sawhorse_runtime.logs import setup_logging


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Put back what setup_logging replaces for the whole process."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level, sys.excepthook, threading.excepthook)
    yield
    root.handlers[:], level, sys.excepthook, threading.excepthook = before
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_message_keys_context_and_origin() -> None:
    stream = io.StringIO()
    setup_logging("info", "watcher", stream)

    with bound_contextvars(instance_id="i-1"):
        structlog.get_logger("sawhorse_watcher.x").info("draining node", nodeclaim="a", seconds_left=118)

    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "draining node",
        "level": "info",
        "logger": "sawhorse_watcher.x",
        "service": "watcher",
        "instance_id": "i-1",
        "nodeclaim": "a",
        "seconds_left": 118,
    }


def test_lines_below_the_level_are_dropped() -> None:
    stream = io.StringIO()
    setup_logging("warning", "watcher", stream)

    structlog.get_logger().info("no")
    structlog.get_logger().warning("yes")

    assert [line["event"] for line in lines(stream)] == ["yes"]


def test_libraries_log_through_the_same_stream_from_warning_on() -> None:
    stream = io.StringIO()
    setup_logging("debug", "watcher", stream)

    logging.getLogger("aiohttp.client").info("chatty")
    logging.getLogger("botocore.hooks").warning("slow %s", "call", extra={"attempt": 2})

    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"], line["attempt"], line["service"]) == (
        "slow call",
        "warning",
        "botocore.hooks",
        2,
        "watcher",
    )


def test_an_exception_is_two_fields_of_one_line() -> None:
    stream = io.StringIO()
    setup_logging("info", "watcher", stream)

    try:
        raise UnavailableError("redis is away", action="Start it.")
    except UnavailableError:
        structlog.get_logger().exception("sync failed")
        logging.getLogger("lib").exception("lib failed")

    ours, theirs = lines(stream)
    assert ours["error"] == theirs["error"] == "redis is away. Start it."
    assert "Traceback" in ours["traceback"]
    assert "Traceback" in theirs["traceback"]


def test_an_uncaught_exception_is_one_line_in_the_main_thread_and_in_others() -> None:
    stream = io.StringIO()
    setup_logging("info", "watcher", stream)
    error = ValueError("boom")

    def explode() -> None:
        raise error

    sys.excepthook(ValueError, error, None)
    thread = threading.Thread(target=explode, name="worker-1")
    thread.start()
    thread.join(timeout=5)

    main, other = lines(stream)
    assert (main["event"], main["level"], main["error"]) == ("uncaught exception", "error", "ValueError: boom")
    assert (other["event"], other["thread"]) == ("uncaught exception", "worker-1")


def test_what_json_does_not_know_is_printed_as_text() -> None:
    stream = io.StringIO()
    setup_logging("info", "watcher", stream)

    structlog.get_logger().info("odd", value={1}, kind=int)

    (line,) = lines(stream)
    assert (line["value"], line["kind"]) == ("{1}", "<class 'int'>")
