#!/usr/bin/env bash
# Builds the images sawhorse/<name>:<TAG>: build.sh [NAME...]; without names all six.
#   BASE=...       base image, with Python 3.11 as `python`; default docker.io/library/python:3.11-slim
#   ENGINE=...     docker or podman; default: the one that works here
#   TAG=...        default: latest
#   PREFIX=...     default: sawhorse; podman stores it as localhost/sawhorse
#   WHEELHOUSE=1   packages come from deploy/images/wheelhouse (wheelhouse.sh fills it), nothing from an index
set -euo pipefail
cd "$(dirname "$0")/../.."
engine=${ENGINE:-$(deploy/images/engine.sh)}
tag=${TAG:-latest}
prefix=${PREFIX:-sawhorse}
arguments=()
if [[ -n ${BASE:-} ]]; then
    arguments+=(--build-arg "BASE=$BASE")
    # A local base exists nowhere else; asking for it would only fail.
    if [[ $BASE == localhost/* ]]; then arguments+=(--pull=never); fi
fi
if [[ -n ${WHEELHOUSE:-} ]]; then
    [[ -d deploy/images/wheelhouse ]] ||
        { echo "images: deploy/images/wheelhouse is missing; run deploy/images/wheelhouse.sh" >&2; exit 1; }
    arguments+=(--build-arg PIP_NO_INDEX=1 --build-arg PIP_FIND_LINKS=/images/wheelhouse)
fi
# Podman's own format has no HEALTHCHECK.
if [[ $engine == podman ]]; then arguments+=(--format docker); fi
# docker has no --pull=never, and takes a local image as it is.
if [[ $engine == docker ]]; then arguments=("${arguments[@]/--pull=never/}"); fi

(($#)) || set -- watcher pricing provisioner interruption console sandbox
for name in "$@"; do
    file=services/$name/Dockerfile
    if [[ $name == sandbox ]]; then file=deploy/images/sandbox/Dockerfile; fi
    echo "building $prefix/$name:$tag with $engine" >&2
    # shellcheck disable=SC2086  # empty words must vanish
    "$engine" build ${arguments[@]+${arguments[@]}} --file "$file" --tag "$prefix/$name:$tag" . >&2
done
