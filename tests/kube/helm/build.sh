#!/usr/bin/env bash
# Builds helm from its Go module into a cache outside the clone: ${SAWHORSE_CACHE:-$HOME/.cache/sawhorse}/helm/<version>/.
# Prints the binary's path on stdout. Cold: about 4 minutes on two cores, 120 MB. Warm: nothing to do.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() { echo "helm: $*" >&2; exit 1; }

# go.mod is the one place that names the version.
version=$(sed -nE 's/^\s*helm\.sh\/helm\/v4 (v[0-9.]+)( .*)?$/\1/p' "$here/go.mod")
[[ -n $version ]] || fail "tests/kube/helm/go.mod names no helm version; restore it from git"
needed=$(sed -nE 's/^go ([0-9.]+)$/\1/p' "$here/go.mod")
cache=${SAWHORSE_CACHE:-$HOME/.cache/sawhorse}/helm
target=$cache/$version

complete() { [[ -x $target/helm && $("$target/helm" version --short 2>/dev/null) == "$version"* ]]; }
finish() { echo "$target/helm"; exit 0; }

if complete; then finish; fi

go=${GO:-go}
command -v "$go" >/dev/null || fail "Go is not installed; install Go $needed or later"
# Never let an old Go fetch a newer one behind the user's back.
export GOTOOLCHAIN=local
found=$("$go" env GOVERSION 2>/dev/null | sed -E 's/^go([0-9.]+).*/\1/') || true
[[ -n $found ]] || fail "'$go env GOVERSION' gives no version; install Go $needed or later"
[[ $(printf '%s\n%s\n' "$needed" "$found" | sort -V | head -n 1) == "$needed" ]] ||
    fail "Go $found is too old; install Go $needed or later"

mkdir -p "$cache"
exec 9>"$cache/.lock"
if ! flock -n 9; then
    echo "helm: another build is running, waiting for it" >&2
    flock -w 1800 9 || fail "another build held $cache/.lock for half an hour; end it and try again"
fi
if complete; then finish; fi # the other build made it

rm -rf "$cache/.$version".* # what a killed build left; the lock says that none is running
work=$(mktemp -d "$cache/.$version.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "helm: building $version with Go $found; the first time takes about 4 minutes on two cores" >&2
linker="-s -w -X helm.sh/helm/v4/internal/version.version=$version"
# 9>&-: a build process that outlives this script must not keep the lock.
(cd "$here" && nice -n 15 "$go" build -mod=readonly -buildvcs=false -ldflags "$linker" -o "$work/helm" \
    helm.sh/helm/v4/cmd/helm) 9>&- >&2 ||
    fail "the build failed (see above); enough disk space (3 GB) and a reachable module proxy help most often"
built=$("$work/helm" version --short)
[[ $built == "$version"* ]] || fail "the built helm says '$built', not '$version'"

chmod 755 "$work"
rm -rf "$target"
mv -T "$work" "$target"
trap - EXIT
finish
