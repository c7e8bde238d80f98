"""docs/rules.md has a row for every rule of scheduling and names tests that exist; test_cases_map: that they assert."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rules.md").read_text()
NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)
ROW = re.compile(r"^\| (\d+(?:\.\d+)*(?:-\d+(?:\.\d+)*)?) .*\|$", re.MULTILINE)
# The rules of sections 3 to 18, save those that the packing engine replaces: 10.1, 10.2, 11 B and C, 15.4.
RULES = """
    3 3.1 3.2 3.3 4.1 4.2 4.3 4.4 5.1 5.2 5.3 5.4 5.5 6.1 6.2 6.3 6.4 6.5 6.6 6.7 6.8 6.9 7 8.1 8.2 8.3.1 8.3.2 8.3.3
    8.3.4 8.4 9.1 9.2 9.3 9.4 9.5 9.6 10.3 10.4 11 11.1 11.2 12.1 12.2 12.3 12.4 12.5 12.6 13.1 13.2 13.3 13.4 13.5
    14.1 14.2 14.3 14.4 14.5 15.1 15.2 15.3 15.5 16.1 16.2 16.3 17 18
""".split()


def rows() -> list[tuple[str, str]]:
    """Number and line of each row about scheduling; `14.2-14.3` stands for both."""
    scheduling = PAGE.split("\n## ")[0]
    return [(number, m[0]) for m in ROW.finditer(scheduling) for number in m[1].split("-")]


def test_every_test_that_the_list_of_rules_names_exists() -> None:
    files = [*ROOT.glob("libs/*/tests/test_*.py"), *ROOT.glob("services/*/tests/test_*.py")]
    defined = {name for file in files for name in DEFINED.findall(file.read_text())}

    named = set(NAMED.findall(PAGE))

    assert len(named) > 150
    assert sorted(named - defined) == []


@pytest.mark.parametrize("number", RULES)
def test_a_rule_of_scheduling_has_a_row_with_a_test(number: str) -> None:
    mine = [line for found, line in rows() if found == number]

    assert mine
    assert all(NAMED.search(line) for line in mine)


def test_the_list_of_rules_goes_by_their_numbers() -> None:
    order = [tuple(map(int, number.split("."))) for number, _ in rows()]

    assert order == sorted(order)
