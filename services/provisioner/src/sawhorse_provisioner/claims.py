"""From a planned node to the NodeClaim that asks for it. Pure, save for the random part of the name."""

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

from sawhorse_model.labels import (
    HOSTNAME,
    INITIALIZED,
    INSTANCE_TYPE,
    MIN_VALUES_RELAXED,
    NODEPOOL,
    NODEPOOL_HASH,
    NODEPOOL_HASH_VERSION,
    REGISTERED,
    TERMINATION_FINALIZER,
    WELL_KNOWN,
)
from sawhorse_model.manifests.fields import taint_to_raw
from sawhorse_model.meta import ObjectMeta, OwnerReference
from sawhorse_model.nodeclaim import NodeClaim
from sawhorse_model.nodepool import NodePool
from sawhorse_model.requirements import LARGEST_INTEGER, Operator, Requirement, RequirementSpec
from sawhorse_model.resources import add
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_scheduling.plan import PlannedNode

HASH_VERSION = "sawhorse-v1"

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes: no vowels, so no words
_LONGEST_PREFIX = 57  # with dash and five characters it still is a label value


def claim_name(pool: str) -> str:
    """A new name for a claim of a pool."""
    return f"{pool[:_LONGEST_PREFIX].rstrip('-.')}-{''.join(secrets.choice(_ALPHABET) for _ in range(5))}"


def claim_from_plan(
    planned: PlannedNode, pool: NodePool, class_labels: Mapping[str, str], words: NodeClassWords, *, name: str
) -> NodeClaim:
    """The claim for a planned node.

    Args:
        class_labels: labels that every node of the pool's NodeClass carries.
    """
    template = pool.template
    well_known = WELL_KNOWN | words.well_known
    custom = {
        key: value
        for key, requirement in planned.requirements.items()
        if key not in well_known and not _is_reserved(key, words) and (value := concrete_value(requirement)) is not None
    }
    labels = {
        **custom,
        **template.labels,
        **class_labels,
        NODEPOOL: pool.meta.name,
        words.label: template.node_class_ref.name,
    }
    return NodeClaim(
        meta=ObjectMeta(
            name=name,
            labels=labels,
            annotations={
                **template.annotations,
                NODEPOOL_HASH: pool_hash(pool),
                NODEPOOL_HASH_VERSION: HASH_VERSION,
                MIN_VALUES_RELAXED: "true" if planned.relaxed else "false",
            },
            finalizers=(TERMINATION_FINALIZER,),
            owners=(
                OwnerReference("karpenter.sh/v1", "NodePool", pool.meta.name, pool.meta.uid, block_owner_deletion=True),
            ),
        ),
        node_class_ref=template.node_class_ref,
        requirements=_requirements(planned, words),
        requests=add(
            planned.requests,
            planned.daemon_requests if planned.least_daemon_requests is None else planned.least_daemon_requests,
        ),
        taints=template.taints,
        startup_taints=template.startup_taints,
        expire_after=template.expire_after,
        termination_grace_period=template.termination_grace_period,
    )


def _requirements(planned: PlannedNode, words: NodeClassWords) -> tuple[RequirementSpec, ...]:
    """What the API may hold: the plan's own wishes, types cheapest first. Reserved keys travel as labels."""
    rest = planned.requirements.without(INSTANCE_TYPE, HOSTNAME, REGISTERED, INITIALIZED, NODEPOOL, words.label)
    minimum = planned.requirements.get_or_any(INSTANCE_TYPE).min_values
    types = RequirementSpec(INSTANCE_TYPE, Operator.IN, planned.instance_types, minimum)
    return (*rest.to_specs(), types)


def _is_reserved(key: str, words: NodeClassWords) -> bool:
    return key in (HOSTNAME, REGISTERED, INITIALIZED, NODEPOOL, words.label)


def concrete_value(requirement: Requirement) -> str | None:
    """One value for a label that the pool leaves open; None when the label must not be there.

    Listed values: the first in order. Numbers: the lowest that is allowed. Anything else: a short fixed word.
    """
    if not requirement.complement:
        return min(requirement.values, default=None)
    if requirement.low is not None or requirement.high is not None:
        low = requirement.low if requirement.low is not None else min(0, requirement.high or 0)
        high = requirement.high if requirement.high is not None else LARGEST_INTEGER
        return next(
            (str(n) for n in range(low, min(high, low + len(requirement.values)) + 1) if requirement.has(str(n))), None
        )
    return next(str(n) for n in range(len(requirement.values) + 1) if requirement.has(str(n)))


def pool_hash(pool: NodePool) -> str:
    """Hash of the template without its requirements, as decimal text. Order of lists and maps does not matter."""
    template = pool.template
    ref = template.node_class_ref
    static: dict[str, Any] = {
        "labels": dict(template.labels),
        "annotations": dict(template.annotations),
        "taints": sorted(json.dumps(taint_to_raw(t), sort_keys=True) for t in template.taints),
        "startupTaints": sorted(json.dumps(taint_to_raw(t), sort_keys=True) for t in template.startup_taints),
        "nodeClassRef": [ref.group, ref.kind, ref.name],
        "expireAfter": template.expire_after.total_seconds() if template.expire_after is not None else None,
        "terminationGracePeriod": template.termination_grace_period.total_seconds()
        if template.termination_grace_period is not None
        else None,
    }
    text = json.dumps({k: v for k, v in static.items() if v not in (None, {}, [])}, sort_keys=True)
    return str(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))
