"""Runs the fake kubelets as a process until SIGTERM or SIGINT: `python -m sawhorse_sandbox.kubelet`."""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

import structlog

from sawhorse_sandbox.kubelet.api import KubeconfigError
from sawhorse_sandbox.kubelet.fleet import run_kubelets
from sawhorse_sandbox.kubelet.settings import KubeletSettings

DELAYS = {
    "join-delay": "from an instance running to its Node",
    "ready-delay": "from the Node to Ready",
    "device-delay": "from Ready to GPUs and other devices",
    "pod-start-delay": "from a pod bound to Running",
    "shutdown-time": "from a pod's delete to its end, never more than its grace",
    "node-delete-delay": "from an instance's end to the delete of its Node",
}


def parse_arguments(arguments: list[str]) -> KubeletSettings:
    """Return the settings; wrong use ends the program with exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m sawhorse_sandbox.kubelet", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--aws-endpoint", required=True, help="base address of the sandbox's AWS")
    parser.add_argument("--directory", type=Path, help="`kubelets.ready` is written here once both sides have answered")
    defaults = KubeletSettings(kubeconfig=Path(), aws_endpoint="")
    for name, text in DELAYS.items():
        default = getattr(defaults, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=_seconds, default=default, help=f"seconds {text} (default: {default})")
    return KubeletSettings(**vars(parser.parse_args(arguments)))


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 86_400:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and a day")
    return value


async def run(settings: KubeletSettings) -> None:
    """Run until a signal comes."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run_kubelets(settings, stop)


def main() -> int:
    """Return the exit code: 0 after a signal, 1 when the kubeconfig cannot be used."""
    settings = parse_arguments(sys.argv[1:])
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    try:
        asyncio.run(run(settings))
    except KubeconfigError as err:
        print(f"kubelet: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
