"""What keeps a machine from becoming a node, in words: for the Event of a claim that is given up, and for a person.

Also the hook that fills in which partition of a placement group a machine was put into.
"""

import asyncio

import structlog

from sawhorse_cloud.cloud import Cloud, InstanceState
from sawhorse_kube.kinds import NODECLAIM
from sawhorse_model.meta import find_condition
from sawhorse_model.node import Node
from sawhorse_model.nodeclaim import REGISTERED, NodeClaim
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_provisioner.writes import Writer
from sawhorse_runtime.errors import describe

log = structlog.get_logger(__name__)

_LONGEST = 10.0
_CHECK = (
    "it runs, but no node has joined: check spec.userData, the image, whether the node's role may join the cluster, "
    "and whether the subnet reaches the API server"
)


async def why_not_joined(claim: NodeClaim, cloud: Cloud, state: ClusterState) -> str:
    """Why a launched claim has no registered node, as well as can be told; one line, never an error."""
    instance_id = claim.instance_id
    if nodes := state.nodes_of(claim.provider_id):
        condition = find_condition(claim.conditions, REGISTERED)
        told = f": {condition.message}" if condition is not None and condition.message else ""
        return f"node {nodes[0].meta.name} of instance {instance_id} has joined, but was not taken in{told}"
    try:
        async with asyncio.timeout(_LONGEST):
            instance = (await cloud.describe([instance_id])).get(instance_id)
    except Exception as error:
        return (
            f"no node of instance {instance_id} has joined, and the cloud does not tell its state ({describe(error)})"
        )
    if instance is None:
        return f"instance {instance_id} does not exist any more"
    if instance.state is not InstanceState.RUNNING:
        return f"instance {instance_id} is {instance.state.value}"
    return f"instance {instance_id}: {_CHECK}"


class PartitionHook:
    """Keeps a node closed until it is known in which partition of its placement group it runs.

    Pods may ask for a partition by label, so no pod may come before the label is there.
    """

    name = "PlacementGroup"

    def __init__(self, *, cloud: Cloud, writer: Writer, words: NodeClassWords) -> None:
        self._cloud = cloud
        self._writer = writer
        self._words = words

    async def __call__(self, claim: NodeClaim, node: Node) -> bool:
        """Whether the partition is known or there is none; what is found out is written onto the claim.

        Raises:
            CloudError: the cloud could not be asked.
            KubeError: the label was not written.
        """
        labels, words = claim.meta.labels, self._words
        if not words.partition or not labels.get(words.placement_group) or labels.get(words.partition):
            return True
        instance = (await self._cloud.describe([claim.instance_id])).get(claim.instance_id)
        if instance is None or not instance.partition:
            # An empty label is one that waits to be filled; without any the group may have no partitions.
            return words.partition not in labels
        await self._writer.annotate(NODECLAIM, claim, {}, labels={words.partition: instance.partition})
        log.info("partition found", nodeclaim=claim.meta.name, node=node.meta.name, partition=instance.partition)
        return True
