#!/usr/bin/env bash
# Makes a local base image from Debian's packages, for machines that can pull no image: base.sh [NAME]
# It holds Debian 12's Python 3.11. Needs root, debootstrap and podman or docker; about 2 minutes, 300 MB.
set -euo pipefail

name=${1:-localhost/sawhorse-base:bookworm}
fail() { echo "base: $*" >&2; exit 1; }
command -v debootstrap >/dev/null || fail "debootstrap is missing; apt-get install debootstrap"
engine=${ENGINE:-$("$(dirname "$0")/engine.sh")}

root=$(mktemp -d "${TMPDIR:-/tmp}/sawhorse-base.XXXXXX")
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates bookworm "$root" >&2 ||
    fail "debootstrap failed (see above); it needs root and Debian's package servers"
ln -sf python3 "$root/usr/bin/python"
rm -rf "$root"/usr/lib/python3*/EXTERNALLY-MANAGED "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
tar -C "$root" -cf - . | "$engine" import --change 'CMD ["python3"]' - "$name" >&2
echo "$name"
