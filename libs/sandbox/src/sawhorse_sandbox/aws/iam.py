"""IAM's answers that moto gives wrongly: it ignores the path that a list of instance profiles is asked for."""

from typing import Any

from moto.core.responses import ActionResult
from moto.iam.responses import IamResponse


def install_iam() -> None:
    """Put the answers into moto's class; once per process, before the first request."""
    IamResponse.list_instance_profiles = _list_instance_profiles  # type: ignore[method-assign]


def _list_instance_profiles(self: Any) -> ActionResult:
    prefix = self._get_param("PathPrefix") or "/"
    profiles = self.backend.get_instance_profiles()
    return ActionResult({"InstanceProfiles": [each for each in profiles if each.path.startswith(prefix)]})
