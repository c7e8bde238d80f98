"""The shipped CRDs: their structure against Karpenter's v1 contract, and documents they must take or refuse.

The contract is `crd_contract.yaml`. The schemas are read as JSON Schema here, which covers types, enums, patterns and
bounds. CEL rules are checked here for being there and for their text; `test_crds_verdicts.py` runs them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CRD_FILES = {
    "NodePool": ROOT / "deploy/crds/karpenter.sh_nodepools.yaml",
    "NodeClaim": ROOT / "deploy/crds/karpenter.sh_nodeclaims.yaml",
    "EC2NodeClass": ROOT / "deploy/crds/karpenter.k8s.aws_ec2nodeclasses.yaml",
}
CRDS: dict[str, Any] = {kind: yaml.safe_load(path.read_text("utf-8")) for kind, path in CRD_FILES.items()}
MANIFESTS = sorted((Path(__file__).parent / "manifests").glob("*.yaml"))

CONTRACT: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "crd_contract.yaml").read_text("utf-8"))
IMDS = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 1,
    "httpTokens": "required",
}


def rows(table: str) -> Iterator[Any]:
    """The rows (kind, path, value) of a table of the contract, named for the test report."""
    for kind, fields in CONTRACT[table].items():
        for path, value in fields.items():
            yield pytest.param(kind, path, value, id=f"{kind}-{path}")


def schema_of(kind: str) -> dict[str, Any]:
    """The openAPIV3Schema of the one version that a CRD serves."""
    (version,) = CRDS[kind]["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def at(schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The schema under a path such as `spec.budgets[].nodes` or `spec.limits{}`."""
    for step in filter(None, path.split(".")):
        name, item = re.fullmatch(r"(\w+)(\[\]|\{\})?", step).groups()  # type: ignore[union-attr]
        schema = schema["properties"][name]
        schema = schema["items"] if item == "[]" else schema["additionalProperties"] if item == "{}" else schema
    return schema


def every_schema(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A schema and all below it, with their paths in the notation of the contract."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from every_schema(child, f"{path}.{name}".lstrip("."))
    for word, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(word), Mapping):
            yield from every_schema(schema[word], path + mark)


def as_json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An openAPIV3Schema as JSON Schema: `nullable` becomes a type, the vendor words go.

    `x-kubernetes-int-or-string` needs nothing: such a schema says the same with anyOf.
    """
    out = {word: value for word, value in schema.items() if not word.startswith("x-") and word != "nullable"}
    if schema.get("nullable"):
        out["type"] = [schema["type"], "null"]
    if "properties" in schema:
        out["properties"] = {name: as_json_schema(child) for name, child in schema["properties"].items()}
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), Mapping):
            out[word] = as_json_schema(schema[word])
    return out


def defaulted(schema: Mapping[str, Any], value: Any) -> Any:
    """`value` as the API server stores it: missing fields filled with their defaults, from the outside in."""
    if isinstance(value, dict):
        value = dict(value)
        for name, child in schema.get("properties", {}).items():
            if name not in value and "default" in child:
                value[name] = deepcopy(child["default"])
            if name in value:
                value[name] = defaulted(child, value[name])
    if isinstance(value, list):
        value = [defaulted(schema["items"], item) for item in value]
    return value


def refused_fields(document: Mapping[str, Any]) -> set[str]:
    """Paths of the fields that the schema of the document's kind refuses, `a.b.0.c`."""
    validator = jsonschema.Draft202012Validator(as_json_schema(schema_of(document["kind"])))
    return {".".join(map(str, error.absolute_path)) for error in validator.iter_errors(document)}


def documents() -> Iterator[Any]:
    """Every document of the example manifests, named for the test report."""
    for path in MANIFESTS:
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            yield pytest.param(document, id=f"{path.stem}-{document['kind']}-{document['metadata']['name']}")


