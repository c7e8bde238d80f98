"""How the fake kubelets behave. All times are seconds."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """Built once by the caller, passed down."""

    kubeconfig: Path
    aws_endpoint: str  # base address of the sandbox's AWS; the instance list is at /sandbox/instances
    join_delay: float = 2.0  # from first seen running to the Node: boot
    ready_delay: float = 0.5  # from the Node to Ready: network plugin
    device_delay: float = 1.0  # from Ready to the device plugins' resources
    pod_start_delay: float = 0.3  # from bound (and node Ready) to Running: image pull and start
    shutdown_time: float = 1.0  # from delete to gone, never more than the pod's grace
    poll_interval: float = 0.25  # between looks at the instance list
    lease_period: float = 10.0
    status_period: float = 300.0  # a status that does not change is reported this rarely
    node_delete_delay: float = 5.0  # from an instance's end to the cloud controller's delete of its Node
    parallel: int = 32  # API requests at once
    directory: Path | None = None  # where `kubelets.ready` is written once both sides have answered
