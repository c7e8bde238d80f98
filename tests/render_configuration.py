"""Writes docs/configuration.md from the services' settings: `make docs`; `--check` fails when the page is stale."""

import sys
from pathlib import Path

from sawhorse_interruption.settings import Settings as InterruptionSettings
from sawhorse_pricing.settings import Settings as PricingSettings
from sawhorse_provisioner.settings import Settings as ProvisionerSettings
from sawhorse_runtime.settings import CommonSettings, settings_table
from sawhorse_watcher.settings import Settings as WatcherSettings

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

HEAD = """# Configuration

Every setting is a flag and an environment variable; the flag beats the variable, the variable beats the default.
Secrets are paths of files or the pod's own identity, never values. `python -m sawhorse_<service> --help` prints the
same. Made by `make docs`; do not edit.
"""

ADDRESSES = """
## Addresses

| service | gRPC | setting |
|---|---|---|
| pricing | 127.0.0.1:7401 | `--grpc-address`; others find it by `--pricing-address` |
| provisioner | 127.0.0.1:7402 | `--grpc-address` |
| interruption | 127.0.0.1:7403 | `--grpc-address` |
| watcher | 127.0.0.1:7404 (health only) | `--grpc-address` |

Metrics are on `--metrics-port` (8080), health on `--health-probe-port` (8081): `/metrics`, `/healthz`, `/readyz`.
A port of 0 lets the system choose; the `--ready-file` says which.

## Annotations of our own

| annotation | on | meaning |
|---|---|---|
| `sawhorse.dev/launch` | NodeClaim | the launch token: written before CreateFleet, a tag on the instances |
| `sawhorse.dev/drain-owner` | NodeClaim | `interruption`: that service drains the node |
| `sawhorse.dev/interrupted-at` | NodeClaim | time of the notice, RFC 3339 |
| `sawhorse.dev/launch-timeout` | NodePool | how long a NodeClaim may take to get an instance, such as `3m` |
| `sawhorse.dev/registration-timeout` | NodePool | how long it may take to get a node, such as `10m` |
| `sawhorse.dev/initialization-timeout` | NodePool | how long a node may lack extended resources: `1h`, or `Never` |
| `sawhorse.dev/memory` | NodeClaim | whether the memory in its status is an `estimate` or `measured` on such a node |
| `sawhorse.dev/replacement-ready` | NodeClaim | `true` once the pods of an interrupted node have room elsewhere |
"""


def render() -> str:
    """The whole page."""
    common = {line for line in settings_table(CommonSettings).splitlines() if line.startswith("| `")}
    parts = [HEAD, "\n## All services\n\n", settings_table(CommonSettings).rstrip(), "\n"]
    for name, settings in (
        ("watcher", WatcherSettings),
        ("pricing", PricingSettings),
        ("provisioner", ProvisionerSettings),
        ("interruption", InterruptionSettings),
    ):
        own = [line for line in settings_table(settings).rstrip().splitlines() if line not in common]
        parts += [f"\n## {name}\n\n", "\n".join(own), "\n"]
    return "".join(parts) + ADDRESSES


def main() -> int:
    """Write the page, or with --check compare."""
    text = render()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != text:
            print("docs/configuration.md is not what the settings say: run make docs", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
