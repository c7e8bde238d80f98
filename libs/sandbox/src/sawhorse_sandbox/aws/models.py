"""Fields of EC2 that the models in moto's botocore do not know yet: the adapter's own supplement, read by moto too.

Without it moto drops `CpuOptions.NestedVirtualization` from a request before anybody can look at it.
"""

from importlib.util import find_spec
from pathlib import Path

from moto.core.loaders import Loader

ADAPTER = "sawhorse_cloud_aws"


def supplement() -> Path:
    """The folder of the adapter's model files. The package is looked up and not imported: that would load the SDK."""
    spec = find_spec(ADAPTER)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"{ADAPTER} is not installed; install sawhorse-cloud-aws beside sawhorse-sandbox")
    return Path(spec.submodule_search_locations[0]) / "botocore_data"


def teach_moto() -> None:
    """Make moto read the supplement; once per process, before the first request."""
    # botocore joins the two lists at each new loader; moto asks for files named *.moto-extras.json alone.
    Loader.CUSTOMER_DATA_PATH = str(supplement())
    Loader.BUILTIN_EXTRAS_TYPES = ["moto", "sdk"]
