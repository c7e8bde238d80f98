"""The hash of an EC2NodeClass: the fields whose change drifts nodes, as decimal text. Pure."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sawhorse_model.aws import EC2NodeClass

# Our own word, so that claims of a cluster that moves over are re-stamped and not taken for drifted.
HASH_VERSION = "sawhorse-v1"

# Fields that are looked up (their results drift on their own) or that never drift; the last three are hashed below.
_NOT_AS_TYPED = frozenset(
    {
        "subnetSelectorTerms",
        "securityGroupSelectorTerms",
        "amiSelectorTerms",
        "capacityReservationSelectorTerms",
        "ipPrefixCount",
        "amiFamily",
        "kubelet",
        "metadataOptions",
    },
)
# Where unset and false are the same; elsewhere (`encrypted`, `associatePublicIPAddress`) unset leaves it to AWS.
_FALSE_IS_UNSET = frozenset({"detailedMonitoring", "rootVolume"})


def static_hash(node_class: EC2NodeClass) -> str:
    """Hash of the static part of the spec.

    The order of lists and maps does not matter, nor whether something is empty or absent. The resolved AMI family and
    the metadata options with their defaults are hashed: to spell a default out is no change.
    """
    spec = node_class.node_class.spec
    options = node_class.metadata_options
    static = {
        **{k: v for k, v in spec.items() if k not in _NOT_AS_TYPED},
        "amiFamily": node_class.ami_family,
        "metadataOptions": [
            options.http_endpoint,
            options.http_protocol_ipv6,
            str(options.hop_limit),
            options.http_tokens,
        ],
    }
    kubelet = spec.get("kubelet")
    parts = [_canonical(static), kubelet or None]  # in the kubelet's own settings the order of a list may matter
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return str(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = {k: _canonical(v) for k, v in value.items() if not (k in _FALSE_IS_UNSET and v is False)}
        return {k: v for k, v in items.items() if not _is_empty(v)}
    if isinstance(value, list | tuple):
        return sorted((_canonical(v) for v in value), key=lambda v: json.dumps(v, sort_keys=True, default=str))
    return value


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)
