"""docs/cases.md and docs/rules.md name tests that exist, are collected and assert; every case of the list has one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {page: (ROOT / "docs" / page).read_text() for page in ("cases.md", "rules.md")}
NAMED = re.compile(r"`(test_\w+)`")
ROW = re.compile(r"^\| ([A-Z]\d\d) \|", re.MULTILINE)
PLANNER = "S01 S02 S04 S05 S07 S08 S10 S11 S13 S14 S16 N01 N02 N04 N05 N07 N08 N10 P04 G02 G04 T05".split()
LAUNCH = "P01 P02 P05 P07 P10 P11 Z01 Z02 Z04 Z05 Z07 Z08 G01 G05 G07 L02 L04 L05 F04 F05 T01 T02".split()
ASSERTING = ("raises", "group_contains")


def collected() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef, dict[str, ast.AST]]]:
    """Every test that pytest collects here: a function of a module `test_*.py` below a folder of tests."""
    folders = [ROOT / "tests", *ROOT.glob("libs/*/tests"), *ROOT.glob("services/*/tests")]
    for file in sorted(f for folder in folders for f in folder.rglob("test_*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        for name, node in functions.items():
            if name.startswith("test_"):
                yield file, node, dict(functions)


def asserts(node: ast.AST, functions: dict[str, ast.AST], seen: frozenset[str] = frozenset()) -> bool:
    """Whether a test asserts, itself or through a function of its module."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assert):
            return True
        if isinstance(inner, ast.Call):
            called = inner.func.attr if isinstance(inner.func, ast.Attribute) else getattr(inner.func, "id", "")
            if called in ASSERTING:
                return True
            if called in functions and called not in seen and asserts(functions[called], functions, seen | {called}):
                return True
    return False


TESTS = {node.name: (file, node, functions) for file, node, functions in collected()}


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_is_collected_and_asserts(page: str) -> None:
    named = NAMED.findall(PAGES[page])

    assert named
    assert sorted(set(named) - TESTS.keys()) == []
    assert sorted(n for n in set(named) if not asserts(TESTS[n][1], TESTS[n][2])) == []


def test_a_test_that_a_page_names_is_never_skipped() -> None:
    skipped = [
        name
        for name in {n for page in PAGES.values() for n in NAMED.findall(page)} & TESTS.keys()
        for mark in TESTS[name][1].decorator_list
        if any(word in ast.unparse(mark) for word in ("mark.skip", "mark.xfail"))
    ]

    assert skipped == []


def test_every_case_of_the_planner_and_of_catalogue_and_launch_has_a_row_with_a_test() -> None:
    rows = [line for line in PAGES["cases.md"].splitlines() if ROW.match(line)]

    assert [line[2:5] for line in rows] == [*PLANNER, *LAUNCH]
    assert [line[2:5] for line in rows if not NAMED.search(line)] == []
