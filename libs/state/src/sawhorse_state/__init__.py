"""The Redis mirror of Kubernetes, wake-ups, and the formats that services share; the only importer of redis.

Everything here can be flushed at any time: it is a cache and a wake-up, never the truth. Every call is bounded and
raises errors of `sawhorse_state.errors` only. All keys start `sawhorse:{<cluster>}:`, the braces keeping them in one
slot of a Redis Cluster. Scripts go by EVAL, which Redis from 6.2 on and Valkey serve.

- `connection`  `connect_state`, `State`
- `codec`       model objects as JSON and back
- `mirror`      `MirrorWriter` (the watcher) and `Mirror` (everybody else)
- `wake`        "look now"
- `unavailable` offerings out of capacity
- `catalog`, `instances`, `marks`, `memory`, `placements`, `journal`  small shared records
"""
