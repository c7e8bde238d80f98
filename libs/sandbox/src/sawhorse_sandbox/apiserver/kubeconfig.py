"""The kubeconfig of the embedded API server: plain http, one token. Written for the owner's eyes only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml


def write_kubeconfig(path: Path, url: str, token: str) -> None:
    """Write whole or not at all, so that a reader never sees half of it."""
    name = "sawhorse-sandbox"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    write_private(path, yaml.safe_dump(config, sort_keys=False))


def read_kubeconfig(path: Path) -> tuple[str, str]:
    """The URL and the token."""
    config: dict[str, Any] = yaml.safe_load(path.read_text())
    return str(config["clusters"][0]["cluster"]["server"]), str(config["users"][0]["user"]["token"])


def write_private(path: Path, text: str) -> None:
    """Replace a file with one that only its owner reads."""
    draft = path.with_name(path.name + ".tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.replace(path)
