"""The interruption service: takes messages off the queue, gives a doomed node's pods a new place, and drains it.

Every replica is active and none leads: effects are idempotent, and all that has to last is written to Kubernetes.

- `main` wires it, `settings` says how it can be told
- `messages` and `policy` are its pure part: what a message says, and what that leads to
- `consumer` receives, `held` and `acks` keep what is in hand, `handler` decides about one message
- `effects` performs the named steps of `steps`, `cordon` and `marking` are two of them, `index` finds claims
- `draining` empties doomed nodes, level by level
- `grpc_api` tells what it is working on, `instruments` counts it
"""
