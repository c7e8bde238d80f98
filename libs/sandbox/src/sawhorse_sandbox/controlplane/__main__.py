"""Runs the real control plane as a process until SIGTERM or SIGINT: `python -m sawhorse_sandbox.controlplane`."""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from sawhorse_sandbox.controlplane.assets import find_assets
from sawhorse_sandbox.controlplane.launch import ControlPlane, ControlPlaneError, start_control_plane
from sawhorse_sandbox.controlplane.parts import write_private


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Return directory, ready_file and assets (None: look for them)."""
    parser = argparse.ArgumentParser(prog="python -m sawhorse_sandbox.controlplane", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="for keys, logs, kubeconfig and data")
    parser.add_argument(
        "--ready-file", type=Path, required=True, help="written when all parts are healthy: JSON, kubeconfig and pids"
    )
    parser.add_argument(
        "--assets", type=Path, help="folder of the four binaries (default: KUBEBUILDER_ASSETS, else the build cache)"
    )
    return parser.parse_args(arguments)


async def run(directory: Path, assets: Path, ready_file: Path) -> None:
    """Run until a signal comes; the ready file exists only while the control plane is usable.

    Raises:
        ControlPlaneError: it did not start, or a part died.
        asyncio.CancelledError: a signal came while it was starting; what had started is gone.
    """
    stop = asyncio.Event()
    serving = asyncio.Event()
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def end() -> None:
        # While parts still start there is nothing to finish: give up, and the launcher cleans up.
        if not stop.is_set() and not serving.is_set():
            task.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    _withdraw(ready_file)
    async with await start_control_plane(directory, assets) as plane:
        serving.set()
        _announce(ready_file, plane)
        try:
            while not stop.is_set():
                plane.check()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await stop.wait()
        finally:
            _withdraw(ready_file)


def _announce(ready_file: Path, plane: ControlPlane) -> None:
    ready_file.parent.mkdir(parents=True, exist_ok=True)
    facts = {"kubeconfig": str(plane.kubeconfig), "url": plane.url, "version": plane.version, "pids": plane.pids}
    write_private(ready_file, json.dumps(facts))


def _withdraw(ready_file: Path) -> None:
    ready_file.unlink(missing_ok=True)


def main() -> int:
    """Return the exit code: 0 after a signal, 1 when the control plane did not start or lost a part."""
    arguments = parse_arguments(sys.argv[1:])
    assets = arguments.assets or find_assets(
        os.environ.get("KUBEBUILDER_ASSETS"), cache=os.environ.get("SAWHORSE_CACHE")
    )
    if assets is None:
        print("controlplane: no control plane binaries found; run `make kube-assets`", file=sys.stderr)
        return 1
    try:
        asyncio.run(run(arguments.directory, assets, arguments.ready_file))
    except ControlPlaneError as err:
        print(f"controlplane: {err}", file=sys.stderr)
        return 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
