"""Where the control plane's binaries are. It starts nothing and builds nothing."""

import os
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

KUBERNETES_VERSION = "v1.36.3"  # as tests/kube/go.mod requires; a test compares them
BINARIES = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")


def find_assets(
    kubebuilder_assets: str | Path | None = None,
    *,
    cache: str | Path | None = None,
    version: str = KUBERNETES_VERSION,
) -> Path | None:
    """Return the folder that holds all four binaries, or None where there is none.

    Args:
        kubebuilder_assets: the variable KUBEBUILDER_ASSETS, read by the caller. Looked at first; a folder that
            lacks a binary (envtest ships no scheduler) is passed over with a warning.
        cache: the variable SAWHORSE_CACHE, read by the caller; else `~/.cache/sawhorse`. `make kube-assets` fills it.
    """
    if kubebuilder_assets:
        given = Path(kubebuilder_assets).expanduser().absolute()
        missing = missing_binaries(given)
        if not missing:
            return given
        log.warning("kubebuilder assets are incomplete", directory=str(given), missing=list(missing))
    built = (Path(cache).expanduser() if cache else Path.home() / ".cache" / "sawhorse").absolute() / "kube" / version
    return None if missing_binaries(built) else built


def missing_binaries(directory: Path) -> tuple[str, ...]:
    """Return the names of the binaries that `directory` lacks or that cannot be executed."""
    return tuple(name for name in BINARIES if not _is_program(directory / name))


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
