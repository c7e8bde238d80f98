"""`sawhorse plan` with `spec.cpuOptions` and the built-in catalogue: which types a plan may launch."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sawhorse_catalog.builtin import builtin_facts
from sawhorse_console.plan_command import run_plan

WITH_FEATURE = {f.name for f in builtin_facts() if "nested-virtualization" in f.processor_features}


def plan(directory: Path, cpu_options: dict[str, Any] | None, *types: str) -> dict[str, Any]:
    """The plan for one pod on a pool whose NodeClass has these options; the pool names types, or takes any."""
    requirements = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types}] if types else []
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec: dict[str, Any] = {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "nodes"}
    if cpu_options is not None:
        spec["cpuOptions"] = cpu_options
    pod = {"containers": [{"name": "app", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}
    documents = [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default"},
            "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": requirements}}},
        },
        {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}, "spec": spec},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vm"}, "spec": pod},
    ]
    file = directory / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(json.loads(json.dumps(documents))))
    out = io.StringIO()
    run_plan([file], catalog=None, output="json", strict=False, stdout=out, stderr=io.StringIO())
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def launched(plan: dict[str, Any]) -> set[str]:
    return {name for node in plan["newNodes"] for name in node["instanceTypes"]}


def test_enabled_nested_virtualization_plans_only_types_that_have_the_feature(tmp_path: Path) -> None:
    found = launched(plan(tmp_path, {"nestedVirtualization": "enabled"}))

    assert found
    assert found <= WITH_FEATURE


@pytest.mark.parametrize("options", [None, {}, {"nestedVirtualization": "disabled"}])
def test_absent_empty_and_disabled_options_rule_no_type_out(tmp_path: Path, options: dict[str, str] | None) -> None:
    found = launched(plan(tmp_path, options))

    assert found - WITH_FEATURE


def test_a_pool_without_any_type_that_has_the_feature_gets_a_reason_and_no_node(tmp_path: Path) -> None:
    found = plan(tmp_path, {"nestedVirtualization": "enabled"}, "m6i.large")

    (pod,) = found["unschedulable"]
    assert found["newNodes"] == []
    assert [r["code"] for r in pod["reasons"]] == ["NoOffering"]


def test_of_two_types_only_the_one_with_the_feature_is_planned(tmp_path: Path) -> None:
    found = plan(tmp_path, {"nestedVirtualization": "enabled"}, "m6i.large", "m8i.large")

    assert launched(found) == {"m8i.large"}


def test_a_core_count_that_few_types_take_plans_only_those(tmp_path: Path) -> None:
    found = plan(tmp_path, {"coreCount": 4}, "m8i.xlarge", "c8i.2xlarge")

    assert launched(found) == {"c8i.2xlarge"}
