"""The rules of AWS: which labels, size and offerings an EC2 instance type has under an EC2NodeClass.

`resolve` is the door. `WELL_KNOWN` are the labels that the catalogue defines, `EXOTIC` the resources of accelerators,
whose types serve only pods that ask for one.
"""

from sawhorse_catalog.aws.offerings import Unavailable, count_free, withhold
from sawhorse_catalog.aws.resolve import Resolution, ResolveSettings, resolve
from sawhorse_model.aws import AMD_GPU, GAUDI, NEURON, NEURON_CORE, NVIDIA_GPU, WELL_KNOWN

EXOTIC: frozenset[str] = frozenset({NVIDIA_GPU, AMD_GPU, GAUDI, NEURON, NEURON_CORE})

__all__ = ["EXOTIC", "WELL_KNOWN", "Resolution", "ResolveSettings", "Unavailable", "count_free", "resolve", "withhold"]
