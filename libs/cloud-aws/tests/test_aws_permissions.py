"""The IAM policies in deploy/iam allow the calls that the code makes, and no others.

Calls are read from the source: `call("Operation", client.method, …)` and `pages("Operation", client, "method", …)` are
the only ways to AWS, so their first argument is the whole list.
"""

import ast
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

import sawhorse_cloud_aws

PACKAGE = Path(sawhorse_cloud_aws.__file__).parent
ROOT = Path(__file__).resolve().parents[3]
POLICIES = ROOT / "deploy" / "iam"
PAGE = ROOT / "docs" / "aws-permissions.md"
SERVICES = ("ec2", "ssm", "iam", "eks", "sqs", "pricing")
# Which modules a service of ours runs. catalog_source.describe_types serves the provisioner too.
RUNS = {
    "interruption": ("queue",),
    "pricing": ("catalog_source", "account"),
}
ALSO = {
    "provisioner": {"ec2:DescribeInstanceTypes", "ec2:DescribeInstanceTypeOfferings"},
    "interruption": {"ec2:DescribeInstances", "eks:DescribeCluster"},
}
# Permissions without a call of that name.
IMPLIED = {"ec2:RunInstances", "iam:PassRole", "iam:TagInstanceProfile"}
# A call whose permission has another name.
NAMED = {"sqs:DeleteMessageBatch": "sqs:DeleteMessage"}


@dataclass(frozen=True)
class Call:
    """One call in the source."""

    module: str
    line: int
    operation: str
    method: str


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _calls(path: Path) -> Iterator[Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("call", "pages")):
            continue
        operation, second = _constant(node.args[0]), node.args[1]
        if node.func.id == "pages":
            method = _constant(node.args[2])
        else:
            method = second.attr if isinstance(second, ast.Attribute) else ""
        yield Call(path.stem, node.lineno, operation, method)


# The dry runs make their calls from a table; see the test about them.
DRY_RUNS = "dry_runs"
CALLS = [each for path in sorted(PACKAGE.glob("*.py")) if path.stem != DRY_RUNS for each in _calls(path)]


def _owners() -> dict[str, str]:
    """Operation → service; of the few names that two services share none is called here."""
    session = botocore.session.Session()
    found: dict[str, str] = {}
    for service in SERVICES:
        for name in session.get_service_model(service).operation_names:
            found.setdefault(name, service)
    return found


OWNERS = _owners()


def needed(operation: str) -> str:
    """The IAM action of a call."""
    action = f"{OWNERS[operation]}:{operation}"
    return NAMED.get(action, action)


def allowed(service: str) -> set[str]:
    policy = json.loads((POLICIES / f"{service}.json").read_text())
    return {action for statement in policy["Statement"] for action in statement["Action"]}


def called(service: str) -> set[str]:
    """The actions that a service's modules need."""
    elsewhere = {module for modules in RUNS.values() for module in modules} - {"account"}
    modules = RUNS.get(service) or {each.module for each in CALLS} - elsewhere
    return {needed(each.operation) for each in CALLS if each.module in modules} | ALSO.get(service, set())


@pytest.mark.parametrize("each", CALLS, ids=lambda each: f"{each.module}:{each.line}")
def test_every_call_names_its_operation_and_calls_no_other(each: Call) -> None:
    assert each.operation in OWNERS
    assert each.method == xform_name(each.operation)


def test_dry_runs_try_what_the_provisioner_may_do() -> None:
    tree = ast.parse((PACKAGE / f"{DRY_RUNS}.py").read_text())
    tables = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    tried = {_constant(key) for table in tables for key in table.keys if key is not None} & set(OWNERS)

    assert tried == {"CreateLaunchTemplate", "RunInstances", "CreateFleet"}
    assert {needed(operation) for operation in tried} <= allowed("provisioner")


def test_no_call_goes_around_the_two_functions() -> None:
    around = defaultdict(list)
    methods = {xform_name(each.operation) for each in CALLS}
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
                around[path.stem].append(node.func.attr)

    assert dict(around) == {}


@pytest.mark.parametrize("service", ["provisioner", "pricing", "interruption"])
def test_a_policy_allows_what_the_service_calls_and_nothing_else(service: str) -> None:
    has = allowed(service)

    assert called(service) - has == set()
    assert has - called(service) - IMPLIED == set()


def test_all_calls_are_somebodys() -> None:
    everybody = allowed("provisioner") | allowed("pricing") | allowed("interruption")

    assert {needed(each.operation) for each in CALLS} <= everybody


def test_the_page_says_why_for_each_permission_without_a_call() -> None:
    told = PAGE.read_text()

    assert [action for action in sorted(IMPLIED) if f"| `{action}` |" not in told] == []


@pytest.mark.parametrize("service", ["provisioner", "pricing", "interruption"])
def test_whatever_makes_or_ends_something_is_held_to_our_tags_or_names(service: str) -> None:
    policy: dict[str, Any] = json.loads((POLICIES / f"{service}.json").read_text())
    free = [
        statement["Sid"]
        for statement in policy["Statement"]
        if any(action.split(":")[1].startswith(("Create", "Delete", "Terminate")) for action in statement["Action"])
        and "Condition" not in statement
        and "${" not in json.dumps(statement["Resource"]).replace("${PARTITION}", "").replace("${REGION}", "")
    ]

    # Launching from images and subnets that are there: the machines themselves are held by LaunchWithOurTags.
    assert free in ([], ["LaunchFromWhatIsThere"])
