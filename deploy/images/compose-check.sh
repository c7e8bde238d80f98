#!/usr/bin/env bash
# Has a real compose implementation read docker-compose.yml, where there is one; says so where there is none.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo checked >"$scratch/redis-password"
export SAWHORSE_REDIS_PASSWORD_FILE=$scratch/redis-password
if docker compose version >/dev/null 2>&1; then
    docker compose --profile tools --profile story config --quiet
    echo "docker compose takes docker-compose.yml"
elif command -v podman-compose >/dev/null; then
    podman-compose --profile tools --profile story config >/dev/null
    echo "podman-compose takes docker-compose.yml"
else
    echo "no compose implementation is here: docker-compose.yml was checked by our tests only"
fi
