"""The embedded cluster: a plain scheduler and the controllers that the demo needs. A test double.

It works on the API's operations directly, in the API server's process. A real cluster's scheduler and controllers are
what the end-to-end suite runs on; where they differ, they are right.
"""

from sawhorse_sandbox.cluster.manager import run_cluster

__all__ = ["run_cluster"]
