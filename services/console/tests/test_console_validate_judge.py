"""The parts of a verdict: what CEL's library is given, how RE2 is read, what is dropped and filled in."""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import cel
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sawhorse_console.validate.crds import custom_kinds
from sawhorse_console.validate.findings import Severity
from sawhorse_console.validate.judge import judge
from sawhorse_console.validate.lint import Subject, Surroundings, lint
from sawhorse_console.validate.patterns import HINTS, re2
from sawhorse_console.validate.rules import FUNCTIONS, holds
from sawhorse_console.validate.structure import check_structure, make_checker
from sawhorse_runtime.clock import SystemClock

KINDS = custom_kinds()
POOL: dict[str, Any] = yaml.safe_load(
    """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default, labels: {team: a}, annotations: {note: b}}
spec:
  weight: 3
  limits: {cpu: 10, memory: 1Gi}
  disruption: {budgets: [{nodes: 10%, schedule: '@daily', duration: 8h, reasons: [Empty]}]}
  template:
    metadata: {labels: {team: a}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: ['4'], minValues: 1}]
      taints: [{key: a, effect: NoSchedule}]
""",
)
NODE_CLASS: dict[str, Any] = yaml.safe_load(
    """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node
  amiSelectorTerms: [{alias: al2023@v20260101}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{id: sg-1}]
  tags: {team: a}
  kubelet: {maxPods: 42, evictionHard: {memory.available: 5%}}
  blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 1Gi}}]
""",
)


