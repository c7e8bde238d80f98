"""The server: moto behind one lock, with latency, throttling and injected errors in front and `/sandbox` beside it.

Run as `python -m sawhorse_sandbox.aws --port 0 --ready-file PATH`. It ends on SIGTERM and SIGINT.
"""

import argparse
import io
import json
import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import moto.ec2.urls
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

from sawhorse_sandbox.aws.control import Control
from sawhorse_sandbox.aws.ec2 import SandboxEc2
from sawhorse_sandbox.aws.faults import Call, call_of, error_body, throttling
from sawhorse_sandbox.aws.fleet import FleetLauncher
from sawhorse_sandbox.aws.iam import install_iam
from sawhorse_sandbox.aws.images import publish
from sawhorse_sandbox.aws.models import teach_moto
from sawhorse_sandbox.aws.prices import products_page
from sawhorse_sandbox.aws.state import by_action
from sawhorse_sandbox.aws.world import World, install

log = logging.getLogger("sawhorse_sandbox.aws")

# Tables that never change: rendering all types takes moto two seconds, so an answer is kept, and no lock is needed.
UNCHANGING = frozenset({"DescribeInstanceTypes", "DescribeInstanceTypeOfferings"})
# Long polls take the lock by themselves, for moments; spot prices touch none of moto's models.
UNLOCKED = frozenset({"ReceiveMessage", "DescribeSpotPriceHistory"})

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


class Application:
    """The WSGI application."""

    def __init__(self, world: World, control: Control) -> None:
        self._world = world
        self._control = control
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._kept: dict[tuple[str, bytes], tuple[str, list[tuple[str, str]], bytes]] = {}
        self._random = random.Random(0)  # repeatable on purpose

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        path = environ.get("PATH_INFO", "/")
        if path.startswith("/sandbox"):
            status, answer = self._control.answer(environ["REQUEST_METHOD"], path, body)
            return Response(answer, status=status, content_type="application/json")(environ, start_response)
        environ["wsgi.input"] = io.BytesIO(body)
        call = call_of(environ, body)
        self._world.count(call.action)
        if refused := self._fault(call):
            return refused(environ, start_response)
        return self._serve(call, body, environ, start_response)

    def _fault(self, call: Call) -> Response | None:
        state = self._world.state.current()
        if latency := by_action(state.latency, call.action):
            self._world.stopping.wait(latency)
        if error := self._world.state.take_error(call.action):
            return _error(call, error.code, error.message, error.status)
        if self._random.random() < by_action(state.throttle, call.action):
            code, status = throttling(call)
            return _error(call, code, "Request limit exceeded.", status)
        return None

    def _serve(self, call: Call, body: bytes, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if call.action == "GetProducts" and environ.get("HTTP_X_AMZ_TARGET", "").startswith("AWSPriceListService"):
            request = json.loads(body or b"{}")
            page = products_page(self._world.prices, self._world.state.current(), request, self._world.region)
            answer = Response(json.dumps(page), content_type="application/x-amz-json-1.1")
            return answer(environ, start_response)
        if call.service == "ec2" and call.action in UNCHANGING:
            return self._serve_kept((call.region, body), environ, start_response)
        if call.action in UNLOCKED:
            return list(self._moto(environ, start_response))
        with self._world.lock:
            return list(self._moto(environ, start_response))

    def _serve_kept(self, key: tuple[str, bytes], environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if key not in self._kept:
            answer = Response.from_app(self._moto, environ)
            if answer.status_code != 200:
                return answer(environ, start_response)
            self._kept[key] = (answer.status, list(answer.headers.items()), answer.get_data())
        status, headers, content = self._kept[key]
        return Response(content, status=status, headers=headers)(environ, start_response)


def build(region: str) -> tuple[World, Application]:
    """Make the world and its application; once per process, because moto's backends are global."""
    teach_moto()
    world = World(region=region)
    lifecycle = install(world)
    install_iam()
    SandboxEc2.world = world
    SandboxEc2.lifecycle = lifecycle
    SandboxEc2.fleets = FleetLauncher(world, lifecycle.launched)
    moto.ec2.urls.url_paths["{0}/"] = SandboxEc2.dispatch
    publish(world.ec2, world.account, region)
    return world, Application(world, Control(world, lifecycle))


def serve(region: str, port: int, ready_file: Path) -> None:
    """Serve on loopback until a signal comes; write the port to `ready_file` once requests are answered."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request would drown the rest
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    world, application = build(region)
    server = make_server("127.0.0.1", port, application, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=lambda: server.serve_forever(0.1), name="http", daemon=True)
    world.timers.start()
    thread.start()
    log.info("serving on port %d", server.port)
    # Written beside and renamed, so that a reader never sees half of it.
    draft = ready_file.with_suffix(".draft")
    draft.write_text(json.dumps({"port": server.port, "pid": os.getpid()}))
    draft.rename(ready_file)
    stop.wait()
    log.info("stopping")
    world.stopping.set()
    world.timers.stop()
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m sawhorse_sandbox.aws", description="A test double of AWS.")
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 lets the system choose")
    parser.add_argument("--ready-file", type=Path, required=True, help="gets the port and pid as JSON when it serves")
    parser.add_argument("--region", default="us-east-1", help="the region whose instances, prices and images exist")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    serve(options.region, options.port, options.ready_file)
    return 0


def _error(call: Call, code: str, message: str, status: int) -> Response:
    body, content_type = error_body(call, code, message)
    return Response(body, status=status, content_type=content_type)
