"""docs/rules.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


def test_every_test_that_the_list_of_rules_names_exists() -> None:
    page = (ROOT / "docs" / "rules.md").read_text()
    files = [*ROOT.glob("libs/*/tests/test_*.py"), *ROOT.glob("services/*/tests/test_*.py")]
    defined = {name for file in files for name in DEFINED.findall(file.read_text())}

    named = set(NAMED.findall(page))

    assert len(named) > 80
    assert sorted(named - defined) == []