@pytest.mark.parametrize(("kind", "path", "carries"), rows("fields"))
def test_a_field_carries_the_types_bounds_patterns_and_defaults_of_the_contract(
    kind: str, path: str, carries: dict[str, Any]
) -> None:
    field = at(schema_of(kind), path)

    found = {word: field.get(word) for word in carries}

    assert found == carries


@pytest.mark.parametrize(("kind", "path", "messages"), rows("rules"))
def test_a_rule_across_fields_is_there_with_its_message(kind: str, path: str, messages: list[str]) -> None:
    rules = at(schema_of(kind), path)["x-kubernetes-validations"]

    assert sorted(rule["message"] for rule in rules) == messages


@pytest.mark.parametrize(
    ("kind", "group", "plural", "short"),
    [
        ("NodePool", "karpenter.sh", "nodepools", []),
        ("NodeClaim", "karpenter.sh", "nodeclaims", []),
        ("EC2NodeClass", "karpenter.k8s.aws", "ec2nodeclasses", ["ec2nc", "ec2ncs"]),
    ],
)
def test_a_kind_keeps_karpenters_names_and_is_served_as_v1_only(
    kind: str, group: str, plural: str, short: list[str]
) -> None:
    crd = CRDS[kind]

    names = crd["spec"]["names"]
    (version,) = crd["spec"]["versions"]

    assert crd["metadata"]["name"] == f"{plural}.{group}"
    assert (crd["spec"]["group"], crd["spec"]["scope"]) == (group, "Cluster")
    assert (names["kind"], names["listKind"], names["plural"]) == (kind, f"{kind}List", plural)
    assert names["categories"] == ["karpenter"]
    assert names.get("shortNames", []) == short
    assert (version["name"], version["served"], version["storage"]) == ("v1", True, True)
    assert version["subresources"]["status"] == {}


