"""`sawhorse interrupt`: the messages it makes, and how it ends."""

import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from sawhorse_cloud_aws import connect_queue
from sawhorse_console.interrupt_command import KINDS, interruption_message, run_interrupt
from sawhorse_interruption.messages import Notice, parse
from sawhorse_sandbox.aws import seed_account, start_aws

NOW = datetime(2026, 11, 29, 10, 15, 30, tzinfo=UTC)
READ_AS = {
    "spot": "spot_interrupted",
    "rebalance": "rebalance_recommendation",
    "stopping": "instance_stopped",
    "stopped": "instance_stopped",
    "shutting-down": "instance_terminated",
    "terminated": "instance_terminated",
    "capacity-reservation": "capacity_reservation_interrupted",
    "health": "scheduled_change",
}


@dataclass
class Run:
    """One run of the command."""

    kubeconfig: str
    queue: str = "demo"
    endpoint_url: str = "http://127.0.0.1:1"
    stdout: io.StringIO = field(default_factory=io.StringIO)
    stderr: io.StringIO = field(default_factory=io.StringIO)

    async def __call__(self, node: str, kind: str = "spot") -> int:
        return await run_interrupt(
            node,
            kind=kind,
            queue=self.queue,
            region="us-east-1",
            endpoint_url=self.endpoint_url,
            kubeconfig=self.kubeconfig,
            stdout=self.stdout,
            stderr=self.stderr,
        )

    @property
    def problem(self) -> str:
        """The one line on stderr."""
        (line,) = self.stderr.getvalue().splitlines()
        return line


def write_kubeconfig(directory: Path, port: int) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = directory / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return str(file)


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[str]:
    """An API server that knows the nodes `n-1` (on EC2) and `elsewhere`."""
    provider_ids = {"n-1": "aws:///us-east-1a/i-0aa11bb22cc33dd44", "elsewhere": "kind://docker/a/b", "bare": ""}

    async def node(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in provider_ids:
            status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": f'nodes "{name}" not found'}
            return web.json_response(status, status=404)
        return web.json_response(
            {"kind": "Node", "metadata": {"name": name, "uid": "u"}, "spec": {"providerID": provider_ids[name]}}
        )

    app = web.Application()
    app.add_routes([web.get("/api/v1/nodes/{name}", node)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield write_kubeconfig(tmp_path, runner.addresses[0][1])
    await runner.cleanup()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_by_the_service_as_what_it_says(kind: str) -> None:
    message = interruption_message(kind, "i-1", zone="us-east-1a", region="us-east-1", now=NOW, event_id="e-1")

    said = parse(json.dumps(message))

    assert isinstance(said, Notice)
    assert (said.kind, said.instance_ids, said.time, said.envelope_id) == (READ_AS[kind], ("i-1",), NOW, "e-1")


@pytest.mark.integration
async def test_a_message_is_put_on_the_queue_and_told_in_one_line(
    kubeconfig: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await start_aws(tmp_path) as aws:
        for name, value in aws.environment.items():
            monkeypatch.setenv(name, value)
        account = await seed_account(aws.endpoint_url, "demo", aws.region)
        run = Run(kubeconfig, account.queue_name, aws.endpoint_url)
        missing = Run(kubeconfig, "missing", aws.endpoint_url)

        code = await run("n-1", "rebalance")
        code_missing = await missing("n-1")
        async with connect_queue(account.queue_name, region=aws.region, endpoint_url=aws.endpoint_url) as queue:
            (received,) = await queue.receive(wait_seconds=5)

    body: dict[str, Any] = json.loads(received.body)
    (line,) = run.stdout.getvalue().splitlines()
    assert code == 0
    assert (body["detail-type"], body["detail"]["instance-id"]) == (
        "EC2 Instance Rebalance Recommendation",
        "i-0aa11bb22cc33dd44",
    )
    assert "node n-1 (i-0aa11bb22cc33dd44)" in line
    assert body["id"] in line
    assert code_missing == 3
    assert "missing" in missing.problem


async def test_an_unknown_node_ends_with_1(kubeconfig: str) -> None:
    run = Run(kubeconfig)

    assert await run("nobody") == 1
    assert "'nobody' does not exist" in run.problem


@pytest.mark.parametrize("node", ["elsewhere", "bare"])
async def test_a_node_without_an_ec2_instance_ends_with_1(kubeconfig: str, node: str) -> None:
    run = Run(kubeconfig)

    assert await run(node) == 1
    assert "no EC2 instance" in run.problem


async def test_an_unknown_kind_ends_with_2_and_names_those_there_are(kubeconfig: str) -> None:
    run = Run(kubeconfig)

    assert await run("n-1", "meteor") == 2
    assert "spot, rebalance" in run.problem


async def test_a_kubeconfig_that_cannot_be_used_ends_with_2(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "missing"))

    assert await run("n-1") == 2
    assert "missing" in run.problem


async def test_an_api_server_that_is_away_ends_with_3(tmp_path: Path) -> None:
    run = Run(write_kubeconfig(tmp_path, 1))

    assert await run("n-1") == 3
    assert run.stdout.getvalue() == ""
    assert run.problem
