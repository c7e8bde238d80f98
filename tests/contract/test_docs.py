"""The documents keep up with the tree: links lead somewhere, packages and decisions are all there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "deploy/README.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
DECISIONS = sorted((ROOT / "docs/adr").glob("*.md"))
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(?:#[^)]*)?\)")


def named_packages(name: str) -> set[str]:
    """The packages that a requirements source names, without extras and versions."""
    lines = (line.split("#")[0].strip() for line in (ROOT / "requirements" / name).read_text("utf-8").splitlines())
    return {re.split(r"[\[=<>~! ]", line)[0].lower() for line in lines if line and not line.startswith("-")}


def rows(text: str) -> list[list[str]]:
    """The cells of every table row of a page, without heads and rulers."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    rulers = {at for at, row in enumerate(cells) if all(re.fullmatch(r":?-+:?", cell) for cell in row)}
    return [row for at, row in enumerate(cells) if at not in rulers and at + 1 not in rulers]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_into_the_tree_leads_somewhere(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text("utf-8")) if "://" not in target]

    broken = [target for target in targets if not (page.parent / target).exists()]

    assert broken == []


@pytest.mark.parametrize("source", ["run.in", "dev.in"])
def test_every_package_that_we_name_is_explained(source: str) -> None:
    explained = {row[0] for row in rows((ROOT / "docs/dependencies.md").read_text("utf-8"))}

    assert named_packages(source) - explained == set()


def test_no_package_is_explained_that_we_do_not_name() -> None:
    explained = {row[0] for row in rows((ROOT / "docs/dependencies.md").read_text("utf-8")) if "," not in row[0]}

    assert explained - named_packages("run.in") - named_packages("dev.in") == set()


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_tells_context_decision_consequences_and_alternatives(decision: Path) -> None:
    text = decision.read_text("utf-8")

    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)

    assert re.match(rf"# {int(decision.name[:4])}\. ", text)
    assert heads == ["Context", "Decision", "Consequences", "Alternatives"]


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in DECISIONS]

    assert numbers == list(range(1, len(numbers) + 1))


def test_a_reason_has_one_row_under_its_heading_that_says_what_it_means_and_what_helps() -> None:
    text = (ROOT / "docs/reasons.md").read_text("utf-8")
    sections = {part.splitlines()[0]: rows(part) for part in text.split("\n## ")[1:]}

    for section, words in sections.items():
        codes = [row[0] for row in words]
        incomplete = [row[0] for row in words if not all(row) or not re.fullmatch(r"`[A-Za-z][\w.-]*`", row[0])]

        assert len(set(codes)) == len(codes), section
        assert incomplete == [], section
