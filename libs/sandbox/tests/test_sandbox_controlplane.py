"""Finding, starting and ending the control plane, with small programs in place of the real binaries."""

import os
import re
from pathlib import Path

import pytest

from sawhorse_sandbox.controlplane import (
    BINARIES,
    KUBERNETES_VERSION,
    ControlPlaneError,
    find_assets,
    launch,
    start_control_plane,
)
from sawhorse_sandbox.controlplane.parts import CONTROLLERS, Layout, Ports, controller_manager_command, write_files

ROOT = Path(__file__).parents[3]

# Answers etcd's health question; the port is that of --listen-client-urls.
FAKE_ETCD = """#!/usr/bin/env python3
import http.server, os, sys
open(os.environ["PID_FILE"], "a").write(f"{os.getpid()}\\n")
port = next(int(a.rsplit(":", 1)[1]) for a in sys.argv if a.startswith("--listen-client-urls"))
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'{"health":"true"}')
http.server.HTTPServer(("127.0.0.1", port), Health).serve_forever()
"""


def a_folder_of_programs(directory: Path, **programs: str) -> Path:
    """All four binaries; those not given do nothing and succeed."""
    directory.mkdir(parents=True)
    for name in BINARIES:
        path = directory / name
        path.write_text(programs.get(name.replace("-", "_"), "#!/bin/sh\nexit 0\n"))
        path.chmod(0o755)
    return directory


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_version_is_the_one_that_the_go_module_builds() -> None:
    text = (ROOT / "tests" / "kube" / "go.mod").read_text()

    required = re.search(r"^require k8s\.io/kubernetes (v\S+)$", text, re.MULTILINE)

    assert required is not None
    assert required[1] == KUBERNETES_VERSION


def test_assets_named_by_the_user_go_before_the_cache(tmp_path: Path) -> None:
    named = a_folder_of_programs(tmp_path / "named")
    a_folder_of_programs(tmp_path / "cache" / "kube" / KUBERNETES_VERSION)

    assert find_assets(str(named), cache=str(tmp_path / "cache")) == named


def test_a_named_folder_that_lacks_a_binary_is_passed_over(tmp_path: Path) -> None:
    named = a_folder_of_programs(tmp_path / "named")
    (named / "kube-scheduler").unlink()
    built = a_folder_of_programs(tmp_path / "cache" / "kube" / KUBERNETES_VERSION)

    assert find_assets(named, cache=tmp_path / "cache") == built


def test_no_binaries_anywhere_is_an_answer_not_an_error(tmp_path: Path) -> None:
    assert find_assets(None, cache=tmp_path) is None


async def test_a_missing_binary_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    assets = a_folder_of_programs(tmp_path / "bin")
    (assets / "etcd").unlink()

    with pytest.raises(ControlPlaneError, match=r"lacks etcd; run `make kube-assets`"):
        await start_control_plane(tmp_path / "run", assets)


async def test_a_part_that_ends_is_named_with_the_end_of_its_log_and_the_others_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pids"))
    broken = "#!/bin/sh\necho no such flag >&2\nexit 3\n"
    assets = a_folder_of_programs(tmp_path / "bin", etcd=FAKE_ETCD, kube_apiserver=broken)

    with pytest.raises(ControlPlaneError) as caught:
        await start_control_plane(tmp_path / "run", assets)

    assert "kube-apiserver ended with exit code 3 before it was ready" in str(caught.value)
    assert "no such flag" in str(caught.value)
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 1
    assert not is_alive(pids[0])


async def test_a_part_that_never_gets_healthy_ends_the_start_in_time(tmp_path: Path) -> None:
    assets = a_folder_of_programs(tmp_path / "bin", etcd="#!/bin/sh\nexec sleep 60\n")

    with pytest.raises(ControlPlaneError, match=r"etcd was not ready after 0\.3 s"):
        await start_control_plane(tmp_path / "run", assets, timeout=0.3)


async def test_a_lost_port_is_tried_again_with_others_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIES", str(tmp_path / "tries"))
    clash = '#!/bin/sh\necho "$*" >> "$TRIES"\necho "listen tcp: bind: address already in use"\nexit 1\n'
    assets = a_folder_of_programs(tmp_path / "bin", etcd=clash)

    with pytest.raises(ControlPlaneError, match="address already in use"):
        await start_control_plane(tmp_path / "run", assets)

    tries = (tmp_path / "tries").read_text().splitlines()
    assert len(tries) == launch.ATTEMPTS
    assert len(set(tries)) == launch.ATTEMPTS


def test_secrets_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    layout = Layout(tmp_path)

    write_files(layout, "word")

    assert layout.private_key.stat().st_mode & 0o077 == 0
    assert layout.tokens.stat().st_mode & 0o077 == 0
    assert layout.private_key.read_text().startswith("-----BEGIN RSA PRIVATE KEY-----")


def test_workload_volume_and_failure_controllers_run(tmp_path: Path) -> None:
    command = controller_manager_command(tmp_path, Layout(tmp_path), Ports(1, 2, 3, 4, 5))

    needed = {"statefulset", "job", "persistentvolume-binder", "taint-eviction", "node-lifecycle", "disruption"}
    assert {f"{name}-controller" for name in needed} <= set(CONTROLLERS)
    assert f"--controllers={','.join(CONTROLLERS)}" in command