def test_a_static_pool_can_be_scaled_through_its_subresource() -> None:
    (version,) = CRDS["NodePool"]["spec"]["versions"]

    scale = version["subresources"]["scale"]

    assert scale == {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"}


@pytest.mark.parametrize(
    ("kind", "narrow", "wide"),
    [
        ("NodePool", ["NodeClass", "Nodes", "Ready", "Age"], ["Weight", "CPU", "Memory"]),
        (
            "NodeClaim",
            ["Type", "Capacity", "Zone", "Node", "Ready", "Age"],
            ["ImageID", "ID", "NodePool", "NodeClass", "Drifted"],
        ),
        ("EC2NodeClass", ["Ready", "Age"], ["Role"]),
    ],
)
def test_a_listing_shows_the_columns_that_people_know(kind: str, narrow: list[str], wide: list[str]) -> None:
    (version,) = CRDS[kind]["spec"]["versions"]

    columns = version["additionalPrinterColumns"]

    assert [column["name"] for column in columns if not column.get("priority")] == narrow
    assert [column["name"] for column in columns if column.get("priority") == 1] == wide


@pytest.mark.parametrize("kind", CRDS)
def test_every_schema_is_structural_and_explains_its_fields(kind: str) -> None:
    undescribed, untyped = [], []

    for path, field in every_schema(schema_of(kind)):
        if "type" not in field and not field.get("x-kubernetes-int-or-string"):
            untyped.append(path)
        if "description" not in field and not path.endswith(("[]", "{}")) and path != "metadata":
            undescribed.append(path)

    assert untyped == []
    assert undescribed == []


@pytest.mark.parametrize("kind", CRDS)
def test_every_default_passes_its_own_schema(kind: str) -> None:
    for path, field in every_schema(schema_of(kind)):
        if "default" not in field:
            continue
        validator = jsonschema.Draft202012Validator(as_json_schema(field))

        problems = [error.message for error in validator.iter_errors(field["default"])]

        assert problems == [], path


@pytest.mark.parametrize("kind", CRDS)
def test_no_rule_stands_outside_the_contract(kind: str) -> None:
    ruled = {path for path, field in every_schema(schema_of(kind)) if "x-kubernetes-validations" in field}

    assert ruled == set(CONTRACT["rules"][kind])


@pytest.mark.parametrize("kind", CRDS)
def test_every_rule_has_a_message_on_one_line(kind: str) -> None:
    rules = [rule for _, field in every_schema(schema_of(kind)) for rule in field.get("x-kubernetes-validations", [])]

    bare = [rule for rule in rules if not rule["message"].strip() or "\n" in rule["message"] + rule["rule"]]

    assert rules
    assert bare == []


@pytest.mark.parametrize("document", documents())
def test_an_ordinary_manifest_is_accepted_as_it_is(document: dict[str, Any]) -> None:
    crd = CRDS[document["kind"]]

    refused = refused_fields(document)

    assert refused == set()
    assert document["apiVersion"] == f"{crd['spec']['group']}/v1"


@pytest.mark.parametrize("document", documents())
def test_no_field_of_an_ordinary_manifest_would_be_pruned(document: dict[str, Any]) -> None:
    def unknown(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
        if isinstance(value, dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
            for name, child in value.items():
                known = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
                yield from [f"{path}.{name}"] if known is None else unknown(known, child, f"{path}.{name}")
        if isinstance(value, list):
            for item in value:
                yield from unknown(schema["items"], item, f"{path}[]")

    pruned = list(unknown(schema_of(document["kind"])["properties"]["spec"], document["spec"], "spec"))

    assert pruned == []


@pytest.mark.parametrize("case", CONTRACT["refused"], ids=lambda case: f"{case['kind']}-{case['field']}")
def test_a_value_outside_the_contract_is_refused_and_its_field_named(
    case: dict[str, Any], a_document: Callable[..., dict[str, Any]]
) -> None:
    document = a_document(case["kind"], case["change"])

    refused = refused_fields(document)

    assert refused == {case["field"]}


def test_more_budgets_than_the_contract_allows_are_refused(a_document: Callable[..., dict[str, Any]]) -> None:
    document = a_document("NodePool", {"spec.disruption.budgets": [{"nodes": "1"}] * 51})

    assert refused_fields(document) == {"spec.disruption.budgets"}


@pytest.mark.parametrize("kind", CRDS)
def test_the_smallest_object_of_a_kind_is_accepted(kind: str, a_document: Callable[..., dict[str, Any]]) -> None:
    assert refused_fields(a_document(kind, {})) == set()


def test_a_pool_that_says_nothing_about_disruption_gets_the_defaults_that_gitops_tools_compare(
    a_document: Callable[..., dict[str, Any]],
) -> None:
    pool = defaulted(schema_of("NodePool"), a_document("NodePool", {}))

    assert pool["spec"]["disruption"] == {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "0s",
        "budgets": [{"nodes": "10%"}],
    }
    assert pool["spec"]["template"]["spec"]["expireAfter"] == "720h"


def test_an_empty_list_of_budgets_stays_empty_and_so_unlimited(a_document: Callable[..., dict[str, Any]]) -> None:
    pool = defaulted(schema_of("NodePool"), a_document("NodePool", {"spec.disruption.budgets": []}))

    assert pool["spec"]["disruption"]["budgets"] == []


def test_a_class_that_sets_one_metadata_option_keeps_the_defaults_of_the_others(
    a_document: Callable[..., dict[str, Any]],
) -> None:
    node_class = a_document("EC2NodeClass", {"spec.metadataOptions.httpTokens": "optional"})

    stored = defaulted(schema_of("EC2NodeClass"), node_class)

    assert stored["spec"]["metadataOptions"] == {**IMDS, "httpTokens": "optional"}


def test_conditions_of_a_class_are_a_plain_list_as_upstream() -> None:
    conditions = at(schema_of("EC2NodeClass"), "status.conditions")

    assert conditions["type"] == "array"
    assert "x-kubernetes-list-type" not in conditions
