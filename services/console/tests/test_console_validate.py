"""`sawhorse validate`: files in, one line per finding out, exit codes."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sawhorse_console.main import app
from sawhorse_console.validate.command import run_validate

NOW = datetime(2026, 11, 1, tzinfo=UTC)
POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [],
            }
        }
    },
}
BROKEN = {**POOL, "spec": {**POOL["spec"], "weight": 0}}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {}}


def write(folder: Path, *documents: Any, name: str = "pool.yaml") -> Path:
    """A file with these documents."""
    path = folder / name
    path.write_text(yaml.safe_dump_all(documents), "utf-8")
    return path


def run(
    *files: Path, against: tuple[Path, ...] = (), strict: bool = False, output: str = "table"
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    code = run_validate(files, against=against, strict=strict, output=output, now=NOW, stdout=out, stderr=err)
    return code, out.getvalue(), err.getvalue()


def test_what_an_api_server_takes_is_valid(tmp_path: Path) -> None:
    path = write(tmp_path, POOL)

    assert run(path) == (0, "1 object: 0 errors, 0 warnings\n", "")


def test_what_it_refuses_is_one_line_with_file_object_field_and_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path, BROKEN)

    code, out, err = run(path)

    assert code == 1
    assert out.splitlines() == [
        f"error: {path}: NodePool default: spec.weight: 0 is too small; the least is 1",
        "1 object: 1 error, 0 warnings",
    ]
    assert err == ""


def test_advice_does_not_change_the_exit_code(tmp_path: Path) -> None:
    pool = {**POOL, "spec": {**POOL["spec"], "disruption": {"budgets": [{"nodes": "0"}]}}}

    code, out, _ = run(write(tmp_path, pool))

    assert code == 0
    assert out.startswith("warning: ")
    assert out.endswith("1 object: 0 errors, 1 warning\n")


@pytest.mark.parametrize(
    ("document", "part"),
    [
        (DEPLOYMENT, "kind Deployment has no rules here"),
        ({**POOL, "apiVersion": "other.example.com/v1"}, "kind NodePool has no rules here"),
        ({**POOL, "spec": {**POOL["spec"], "wieght": 1}}, "spec.wieght: is no field of this kind"),
    ],
)
def test_skipped_kinds_and_unknown_fields_are_warned_about_and_refused_when_strict(
    tmp_path: Path, document: dict[str, Any], part: str
) -> None:
    path = write(tmp_path, document)

    code, out, _ = run(path)
    strict_code, strict_out, _ = run(path, strict=True)

    assert (code, strict_code) == (0, 2)
    assert part in out
    assert out.startswith("warning: ")
    assert strict_out.startswith("error: ")


def test_a_kind_that_is_skipped_is_told_once(tmp_path: Path) -> None:
    _, out, _ = run(write(tmp_path, DEPLOYMENT, DEPLOYMENT, POOL))

    assert out.count("Deployment has no rules") == 1
    assert out.endswith("1 object: 0 errors, 1 warning\n")


@pytest.mark.parametrize(
    ("version", "part"),
    [("karpenter.sh/v1beta1", "is not served; convert it to karpenter.sh/v1"), ("", "is missing; write")],
)
def test_another_version_of_a_kind_is_refused(tmp_path: Path, version: str, part: str) -> None:
    code, out, _ = run(write(tmp_path, {**POOL, "apiVersion": version}))

    assert code == 1
    assert part in out


def test_what_cannot_be_read_is_told_on_stderr_and_the_rest_is_judged(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: [", "utf-8")

    code, out, err = run(bad, tmp_path / "none.yaml", write(tmp_path, BROKEN))

    assert code == 2
    assert "spec.weight" in out
    assert [line.rpartition(".yaml: ")[2].partition(":")[0] for line in err.splitlines()] == [
        "is not YAML",
        "no such file or folder",
    ]


def test_json_has_every_finding_as_an_object(tmp_path: Path) -> None:
    path = write(tmp_path, BROKEN, DEPLOYMENT)

    code, out, _ = run(path, output="json")
    report = json.loads(out)

    assert code == 1
    assert {key: report[key] for key in ("apiVersion", "kind", "valid", "objects")} == {
        "apiVersion": "sawhorse.dev/v1",
        "kind": "Validation",
        "valid": False,
        "objects": 1,
    }
    assert report["findings"][0] == {
        "severity": "error",
        "code": "Structure",
        "file": str(path),
        "object": "NodePool default",
        "field": "spec.weight",
        "message": "0 is too small; the least is 1",
    }
    assert report["findings"][1]["code"] == "Skipped"


def test_with_the_objects_of_now_changes_are_judged_too(tmp_path: Path) -> None:
    static = {**POOL, "spec": {**POOL["spec"], "replicas": 2}}
    now = write(tmp_path, POOL, name="now.yaml")
    new = write(tmp_path, static, name="new.yaml")

    alone, _, _ = run(new)
    code, out, _ = run(new, against=(now,))

    assert alone == 0
    assert code == 1
    assert "cannot be switched between static and dynamic mode" in out


def test_a_value_with_line_breaks_stays_on_one_line(tmp_path: Path) -> None:
    pool = {**POOL, "metadata": {"name": "a\nb"}}

    _, out, _ = run(write(tmp_path, pool))

    assert len(out.splitlines()) == 2


def test_the_command_reads_its_options(tmp_path: Path) -> None:
    path = write(tmp_path, BROKEN)

    result = CliRunner().invoke(app, ["validate", "-f", str(path), "-o", "json", "--strict"])

    assert result.exit_code == 1
    assert json.loads(result.stdout)["valid"] is False
