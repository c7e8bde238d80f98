"""What every service runs on: settings, logs, metrics, health, supervision, the keyed queue, gRPC.

Modules, each importable alone (this package imports none of them, so that a command starts fast):

- `settings`  one frozen dataclass per service, filled from flags and environment; all problems listed at once
- `errors`    our error tree with `reason`, `retry`, `action`, and `describe`, the one line a person reads
- `clock`     the only reader of the wall clock
- `logs`      JSON lines on stdout
- `metrics`   Prometheus instruments on a registry of their own
- `health`    `/healthz`, `/readyz`, `/metrics`; `ready` tells a parent process the ports
- `backoff`   delays that grow per key
- `supervise` the loops of one process, its signals and its exit code
- `tasks`     the level-based work queue
- `rpc`       gRPC server, channel and call, with health, reflection, deadlines and TLS; `rpc_guard` and `rpc_health`
  are its server's inner parts

It knows no cloud, no Kubernetes and no Redis client.
"""
