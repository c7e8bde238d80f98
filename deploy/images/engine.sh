#!/usr/bin/env bash
# Prints the container engine that works here: docker if its daemon answers, else podman.
set -euo pipefail
if command -v docker >/dev/null && timeout 10 docker info >/dev/null 2>&1; then
    echo docker
elif command -v podman >/dev/null; then
    echo podman
else
    echo "images: neither a docker daemon nor podman is here; install one, or name another with ENGINE=" >&2
    exit 1
fi
