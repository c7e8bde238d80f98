"""Taints, tolerations and label selectors, row by row."""

import pytest

from sawhorse_model.selectors import LabelSelector, SelectorExpression
from sawhorse_model.taints import Taint, Toleration, is_ephemeral, untolerated

GPU = Taint("gpu", "NoSchedule", "a100")


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        (Toleration("gpu", "Equal", "a100", "NoSchedule"), GPU, True),
        (Toleration("gpu", "", "a100"), GPU, True),
        (Toleration("gpu", "Equal", "t4"), GPU, False),
        (Toleration("gpu", "Exists"), GPU, True),
        (Toleration("gpu", "Exists", effect="NoExecute"), GPU, False),
        (Toleration("", "Exists"), GPU, True),
        (Toleration("", "Equal", "a100"), GPU, False),
        (Toleration("cpu", "Exists"), GPU, False),
        (Toleration("gpu", "Nonsense", "a100"), GPU, False),
        (Toleration("n", "Gt", "5"), Taint("n", "NoSchedule", "6"), True),
        (Toleration("n", "Gt", "5"), Taint("n", "NoSchedule", "5"), False),
        (Toleration("n", "Lt", "5"), Taint("n", "NoSchedule", "4"), True),
        (Toleration("n", "Lt", "5"), Taint("n", "NoSchedule", "five"), False),
        (Toleration("", "Gt", "5"), Taint("n", "NoSchedule", "6"), False),
    ],
)
def test_a_toleration_matches_as_kube_scheduler_reads_it(toleration: Toleration, taint: Taint, tolerated: bool) -> None:
    assert toleration.tolerates(taint) is tolerated


def test_prefer_no_schedule_keeps_nobody_off_unless_asked() -> None:
    soft = Taint("slow", "PreferNoSchedule")

    assert untolerated([soft], []) is None
    assert untolerated([soft], [], prefer_counts=True) == soft


def test_the_first_taint_that_is_not_tolerated_is_named() -> None:
    other = Taint("b", "NoExecute")

    assert untolerated([GPU, other], [Toleration("gpu", "Exists")]) == other


@pytest.mark.parametrize(
    ("taint", "expected"),
    [
        (Taint("node.kubernetes.io/not-ready", "NoExecute"), True),
        (Taint("node.kubernetes.io/unreachable", "NoSchedule"), True),
        (Taint("node.kubernetes.io/unreachable", "NoExecute"), False),
        (Taint("karpenter.sh/unregistered", "NoExecute"), True),
        (Taint("readiness.k8s.io/network", "NoSchedule"), True),
        (Taint("node.kubernetes.io/memory-pressure", "NoSchedule"), False),
    ],
)
def test_only_taints_of_a_starting_node_are_ephemeral(taint: Taint, expected: bool) -> None:
    assert is_ephemeral(taint) is expected


@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", ("x", "y"), {"k": "y"}, True),
        ("In", ("x",), {}, False),
        ("NotIn", ("x",), {}, True),
        ("NotIn", ("x",), {"k": "x"}, False),
        ("Exists", (), {"k": ""}, True),
        ("DoesNotExist", (), {"k": ""}, False),
        ("DoesNotExist", (), {}, True),
        ("Nonsense", (), {}, False),
    ],
)
def test_a_selector_expression_reads_labels(
    operator: str, values: tuple[str, ...], labels: dict[str, str], expected: bool
) -> None:
    assert LabelSelector((SelectorExpression("k", operator, values),)).matches(labels) is expected


def test_an_empty_selector_selects_everything_and_added_labels_narrow_it() -> None:
    everything = LabelSelector()

    narrowed = everything.with_labels({"app": "web"})

    assert everything.matches({})
    assert narrowed.matches({"app": "web"})
    assert not narrowed.matches({"app": "db"})