def every_schema(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema and all below it."""
    yield schema
    for child in schema.get("properties", {}).values():
        yield from every_schema(child)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), Mapping):
            yield from every_schema(schema[word])


SCHEMAS = [schema for kind in KINDS.values() for schema in every_schema(kind.schema)]
RULES = sorted({rule["rule"] for schema in SCHEMAS for rule in schema.get("x-kubernetes-validations", ())})


def refusals(kind: str, document: Mapping[str, Any]) -> list[str]:
    """Field and text of each error."""
    return [f"{found.field}: {found.text}" for found in judge(KINDS[kind], document).errors]


@pytest.mark.parametrize("name", ["find", "lowerAscii"])
def test_the_library_lacks_a_function_that_kubernetes_has_and_gets_ours(name: str) -> None:
    argument = "'b+'" if name == "find" else ""
    context = cel.Context()

    with pytest.raises(RuntimeError, match=f"Undefined variable or function: '{name}'"):
        cel.compile(f"'abBc'.{name}({argument})").execute(context)

    assert set(FUNCTIONS) == {"find", "lowerAscii"}
    assert holds("self.find('b+') == 'b' && self.find('x') == ''", "abc")
    assert holds("self.lowerAscii() == 'abÄ'", "aBÄ")


def test_our_rules_call_only_functions_that_the_library_has_or_is_given() -> None:
    builtin = {"all", "exists", "exists_one", "filter", "has", "size", "startsWith", "endsWith", "int"}
    without_texts = [re.sub(r"'[^']*'", "", rule) for rule in RULES]

    called = {name for rule in without_texts for name in re.findall(r"(\w+)\(", rule)} - {"in"}

    assert called - builtin == set(FUNCTIONS)


@pytest.mark.parametrize("rule", ["int(self) >= 0", "self.missing == 1", "self + 1 == 2", "self"])
def test_a_rule_that_cannot_be_evaluated_or_says_no_truth_is_broken(rule: str) -> None:
    assert not holds(rule, "abc")


def test_a_number_beyond_64_bits_is_refused_and_not_a_crash() -> None:
    assert not holds("self.n == 1", {"n": 2**70})


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^a$", "a\n", False),
        ("^a$", "a", True),
        (r"^a\$$", "a$", True),
        ("^[$]$", "$", True),
        (r"^\d$", "٣", False),
        (r"^\w+\s\w+$", "a b", True),
        (r"a\sb", "a\u2003b", False),
    ],
)
def test_expressions_are_read_as_re2_reads_them(pattern: str, text: str, matches: bool) -> None:
    assert (re2(pattern).search(text) is not None) is matches


def test_every_expression_that_people_can_fail_has_a_hint() -> None:
    spec = [s for kind in KINDS.values() for s in every_schema(kind.schema["properties"]["spec"])]

    patterns = {schema["pattern"] for schema in spec if "pattern" in schema}

    assert patterns == set(HINTS)


def test_unknown_fields_are_named_and_do_not_matter_to_the_verdict() -> None:
    document = deepcopy(POOL)
    document["spec"]["tempalte"] = {"x": 1}
    document["spec"]["template"]["spec"]["requirements"][0]["value"] = "4"
    document["more"] = 1

    verdict = judge(KINDS["NodePool"], document)

    assert verdict.errors == ()
    assert set(verdict.unknown_fields) == {"more", "spec.tempalte", "spec.template.spec.requirements[0].value"}
    assert "tempalte" not in verdict.stored["spec"]


def test_defaults_are_filled_in_and_nulls_count_as_absent() -> None:
    document = deepcopy(POOL)
    document["spec"]["disruption"] = None
    document["spec"]["template"]["metadata"] = {"labels": None, "annotations": {"a": None}}

    verdict = judge(KINDS["NodePool"], document)

    assert verdict.errors == ()
    assert verdict.stored["spec"]["disruption"] == {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "0s",
        "budgets": [{"nodes": "10%"}],
    }
    assert verdict.stored["spec"]["template"]["metadata"] == {"annotations": {}}
    assert document["spec"]["disruption"] is None


def test_a_null_in_a_list_is_refused() -> None:
    document = deepcopy(POOL)
    document["spec"]["template"]["spec"]["requirements"] = [None]

    assert refusals("NodePool", document) == ["spec.template.spec.requirements[0]: is null; write a map"]


def test_the_status_in_a_file_is_not_judged() -> None:
    assert refusals("NodePool", {**POOL, "status": {"conditions": "nonsense", "nodes": "x"}}) == []


def test_an_unquoted_time_is_the_text_that_kubernetes_reads() -> None:
    document = deepcopy(POOL)
    document["spec"]["template"]["spec"]["taints"] = yaml.safe_load(
        "[{key: a, effect: NoSchedule, timeAdded: 2026-01-01T00:00:00Z}]"
    )
    document["spec"]["template"]["metadata"]["labels"] = yaml.safe_load("{day: 2026-01-01}")

    assert refusals("NodePool", document) == []


def test_numbers_where_texts_belong_are_told_to_be_quoted() -> None:
    document = deepcopy(POOL)
    document["spec"]["disruption"]["budgets"] = [{"nodes": 5}]

    assert refusals("NodePool", document) == ["spec.disruption.budgets[0].nodes: 5 is a number; put it in quotes"]


def test_rules_are_not_judged_where_the_shape_is_wrong() -> None:
    document = deepcopy(NODE_CLASS)
    del document["spec"]["role"]
    document["spec"]["tags"] = "x"

    assert refusals("EC2NodeClass", document) == ["spec.tags: is a text; write a map"]


def test_a_rule_speaks_with_the_message_of_the_crd() -> None:
    document = deepcopy(NODE_CLASS)
    document["spec"]["instanceProfile"] = "p"

    assert refusals("EC2NodeClass", document) == ["spec: spec: set exactly one of role and instanceProfile"]


@pytest.mark.parametrize(
    ("metadata", "part"),
    [
        (None, "metadata: is missing"),
        ("x", "metadata: is a text; write a map"),
        ({}, "metadata.name: is missing"),
        ({"name": 5}, "metadata.name: 5 is not a text"),
        ({"name": "A"}, "metadata.name: 'A' is no object name"),
        ({"name": "a" * 254}, "is no object name"),
        ({"name": "a", "labels": {"a b": "c"}}, "metadata.labels[a b]: is no label key"),
        ({"name": "a", "labels": {"a": 5}}, "metadata.labels[a]: 5 is not a text"),
        ({"name": "a", "labels": {"a": "x" * 64}}, "is no label value"),
        ({"name": "a", "labels": []}, "metadata.labels: must be a map"),
        ({"name": "a", "annotations": {"a/b/c": "d"}}, "metadata.annotations[a/b/c]: is no annotation key"),
        ({"name": "a", "annotations": {"a": True}}, "metadata.annotations[a]: True is not a text"),
    ],
)
def test_names_labels_and_annotations_are_judged(metadata: Any, part: str) -> None:
    lines = refusals("NodePool", {**POOL, "metadata": metadata})

    assert len(lines) == 1
    assert part in lines[0]


def test_a_label_without_a_value_is_an_empty_one_and_a_whole_float_is_a_whole_number() -> None:
    document = {**POOL, "metadata": {"name": "a", "labels": {"a": None}, "annotations": {"b": None}}}
    document["spec"] = {**POOL["spec"], "weight": 5.0}

    verdict = judge(KINDS["NodePool"], document)

    assert verdict.errors == ()
    assert repr(verdict.stored["spec"]["weight"]) == "5"


def test_a_generated_name_is_a_name() -> None:
    assert refusals("NodePool", {**POOL, "metadata": {"generateName": "a-"}}) == []


@pytest.mark.parametrize(
    ("schema", "value", "word"),
    [
        ({"type": "string", "nullable": True}, None, ""),
        ({"type": "string"}, None, "type"),
        ({"type": "integer"}, True, "type"),
        ({"type": "integer"}, 5.0, ""),
        ({"type": "integer", "format": "int32"}, 2**31, "format"),
        ({"type": "integer", "format": "int64"}, 2**63, "format"),
        ({"type": "string", "format": "date-time"}, "2026-01-01T24:00:00Z", "format"),
        ({"type": "string", "format": "date-time"}, "2026-02-30T00:00:00Z", "format"),
        ({"type": "string", "format": "date-time"}, "2026-01-01t00:00:00.5z", ""),
        ({"x-kubernetes-int-or-string": True, "maximum": 5}, 6, "maximum"),
        ({"x-kubernetes-int-or-string": True, "maximum": 5}, "6s", ""),
        ({"x-kubernetes-int-or-string": True}, 0.5, "type"),
        ({"type": "array", "x-kubernetes-list-type": "set", "items": {}}, [1, 1], "x-kubernetes-list-type"),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {}},
            [{"k": 1, "v": 1}, {"k": 1, "v": 2}],
            "x-kubernetes-list-type",
        ),
        ({"type": "array", "x-kubernetes-list-type": "atomic", "items": {}}, [1, 1], ""),
    ],
)
def test_what_kubernetes_means_beyond_json_schema_is_meant_here_too(schema: Any, value: Any, word: str) -> None:
    found = [broken for broken, _ in check_structure(make_checker(schema), value)]

    assert found == ([word] if word else [])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All paths into a value."""
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, below in pairs:
        yield from places(below, (*path, step))


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.none(), max_size=1),
    st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2),
)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), document=st.sampled_from([POOL, NODE_CLASS]))
def test_whatever_stands_in_a_field_there_is_a_verdict_and_advice_on_what_is_taken(
    data: st.DataObject, document: dict[str, Any]
) -> None:
    changed = deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(sorted(places(changed), key=repr)))
        below: Any = changed
        for step in parents:
            below = below[step]
        below[last] = data.draw(JUNK)

    verdict = judge(KINDS[document["kind"]], changed)
    found = list(verdict.errors)
    if not found:
        subject = Subject(document["kind"], "x", verdict.stored)
        found = list(lint(subject, Surroundings([subject], SystemClock().now())))

    assert all(finding.text and finding.severity in Severity for finding in found)
