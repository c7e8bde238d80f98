#!/usr/bin/env bash
# Builds the real control plane (kube-apiserver, kube-scheduler, kube-controller-manager, etcd) from Go modules into a
# cache outside the clone: ${SAWHORSE_CACHE:-$HOME/.cache/sawhorse}/kube/<version>/. Prints that folder on stdout.
# Cold: 6 to 9 minutes on two cores, 430 MB. Warm: nothing to do, and it says so within milliseconds.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() { echo "kube-assets: $*" >&2; exit 1; }

# go.mod is the one place that names the versions.
version=$(sed -nE 's/^require k8s\.io\/kubernetes (v[0-9.]+)$/\1/p' "$here/go.mod")
[[ -n $version ]] || fail "tests/kube/go.mod names no k8s.io/kubernetes version; restore it from git"
needed=$(sed -nE 's/^go ([0-9.]+)$/\1/p' "$here/go.mod")
cache=${SAWHORSE_CACHE:-$HOME/.cache/sawhorse}/kube
target=$cache/$version
binaries=(etcd kube-apiserver kube-scheduler kube-controller-manager)

complete() {
    local name
    for name in "${binaries[@]}"; do [[ -x $target/$name ]] || return 1; done
    [[ $("$target/kube-apiserver" --version 2>/dev/null) == "Kubernetes $version" ]]
}

finish() { echo "$target"; exit 0; }

if complete; then finish; fi

go=${GO:-go}
command -v "$go" >/dev/null ||
    fail "Go is not installed; install Go $needed or later, or point KUBEBUILDER_ASSETS at ready binaries"
# Never let an old Go fetch a newer one behind the user's back.
export GOTOOLCHAIN=local
found=$("$go" env GOVERSION 2>/dev/null | sed -E 's/^go([0-9.]+).*/\1/') || true
[[ -n $found ]] || fail "'$go env GOVERSION' gives no version; install Go $needed or later"
[[ $(printf '%s\n%s\n' "$needed" "$found" | sort -V | head -n 1) == "$needed" ]] ||
    fail "Go $found is too old; install Go $needed or later"

mkdir -p "$cache"
exec 9>"$cache/.lock"
if ! flock -n 9; then
    echo "kube-assets: another build is running, waiting for it" >&2
    flock -w 3600 9 || fail "another build held $cache/.lock for an hour; end it and try again"
fi
if complete; then finish; fi # the other build made it

rm -rf "$cache/.$version".*  # what a killed build left; the lock says that none is running
work=$(mktemp -d "$cache/.$version.XXXXXX")
trap 'rm -rf "$work"' EXIT

minor=${version#v1.}
linker="-X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 \
-X k8s.io/component-base/version.gitMinor=${minor%%.*}"
echo "kube-assets: building Kubernetes $version with Go $found; the first time takes 6 to 9 minutes on two cores" >&2
# 9>&-: a build process that outlives this script must not keep the lock.
(cd "$here" && "$go" build -mod=readonly -buildvcs=false -ldflags "$linker" -o "$work/" \
    k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-scheduler \
    k8s.io/kubernetes/cmd/kube-controller-manager go.etcd.io/etcd/server/v3) 9>&- >&2 ||
    fail "the build failed (see above); 'go clean -cache' and enough disk space (6 GB) help most often"
mv "$work/server" "$work/etcd"
built=$("$work/kube-apiserver" --version)
[[ $built == "Kubernetes $version" ]] || fail "the built kube-apiserver says '$built', not 'Kubernetes $version'"

chmod 755 "$work"
rm -rf "$target"
mv -T "$work" "$target"
trap - EXIT
finish
