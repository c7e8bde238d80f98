"""Fake kubelets: every running EC2 instance of the sandbox becomes a Node that runs the pods bound to it.

A test double, for the embedded and the real API server alike. `run_kubelets` plays all of them in one process; as a
process of its own: `python -m sawhorse_sandbox.kubelet --kubeconfig K --aws-endpoint URL`.
"""

from sawhorse_sandbox.kubelet.api import KubeconfigError
from sawhorse_sandbox.kubelet.fleet import run_kubelets
from sawhorse_sandbox.kubelet.settings import KubeletSettings

__all__ = ["KubeconfigError", "KubeletSettings", "run_kubelets"]
