"""`sawhorse plan` on input that is legal and hopeless, or large: warnings, reasons, exit 1 or 0, never a traceback."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sawhorse_console.main import app
from sawhorse_console.plan_command import run_plan
from sawhorse_console.plan_snapshot import Tuning

REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
CPU = "karpenter.k8s.aws/instance-cpu"
ARCH = "kubernetes.io/arch"
GP3 = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "gp3"},
    "provisioner": "ebs.csi.aws.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def a_pool(*requirements: dict[str, Any], name: str = "default", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"nodeClassRef": REF, "requirements": list(requirements)}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def needs(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def a_workload(
    kind: str = "Deployment", replicas: int = 2, cpu: str = "500m", name: str = "web", **spec: Any
) -> dict[str, Any]:
    container = {"name": "app", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container], **spec}}},
    }


def required(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def wished(*expressions: dict[str, Any]) -> dict[str, Any]:
    wish = {"weight": 1, "preference": {"matchExpressions": list(expressions)}}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}}


class Command:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "in.yaml"

    def run(self, *objects: Any, output: str = "json", tuning: Tuning | None = None) -> int:
        self.file.write_text(yaml.safe_dump_all(json.loads(json.dumps(objects))))
        out, err = io.StringIO(), io.StringIO()
        code = run_plan([self.file], catalog=None, output=output, tuning=tuning, strict=False, stdout=out, stderr=err)
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    @property
    def plan(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def codes(self) -> set[tuple[str, str]]:
        return {(r["nodePool"], r["code"]) for entry in self.plan["unschedulable"] for r in entry["reasons"]}

    @property
    def warnings(self) -> str:
        return "\n".join(self.plan["warnings"])


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_a_pool_whose_requirement_has_no_number_is_a_warning_and_its_pods_find_no_place(command: Command) -> None:
    code = command.run(a_pool(needs(CPU, "Gt", "many")), a_workload())

    assert (code, command.err) == (1, "")
    assert command.codes == {("default", "InvalidRequirement")}
    assert (
        f"{command.file}: NodePool default: spec.template.spec.requirements[0].values: operator Gt takes exactly one "
        "integer, got ['many']; the pool is not used"
    ) in command.warnings


def test_a_pool_with_a_fault_stops_no_other(command: Command) -> None:
    code = command.run(a_pool(needs(CPU, "Lt"), name="wrong"), a_pool(name="right"), a_workload())

    assert code == 0
    assert {node["nodePool"] for node in command.plan["newNodes"]} == {"right"}


def test_a_pods_rule_without_a_number_leaves_only_its_own_pods_out(command: Command) -> None:
    wrong = a_workload(name="wrong", **required(needs(ARCH, "Exists"), needs(CPU, "Gt", "x")))

    code = command.run(a_pool(), wrong, a_workload())

    assert code == 1
    assert {entry["pod"] for entry in command.plan["unschedulable"]} == {"default/wrong-0", "default/wrong-1"}
    assert "its pods find no place" in command.warnings


def test_a_wish_without_a_number_is_passed_over(command: Command) -> None:
    code = command.run(a_pool(), a_workload(**wished(needs(CPU, "Gt", "x"))))

    assert code == 0
    assert "it is passed over" in command.warnings


def test_a_pool_that_contradicts_itself_is_a_warning_that_names_the_label(command: Command) -> None:
    code = command.run(a_pool(needs(ARCH, "In", "amd64"), needs(ARCH, "In", "arm64")), a_workload())

    assert code == 1
    assert f"NodePool default: its requirements on {ARCH} exclude each other" in command.warnings
    assert command.codes == {("default", "NoInstanceTypes")}


def test_a_pod_that_contradicts_itself_finds_no_place(command: Command) -> None:
    code = command.run(a_pool(), a_workload(nodeSelector={ARCH: "amd64"}, **required(needs(ARCH, "In", "arm64"))))

    assert code == 1
    assert command.codes == {("", "RequirementsConflict")}


def test_a_requirement_without_a_key_makes_no_sense(command: Command) -> None:
    code = command.run(a_pool({"operator": "Exists"}), a_workload())

    assert (code, command.err) == (
        2,
        f"{command.file}: NodePool default: spec.template.spec.requirements[0].key: is missing; name the label\n",
    )


def test_a_million_replicas_are_planned(command: Command) -> None:
    large = needs("node.kubernetes.io/instance-type", "In", "m6i.24xlarge")

    code = command.run(a_pool(large), a_workload(replicas=1_000_000))

    assert code == 0
    assert sum(len(node["pods"]) for node in command.plan["newNodes"]) == 1_000_000


def test_ephemeral_volumes_come_with_their_pods(command: Command) -> None:
    claim = {"spec": {"storageClassName": "gp3", "accessModes": ["ReadWriteOnce"]}}
    volume = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": claim}}
    pod = a_workload(volumes=[volume])["spec"]["template"]["spec"]
    single = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": pod}

    with_class = command.run(a_pool(), GP3, a_workload(replicas=30, volumes=[volume]), single)
    without = command.run(a_pool(), a_workload(volumes=[volume]), single)

    assert (with_class, without) == (0, 1)
    assert command.codes == {("", "VolumeClaimUnbound")}
    assert len(command.plan["unschedulable"]) == 3


def test_ephemeral_volumes_count_for_what_a_node_takes_of_volumes(command: Command) -> None:
    claim = {"spec": {"storageClassName": "gp3"}}
    volume = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": claim}}

    command.run(a_pool(), GP3, a_workload(replicas=60, cpu="10m", volumes=[volume]))

    assert max(len(node["pods"]) for node in command.plan["newNodes"]) < 60


def test_types_that_the_node_class_rules_out_are_told_with_the_cause(command: Command) -> None:
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "r", "cpuOptions": {"coreCount": 4}},
    }

    command.run(a_pool(), node_class, a_workload())
    plain = [w for w in command.plan["warnings"] if "fall out" in w]
    node_class["spec"].pop("cpuOptions")
    command.run(a_pool(), node_class, a_workload())

    assert any("spec.cpuOptions.coreCount is 4, it takes" in warning for warning in plain)
    assert not any("fall out" in warning for warning in command.plan["warnings"])


@pytest.mark.parametrize(
    ("tuning", "check"),
    [
        (Tuning(max_pods_per_node=2), lambda nodes: max(len(n["pods"]) for n in nodes) == 2),
        (Tuning(fixed_cost=5.0), lambda nodes: len(nodes) == 1),
        (Tuning(slack=0.5), lambda nodes: all(_share(n) <= 0.5 for n in nodes)),
    ],
)
def test_how_to_plan_can_be_told(command: Command, tuning: Tuning, check: Any) -> None:
    only = needs("karpenter.k8s.aws/instance-family", "In", "m6i")

    command.run(a_pool(only), a_workload(replicas=24), tuning=tuning)

    assert check(command.plan["newNodes"])


def _share(node: dict[str, Any]) -> float:
    return _millis(node["requests"]["cpu"]) / _millis(node["allocatable"]["cpu"])


def _millis(quantity: str) -> float:
    return float(quantity[:-1]) if quantity.endswith("m") else float(quantity) * 1000


def test_minimising_the_expected_price_is_never_worse_in_it(command: Command) -> None:
    spot = a_pool(
        needs("karpenter.sh/capacity-type", "In", "spot"), needs("karpenter.k8s.aws/instance-category", "In", "m")
    )

    command.run(spot, a_workload(replicas=200, cpu="1500m"))
    best = command.plan["cost"]
    command.run(spot, a_workload(replicas=200, cpu="1500m"), tuning=Tuning(minimize_expected=True))
    expected = command.plan["cost"]

    assert expected["expectedPricePerHour"] < best["expectedPricePerHour"]
    assert best["pricePerHour"] <= expected["pricePerHour"]
    assert math.isclose(best["lowerBoundPerHour"], expected["lowerBoundPerHour"], rel_tol=0.01)


def test_the_table_has_a_total_what_the_price_may_become_and_its_bound(command: Command) -> None:
    pools = [a_pool(), a_pool(needs(ARCH, "In", "amd64"), name="other", weight=3)]

    code = command.run(*pools, a_workload(), a_workload(name="arm", nodeSelector={ARCH: "arm64"}), output="table")

    lines = command.out.splitlines()
    assert code == 0
    assert lines[0].split() == "POOL INSTANCE TYPE CAPACITY ZONES NODES PODS CPU MEMORY PRICE/H".split()
    assert [line.split()[0] for line in lines[1:4]] == ["default", "other", "total"]
    assert any(line.startswith("2 new nodes, ") and " USD an hour" in line for line in lines)
    assert any(line.startswith("  expected ") and ", at worst " in line for line in lines)
    assert any(line.startswith("  lower bound ") and "% above it" in line for line in lines)


def test_a_name_that_looks_like_markup_is_printed_as_it_is(command: Command) -> None:
    command.run(a_workload(name="[red]x"), output="table")

    assert "no place for default/[red]x-0 and 1 more" in command.out


def test_the_options_of_the_command_line_reach_the_planner(tmp_path: Path) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(yaml.safe_dump_all(json.loads(json.dumps([a_pool(), a_workload(replicas=6)]))))
    options = ["--max-pods-per-node", "2", "--node-slack", "0.02", "--node-fixed-cost", "0", "--minimize", "expected"]
    policies = ["--preference-policy", "Ignore", "--min-values-policy", "BestEffort", "--time-limit", "30"]

    found = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json", *options, *policies])
    wrong = CliRunner().invoke(app, ["plan", "-f", str(file), "--node-slack", "1"])

    assert found.exit_code == 0
    assert [len(node["pods"]) for node in json.loads(found.stdout)["newNodes"]] == [2, 2, 2]
    assert wrong.exit_code == 2
