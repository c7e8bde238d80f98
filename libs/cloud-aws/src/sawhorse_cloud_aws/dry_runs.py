"""Dry runs of a launch: whether the controller's role may do what a NodeClass needs, before a pod waits for it.

Each is a call with DryRun, which EC2 answers with DryRunOperation where it would be allowed and makes nothing. Only a
refusal counts: another error says nothing about permissions, and the launch itself will tell.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import structlog

from sawhorse_cloud.errors import CloudError, UnauthorizedError
from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.calls import call, error_code, tag_list
from sawhorse_cloud_aws.tags import TOKEN_TAG, class_tags
from sawhorse_cloud_aws.template_data import TemplateRequest, template_data
from sawhorse_cloud_aws.user_data import build_user_data
from sawhorse_cloud_aws.validation import VALIDATION
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.meta import Condition

log = structlog.get_logger(__name__)

ALLOWED = "DryRunOperation"
TEMPLATE = "sawhorse-dry-run"
PASSED_SECONDS = 1800.0
REFUSED_SECONDS = 60.0
_TYPES = {"arm64": "m6g.large"}  # by architecture; any other is tried with the plain one
_PLAIN_TYPE = "m5.large"
_ENCODED = re.compile(r"\s*Encoded authorization failure message: \S+")


class DryRunMode(StrEnum):
    """What a refusal does."""

    OFF = "off"  # nothing is tried
    ADVISE = "advise"  # the condition stays True and its message says so: policies may allow the real call only
    REQUIRE = "require"  # the condition is False, and nothing is launched


class DryRuns:
    """Tries and remembers. `ec2` is an SDK client, `monotonic` a clock in seconds."""

    def __init__(
        self, *, ec2: Any, cluster: ClusterFacts, region: str, mode: DryRunMode, monotonic: Callable[[], float]
    ) -> None:
        self._ec2 = ec2
        self._cluster = cluster
        self._region = region
        self._mode = mode
        self._monotonic = monotonic
        self._known: dict[str, tuple[str, float, Condition]] = {}  # class → what was tried, until when it holds, answer

    async def check(self, node_class: EC2NodeClass) -> Condition:
        """ValidationSucceeded of a NodeClass whose look-ups all succeeded."""
        passed = Condition(VALIDATION, "True", VALIDATION)
        if self._mode is DryRunMode.OFF:
            return passed
        tried = _digest(node_class)
        known = self._known.get(node_class.name)
        if known is not None and known[0] == tried and self._monotonic() < known[1]:
            return known[2]
        refusal = await self._refusal(node_class)
        if refusal is None:
            found, lasts = passed, PASSED_SECONDS
        else:
            reason, text = refusal
            status = "False" if self._mode is DryRunMode.REQUIRE else "True"
            found, lasts = Condition(VALIDATION, status, reason, text), REFUSED_SECONDS
            log.warning("dry run refused", nodeclass=node_class.name, reason=reason, error=text)
        self._known[node_class.name] = (tried, self._monotonic() + lasts, found)
        return found

    async def _refusal(self, node_class: EC2NodeClass) -> tuple[str, str] | None:
        data = self._data(node_class)
        tags = tag_list({**self._tags(node_class), TOKEN_TAG: TEMPLATE})
        described = [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")]
        kind = self._instance_type(node_class)
        subnet = node_class.subnets[0].id
        instance = {key: value for key, value in data.items() if key not in ("TagSpecifications", "NetworkInterfaces")}
        interfaces = [{**nic, "SubnetId": subnet} for nic in data["NetworkInterfaces"]]
        calls: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
            "CreateLaunchTemplate": (
                self._ec2.create_launch_template,
                {
                    "LaunchTemplateName": TEMPLATE,
                    "LaunchTemplateData": data,
                    "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags}],
                },
            ),
            "RunInstances": (
                self._ec2.run_instances,
                {
                    **instance,
                    "InstanceType": kind,
                    "NetworkInterfaces": interfaces,
                    "MinCount": 1,
                    "MaxCount": 1,
                    "TagSpecifications": described,
                },
            ),
            "CreateFleet": (
                self._ec2.create_fleet,
                {
                    "Type": "instant",
                    "LaunchTemplateConfigs": [
                        {
                            "LaunchTemplateSpecification": {"LaunchTemplateName": TEMPLATE, "Version": "$Latest"},
                            "Overrides": [{"InstanceType": kind, "SubnetId": subnet}],
                        }
                    ],
                    "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
                    "TagSpecifications": [*described, {"ResourceType": "fleet", "Tags": tags}],
                },
            ),
        }
        for operation, (method, request) in calls.items():
            try:
                await call(operation, method, DryRun=True, **request)
            except UnauthorizedError as error:
                # What was decoded names action and resource; the encoded rest is for sts decode-authorization-message.
                text = _ENCODED.sub("", str(error))
                return f"{operation}AuthCheckFailed", f"dry run refused: {text} {error.action}".strip()
            except CloudError as error:
                if error_code(error) != ALLOWED:
                    log.debug("dry run says nothing", nodeclass=node_class.name, operation=operation, error=str(error))
        return None

    def _data(self, node_class: EC2NodeClass) -> dict[str, Any]:
        user_data = build_user_data(node_class, self._cluster, labels={}, taints=(), max_pods=110)
        return template_data(
            node_class,
            TemplateRequest(
                image_id=node_class.amis[0].id,
                user_data=user_data,
                tags=self._tags(node_class),
                spot=False,
                region=self._region,
                ipv6=self._cluster.is_ipv6,
            ),
        )

    def _tags(self, node_class: EC2NodeClass) -> dict[str, str]:
        # Policies ask for the tags of a real launch, the pool's among them.
        return class_tags(self._cluster.name, node_class, nodepool=TEMPLATE)

    def _instance_type(self, node_class: EC2NodeClass) -> str:
        asked = [r for r in node_class.amis[0].requirements if r.key == "kubernetes.io/arch"]
        return next((_TYPES[v] for r in asked for v in r.values if v in _TYPES), _PLAIN_TYPE)


def _digest(node_class: EC2NodeClass) -> str:
    neutral = node_class.node_class
    found = {key: value for key, value in neutral.status.items() if key != "conditions"}
    return hashlib.sha256(json.dumps([neutral.spec, found], sort_keys=True, default=str).encode()).hexdigest()
