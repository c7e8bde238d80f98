"""The real Kubernetes control plane: etcd, kube-apiserver, kube-scheduler, kube-controller-manager as processes.

`find_assets` says where the binaries are (`make kube-assets` builds them), `start_control_plane` runs them on
loopback. There are no kubelets in it: `sawhorse_sandbox.kubelet` plays those. As a process of its own:
`python -m sawhorse_sandbox.controlplane --directory DIR --ready-file PATH`.
"""

from sawhorse_sandbox.controlplane.assets import BINARIES, KUBERNETES_VERSION, find_assets
from sawhorse_sandbox.controlplane.launch import ControlPlane, ControlPlaneError, start_control_plane

__all__ = [
    "BINARIES",
    "KUBERNETES_VERSION",
    "ControlPlane",
    "ControlPlaneError",
    "find_assets",
    "start_control_plane",
]
