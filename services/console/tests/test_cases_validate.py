"""Cases in which `sawhorse validate` is what tells the user: accepted as Karpenter accepts it, and warned about."""

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from sawhorse_console.validate.command import run_validate

CPU = "karpenter.k8s.aws/instance-cpu"
FIRST, SECOND = "spec.template.spec.requirements[0]", "spec.template.spec.requirements[1]"


def validate(folder: Path, *requirements: dict[str, Any]) -> tuple[int, str]:
    """Exit code and answer for a NodePool with these requirements."""
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": list(requirements)}}},
    }
    path = folder / "pool.yaml"
    path.write_text(yaml.safe_dump(pool), "utf-8")
    out = io.StringIO()
    now = datetime(2026, 11, 1, tzinfo=UTC)
    code = run_validate([path], against=(), strict=False, output="table", now=now, stdout=out, stderr=io.StringIO())
    return code, out.getvalue()


def needs(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def test_n01_an_empty_range_is_warned_about_with_both_fields(tmp_path: Path) -> None:
    code, told = validate(tmp_path, needs(CPU, "Gt", "16"), needs(CPU, "Lt", "4"))

    assert code == 0
    assert f"NodePool default: {SECOND}: no value of {CPU} meets this and {FIRST}" in told
    assert "0 errors, 1 warning" in told


def test_n01_a_range_that_leaves_types_is_not_talked_about(tmp_path: Path) -> None:
    memory = needs("karpenter.k8s.aws/instance-memory", "Lt", "16385")

    assert validate(tmp_path, needs(CPU, "Gt", "2"), needs(CPU, "Lt", "16"), memory) == (
        0,
        "1 object: 0 errors, 0 warnings\n",
    )


def test_n02_a_misspelt_label_is_warned_about_with_what_was_meant(tmp_path: Path) -> None:
    wrong = needs("node.kubernetes.io/instance-family", "In", "m6i")

    code, told = validate(tmp_path, wrong)

    assert code == 0
    assert f"NodePool default: {FIRST}" in told
    assert "did you mean karpenter.k8s.aws/instance-family?" in told
