"""What an image holds: the workspace members that a service declares, theirs in turn, and their packages.

    closure.py members watcher       the members' folders, one a line
    closure.py packages watcher      what their pyproject files ask of the package index, one a line
    closure.py write                 requirements/<image>.in of every image

The pyproject files are the only source; `requirements/<image>.in` is written from them and locked by `make lock`.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# The sandbox's image also tells the demo's story, which is the command's.
IMAGES = {
    "watcher": ("sawhorse-watcher",),
    "pricing": ("sawhorse-pricing",),
    "provisioner": ("sawhorse-provisioner",),
    "interruption": ("sawhorse-interruption",),
    "console": ("sawhorse-console",),
    "sandbox": ("sawhorse-sandbox", "sawhorse-console"),
}


def _projects() -> dict[str, tuple[Path, Any]]:
    """All members by their package name: folder, and the table `project`."""
    found = {}
    for file in sorted([ROOT / "proto/pyproject.toml", *ROOT.glob("libs/*/pyproject.toml")]) + sorted(
        ROOT.glob("services/*/pyproject.toml")
    ):
        project = tomllib.loads(file.read_text())["project"]
        found[str(project["name"])] = (file.parent, project)
    return found


def closure(image: str) -> tuple[list[str], list[str]]:
    """The members' folders (relative, libraries before services) and the packages that they declare.

    Raises:
        KeyError: no such image, or a member declares a `sawhorse-` package that is none.
    """
    projects = _projects()
    names: set[str] = set()
    packages: set[str] = set()
    todo = list(IMAGES[image])
    while todo:
        name = todo.pop()
        if name in names:
            continue
        names.add(name)
        for requirement in projects[name][1].get("dependencies", []):
            if requirement.startswith("sawhorse-"):
                todo.append(re.split(r"[^a-z0-9-]", requirement)[0])
            else:
                packages.add(requirement)
    members = [str(folder.relative_to(ROOT)) for name, (folder, _) in projects.items() if name in names]
    # The extras that run.in picks count in images too: `moto[ec2]` brings what `moto` lacks.
    lines = (ROOT / "requirements/run.in").read_text().splitlines()
    extras = {line.split("[")[0]: line for line in lines if "[" in line and not line.startswith("#")}
    return members, sorted({extras.get(name.split("[")[0], name) for name in packages})


def requirements_in(image: str) -> str:
    """The text of requirements/<image>.in; `-c run.txt` keeps one version of each package over all images."""
    lines = [f"# What the image {image} holds, from the members' pyproject files. Written by deploy/images/closure.py."]
    return "\n".join([*lines, "-c run.txt", *closure(image)[1], ""])


def main(arguments: Sequence[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="closure.py", description="What an image holds.")
    parser.add_argument("what", choices=("members", "packages", "write"))
    parser.add_argument("image", nargs="?", choices=tuple(IMAGES))
    options = parser.parse_args(arguments)
    if options.what == "write":
        for image in IMAGES:
            (ROOT / "requirements" / f"{image}.in").write_text(requirements_in(image))
        return 0
    if options.image is None:
        parser.error("name an image")
    members, packages = closure(options.image)
    print("\n".join(members if options.what == "members" else packages))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
