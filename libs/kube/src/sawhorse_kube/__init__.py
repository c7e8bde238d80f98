"""Kubernetes access, and the only importer of its client: list, watch, patch, evict, drain, Lease, Events.

Modules, each importable alone:

- `kinds`      the kind table: path, scope and reader of each kind
- `errors`     our error tree, made from the API server's answers
- `api`        `Kube`, the seam that services use, and its data: listings, watch events, Events
- `client`     `Kube` over HTTP, `connect_kube`
- `conditions` status conditions under an optimistic lock
- `events`     Kubernetes Events, de-duplicated
- `leases`     leader election with an epoch
- `drain`      draining a node; `drain_plan` is its pure part

It knows no cloud and no Redis.
"""
