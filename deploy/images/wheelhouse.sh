#!/usr/bin/env bash
# Fills deploy/images/wheelhouse with the wheels of the images' locks, so that images build without a package index.
# The hashes of the locks are checked here and again in the build. PYTHON must be the base image's version, 3.11.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
house=deploy/images/wheelhouse
mkdir -p "$house"
for image in build watcher pricing provisioner interruption console sandbox; do
    "$python" -m pip --disable-pip-version-check download --quiet --only-binary :all: --require-hashes --no-deps \
        --dest "$house" --requirement "requirements/$image.txt" ||
        { echo "wheelhouse: the wheels of requirements/$image.txt cannot be fetched (see above)" >&2; exit 1; }
done
echo "$house: $(find "$house" -name '*.whl' | wc -l) wheels, $(du -sh "$house" | cut -f1)"
