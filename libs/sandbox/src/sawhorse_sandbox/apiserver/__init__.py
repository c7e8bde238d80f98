"""The embedded Kubernetes API server: a test double that speaks the REST API over plain http on loopback.

It holds what the demo and the quick integration tests need, no more. The whole end-to-end suite runs on a real control
plane; where the two differ, the real one is right.
"""

from sawhorse_sandbox.apiserver.launcher import EmbeddedKube, start_embedded_kube

__all__ = ["EmbeddedKube", "start_embedded_kube"]
